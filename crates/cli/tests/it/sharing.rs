//! Several processes that share a sweep, and are killed, stopped and started again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Answer, Endless, Place};
use crate::resume::{contents, write_table};

/// Methods with state on the server or memory on clients, slow enough to be killed in the middle.
const SWEEP: &str = "seeds = [1, 2, 3]\n[set]\nrounds = 5\n\"data.name\" = \"csv\"\n\"data.train\" = \"t.csv\"\n\
                     \"partition.clients\" = 5\n\"clients.per-round\" = 3\n\"clients.epochs\" = 5\n\"clients.batch\" = 10\n\
                     \"model.name\" = \"mlp\"\n[grid]\n\"method.name\" = [\"fedavg\", \"scaffold\", \"fedgkd\"]\n";

/// A run that lasts until it is stopped.
const LONG: &str = "seeds = [1, 2]\n[set]\nrounds = 1000000\n\"partition.clients\" = 5\n\"clients.epochs\" = 1\n\
                    \"clients.per-round\" = 2\n\"model.name\" = \"logistic\"\n\"evaluation.metrics\" = \"fast\"\n";

/// Starts a command whose output goes to `NAME.out` and `NAME.err`, after what was there.
fn start(place: &Place, name: &str, args: &[&str]) -> Endless {
    let log = |ending: &str| File::options().append(true).create(true).open(place.path(&format!("{name}.{ending}")));
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("fedelity"));
    command.current_dir(place.0.path()).env_remove("FEDELITY_DATA").env_remove("FEDELITY_ISA").args(args);
    Endless(command.stdin(Stdio::null()).stdout(log("out").unwrap()).stderr(log("err").unwrap()).spawn().unwrap())
}

fn said(place: &Place, name: &str) -> String {
    let read = |ending: &str| fs::read_to_string(place.path(&format!("{name}.{ending}"))).unwrap_or_default();
    read("out") + &read("err")
}

/// Whatever else is said, the command cannot run, and says why.
fn fails(place: &Place, args: &[&str], reasons: &[&str]) {
    let answer = place.call(args);
    assert_eq!((answer.code, &*answer.out), (2, ""), "{}", answer.err);
    reasons.iter().for_each(|reason| assert!(answer.err.contains(reason), "{reason:?} in {}", answer.err));
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success(), "{name}");
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Every file and folder below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    entries.into_iter().flat_map(|path| [vec![path.clone()], below(&path)].concat()).collect()
}

/// The complete runs in a folder.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let is_run =
        |path: &PathBuf| path.join("sweep.json").exists() && path.file_name().unwrap().as_encoded_bytes()[0] != b'.';
    let mut runs: Vec<PathBuf> = below(folder).into_iter().filter(is_run).collect();
    runs.sort();
    runs
}

/// The same runs as in a sweep of one process, bit for bit, and nothing else.
fn is_same(place: &Place, shared: &str, whole: &str) {
    let (shared, whole) = (place.path(shared), place.path(whole));
    let names = |folder: &Path| -> Vec<PathBuf> {
        runs_in(folder).iter().map(|run| run.strip_prefix(folder).unwrap().to_path_buf()).collect()
    };
    assert_eq!(names(&shared), names(&whole));
    for run in names(&whole) {
        assert_eq!(contents(&shared.join(&run)), contents(&whole.join(&run)), "{}", run.display());
    }
    let strip = |folder: &Path| -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            below(folder).iter().map(|path| path.strip_prefix(folder).unwrap().to_path_buf()).collect();
        all.sort();
        all
    };
    assert_eq!(strip(&shared), strip(&whole), "nothing is left behind");
}

/// Runs that the processes say they have finished, and how often.
fn finished(place: &Place, names: &[String]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for name in names {
        let text = fs::read_to_string(place.path(&format!("{name}.out"))).unwrap_or_default();
        for line in text.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            assert_ne!(value["state"], "failed", "{line}");
            if value["state"] == "done" {
                *found.entry(value["folder"].as_str().unwrap().to_string()).or_default() += 1;
            }
        }
    }
    found
}

