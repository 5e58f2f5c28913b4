//! Runs of which something is missing, broken or untrue.

use std::fs;

use crate::records::{Made, header, run, study};
use crate::studies::{MADE, finals, load};
use fedelity_record::Header;
use fedelity_report::{Comparison, LoadedRuns, Options, ReportPage, TableSyntax, render};

#[test]
fn a_summary_is_not_believed_against_its_rounds() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 1, ..MADE });
    assert_eq!(load(dir.path()).left_out, []);
    let path = dir.path().join("fedcad/seed-1/summary.json");
    let mut summary: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    summary["final-accuracy"] = 0.999.into();
    summary["bytes-up"] = 1.into();
    fs::write(&path, summary.to_string()).unwrap();
    let study = load(dir.path());
    let said: Vec<&str> = study.left_out.iter().map(|out| out.what.as_str()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    let expected = format!("final accuracy 99.90 %, but the rounds give {:.2} %, which counts", 100.0 * finals(1)[0]);
    assert!(said[0].starts_with("summary.json contradicts rounds.jsonl: ") && said[0].ends_with(&expected), "{said:?}");
    let found = Comparison::new(&study, &Options::default()).unwrap();
    assert_eq!(found.rows[1].final_accuracy.unwrap().mean, finals(1)[0]);
    // Rounds that are gone: the run is not finished, whatever the summary says.
    let rounds = dir.path().join("fedcad/seed-1/rounds.jsonl");
    let text = fs::read_to_string(&rounds).unwrap();
    fs::write(&rounds, text.lines().take(4).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let study = load(dir.path());
    let said: Vec<&str> = study.left_out.iter().map(|out| out.what.as_str()).collect();
    assert!(said.iter().any(|what| what.contains("status finished, but the rounds give 3 of 6 rounds")), "{said:?}");
    assert_eq!(Comparison::new(&study, &Options::default()).unwrap().rows[1].unfinished, 1);
}

#[test]
fn broken_runs_contribute_what_is_readable() {
    let dir = tempfile::tempdir().unwrap();
    study(&dir.path().join("good"), Made { methods: 2, seeds: 1, ..MADE });
    // Truncated: no summary, half a last line, garbage in the middle, a future version, no rounds at all.
    let cut = run(&dir.path().join("cut"), MADE, &header(MADE, "moon", 1), 2);
    fs::remove_file(cut.join("summary.json")).unwrap();
    let text = fs::read_to_string(cut.join("rounds.jsonl")).unwrap();
    fs::write(cut.join("rounds.jsonl"), &text[..text.len() - 40]).unwrap();
    let garbage = run(&dir.path().join("garbage"), MADE, &header(MADE, "scaffold", 1), 3);
    let text = fs::read_to_string(garbage.join("rounds.jsonl")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = "\u{fffd}\u{1}{{{";
    fs::write(garbage.join("rounds.jsonl"), lines.join("\n") + "\n").unwrap();
    let newer = run(&dir.path().join("newer"), MADE, &header(MADE, "fedssd", 1), 4);
    let text = fs::read_to_string(newer.join("rounds.jsonl")).unwrap();
    fs::write(newer.join("rounds.jsonl"), text.replacen("\"version\":1", "\"version\":9,\"new\":{}", 1)).unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("rounds.jsonl"), "").unwrap();
    let study = load(dir.path());
    let said: Vec<String> = study.left_out.iter().map(|out| format!("{}: {}", out.path.display(), out.what)).collect();
    let said = said.join("\n");
    for text in [
        "cut: the last line is incomplete",
        "cut: it stopped after round 5 of 6",
        "cut: no summary; it was made from the rounds",
        "garbage: line 3 left out",
        "garbage: round 2 is missing",
        "newer: unknown format version 9",
        "empty: ",
    ] {
        assert!(said.contains(text), "{text:?} in {said}");
    }
    let labels: Vec<&str> = study.groups.iter().map(|group| group.label.as_str()).collect();
    assert_eq!(labels, ["moon", "scaffold", "fedavg", "fedcad", "fedssd"]);
    let html = ReportPage::new(&study, None).unwrap().html();
    assert!(html.contains("What was left out") && html.contains("line 3 left out"));
    let nothing = tempfile::tempdir().unwrap();
    let error = LoadedRuns::load(&[nothing.path().to_path_buf()]).unwrap_err().to_string();
    assert!(error.starts_with("no runs in "), "{error}");
    let error = LoadedRuns::load(&[dir.path().join("empty")]).unwrap_err().to_string();
    assert!(error.contains("no header"), "{error}");
}

#[test]
fn a_run_that_lost_a_file_still_counts() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 3, seeds: 2, ..MADE });
    let path = |name: &str| dir.path().join(name);
    // The configuration: the record still names the method.
    fs::remove_file(path("fedavg/seed-1/config.toml")).unwrap();
    // The summary: all rounds are there.
    fs::write(path("fedcad/seed-2/summary.json"), "{\"status\": ").unwrap();
    // The rounds: nothing is left to count.
    fs::remove_file(path("fedgkd/seed-1/rounds.jsonl")).unwrap();
    let found = load(dir.path());
    let seeds = |group: &fedelity_report::Group| group.counted().iter().map(|run| run.header.seed).collect::<Vec<_>>();
    let groups: Vec<_> = found.groups.iter().map(|group| (group.label.as_str(), seeds(group))).collect();
    assert_eq!(groups, [("fedavg", vec![1, 2]), ("fedcad", vec![1, 2]), ("fedgkd", vec![2])]);
    let row = &Comparison::new(&found, &Options::default()).unwrap().rows[1];
    assert_eq!((row.seeds.as_slice(), row.unfinished), (&[1, 2][..], 0));
    assert_eq!(row.final_accuracy.unwrap().mean, (finals(1)[0] + finals(1)[1]) / 2.0);
    let report = ReportPage::new(&found, None).unwrap();
    let html = report.html();
    for (run, what) in [
        ("fedavg/seed-1", "the configuration cannot be read"),
        ("fedcad/seed-2", "no summary; it was made from the rounds"),
        ("fedgkd/seed-1", "the folder has summary.json, but no rounds.jsonl"),
    ] {
        let said = report.left_out.iter().any(|out| out.path == path(run) && out.what.starts_with(what));
        assert!(said && html.contains(what), "{run}: {:?}", report.left_out);
    }
}

#[test]
fn what_the_data_lack_is_said_with_every_number() {
    let dir = tempfile::tempdir().unwrap();
    let gap = "37,436 training samples, but AG News has 120,000: results cannot be compared with published ones";
    for (name, seed) in [("fedavg", 1), ("fedavg", 2), ("fedcad", 1)] {
        let header = Header { data_gaps: vec![gap.to_string()], ..header(MADE, name, seed) };
        run(&dir.path().join(name).join(seed.to_string()), MADE, &header, 0);
    }
    let study = load(dir.path());
    let found = Comparison::new(&study, &Options::default()).unwrap();
    assert_eq!(found.notes.iter().filter(|note| **note == format!("made-up: {gap}.")).count(), 1, "{:?}", found.notes);
    assert!(ReportPage::new(&study, None).unwrap().html().contains(gap));
    assert!(render(&found, TableSyntax::Markdown, &[]).contains(gap));
}
