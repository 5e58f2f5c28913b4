//! Runs that are stopped and resumed give the bits of runs that are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use fedelity_experiment::{Checkpoints, Document, Observer, Outcome, Resources, Run, StopSign, Study};
use fedelity_fl::Finished;
use fedelity_record::{RoundRecord, RunFolder, Seconds, names, salvage_rounds};
use fedelity_sim::{Keeper, Progress, Simulation};

use crate::bits::{server, write_table};

const STUDY: &str = "rounds = 4\n[data]\nname = \"csv\"\ntrain = \"small.csv\"\n[partition]\nclients = 4\n\
                     [clients]\nper-round = 3\nepochs = 1\nbatch = 20\n[model]\nname = \"mlp\"\nprojection = true\n";

/// Stops a round when this many clients have finished.
struct StopAfter {
    most: usize,
    done: Mutex<Vec<Finished>>,
}

impl Keeper for StopAfter {
    fn finished(&self, done: &Finished, _: Duration) {
        self.done.lock().unwrap().push(done.clone());
    }

    fn stop(&self) -> bool {
        self.done.lock().unwrap().len() >= self.most
    }
}

fn study(folder: &Path, method: &str, sets: &[&str]) -> Study {
    let mut document = Document::parse("study.toml".to_string(), folder.to_path_buf(), STUDY).unwrap();
    document.set(&format!("method.name={method}")).unwrap();
    server(method).iter().chain(sets).for_each(|set| document.set(set).unwrap());
    Study::load_with(&document, &Resources::default()).unwrap()
}

fn without_time(record: RoundRecord) -> RoundRecord {
    RoundRecord { seconds: Seconds::default(), ..record }
}

/// Every method, and what the server adds: each round is stopped after one client and again after two, and the
/// simulation is rebuilt each time.
#[test]
fn every_method_resumes_within_every_round() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let methods = fedelity_methods::entries().iter().map(|entry| (entry.id, &[][..]));
    let noise = ["clients.weighting=uniform", "server.clip-update=0.1", "privacy.noise=0.5", "privacy.at=client"];
    let servers: [(&str, &[&str]); 9] = [
        ("fedavg", &["server.optimizer=fedadam"]),
        ("fedavg", &["server.optimizer=fedyogi"]),
        ("scaffold", &["server.optimizer=fedavgm"]),
        ("fedntd", &["server.rule=median"]),
        ("scaffold", &["faults.twice=0.5", "faults.attack=sign-flip"]),
        ("moon", &["faults.non-finite=0.3", "faults.attack=label-flip", "server.quorum=0.3"]),
        ("fedntd", &["server.rule=krum", "server.byzantine=0", "server.clip-update=0.1"]),
        ("fedgkd", &noise[..3]),
        ("moon", &noise),
    ];
    for (method, sets) in methods.chain(servers) {
        let study = study(dir.path(), method, sets);
        let experiment = |threads| study.experiment(&study.settings.methods[0], 1, threads);
        let mut whole = Simulation::new(experiment(2)).unwrap();
        let mut records: Vec<RoundRecord> = Vec::new();
        let mut simulation = Simulation::new(experiment(1)).unwrap();
        while !whole.done() {
            let expected = without_time(whole.step().unwrap());
            let mut kept = Vec::new();
            for most in [1, 1] {
                let keeper = StopAfter { most, done: Mutex::default() };
                assert!(simulation.step_from(kept.clone(), &keeper).unwrap().is_none(), "{method}");
                kept.extend(keeper.done.into_inner().unwrap());
                let progress = Progress {
                    server: simulation.server().clone(),
                    memories: simulation.memories().clone(),
                    features: simulation.local_features().map(<[f32]>::to_vec),
                };
                simulation = Simulation::resume(experiment(1), progress, &records).unwrap();
            }
            assert_eq!(kept.len(), 2);
            let found = without_time(simulation.step_from(kept, &()).unwrap().unwrap());
            assert_eq!(found, expected, "{method} {sets:?}");
            records.push(found);
        }
        assert_eq!(simulation.global().hash(), whole.global().hash());
        assert_eq!(simulation.features(), whole.features());
    }
}

/// Stops a run after some rounds.
#[derive(Default)]
struct Watcher {
    stop_after: Option<u64>,
    checkpoints: Checkpoints,
    sign: StopSign,
    notes: Vec<String>,
    started: Vec<usize>,
    rounds: Vec<u64>,
}

impl Observer for Watcher {
    fn start(&mut self, _: &Run<'_>, _: &RunFolder, rounds: usize) -> Result<(), fedelity_experiment::FrontError> {
        self.started.push(rounds);
        Ok(())
    }

