//! What the folder of a run says is checked before it is believed.

use std::fs;
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;

use crate::place::{Answer, Place};

/// Changes a JSON file.
fn edit(place: &Place, file: &str, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&place.read(file)).unwrap();
    change(&mut value);
    place.write(file, &value.to_string());
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_edited_summary_is_not_believed_by_those_who_go_on_with_the_run() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "-q"]).code, 0);
    let sound = place.read("out/summary.json");
    let sound_answer = place.call(&["resume", "out"]);
    assert!(!sound_answer.err.contains("contradicts"), "{}", sound_answer.err);
    for (key, value, said) in [
        ("final-accuracy", 0.999.into(), "final accuracy 99.90 %, but the rounds give"),
        ("status", serde_json::json!({ "kind": "diverged", "round": 1, "client": null }), "the rounds give finished"),
    ] {
        edit(&place, "out/summary.json", |summary| summary[key] = value.clone());
        let answer = place.call(&["resume", "out"]);
        assert_eq!((answer.code, &answer.out), (0, &sound_answer.out), "{}", answer.err);
        assert!(one_line(&answer.err).contains(said), "{said:?} in {}", answer.err);
        fs::write(place.path("out/summary.json"), &sound).unwrap();
    }

    place.write("sweep.toml", "seeds = [1]\n[[list]]\nrounds = 2\n\"model.name\" = \"logistic\"\n");
    let sweep = || place.call(&["sweep", "sweep.toml", "-o", "all", "--json"]);
    let first: Value = serde_json::from_str(&sweep().out).unwrap();
    let file = format!("{}/summary.json", first["folder"].as_str().unwrap());
    edit(&place, &file, |summary| summary["final-accuracy"] = 0.999.into());
    let second: Value = serde_json::from_str(&sweep().out).unwrap();
    assert_eq!((&second["state"], &second["summary"]), (&"was done".into(), &first["summary"]));
}

#[test]
fn the_model_of_the_best_round_is_checked() {
    let place = Place::new();
    for (folder, seed) in [("one", "seeds=[1]"), ("two", "seeds=[2]")] {
        let args = ["--output", folder, "-q", "--set", "server.validation=0.1", "--set", seed];
        assert_eq!(place.tiny(&args).code, 0);
    }
    assert_eq!(place.call(&["verify", "one"]).code, 0);
    assert!(!place.call(&["evaluate", "one/best.safetensors"]).err.contains("weights"));
    fs::copy(place.path("two/best.safetensors"), place.path("one/best.safetensors")).unwrap();
    let answer = place.call(&["verify", "one"]);
    assert_eq!(answer.code, 1);
    assert!(answer.out.contains("best.safetensors is not the model of round"), "{}", answer.out);
    let answer = place.call(&["evaluate", "one/best.safetensors"]);
    assert!(one_line(&answer.err).contains("best.safetensors has the weights of no round, but"), "{}", answer.err);
    place.write("one/best.safetensors", "no model");
    assert_eq!(place.call(&["verify", "one"]).code, 1);
}

#[test]
fn what_a_header_says_is_compared() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "-q", "--set", "method.name=scaffold"]).code, 0);
    let sound = String::from_utf8(place.read("out/rounds.jsonl")).unwrap();
    let (header, rounds) = sound.split_once('\n').unwrap();
    for (key, value, said) in [
        ("leaves", serde_json::json!({ "weights": 1 }), "the account of what leaves a client was"),
        ("attackers", serde_json::json!([3]), "the list of attackers was [3] and is now []"),
        ("clients", 9.into(), "the number of clients was 9 and is now 5"),
        ("partition", "iid".into(), "the partition's description was iid"),
        ("classes", serde_json::json!(["a\nb"]), "the list of classes was [\"a\\nb\"]"),
        ("validation-samples", 7.into(), "the number of validation samples was 7 and is now 0"),
    ] {
        let mut header: Value = serde_json::from_str(header).unwrap();
        header[key] = value;
        place.write("out/rounds.jsonl", &format!("{header}\n{rounds}"));
        let answer = place.call(&["verify", "out"]);
        assert_eq!(answer.code, 1, "{key}");
        assert!(answer.out.contains(said), "{said:?} in {}", answer.out);
    }
    place.write("out/rounds.jsonl", &sound);
    edit(&place, "out/holdings.json", |held| held["counts"][0][0] = 77.into());
    let answer = place.call(&["verify", "out"]);
    assert!(answer.code == 1 && answer.out.contains("number of samples of each class was [77,"), "{}", answer.out);
}

#[test]
fn a_model_that_is_gone_is_written_again() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "-q"]).code, 0);
    let files = ["model.safetensors", "rounds.jsonl", "summary.json", "clients.json"];
    let before = files.map(|file| place.read(&format!("out/{file}")));
    fs::remove_file(place.path("out/model.safetensors")).unwrap();
    let answer = place.call(&["resume", "out"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("model.safetensors: was missing, and is written again"), "{}", answer.err);
    assert!(files.map(|file| place.read(&format!("out/{file}"))) == before);
    // Without a checkpoint, there is nothing to make it from: the run has ended all the same.
    fs::remove_file(place.path("out/model.safetensors")).unwrap();
    fs::remove_dir_all(place.path("out/checkpoint")).unwrap();
    let answer = place.call(&["resume", "out"]);
    assert!(answer.code == 0 && answer.err.contains("has already ended"), "{}", answer.err);
}

