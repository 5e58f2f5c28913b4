//! Runs that are killed at any moment, on a disk that fills up, by two processes at once: no work is lost.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fedelity_record::{RoundRecord, Seconds, names, salvage_rounds};
use serde_json::Value;

use crate::place::{Place, TINY};

/// Slow enough to be killed in the middle, with clients that take part more than once.
const STUDY: &str = "rounds = 6\n[data]\nname = \"csv\"\ntrain = \"t.csv\"\n[partition]\nclients = 5\n\
                     [clients]\nper-round = 4\nepochs = 8\nbatch = 10\n[model]\nname = \"mlp\"\n";

/// Methods with state on the server or memory on clients, and what they need.
const METHODS: &[&[&str]] = &[
    &["method.name=scaffold"],
    &["method.name=moon", "model.projection=true"],
    &["method.name=fedgkd"],
    &["method.name=fedgkd-vote", "server.validation=0.1"],
    &["method.name=fedcurv"],
    &["method.name=fedgen"],
    &["method.name=feddf", "server.unlabelled=40", "server.validation=0.1"],
    &["method.name=fednova"],
    &["method.name=fedavg", "server.optimizer=fedadam"],
    &["method.name=fedntd", "server.optimizer=fedavgm"],
    &["method.name=scaffold", "faults.drop-during=0.1", "faults.late=0.1", "faults.enormous=0.1", "server.quorum=0.7"],
];
const KILLS: usize = 10;

pub(crate) fn write_table(place: &Place) {
    let mut rows = "a,b,c,d,e,label\n".to_string();
    for i in 0..600u32 {
        let value = |k: u32| (i * 37 + k * 101 + (i * i * 7) % (13 + k)) % 97;
        let cells: Vec<String> = (0..5).map(|k| value(k).to_string()).collect();
        rows += &format!("{},{}\n", cells.join(","), (value(0) + value(1)) % 3);
    }
    place.write("t.csv", &rows);
}

fn start(place: &Place, args: &[&str]) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("fedelity"));
    command.current_dir(place.0.path()).env_remove("FEDELITY_DATA").env_remove("FEDELITY_ISA").args(args);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What must be the same in the end.
pub(crate) fn contents(folder: &Path) -> (Vec<u8>, Vec<RoundRecord>, Value) {
    let salvage = salvage_rounds(&folder.join(names::ROUNDS)).unwrap();
    assert_eq!(salvage.problems, Vec::<String>::new(), "{}", folder.display());
    let rounds = salvage.rounds.into_iter().map(|round| RoundRecord { seconds: Seconds::default(), ..round });
    let mut summary: Value = serde_json::from_slice(&fs::read(folder.join(names::SUMMARY)).unwrap()).unwrap();
    summary["seconds"] = Value::Null;
    (fs::read(folder.join(names::MODEL)).unwrap(), rounds.collect(), summary)
}