    fn round(&mut self, _: &Run<'_>, record: &RoundRecord) -> Result<(), fedelity_experiment::FrontError> {
        self.rounds.push(record.round);
        if self.stop_after == Some(record.round) {
            self.sign.ask();
        }
        Ok(())
    }

    fn end(&mut self, _: &Run<'_>, _: &Outcome) {}

    fn note(&mut self, note: &str) {
        self.notes.push(note.to_string());
    }

    fn checkpoints(&self) -> Checkpoints {
        self.checkpoints
    }

    fn stop(&self) -> StopSign {
        self.sign.clone()
    }
}

/// The files of a run that must be the same, whatever happened.
fn contents(folder: &Path) -> (Vec<u8>, Vec<RoundRecord>, Option<Vec<u8>>) {
    let rounds = salvage_rounds(&folder.join(names::ROUNDS)).unwrap();
    assert_eq!(rounds.problems, Vec::<String>::new());
    let model = fs::read(folder.join(names::MODEL)).unwrap();
    (model, rounds.rounds.into_iter().map(without_time).collect(), fs::read(folder.join(names::FEATURES)).ok())
}

/// The files of a run that is never stopped.
fn undisturbed(study: &Study, dir: &Path) -> (Vec<u8>, Vec<RoundRecord>, Option<Vec<u8>>) {
    let whole = study.folder(Some(&dir.join("whole"))).unwrap();
    study.run(&whole, 2, &mut ()).unwrap();
    contents(whole.path())
}

fn states(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder.join("checkpoint"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "state"))
        .collect();
    found.sort();
    found
}

#[test]
fn a_stopped_run_goes_on_and_a_damaged_checkpoint_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let study = study(dir.path(), "scaffold", &[]);
    let whole = study.folder(Some(&dir.path().join("whole"))).unwrap();
    study.run(&whole, 2, &mut ()).unwrap();
    let expected = contents(whole.path());
    assert_eq!(states(whole.path()).len(), 1, "only the last state stays");

    let folder = study.folder(Some(&dir.path().join("stopped"))).unwrap();
    let mut first = Watcher { stop_after: Some(3), ..Watcher::default() };
    study.run(&folder, 2, &mut first).unwrap();
    assert_eq!(states(folder.path()).len(), 2, "the newest state and one before it");
    // The newest state is damaged: the one before it is used.
    let newest = states(folder.path()).pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let mut second = Watcher::default();
    study.run(&folder, 1, &mut second).unwrap();
    assert_eq!(second.started, [1]);
    assert!(
        second.notes[0].contains("round-3.state: its checksum is wrong; an earlier checkpoint is used"),
        "{:?}",
        second.notes
    );
    assert_eq!(second.rounds, [2, 3, 4]);
    assert_eq!(contents(folder.path()), expected);
    // It has ended: nothing happens.
    let mut third = Watcher::default();
    study.run(&folder, 1, &mut third).unwrap();
    assert!(third.started.is_empty() && third.rounds.is_empty());

    // A memory that a state needs is missing or damaged.
    for (name, change) in [("gone", None), ("damaged", Some(60))] {
        let folder = study.folder(Some(&dir.path().join(name))).unwrap();
        study.run(&folder, 2, &mut Watcher { stop_after: Some(3), ..Watcher::default() }).unwrap();
        let mut memory = fs::read_dir(folder.path().join("checkpoint")).unwrap().map(|entry| entry.unwrap().path());
        let memory = memory.find(|path| path.to_string_lossy().ends_with("-3.memory")).unwrap();
        match change {
            None => fs::remove_file(&memory).unwrap(),
            Some(at) => {
                let mut bytes = fs::read(&memory).unwrap();
                bytes[at] ^= 1;
                fs::write(&memory, bytes).unwrap();
            }
        }
        let mut again = Watcher::default();
        study.run(&folder, 2, &mut again).unwrap();
        assert_eq!((again.started.as_slice(), again.notes.len()), (&[1][..], 1), "{:?}", again.notes);
        assert_eq!(contents(folder.path()), expected);
    }
}

#[test]
fn a_run_resumed_without_checkpoints_keeps_its_old_one_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let study = study(dir.path(), "scaffold", &[]);
    let expected = undisturbed(&study, dir.path());

    let folder = study.folder(Some(&dir.path().join("stopped"))).unwrap();
    let stopped = |after, checkpoints| {
        let mut watcher = Watcher { stop_after: after, checkpoints, ..Watcher::default() };
        study.run(&folder, 2, &mut watcher).unwrap();
        (watcher.started, watcher.rounds)
    };
    let names = || states(folder.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect::<Vec<_>>();
    stopped(Some(2), Checkpoints::Clients);
    // A state beyond the records cannot be used, by this run or a later one.
    let newest = folder.path().join("checkpoint/round-2.state");
    fs::copy(&newest, folder.path().join("checkpoint/round-4.state")).unwrap();
    assert_eq!(stopped(Some(3), Checkpoints::Off), (vec![2], vec![3]));
    assert_eq!(names(), ["round-2.state"]);
    // It was stopped again: it goes back to its checkpoint, whatever was recorded since.
    assert_eq!(stopped(Some(3), Checkpoints::Off), (vec![2], vec![3]));
    assert_eq!(stopped(None, Checkpoints::Off), (vec![2], vec![3, 4]));
    assert_eq!(contents(folder.path()), expected);
    assert!(!folder.path().join("checkpoint").exists(), "it has ended");
}