/// A run of ten rounds would have ended when its patience did, and so does one that is prolonged to ten.
#[test]
fn patience_ends_a_prolonged_run_where_it_would_have_ended() {
    let place = Place::new();
    let run = |folder: &str, rounds: &str| {
        let keys = ["server.validation=0.1", "stop.patience=2", "partition.alpha=0.1", rounds];
        let sets: Vec<&str> = keys.iter().flat_map(|key| ["--set", key]).collect();
        assert_eq!(place.tiny(&[&["--output", folder, "-q"], &sets[..]].concat()).code, 0);
    };
    run("whole", "rounds=20");
    let summary: Value = serde_json::from_slice(&place.read("whole/summary.json")).unwrap();
    assert_eq!(summary["status"]["kind"], "stopped-early", "choose another setting");
    run("prolonged", &format!("rounds={}", summary["rounds"]));
    let answer = place.call(&["resume", "prolonged", "--set", "rounds=20"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for file in ["model.safetensors", "best.safetensors"] {
        assert!(place.read(&format!("whole/{file}")) == place.read(&format!("prolonged/{file}")), "{file}");
    }
    let prolonged: Value = serde_json::from_slice(&place.read("prolonged/summary.json")).unwrap();
    for key in ["status", "rounds", "final-accuracy", "best", "forgetting", "best-model"] {
        assert_eq!(summary[key], prolonged[key], "{key}");
    }
    let early = |folder: &str| {
        let record = String::from_utf8(place.read(&format!("{folder}/rounds.jsonl"))).unwrap();
        let last: Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
        last["early-stop"].clone()
    };
    assert!(early("whole").is_object() && early("whole") == early("prolonged"));
    assert_eq!(place.call(&["verify", "prolonged"]).code, 0);
    assert!(!place.call(&["compare", "prolonged"]).err.contains("contradicts"));
}

/// A call that may hang: it is killed after a while.
fn bounded(place: &Place, args: &[&str]) -> Answer {
    let mut command = Command::cargo_bin("fedelity").unwrap();
    let output = command.current_dir(place.0.path()).args(args).timeout(Duration::from_secs(60)).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or_else(|| panic!("{args:?} did not end"));
    Answer { code, out: text(output.stdout), err: text(output.stderr) }
}

#[test]
#[cfg(unix)]
fn nothing_waits_for_a_pipe_or_reads_a_device_to_its_end() {
    use std::os::unix::fs::symlink;

    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "-q"]).code, 0);
    let files = ["summary.json", "config.toml", "tags.json", "holdings.json", "clients.json", "model.safetensors"];
    for file in files {
        let path = place.path(&format!("out/{file}"));
        let sound = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: there is no mkfifo");
            return;
        }
        for command in ["runs", "compare", "verify", "evaluate", "models"] {
            bounded(&place, &[command, "out"]);
        }
        bounded(&place, &["report", "out", "-o", "page.html", "--overwrite"]);
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        let answer = bounded(&place, &["runs", "."]);
        assert!(answer.code == 0 && answer.out.contains("out"), "{file}: {}", answer.err);
        fs::remove_file(&path).unwrap();
        sound.iter().for_each(|sound| fs::write(&path, sound).unwrap());
    }
    assert_eq!(place.call(&["verify", "out"]).code, 0);
    let answer = bounded(&place, &["run", "/dev/zero"]);
    assert!(answer.code == 2 && answer.err.contains("cannot read /dev/zero: it has more than 64 MB"), "{}", answer.err);
}

#[test]
#[cfg(target_os = "linux")]
fn a_path_that_is_no_text_is_printed_as_json() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "out", "-q"]).code, 0);
    let name = OsStr::from_bytes(b"all/\xff\xfe");
    fs::create_dir(place.path("all")).unwrap();
    fs::rename(place.path("out"), place.0.path().join(name)).unwrap();
    let call = |args: &[&OsStr]| {
        let mut command = Command::cargo_bin("fedelity").unwrap();
        let output = command.current_dir(place.0.path()).args(args).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let word = OsStr::new;
    let mut command = Command::cargo_bin("fedelity").unwrap();
    let partition = OsStr::from_bytes(b"all/\xf1.json");
    let output =
        command.current_dir(place.0.path()).args([word("run"), word("--partition"), partition]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("the path is not UTF-8"), "{said}");
    assert!(call(&[word("runs"), word("all")]).contains("\"path\":\"all/\u{fffd}\u{fffd}\""));
    assert!(call(&[word("verify"), name]).contains("\"run\":\"all/\u{fffd}\u{fffd}\""));
    assert!(call(&[word("runs"), word("tag"), word("x"), name]).contains("\"tags\":[\"x\"]"));
    let csv = OsStr::from_bytes(b"all/\xf1.csv");
    assert!(call(&[word("runs"), word("export"), name, word("--csv"), csv]).contains(".csv"));
    assert!(call(&[word("report"), name, word("-o"), OsStr::from_bytes(b"all/\xf1.html")]).contains(".html"));
    place.write("sweep.toml", "seeds = [1]\n[[list]]\nrounds = 1\n\"model.name\" = \"logistic\"\n");
    let sweep = [word("sweep"), word("sweep.toml"), word("-o"), OsStr::from_bytes(b"all/\xfa")];
    assert!(call(&sweep).contains("\"state\":\"done\""));
    assert!(call(&sweep).contains("\"state\":\"was done\""));
    assert!(call(&[&sweep[..], &[word("--dry-run")]].concat()).contains("\"state\":\"done\""));
    assert!(call(&[word("runs"), word("remove"), name, word("--yes")]).contains("\"removed\":true"));
}