#[test]
fn four_processes_that_are_killed_and_stopped_run_everything_once() {
    let place = Place::new();
    write_table(&place);
    place.write("s.toml", SWEEP);
    let begun = Instant::now();
    assert_eq!(place.call(&["sweep", "s.toml", "-o", "whole", "-q"]).code, 0);
    // How often the four are disturbed, on average, while one could do all the work.
    let step = begun.elapsed() / 24;
    let mut random = 88_172_645_463_325_252_u64;
    let mut draw = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let (mut kills, mut stops) = (0, 0);
    // While one process is stopped, the others may do all that is left: then there is another sweep.
    for folder in (0..6).map(|n| format!("out{n}")) {
        let args = ["sweep", "s.toml", "-o", &folder, "--jobs", "1", "--json", "--takeover", "1"];
        let names: Vec<String> = (0..4).map(|n| format!("{folder}-p{n}")).collect();
        let mut processes: Vec<Endless> = names.iter().map(|name| start(&place, name, &args)).collect();
        let begun = Instant::now();
        while runs_in(&place.path(&folder)).len() < 9 {
            assert!(begun.elapsed() < Duration::from_secs(300), "{names:?}: {}", said(&place, &names[0]));
            thread::sleep(step.mul_f64(draw(2_000) as f64 / 1_000.0));
            let at = draw(4) as usize;
            if draw(4) == 0 {
                // Longer than the others are patient: it wakes up when its run is another's.
                signal(&processes[at].0, "-STOP");
                thread::sleep(Duration::from_millis(2_500));
                signal(&processes[at].0, "-CONT");
                stops += 1;
            } else {
                let _ = processes[at].0.kill();
                processes[at].0.wait().unwrap();
                processes[at] = start(&place, &names[at], &args);
                kills += 1;
            }
        }
        for (process, name) in processes.iter_mut().zip(&names) {
            assert_eq!(process.0.wait().unwrap().code(), Some(0), "{}", said(&place, name));
        }
        is_same(&place, &folder, "whole");
        let finished = finished(&place, &names);
        assert!(finished.values().all(|&times| times == 1), "{finished:?}");
        if kills + stops > 4 {
            return;
        }
    }
    panic!("{kills} kills, {stops} stops");
}

/// A process that sleeps while another takes over its run writes nothing any more.
#[test]
fn a_process_that_wakes_up_after_its_run_was_taken_over_stops_writing() {
    let place = Place::new();
    write_table(&place);
    place.write("s.toml", &SWEEP.replace("seeds = [1, 2, 3]", "seeds = [1]").replace("rounds = 5", "rounds = 100"));
    assert_eq!(place.call(&["sweep", "s.toml", "-o", "whole", "-q"]).code, 0);
    let mut first = start(&place, "first", &["sweep", "s.toml", "-o", "out", "--jobs", "3", "--takeover", "1"]);
    let rounds = || {
        let parts = below(&place.path("out")).into_iter().filter(|path| path.ends_with("rounds.jsonl"));
        parts.map(|path| fs::read_to_string(path).unwrap_or_default().lines().count()).min().unwrap_or(0)
    };
    wait_until("the first process trains", || rounds() > 3);
    signal(&first.0, "-STOP");
    let second = place.call(&["sweep", "s.toml", "-o", "out", "--jobs", "3"]);
    assert_eq!(second.code, 0, "{}", second.err);
    assert_eq!(second.err.matches("] done").count(), 3, "{}", second.err);
    let written: Vec<_> =
        below(&place.path("out")).iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
    signal(&first.0, "-CONT");
    assert_eq!(first.0.wait().unwrap().code(), Some(0));
    let told = said(&place, "first");
    assert_eq!(told.matches("another process has taken the run over").count(), 3, "{told}");
    assert_eq!(told.matches("] elsewhere").count(), 3, "{told}");
    assert!(told.contains("scaffold") && told.contains("final %"), "it prints the table too: {told}");
    let after: Vec<_> =
        below(&place.path("out")).iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
    assert_eq!(written, after);
    is_same(&place, "out", "whole");
}