/// Without a checkpoint, a run that is prolonged starts over. If that is stopped, the record that there was is not lost.
#[test]
fn rounds_that_are_run_again_stay_recorded_until_the_run_ends() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let expected = undisturbed(&study(dir.path(), "scaffold", &["rounds=6"]), dir.path());
    let short = study(dir.path(), "scaffold", &[]);
    let folder = short.folder(Some(&dir.path().join("short"))).unwrap();
    short.run(&folder, 2, &mut ()).unwrap();
    let finished = fs::read(folder.file(names::ROUNDS)).unwrap();
    fs::remove_dir_all(folder.path().join("checkpoint")).unwrap();

    let long = study(dir.path(), "scaffold", &["rounds=6"]);
    let before = folder.file(names::BEFORE);
    for stop_after in [1, 2] {
        let mut watcher = Watcher { stop_after: Some(stop_after), ..Watcher::default() };
        long.run(&folder, 2, &mut watcher).unwrap();
        assert_eq!(salvage_rounds(&folder.file(names::ROUNDS)).unwrap().rounds.len() as u64, stop_after);
        assert_eq!(fs::read(&before).unwrap(), finished);
        let said = watcher.notes.concat();
        assert_eq!(
            said.contains("rounds-before.jsonl keeps the 4 rounds that are run again"),
            stop_after == 1,
            "{said}"
        );
    }
    long.run(&folder, 2, &mut ()).unwrap();
    assert!(!before.exists());
    assert_eq!(contents(folder.path()), expected);

    // A damaged line is named.
    let path = folder.file(names::ROUNDS);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\n{\"round\":2,", "\nx{\"round\":2,")).unwrap();
    let mut watcher = Watcher::default();
    long.run(&folder, 2, &mut watcher).unwrap();
    let said = watcher.notes.concat();
    assert!(said.contains("rounds.jsonl: line 3 left out") && said.contains("keeps the 5 rounds"), "{said}");
    assert_eq!(contents(folder.path()), expected);
}

/// Counts the states of a run while it goes on.
struct StateCounter {
    folder: PathBuf,
    most: usize,
}

impl Observer for StateCounter {
    fn round(&mut self, _: &Run<'_>, _: &RoundRecord) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let entries = fs::read_dir(self.folder.join("checkpoint")).into_iter().flatten().flatten();
        let states = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "state")).count();
        self.most = self.most.max(states);
        Ok(())
    }
}

/// The newest one, two that the disk has been waited for, and one that is just being replaced.
#[test]
fn few_states_are_on_disk_however_fast_rounds_are() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let study = study(dir.path(), "fedavg", &["rounds=60", "clients.epochs=1", "evaluation.metrics=fast"]);
    let folder = study.folder(Some(&dir.path().join("run"))).unwrap();
    let mut counter = StateCounter { folder: folder.path().to_path_buf(), most: 0 };
    study.run(&folder, 1, &mut counter).unwrap();
    assert!((2..=4).contains(&counter.most), "{}", counter.most);
}

/// A line of the records that cannot be read does not shift the lines that are kept.
#[test]
fn a_damaged_record_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let study = study(dir.path(), "fedavg", &[]);
    let expected = undisturbed(&study, dir.path());
    // In place of the header, between it and the rounds, and in place of a round.
    for (name, until, from, started) in
        [("header", 0, 1, 3), ("between", 1, 1, 3), ("last", 3, 4, 2), ("first", 1, 2, 0)]
    {
        let folder = study.folder(Some(&dir.path().join(name))).unwrap();
        // States of two rounds that follow each other: the disk is not waited for after each.
        study.run(&folder, 2, &mut Watcher { stop_after: Some(2), ..Watcher::default() }).unwrap();
        study.run(&folder, 2, &mut Watcher { stop_after: Some(3), ..Watcher::default() }).unwrap();
        let path = folder.file(names::ROUNDS);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(&path, [&lines[..until], &["{"], &lines[from..]].concat().join("\n") + "\n").unwrap();
        let mut watcher = Watcher::default();
        study.run(&folder, 2, &mut watcher).unwrap();
        assert_eq!(watcher.started, [started], "{name}");
        assert_eq!(contents(folder.path()), expected, "{name}");
        // A run that has ended gets its header back, too.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen('{', "\0", 1)).unwrap();
        study.run(&folder, 2, &mut ()).unwrap();
        assert_eq!(contents(folder.path()), expected, "{name}");
    }
}

