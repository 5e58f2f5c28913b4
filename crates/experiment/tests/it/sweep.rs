//! Sweeps within the process.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use fedelity_experiment::{
    Document, FrontError, Job, JobEnd, JobState, Resources, StopSign, Study, Sweep, SweepObserver, SweepStatus,
};
use fedelity_record::RoundRecord;

const SWEEP: &str = "seeds = [1, 2]\n[set]\nrounds = 2\n\"partition.clients\" = 5\n\"clients.epochs\" = 1\n\
                     \"clients.per-round\" = 2\n\"model.name\" = \"logistic\"\n[grid]\n\"method.name\" = [\"fedavg\", \"fedntd\"]\n";

#[derive(Default)]
struct Seen {
    rounds: Mutex<usize>,
    ends: Mutex<Vec<&'static str>>,
    stop_after: Option<usize>,
    sign: StopSign,
}

impl SweepObserver for Seen {
    fn round(&self, _: &Job, _: &RoundRecord, _: usize) {
        let mut rounds = self.rounds.lock().unwrap();
        *rounds += 1;
        if self.stop_after.is_some_and(|most| *rounds >= most) {
            self.sign.ask();
        }
    }

    fn end(&self, _: &Job, end: &JobEnd) -> Result<(), FrontError> {
        self.ends.lock().unwrap().push(match end {
            JobEnd::Before(_) => "before",
            JobEnd::Now(_) => "now",
            JobEnd::Elsewhere(_) => "elsewhere",
            JobEnd::Failed(_) => "failed",
            JobEnd::Interrupted => "interrupted",
        });
        Ok(())
    }

    fn stop(&self) -> StopSign {
        self.sign.clone()
    }
}

fn sweep(dir: &Path, text: &str) -> Result<Sweep, String> {
    let file = dir.join("sweep.toml");
    fs::write(&file, text).unwrap();
    Sweep::read(&file, &dir.join("out"), &[], |_| Ok(())).map_err(|error| error.to_string())
}

#[test]
fn a_sweep_resumes_where_it_stopped_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let resources = Resources::default();
    let sweep = sweep(dir.path(), SWEEP).unwrap();
    assert_eq!(sweep.jobs.len(), 4);
    let stopped = Seen { stop_after: Some(3), ..Seen::default() };
    sweep.run(1, &resources, &stopped).unwrap();
    assert_eq!(*stopped.ends.lock().unwrap(), ["now", "interrupted"]);
    assert_eq!(sweep.jobs.iter().filter(|job| sweep.state(job) == JobState::Done).count(), 1);
    let rest = Seen::default();
    sweep.run(2, &resources, &rest).unwrap();
    let mut ends = rest.ends.lock().unwrap().clone();
    ends.sort_unstable();
    assert_eq!(ends, ["before", "now", "now", "now"]);
    // The interrupted run goes on after its first round.
    assert_eq!(*rest.rounds.lock().unwrap(), 5);
    // A run in a sweep equals a separate run of the same configuration.
    let folder = sweep.folder(&sweep.jobs[3]);
    let document = fedelity_experiment::Document::read(&folder.join("config.toml")).unwrap();
    let study = fedelity_experiment::Study::load(&document).unwrap();
    let own = study.folder(Some(&dir.path().join("own"))).unwrap();
    study.run(&own, 2, &mut ()).unwrap();
    let model = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    assert_eq!(model(own.path()), model(&folder));
}