#[test]
fn what_others_do_is_shown_and_what_they_give_back_goes_on() {
    let place = Place::new();
    place.write("s.toml", LONG);
    let mut first = start(&place, "first", &["sweep", "s.toml", "-o", "out", "--jobs", "2"]);
    let of = |number: u64, seed: u64| place.path(&format!("out/run/.seed-{seed}.{number}.part/rounds.jsonl"));
    let count = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    wait_until("the first process trains", || count(&of(1, 1)) > 3 && count(&of(1, 2)) > 3);
    // Nothing is left to start.
    let answer = place.call(&["sweep", "s.toml", "-o", "out", "--no-wait"]);
    assert_eq!((answer.code, &*answer.out), (0, ""), "{}", answer.err);
    assert!(answer.err.contains("Nothing is left to start; still running: 2 elsewhere ("), "{}", answer.err);
    let answer = place.call(&["sweep", "s.toml", "-o", "out", "--no-wait", "--json"]);
    let left: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((&left["left"], left["hosts"].as_array().unwrap().len()), (&Value::from(2), 1), "{}", answer.out);
    let process = format!("process {} on ", first.0.id());
    let answer = place.call(&["sweep", "s.toml", "-o", "out", "--dry-run"]);
    assert_eq!(answer.out.matches(&format!("({process}")).count(), 2, "{}", answer.out);
    let answer = place.call(&["sweep", "--status", "out"]);
    assert!(answer.out.starts_with("0 runs done, 2 running, 0 stale\n"), "{}", answer.out);
    assert!(answer.out.contains("last sign of life") && answer.out.contains(" ago"), "{}", answer.out);
    assert!(answer.out.contains("running     run/seed-1  (process"), "{}", answer.out);
    fails(&place, &["sweep", "s.toml", "-o", "out", "--shard", "1/2"], &[&process, "without --shard"]);
    place.refuses(&["runs", "out"], &["no runs in out"]);

    let mut second = start(&place, "second", &["sweep", "s.toml", "-o", "out", "--jobs", "1"]);
    wait_until("the second process waits", || said(&place, "second").contains("Waiting for 2 elsewhere ("));
    let before = count(&of(1, 1)).min(count(&of(1, 2)));
    signal(&first.0, "-TERM");
    assert_eq!(first.0.wait().unwrap().code(), Some(130), "{}", said(&place, "first"));
    // Given back, a run goes on in the second process where it was.
    wait_until("the second process goes on", || count(&of(3, 1)).max(count(&of(3, 2))) > before + 3);
    second.0.kill().unwrap();
    second.0.wait().unwrap();
    let answer = place.call(&["sweep", "--status", "out", "--json"]);
    let status: Value = serde_json::from_str(&answer.out).unwrap();
    let states: Vec<&str> =
        status["claims"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"stale") && states.contains(&"given back"), "{status}");
    let answer = place.call(&["sweep", "s.toml", "-o", "out", "--dry-run"]);
    assert_eq!(answer.out.matches("(left by process").count(), 1, "{}", answer.out);
}

/// A sweep that chooses settings, in `t.toml`, and what one process makes of it, in `whole`.
fn tuned() -> (Place, Answer) {
    let place = Place::new();
    write_table(&place);
    let text = SWEEP.replace("seeds = [1, 2, 3]", "seeds = [1, 2]\n[tune]\nvalidation = 0.2\nseeds = [101, 102]");
    place.write("t.toml", &(text.replace("rounds = 5", "rounds = 2") + "\"optimizer.lr\" = [0.01, 0.1]\n"));
    let whole = place.call(&["sweep", "t.toml", "-o", "whole"]);
    assert_eq!(whole.code, 0, "{}", whole.err);
    (place, whole)
}

#[test]
fn processes_choose_settings_together() {
    let (place, whole) = tuned();
    let names: Vec<String> = (0..3).map(|n| format!("p{n}")).collect();
    let args = ["sweep", "t.toml", "-o", "out", "--jobs", "1"];
    let more = ["sweep", "t.toml", "-o", "out", "--jobs", "1", "--no-wait"];
    let mut processes: Vec<Endless> =
        names.iter().enumerate().map(|(n, name)| start(&place, name, if n == 2 { &more } else { &args })).collect();
    for (process, name) in processes.iter_mut().zip(&names) {
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "{}", said(&place, name));
    }
    is_same(&place, "out", "whole");
    assert_eq!(place.read("out/chosen.json"), place.read("whole/chosen.json"));
    let start_of = |text: &str| text.lines().take(8).map(String::from).collect::<Vec<_>>();
    for name in &names[..2] {
        let out = fs::read_to_string(place.path(&format!("{name}.out"))).unwrap();
        assert_eq!(start_of(&out), start_of(&whole.out), "{out}");
    }
}