#[test]
fn a_hundred_kills_lose_nothing() {
    let place = Place::new();
    write_table(&place);
    place.write("s.toml", STUDY);
    let mut random = 88_172_645_463_325_252_u64;
    let mut kills = 0;
    for (at, sets) in METHODS.iter().enumerate() {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let run = |output: &str| [&["run", "s.toml", "--output", output][..], &sets].concat().join("\n");
        let begin = Instant::now();
        let whole = format!("whole-{at}");
        let answer = place.call(&run(&whole).split('\n').collect::<Vec<_>>());
        assert_eq!(answer.code, 0, "{}", answer.err);
        let time = begin.elapsed();
        let folder = format!("killed-{at}");
        let path = place.path(&folder);
        for _ in 0..KILLS {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if path.exists() && !path.join(names::CONFIG).exists() {
                // Nothing of the run was written yet.
                fs::remove_dir_all(&path).unwrap();
            }
            let again = ["resume", &folder];
            let first = run(&folder);
            let args: Vec<&str> = if path.exists() { again.to_vec() } else { first.split('\n').collect() };
            let mut child = start(&place, &args);
            thread::sleep(Duration::from_micros(random % (time.as_micros() as u64).max(1)));
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        if !path.join(names::CONFIG).exists() {
            let _ = fs::remove_dir_all(&path);
            assert_eq!(place.call(&run(&folder).split('\n').collect::<Vec<_>>()).code, 0);
        }
        let answer = place.call(&["resume", &folder]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert_eq!(contents(&path), contents(&place.path(&whole)), "{sets:?}");
    }
    assert_eq!(kills, METHODS.len() * KILLS);
}

/// A study of several methods and seeds: ended runs are not repeated, and the tables are the same.
#[test]
fn a_study_of_several_runs_goes_on() {
    let place = Place::new();
    write_table(&place);
    place.write(
        "s.toml",
        &format!("seeds = [1, 2]\n{STUDY}[[method]]\nname = \"fedavg\"\n[[method]]\nname = \"scaffold\"\n"),
    );
    assert_eq!(place.call(&["run", "s.toml", "--output", "whole"]).code, 0);
    let mut child = start(&place, &["run", "s.toml", "--output", "some"]);
    let second = place.path("some/scaffold/seed-1/checkpoint/round-2.state");
    let begin = Instant::now();
    while !second.exists() && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let finished = fs::metadata(place.path("some/fedavg/seed-1/model.safetensors")).unwrap().modified().unwrap();
    let answer = place.call(&["run", "--resume", "some"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("fedavg, seed 1: has already ended"), "{}", answer.err);
    assert_eq!(fs::metadata(place.path("some/fedavg/seed-1/model.safetensors")).unwrap().modified().unwrap(), finished);
    for run in ["fedavg/seed-1", "fedavg/seed-2", "scaffold/seed-1", "scaffold/seed-2"] {
        assert_eq!(contents(&place.path("some").join(run)), contents(&place.path("whole").join(run)), "{run}");
    }
    let table = |folder: &str| {
        let answer = place.call(&["compare", folder, "--json"]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        let mut found: Value = serde_json::from_str(&answer.out.replace(folder, "")).unwrap();
        for row in found["rows"].as_array_mut().unwrap() {
            row.as_object_mut().unwrap().remove("seconds").unwrap();
        }
        found
    };
    assert_eq!(table("some"), table("whole"));
}

#[test]
fn only_the_rounds_can_be_changed_and_a_run_can_be_prolonged() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out"]).code, 0);
    let answer = place.call(&["resume", "out", "--set", "optimizer.lr=1"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("--set optimizer.lr=1: a run can only be resumed with other rounds"), "{}", answer.err);
    let answer = place.call(&["resume", "out", "--set", "rounds=1"]);
    assert!(answer.err.contains("rounds = 1: the run already has 2 rounds"), "{}", answer.err);
    let answer = place.call(&["resume", "out", "--set", "rounds=4"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("resumed after round 2"), "{}", answer.err);
    assert_eq!(place.tiny(&["--output", "whole", "--set", "rounds=4"]).code, 0);
    assert_eq!(place.read("out/model.safetensors"), place.read("whole/model.safetensors"));
    assert_eq!(place.read("out/config.toml"), place.read("whole/config.toml"));
    let answer = place.call(&["resume", "none"]);
    assert_eq!(answer.code, 2);
    fs::create_dir(place.path("empty")).unwrap();
    let answer = place.call(&["resume", "empty"]);
    assert!(answer.err.contains("empty: cannot be resumed: it has no config.toml"), "{}", answer.err);
}

/// The second process says who holds the folder, and changes nothing.
#[test]
fn two_processes_never_write_to_one_folder() {
    let place = Place::new();
    let sets: Vec<&str> = TINY.iter().flat_map(|set| ["--set", set]).collect();
    let args =
        [&["run", "--output", "out", "--set", "rounds=1000000"][..], &sets, &["--set", "rounds=1000000"]].concat();
    let mut child = start(&place, &args);
    let begin = Instant::now();
    while !place.path("out/rounds.jsonl").exists() && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5));
    }
    let answer = place.call(&["resume", "out"]);
    let said = format!("process {} on ", child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains(&said) && answer.err.contains("is writing to this folder"), "{}", answer.err);
    assert!(!answer.err.contains("resume with"), "{}", answer.err);
}

/// In a namespace of its own, a small file system.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_stops_a_run_that_goes_on_when_there_is_room() {
    let place = Place::new();
    let binary = assert_cmd::cargo::cargo_bin("fedelity");
    let sets: Vec<String> = TINY.iter().flat_map(|set| ["--set".to_string(), set.to_string()]).collect();
    let run = format!("{} run {} --set model.name=mlp --set rounds=8", binary.display(), sets.join(" "));
    fs::create_dir(place.path("small")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=12m tmpfs small || exit 77\n\
         cd small\n\
         head -c 9900000 /dev/zero > filler\n\
         {run} --output out 2> err; echo $? > code\n\
         cp err code ..\n\
         rm filler\n\
         {binary} resume out 2> ../err2; echo $? > ../code2\n\
         cp -r out ..\n",
        binary = binary.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).current_dir(place.0.path());
    match command.status() {
        Ok(status) if status.code() == Some(0) => {}
        other => {
            eprintln!("skipped: no file system of its own could be mounted ({other:?})");
            return;
        }
    }
    let read = |name: &str| String::from_utf8(place.read(name)).unwrap();
    assert_eq!(read("code").trim(), "2", "{}", read("err"));
    assert!(read("err").contains("No space left"), "{}", read("err"));
    assert!(read("err").contains("resume with: fedelity resume"), "{}", read("err"));
    assert_eq!(read("code2").trim(), "0", "{}", read("err2"));
    let args: Vec<&str> = run.split(' ').skip(1).collect();
    assert_eq!(place.call(&[&args[..], &["--output", "whole"]].concat()).code, 0);
    assert_eq!(contents(&place.path("out")), contents(&place.path("whole")));
}

/// Rounds of a run are not all that can be wrong with its folder.
#[test]
fn verify_notices_damage_edited_numbers_and_another_model() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "--set", "rounds=4"]).code, 0);
    let sound = String::from_utf8(place.read("out/rounds.jsonl")).unwrap();
    let lines: Vec<&str> = sound.lines().collect();
    let differs = |record: &str, said: &str| {
        place.write("out/rounds.jsonl", record);
        let answer = place.call(&["verify", "out"]);
        assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
        assert!(answer.out.contains(said), "{said:?} in {}", answer.out);
    };
    differs(&sound.replacen("{\"round\":2,", "x{\"round\":2,", 1), "cannot be compared: round 2: missing or damaged");
    differs(&(lines[..3].join("\n") + "\n"), "cannot be compared: round 3 and 1 more");
    let edited = |change: &dyn Fn(&mut Value)| {
        let mut third: Value = serde_json::from_str(lines[3]).unwrap();
        change(&mut third);
        [lines[0], lines[1], lines[2], &third.to_string(), lines[4], ""].join("\n")
    };
    differs(&edited(&|round| round["forgetting"] = 0.5.into()), "the forgetting of round 3 was 0.5 and is now");
    differs(&edited(&|round| round["class-accuracy"][1] = 0.25.into()), "the class-accuracy[1] of round 3 was 0.25");
    differs(&edited(&|round| round["train-loss"] = 7.0.into()), "the train-loss of round 3 was 7.0");
    differs(&edited(&|round| round["bytes-up"] = 7.into()), "the bytes-up of round 3 was 7");
    // A name must not look like a line of the answer.
    let name = "\"method\":\"fedavg\"";
    differs(
        &sound.replacen(name, "\"method\":\"a\\nout: the same\"", 1),
        "the method was a\\nout: the same and is now fedavg",
    );

    place.write("out/rounds.jsonl", &sound);
    assert_eq!(place.call(&["verify", "out"]).code, 0);
    assert!(!place.call(&["evaluate", "out"]).err.contains("weights"));
    let mut model = place.read("out/model.safetensors");
    let last = model.len() - 1;
    model[last] ^= 0x80;
    fs::write(place.path("out/model.safetensors"), &model).unwrap();
    differs(&sound, "model.safetensors is not the model of round 4: it has other weights");
    for args in [&["evaluate", "out"][..], &["export", "out", "--pytorch", "net.py"]] {
        let answer = place.call(args);
        assert!(
            answer.err.replace('\n', " ").contains("has the weights of no round in rounds.jsonl"),
            "{}",
            answer.err
        );
    }
    // A pipe is not waited for.
    #[cfg(unix)]
    {
        fs::remove_file(place.path("out/rounds.jsonl")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(place.path("out/rounds.jsonl")).status();
        if made.is_ok_and(|status| status.success()) {
            let answer = place.call(&["resume", "out"]);
            assert_eq!(answer.code, 2, "{}", answer.err);
            assert!(answer.err.contains("rounds.jsonl: cannot read: it is not a file"), "{}", answer.err);
        }
    }
}

