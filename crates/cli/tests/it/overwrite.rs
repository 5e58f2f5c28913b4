//! No command replaces a file that it did not write.

use std::fs;

use crate::place::Place;

const MINE: &str = "mine, and precious";

#[test]
fn files_of_the_user_are_kept() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "a"]).code, 0);
    let commands: &[(&str, &[&str])] = &[
        ("page.toml", &["report", "a", "-o", "page.toml"]),
        ("report.html", &["report", "a"]),
        ("rounds.csv", &["runs", "export", "a", "--csv", "rounds.csv"]),
        ("model.onnx", &["export", "a", "--onnx", "model.onnx"]),
        ("model.safetensors", &["export", "a", "--safetensors", "model.safetensors"]),
        ("split.json", &["partition", "-o", "split.json"]),
        ("sheet.png", &["data", "show", "fashion-mnist-mini", "--sheet", "sheet.png"]),
        ("sheet.svg", &["data", "show", "fashion-mnist-mini", "--sheet", "sheet.svg"]),
    ];
    for (file, command) in commands {
        place.write(file, MINE);
        place.refuses(command, &[&format!("{file}: the file exists; --overwrite replaces it")]);
        assert_eq!(place.read(file), MINE.as_bytes(), "{command:?}");
        let answer = place.call(&[command, &["--overwrite"][..]].concat());
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.err);
        assert_ne!(place.read(file), MINE.as_bytes(), "{command:?}");
    }
    // Its own page is replaced; a page that somebody else wrote is not.
    assert_eq!(place.call(&["report", "a"]).code, 0);
    place.write("report.html", "<!doctype html>\n<title>Fedelity report</title>\n");
    place.refuses(&["report", "a"], &["-o report.html: the file exists"]);
}

#[test]
fn figures_are_all_written_or_none() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "a"]).code, 0);
    assert_eq!(place.call(&["report", "a", "--figures", "first"]).code, 0);
    let one = crate::place::files(&place.path("first")).pop().unwrap();
    fs::create_dir(place.path("f")).unwrap();
    place.write(&format!("f/{one}"), MINE);
    place.write("f/notes.txt", MINE);
    let args = ["report", "a", "--figures", "f"];
    place.refuses(&args, &["--figures f: 1 file already there", &one, "--overwrite"]);
    assert_eq!(crate::place::files(&place.path("f")).len(), 2, "nothing is written");
    assert_eq!(place.call(&[&args[..], &["--overwrite"]].concat()).code, 0);
    assert_eq!(place.read("f/notes.txt"), MINE.as_bytes());
    assert_eq!(crate::place::files(&place.path("f")).len(), crate::place::files(&place.path("first")).len() + 1);
}

/// A link that leads nowhere is something that the user made.
#[cfg(unix)]
#[test]
fn links_are_kept() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "a"]).code, 0);
    std::os::unix::fs::symlink("nowhere", place.path("x.csv")).unwrap();
    place.refuses(&["runs", "export", "a", "--csv", "x.csv"], &["--csv x.csv: the file exists"]);
    assert!(!place.path("nowhere").exists());
}

#[test]
fn a_sweep_keeps_folders_that_are_not_its_own() {
    let place = Place::new();
    let sweep =
        "[set]\nrounds = 1\n\"partition.clients\" = 5\n\"clients.per-round\" = 2\n\"model.name\" = \"logistic\"\n";
    place.write("sweep.toml", sweep);
    fs::create_dir_all(place.path("out/run/seed-1")).unwrap();
    place.write("out/run/seed-1/thesis.txt", MINE);
    let answer = place.call(&["sweep", "sweep.toml", "-o", "out"]);
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains("out/run/seed-1 already exists"), "{}", answer.err);
    assert_eq!(place.read("out/run/seed-1/thesis.txt"), MINE.as_bytes());
}