/// Data used by several runs are read once: the second run finds them even after the file is gone.
#[test]
fn data_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    let rows: String = (0..40).map(|i| format!("{},{}\n", i % 2, i)).collect();
    fs::write(&table, format!("label,x\n{rows}")).unwrap();
    let text = format!(
        "{SWEEP}[[list]]\n\"data.name\" = \"csv\"\n\"data.train\" = \"{}\"\n\"partition.kind\" = \"iid\"\n",
        table.display()
    );
    let sweep = sweep(dir.path(), &text).unwrap();
    struct Remover(std::path::PathBuf, Seen);
    impl SweepObserver for Remover {
        fn end(&self, job: &Job, end: &JobEnd) -> Result<(), FrontError> {
            let _ = fs::remove_file(&self.0);
            self.1.end(job, end)
        }
    }
    let seen = Remover(table, Seen::default());
    sweep.run(1, &Resources::default(), &seen).unwrap();
    assert_eq!(*seen.1.ends.lock().unwrap(), ["now"; 4]);
}

#[test]
fn every_run_is_checked_before_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |text: &str| sweep(dir.path(), text).err().unwrap();
    let text = refused("[grid]\n\"method.name\" = [\"fedavg\", \"fedntt\"]\n");
    assert!(text.contains("method.name=\"fedntt\"") && text.contains("did you mean 'fedntd'?"), "{text}");
    assert!(refused("[set]\nrundes = 3\n").contains("did you mean 'rounds'?"));
    assert!(refused("config = \"nowhere.toml\"\n").contains("no such file"));
    assert!(refused("sedes = [1]\n").contains("unknown key 'sedes', did you mean 'seeds'?"));
    assert!(!dir.path().join("out").exists());
}

/// Errors name the sweep file and the line and column of the value.
#[test]
fn errors_in_a_sweep_point_into_its_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("base.toml"), "rounds = 3\n").unwrap();
    fs::write(dir.path().join("wrong.toml"), "rounds = 3\n[clients]\nbatch = 0\n").unwrap();
    let several = "[[method]]\nname = \"fedavg\"\n[[method]]\nname = \"fedntd\"\n";
    fs::write(dir.path().join("several.toml"), several).unwrap();
    let at = |line: usize, column: usize| format!("{}:{line}:{column}: ", dir.path().join("sweep.toml").display());
    for (text, line, column, said) in [
        ("[set]\nrounds = 2\nclients.epochs = 0\n", 3, 9, "clients.epochs = 0: expected"),
        ("[set]\n\"clientz.epochs\" = 1\n", 2, 1, "unknown key 'clientz', did you mean 'clients'?"),
        ("[grid]\n\"partition.alpha\" = [0.1,\n  0.0]\n", 3, 3, "partition.alpha = 0.0: expected"),
        ("[[list]]\nrounds = 1\n[[list]]\nrounds = 0\n", 4, 1, "rounds = 0: expected"),
        ("[grid]\nrounds = [1, 2]\nseeds = [[1], [2]]\n", 3, 10, "seeds=[1]: seeds go at the top of the file"),
        ("[set]\nrounds = 2\nrounds-x = 3\n", 3, 1, "unknown key 'rounds-x'"),
        ("config = \"several.toml\"\n[grid]\n\"method.name\" = [\"fedavg\"]\n", 3, 18, "write one [method] there"),
        ("config = \"several.toml\"\n", 1, 1, "write one [method] there"),
    ] {
        let error = sweep(dir.path(), text).err().unwrap();
        assert!(error.starts_with(&at(line, column)) && error.contains(said), "{text:?}: {error}");
        assert!(!error.contains("--set"), "{error}");
    }
    let error = sweep(dir.path(), "config = \"wrong.toml\"\n[set]\nrounds = 2\n").err().unwrap();
    assert!(
        error.contains("wrong.toml:3:1: clients.batch = 0") && error.contains("sweep.toml with rounds=2)"),
        "{error}"
    );
}

