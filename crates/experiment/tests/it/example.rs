//! The program in `examples/run_file.rs` does the same as `fedelity run FILE`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fedelity_experiment::{Document, Study};
use fedelity_record::names;

const CONFIG: &str = "rounds = 2\nseeds = [1, 2]\n[partition]\nclients = 5\n[clients]\nepochs = 1\nper-round = 2\n\
                      [model]\nname = \"logistic\"\n[method]\nname = \"fedntd\"\n";

/// The example, which cargo builds alongside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples/run_file")
        .with_extension(std::env::consts::EXE_EXTENSION)
}

#[test]
fn fifteen_lines_run_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("study.toml");
    fs::write(&file, CONFIG).unwrap();
    let program = program();
    assert!(program.is_file(), "{}: build it with cargo build --examples", program.display());
    let output = Command::new(program).arg(&file).current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = dir.path().join(text.lines().last().unwrap().strip_prefix("Results are in ").unwrap());
    // The same study through the library, with another number of threads.
    let study = Study::load(&Document::read(&file).unwrap()).unwrap();
    let own = study.folder(Some(&dir.path().join("own"))).unwrap();
    let ended = study.run(&own, 1, &mut ()).unwrap();
    assert_eq!((ended.groups.len(), ended.groups[0].runs.len()), (1, 2));
    for seed in [1, 2] {
        let at = |root: &Path, name: &str| fs::read(root.join(format!("fedntd/seed-{seed}/{name}"))).unwrap();
        for name in [names::MODEL, names::CONFIG, names::PARTITION] {
            assert_eq!(at(&folder, name), at(own.path(), name), "{name}");
        }
        let accuracy =
            ended.groups[0].runs.iter().find(|run| run.header.seed == seed).unwrap().summary.final_accuracy.unwrap();
        assert!(text.contains(&format!("fedntd, seed {seed}: {:.2} %\n", 100.0 * accuracy)), "{text}");
    }
}