#[test]
fn shards_divide_a_sweep_without_claims() {
    let place = Place::new();
    write_table(&place);
    place.write("s.toml", SWEEP);
    assert_eq!(place.call(&["sweep", "s.toml", "-o", "whole", "-q"]).code, 0);
    let shard = |n: &'static str| ["sweep", "s.toml", "-o", "out", "--jobs", "1", "--shard", n];
    let first = place.call(&shard("1/3"));
    assert_eq!((first.code, &*first.out), (0, ""), "{}", first.err);
    assert!(first.err.contains("Part 1/3 is done; 6 runs of the other parts are left"), "{}", first.err);
    let mut others = ["2/3", "3/3"].map(|n| start(&place, &n[..1], &shard(n)));
    for process in &mut others {
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "{}{}", said(&place, "2"), said(&place, "3"));
    }
    is_same(&place, "out", "whole");
    let again = place.call(&shard("1/3"));
    assert!(again.code == 0 && again.out.contains("final %"), "all parts are done: {}", again.err);
    for wrong in ["0/3", "4/3", "1", "x/3"] {
        fails(&place, &shard(wrong), &["--shard", "such as 1/4 for the first of four"]);
    }
    fails(&place, &["sweep", "s.toml", "--takeover", "0"], &["--takeover", "from 0.5 to 86400"]);

    place.write("long.toml", LONG);
    let long = |n: &'static str| ["sweep", "long.toml", "-o", "long", "--shard", n];
    let running = start(&place, "long", &long("1/2"));
    wait_until("the first part runs", || place.path("long/run/.seed-1.part/rounds.jsonl").exists());
    let process = format!("process {} on ", running.0.id());
    fails(&place, &long("1/2"), &[&process, "already runs shard 1/2"]);
    fails(&place, &long("1/3"), &[&process, "already runs shard 1/2"]);
    fails(&place, &["sweep", "long.toml", "-o", "long"], &[&process, "use --shard in all processes"]);
    drop(running);
    // What a part has left goes on with claims.
    let claiming = start(&place, "claiming", &["sweep", "long.toml", "-o", "long", "--jobs", "2"]);
    wait_until("it is adopted", || place.path("long/run/.seed-1.1.part/rounds.jsonl").exists());
    assert!(!place.path("long/run/.seed-1.part").exists());
    drop(claiming);
}

#[test]
fn shards_choose_settings_together() {
    let (place, whole) = tuned();
    let shard = |n: &'static str| place.call(&["sweep", "t.toml", "-o", "out", "--jobs", "1", "--shard", n]);

    // Nothing is chosen from a part.
    let first = shard("1/2");
    assert_eq!((first.code, &*first.out), (0, ""), "{}", first.err);
    let later =
        "Part 1/2 is done; settings are chosen when 6 runs of the other parts are: then the same command goes on";
    assert!(first.err.contains(later), "{}", first.err);
    assert!(!place.path("out/chosen.json").exists() && !place.path("out/compare").exists());
    // Whoever completes the runs that choose goes on with its part of those that compare.
    let second = shard("2/2");
    assert_eq!(second.code, 0, "{}", second.err);
    assert!(second.err.contains("Part 2/2 is done; 3 runs of the other parts are left"), "{}", second.err);
    assert_eq!(place.read("out/chosen.json"), place.read("whole/chosen.json"));
    let again = shard("1/2");
    assert_eq!(again.code, 0, "{}", again.err);
    is_same(&place, "out", "whole");
    // The rest of the tables has times.
    let start_of = |text: &str| text.lines().take(8).map(String::from).collect::<Vec<_>>();
    assert_eq!(start_of(&again.out), start_of(&whole.out), "{}", again.err);
    assert_eq!(start_of(&shard("2/2").out), start_of(&whole.out));

    // In folders of their own, which are put together between the two stages.
    for n in ["1/2", "2/2"] {
        let answer = place.call(&["sweep", "t.toml", "-o", &format!("part{}", &n[..1]), "--jobs", "1", "--shard", n]);
        assert!(answer.code == 0 && answer.err.contains("settings are chosen when 6 runs"), "{}", answer.err);
    }
    let copied =
        Command::new("cp").args(["-r", "part2/choose", "part1/"]).current_dir(place.0.path()).status().unwrap();
    assert!(copied.success());
    let answer = place.call(&["sweep", "t.toml", "-o", "part1", "--jobs", "1", "--shard", "1/2"]);
    assert!(answer.err.contains("3 runs of the other parts are left"), "{}", answer.err);
    assert_eq!(place.read("part1/chosen.json"), place.read("whole/chosen.json"));
}

/// A failure is not repeated by everybody, but by whoever comes later.
#[test]
fn a_run_that_fails_is_tried_once() {
    let place = Place::new();
    write_table(&place);
    place.write("s.toml", &SWEEP.replace("seeds = [1, 2, 3]", "seeds = [1]"));
    assert_eq!(place.call(&["sweep", "s.toml", "-o", "whole", "-q"]).code, 0);
    // A file where the folder of a setting should be.
    let setting = runs_in(&place.path("whole"))[0].parent().unwrap().file_name().unwrap().to_str().unwrap().to_string();
    fs::create_dir(place.path("out")).unwrap();
    place.write(&format!("out/{setting}"), "in the way");
    let answer = place.call(&["sweep", "s.toml", "-o", "out"]);
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains("1 run failed; the first: "), "{}", answer.err);
    let status = place.call(&["sweep", "--status", "out"]);
    assert!(status.out.starts_with("2 runs done, 0 running, 0 stale\nfailed"), "{}", status.out);
    fs::remove_file(place.path(&format!("out/{setting}"))).unwrap();
    assert_eq!(place.call(&["sweep", "s.toml", "-o", "out", "-q"]).code, 0);
    is_same(&place, "out", "whole");
}