/// Paths in a sweep file start from its folder, those in the base file from that file's.
#[test]
fn paths_start_from_the_file_that_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String = (0..40).map(|i| format!("{},{}\n", i % 2, i)).collect();
    for folder in ["base", "own"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        fs::write(dir.path().join(folder).join("t.csv"), format!("label,x\n{rows}")).unwrap();
    }
    let base = "rounds = 1\n[data]\nname = \"csv\"\ntrain = \"t.csv\"\n[partition]\nkind = \"iid\"\nclients = 4\n\
                [model]\nname = \"logistic\"\n";
    fs::write(dir.path().join("base/base.toml"), base).unwrap();
    let of_sweep = [
        ("", "base"),
        ("[set]\n\"data.train\" = \"own/t.csv\"\n", "own"),
        ("[grid]\n\"data.train\" = [\"own/t.csv\"]\n", "own"),
        ("[[list]]\ndata.train = \"own/t.csv\"\n", "own"),
    ];
    for (text, folder) in of_sweep {
        let sweep = sweep(dir.path(), &format!("config = \"base/base.toml\"\n{text}")).unwrap();
        let seen = Seen::default();
        sweep.run(1, &Resources::default(), &seen).unwrap();
        assert_eq!(*seen.ends.lock().unwrap(), ["now"], "{text:?}");
        let config = fs::read_to_string(sweep.folder(&sweep.jobs[0]).join("config.toml")).unwrap();
        let train = dir.path().join(folder).join("t.csv");
        assert!(config.contains(&format!("train = \"{}\"", train.display())), "{config}");
        fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}

/// A run counts as done only while what it was made from is the same.
#[test]
fn a_run_of_other_data_or_another_version_is_not_done() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    let write = |shift: usize| {
        let rows: String = (0..40).map(|i| format!("{},{}\n", i % 2, i * i * shift + i)).collect();
        fs::write(&table, format!("label,x\n{rows}")).unwrap();
    };
    write(0);
    let text = format!(
        "{SWEEP}[[list]]\n\"data.name\" = \"csv\"\n\"data.train\" = \"{}\"\n\"partition.kind\" = \"iid\"\n",
        table.display()
    );
    let ends = |text: &str| {
        let sweep = sweep(dir.path(), text).unwrap();
        let seen = Seen::default();
        sweep.run(2, &Resources::default(), &seen).unwrap();
        let why = sweep.obstacle(&sweep.jobs[0]);
        (seen.ends.into_inner().unwrap(), why)
    };
    assert_eq!(ends(&text), (vec!["now"; 4], None));
    assert_eq!(ends(&text), (vec!["before"; 4], None));
    write(1);
    let (found, why) = ends(&text);
    assert_eq!(found, ["failed"; 4]);
    assert!(why.unwrap().contains("the data have changed since"));
    write(0);
    assert_eq!(ends(&text).0, ["before"; 4]);
    let stamp = fs::read_dir(dir.path().join("out")).unwrap().next().unwrap().unwrap().path().join("seed-1/sweep.json");
    let (version, text_of) = (env!("CARGO_PKG_VERSION"), fs::read_to_string(&stamp).unwrap());
    fs::write(&stamp, text_of.replace(&format!("\"fedelity\":\"{version}\""), "\"fedelity\":\"0.0.1\"")).unwrap();
    let sweep = sweep(dir.path(), &text).unwrap();
    sweep.check(&Resources::default()).unwrap();
    let why: Vec<String> = sweep.jobs.iter().filter_map(|job| sweep.obstacle(job)).collect();
    assert_eq!(why, ["it was made by version 0.0.1"]);
}