#[test]
fn a_finished_run_is_prolonged() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    for method in ["moon", "fedgkd"] {
        let (short, long) = (study(dir.path(), method, &["rounds=2"]), study(dir.path(), method, &[]));
        let folder = short.folder(Some(&dir.path().join(method))).unwrap();
        short.run(&folder, 2, &mut ()).unwrap();
        let mut watcher = Watcher::default();
        long.run(&folder, 2, &mut watcher).unwrap();
        assert_eq!((watcher.started, watcher.rounds), (vec![2], vec![3, 4]));
        let whole = long.folder(Some(&dir.path().join(format!("{method}-whole")))).unwrap();
        long.run(&whole, 2, &mut ()).unwrap();
        assert_eq!(contents(folder.path()).0, contents(whole.path()).0);
        let error = short.run(&folder, 2, &mut ()).err().unwrap().to_string();
        assert!(error.contains("rounds = 2: the run already has 4 rounds; rounds may be 4 or more"), "{error}");
    }
}

/// What a power cut may leave: the rounds are run again, and it is said.
#[test]
fn a_record_without_a_line_is_run_again_with_a_word() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let study = study(dir.path(), "scaffold", &[]);
    let expected = undisturbed(&study, dir.path());
    for (name, left) in [("empty", vec![]), ("zeros", vec![0; 5_000])] {
        let folder = study.folder(Some(&dir.path().join(name))).unwrap();
        study.run(&folder, 2, &mut Watcher { stop_after: Some(2), ..Watcher::default() }).unwrap();
        fs::write(folder.file(names::ROUNDS), left).unwrap();
        let mut watcher = Watcher::default();
        study.run(&folder, 2, &mut watcher).unwrap();
        assert_eq!(watcher.started, [0], "{name}");
        assert!(watcher.notes[0].contains("the run starts over"), "{:?}", watcher.notes);
        assert_eq!(contents(folder.path()), expected, "{name}");
    }
}

/// A study that cannot go on as told is as it was: its configuration, too.
#[test]
fn a_study_that_cannot_be_shortened_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let seeds = "seeds=[1, 2]";
    let folder = study(dir.path(), "fedavg", &[seeds]).folder(Some(&dir.path().join("study"))).unwrap();
    study(dir.path(), "fedavg", &[seeds]).run(&folder, 2, &mut ()).unwrap();
    let config = fs::read(folder.file(names::CONFIG)).unwrap();
    let error = study(dir.path(), "fedavg", &[seeds, "rounds=2"]).run(&folder, 2, &mut ()).err().unwrap().to_string();
    assert!(error.contains("seed-1: rounds = 2: the run already has 4 rounds"), "{error}");
    assert_eq!(fs::read(folder.file(names::CONFIG)).unwrap(), config);
    study(dir.path(), "fedavg", &[seeds]).run(&folder, 2, &mut ()).unwrap();
}

#[test]
fn another_run_is_not_resumed_and_nobody_shares_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let one = study(dir.path(), "fedavg", &[]);
    let folder = one.folder(Some(&dir.path().join("run"))).unwrap();
    one.run(&folder, 2, &mut Watcher { stop_after: Some(2), ..Watcher::default() }).unwrap();
    let refused = |study: &Study| study.run(&folder, 2, &mut ()).err().unwrap().to_string();
    let other = refused(&study(dir.path(), "fedprox", &[]));
    assert!(other.contains("its method was fedavg and is now fedprox"), "{other}");
    let other = refused(&study(dir.path(), "fedavg", &["partition.seed=9"]));
    assert!(other.contains("its partition was"), "{other}");
    let lock = fedelity_files::Lock::acquire(folder.path()).unwrap();
    let held = refused(&one);
    assert!(held.contains("is writing to this folder"), "{held}");
    drop(lock);
    // Settings that the record does not name: the checkpoint is not this run's.
    let changed = refused(&study(dir.path(), "fedavg", &["optimizer.lr=0.5"]));
    assert!(changed.contains("round-2.state: it belongs to another run, or the configuration"), "{changed}");
    // Without any checkpoint it starts over.
    fs::remove_dir_all(folder.path().join("checkpoint")).unwrap();
    let mut watcher = Watcher::default();
    one.run(&folder, 2, &mut watcher).unwrap();
    assert_eq!((watcher.started, watcher.rounds), (vec![0], vec![1, 2, 3, 4]));
    assert!(watcher.notes[0].contains("the run starts over"), "{:?}", watcher.notes);
}
