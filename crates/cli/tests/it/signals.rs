//! What the system does to a run: signals, closed pipes, limits.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Endless, Place, TINY};

/// A tiny run in the background, started by a shell after a command, with more arguments.
fn start(place: &Place, first: &str, more: &[&str]) -> Endless {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$@\""), "sh"]).arg(assert_cmd::cargo::cargo_bin!("fedelity"));
    shell.args(["run", "--threads", "1", "--output", "run"]);
    for set in TINY {
        shell.args(["--set", set]);
    }
    shell.args(more).current_dir(place.0.path()).env_remove("FEDELITY_DATA");
    Endless(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn rounds(place: &Place) -> usize {
    fs::read_to_string(place.path("run/rounds.jsonl")).unwrap_or_default().lines().count().saturating_sub(1)
}

fn until_round(place: &Place, wanted: usize) {
    let begun = Instant::now();
    while rounds(place) < wanted {
        assert!(begun.elapsed() < Duration::from_secs(60), "the run stands still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn hang_up(run: &Endless) {
    assert!(Command::new("kill").args(["-HUP", &run.0.id().to_string()]).status().unwrap().success());
}

fn said(run: &mut Endless) -> String {
    let mut text = String::new();
    run.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let place = Place::new();
    let mut run = start(&place, "trap '' HUP", &["--set", "rounds=100000", "--metrics", "fast", "-q"]);
    until_round(&place, 3);
    hang_up(&run);
    // Whoever obeyed would end with the current round.
    until_round(&place, rounds(&place) + 20);
    assert!(run.0.try_wait().unwrap().is_none(), "the run has ended");
}

#[test]
fn a_hangup_ends_a_run_after_its_round() {
    let place = Place::new();
    // Whoever runs the tests may ignore hangups; only bash can undo that.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    if mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1) {
        eprintln!("skipped: hangups are ignored here");
        return;
    }
    let mut run = start(&place, ":", &["--set", "rounds=100000", "--metrics", "fast"]);
    until_round(&place, 3);
    hang_up(&run);
    assert_eq!(run.0.wait().unwrap().code(), Some(130));
    assert!(String::from_utf8(place.read("run/summary.json")).unwrap().contains("interrupted"));
}

#[test]
fn a_run_goes_on_without_its_reader() {
    let place = Place::new();
    let mut run = start(&place, ":", &["--set", "rounds=60", "--json"]);
    let mut line = String::new();
    BufReader::new(run.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"method\":\"fedavg\",\"seed\":1,\"round\":1,"), "{line}");
    assert_eq!(run.0.wait().unwrap().code(), Some(0));
    assert_eq!(rounds(&place), 60);
    assert!(String::from_utf8(place.read("run/summary.json")).unwrap().contains("finished"));
    let text = said(&mut run);
    assert_eq!(text.matches("nobody reads the output any more; training goes on").count(), 1, "{text}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_after_training() {
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let place = Place::new();
    let mut run = start(&place, "exec >/dev/full", &["--set", "rounds=5", "--json"]);
    assert_eq!(run.0.wait().unwrap().code(), Some(2));
    assert_eq!(rounds(&place), 5);
    assert!(String::from_utf8(place.read("run/summary.json")).unwrap().contains("finished"));
    let text = said(&mut run);
    assert!(text.contains("error: the output is incomplete, but the run folder is not: No space left"), "{text}");
}

#[test]
fn a_sweep_goes_on_without_its_reader() {
    let place = Place::new();
    place.write(
        "sweep.toml",
        "seeds = [1, 2, 3]\n[set]\nrounds = 2\n\"partition.clients\" = 5\n\"clients.epochs\" = 1\n\
         \"clients.per-round\" = 2\n\"model.name\" = \"logistic\"\n",
    );
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("fedelity"));
    command.args(["sweep", "sweep.toml", "-o", "out", "--json", "--jobs", "1"]).current_dir(place.0.path());
    let mut sweep = Endless(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    drop(sweep.0.stdout.take());
    assert_eq!(sweep.0.wait().unwrap().code(), Some(0));
    assert!((1..=3).all(|seed| place.path(&format!("out/run/seed-{seed}/summary.json")).is_file()));
    assert_eq!(said(&mut sweep).matches("nobody reads the output").count(), 1);
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_with_a_name() {
    let place = Place::new();
    let mut run = start(&place, "ulimit -f 400", &["--set", "rounds=3000", "-q"]);
    assert_eq!(run.0.wait().unwrap().code(), Some(2));
    let text = said(&mut run);
    assert!(text.starts_with("error: run/") && text.contains(": cannot write: File too large"), "{text}");
    assert!(rounds(&place) > 5, "what was recorded stays");
}

#[test]
fn threads_that_cannot_be_started_are_done_without() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "a", "--set", "clients.per-round=4"]).code, 0);
    // No system has room for a stack of this size.
    let no_threads = [("RUST_MIN_STACK", "100000000000000")];
    for command in [&["verify", "a", "--threads", "4"][..], &["evaluate", "a", "--threads", "4"]] {
        let answer = place.call_with(&no_threads, command);
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.err);
        assert!(answer.err.contains("warning: only 1 of 4 threads can be started"), "{command:?}: {}", answer.err);
    }
    // The report does without its map of features, and a run cannot keep what it has done.
    let answer = place.call_with(&no_threads, &["report", "a"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("cannot start a thread"), "{}", answer.err);
    let answer = place.call_with(&no_threads, &["run", "a/config.toml", "--output", "b"]);
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains("error: b/checkpoint: cannot start a thread"), "{}", answer.err);
}

#[test]
fn a_run_that_is_being_written_is_not_removed() {
    let place = Place::new();
    let mut run = start(&place, ":", &["--set", "rounds=100000", "--metrics", "fast", "-q"]);
    until_round(&place, 2);
    let listed = place.call(&["runs", "run"]);
    assert!(listed.out.contains("running") && !listed.out.contains("killed"), "{}", listed.out);
    assert_eq!(place.call(&["runs", "list", "run", "--status", "running", "--json"]).out.lines().count(), 1);
    for yes in [&["--yes"][..], &[]] {
        let answer = place.call(&[&["runs", "remove", "run"], yes].concat());
        assert_eq!(answer.code, 2, "{}", answer.err);
        let expected = format!("process {}", run.0.id());
        assert!(answer.err.contains(&expected) && answer.err.contains("is writing to this run"), "{}", answer.err);
    }
    let compared = place.call(&["compare", "run"]);
    assert!(compared.out.contains("still running, last round"), "{}", compared.out);
    assert!(!compared.err.contains("stopped") && !compared.err.contains("no summary"), "{}", compared.err);
    // Once it is killed, the list says so, and it can be removed.
    run.0.kill().unwrap();
    run.0.wait().unwrap();
    assert!(place.call(&["runs", "run"]).out.contains("killed"));
    assert_eq!(place.call(&["runs", "remove", "run", "--yes"]).code, 0);
    assert!(!place.path("run").exists());
}