/// The order in which settings are given, and where files are, make no other run; other values do.
#[test]
fn settings_in_another_order_and_files_that_moved_are_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String = (0..40).map(|i| format!("{},{i}\n", i % 2)).collect();
    for name in ["a.csv", "moved.csv"] {
        fs::write(dir.path().join(name), format!("label,x\n{rows}")).unwrap();
    }
    let ends = |set: &[&str], stop_after| {
        let text = "seeds = [1, 2]\n[set]\n\"partition.kind\" = \"iid\"\n\"partition.clients\" = 4\n";
        let file = dir.path().join("sweep.toml");
        fs::write(&file, text).unwrap();
        let set: Vec<String> = set.iter().map(|one| one.replace("DIR", &dir.path().display().to_string())).collect();
        let sweep = Sweep::read(&file, &dir.path().join("out"), &set, |_| Ok(())).unwrap();
        let seen = Seen { stop_after, ..Seen::default() };
        sweep.run(1, &Resources::default(), &seen).unwrap();
        let why: Vec<String> = sweep.jobs.iter().filter_map(|job| sweep.obstacle(job)).collect();
        let stamp = fs::read_to_string(sweep.folder(&sweep.jobs[0]).join("sweep.json")).unwrap_or_default();
        let names = ["a.csv", "moved.csv"].iter().position(|name| stamp.contains(&format!("/{name}")));
        (seen.ends.into_inner().unwrap(), seen.rounds.into_inner().unwrap(), why, names)
    };
    let set = ["data.name=csv", "data.train=DIR/a.csv", "rounds=3", "model.name=logistic", "optimizer.lr=0.1"];
    assert_eq!(ends(&set, Some(2)), (vec!["interrupted"], 2, vec![], None));
    // In another order and from another file, the unfinished run goes on.
    let again =
        ["optimizer.lr=1e-1", "model.name=\"logistic\"", "rounds=3", "data.name=csv", "data.train=DIR/moved.csv"];
    assert_eq!(ends(&again, None), (vec!["now"; 2], 4, vec![], Some(1)));
    assert_eq!(ends(&set, None), (vec!["before"; 2], 0, vec![], Some(0)));
    let failed = |key: &str| (vec!["failed"; 2], 0, vec![format!("it has other settings: {key}"); 2], Some(0));
    let others = ["optimizer.lr=0.2", "model.name=logistic", "rounds=3", "data.name=csv", "data.train=DIR/a.csv"];
    assert_eq!(ends(&others, None), failed("optimizer.lr is 0.1, not 0.2"));
    let longer = ["optimizer.lr=0.1", "model.name=logistic", "rounds=4", "data.name=csv", "data.train=DIR/a.csv"];
    assert_eq!(ends(&longer, None), failed("rounds is 3, not 4"));
}

/// A run of a sweep that was prolonged is another one, also while it is unfinished: it neither counts as done nor is it run again.
#[test]
fn a_prolonged_run_of_a_sweep_is_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = sweep(dir.path(), SWEEP).unwrap();
    let ends = || {
        let seen = Seen::default();
        sweep.run(1, &Resources::default(), &seen).unwrap();
        seen.ends.into_inner().unwrap()
    };
    assert_eq!(ends(), ["now"; 4]);
    let folder = sweep.folder(&sweep.jobs[0]);
    let prolong = |rounds: usize| {
        let config = folder.join("config.toml");
        let mut document = Document::read(&config).unwrap();
        document.set(&format!("rounds={rounds}")).unwrap();
        let study = Study::load_with(&document, &Resources::default()).unwrap();
        fs::write(&config, study.settings.resolved("partition.json")).unwrap();
    };
    prolong(3);
    assert_eq!(sweep.state(&sweep.jobs[0]), JobState::Taken);
    assert_eq!(sweep.obstacle(&sweep.jobs[0]).unwrap(), "it has other settings: rounds is 3, not 2");
    let rounds = fs::read(folder.join("rounds.jsonl")).unwrap();
    fs::remove_file(folder.join("summary.json")).unwrap();
    assert_eq!(ends(), ["failed", "before", "before", "before"]);
    assert_eq!(fs::read(folder.join("rounds.jsonl")).unwrap(), rounds);
    assert_eq!(SweepStatus::read(&sweep.results()).unwrap().done, 3);
    // As long as planned, but with an end that is missing, it goes on.
    prolong(2);
    assert_eq!(sweep.state(&sweep.jobs[0]), JobState::ToRun);
    assert_eq!(ends(), ["now", "before", "before", "before"]);
    assert_eq!(sweep.state(&sweep.jobs[0]), JobState::Done);
}