/// The quorum is not a setting of the results: it may change on the way, and the record says what counted.
#[test]
fn a_run_that_went_on_with_another_quorum_is_verified() {
    let place = Place::new();
    let faults = ["--set", "model.name=logistic", "--set", "rounds=8", "--set", "faults.drop-before=0.45"];
    let answer =
        place.call(&[&["run", "-o", "out", "--set", "server.quorum=0.8", "--set", "seeds=[4]"], &faults[..]].concat());
    assert_ne!(answer.code, 0, "the quorum is met: choose another seed");
    let answer = place.call(&["resume", "out", "--set", "server.quorum=0.3"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let record = String::from_utf8(place.read("out/rounds.jsonl")).unwrap();
    assert!(record.contains("\"repeats\":"), "no round was repeated: choose another seed");
    let answer = place.call(&["verify", "out"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "out: the same, bit for bit: 8 rounds\n"), "{}", answer.err);
}

#[test]
fn verify_repeats_a_run_and_names_what_differs() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "--threads", "1"]).code, 0);
    let answer = place.call(&["verify", "out"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "out: the same, bit for bit: 2 rounds\n"), "{}", answer.err);
    let answer = place.call(&["verify", "out", "--rounds", "1"]);
    assert_eq!(answer.out, "out: the same, bit for bit: 1 round\n");
    let record = String::from_utf8(place.read("out/rounds.jsonl")).unwrap();
    let mut lines: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[2]["weights"]["sha256"] = "0".into();
    lines[2]["weights"]["tensors"][1] = "00000000".into();
    place.write("out/rounds.jsonl", &lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    let answer = place.call(&["verify", "out"]);
    assert_eq!(answer.code, 1, "{}", answer.err);
    for text in [
        "differs: the weights of ",
        "bias after round 2",
        "the same before: 1 round",
        "recorded: fedelity",
        "repeated: fedelity",
    ] {
        assert!(answer.out.contains(text), "{text:?} in {}", answer.out);
    }
    // A setting that only shows in the weights.
    assert!(!answer.err.contains("config.toml"), "{}", answer.err);
    let config = String::from_utf8(place.read("out/config.toml")).unwrap();
    place.write("out/config.toml", &config.replace("lr = 0.", "lr = 0.5"));
    let answer = place.call(&["verify", "out"]);
    let said = "out: config.toml is not what the run has written there, so another run may have been repeated";
    assert!(answer.out.contains("after round 1") && answer.err.contains(said), "{}{}", answer.out, answer.err);
    // Other data than those of the record.
    place.write("out/config.toml", &config.replace("alpha = 1.0", "alpha = 2.0"));
    let answer = place.call(&["verify", "out", "--json"]);
    let found: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((answer.code, &found["same"]), (1, &Value::Bool(false)));
    assert!(found["difference"].as_str().unwrap().contains("the partition was"), "{found}");
    assert_eq!(found["config-changed"], Value::Bool(true));
    // With a round more, it is another configuration, and its own.
    place.write("out/config.toml", &config);
    assert_eq!(place.call(&["resume", "out", "--set", "rounds=3"]).code, 0);
    let answer = place.call(&["verify", "out", "--json"]);
    assert!(answer.out.contains("\"config-changed\":false"), "{}", answer.out);
}
