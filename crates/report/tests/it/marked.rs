//! Runs with a mark: unfinished, collapsed, diverged, or without anything learnt.

use std::fs;
use std::path::Path;

use crate::records::{Made, header, run, study};
use crate::studies::{MADE, load};
use fedelity_record::{Guessing, Header, Measure, Notice, RoundRecord, RoundsFile, Status, Summary, Unlearnt};
use fedelity_report::{Comparison, Include, LoadedRun, Options, ReportPage, TableSyntax, render};

/// Makes the last round of a run a collapse.
fn collapse(path: &Path) {
    let read = LoadedRun::read(path).unwrap().0;
    fs::remove_file(path.join("rounds.jsonl")).unwrap();
    let mut file = RoundsFile::create(&path.join("rounds.jsonl"), &read.header).unwrap();
    let mut summary = Summary { status: Status::Finished, ..Summary::default() };
    for mut round in read.rounds {
        if round.round == MADE.rounds {
            round.accuracy = Some(0.28);
            round.notices = vec![
                Notice::Outlier { client: 7, measure: Measure::Drift, value: 211.0, median: 2.0 },
                Notice::Fall { accuracy: 0.28, best: 0.74, client: 7, since: round.round },
            ];
        }
        file.append(&round).unwrap();
        summary.add(&round);
    }
    fs::write(path.join("summary.json"), serde_json::to_string(&summary).unwrap()).unwrap();
}

#[test]
fn unfinished_and_collapsed_runs_are_marked_and_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 3, seeds: 3, ..MADE });
    // Seed 2 of fedcad stopped after round 2, with the highest accuracy of all; seed 3 of fedgkd collapsed.
    let path = |name: &str| dir.path().join(name);
    let stopped = path("fedcad/seed-2");
    let text = fs::read_to_string(stopped.join("rounds.jsonl")).unwrap();
    let kept: Vec<&str> = text.lines().take(3).collect();
    fs::write(stopped.join("rounds.jsonl"), kept.join("\n") + "\n").unwrap();
    let mut summary = Summary { status: Status::Interrupted, ..Summary::default() };
    LoadedRun::read(&stopped).unwrap().0.rounds.iter().for_each(|round| summary.add(round));
    fs::write(stopped.join("summary.json"), serde_json::to_string(&summary).unwrap()).unwrap();
    collapse(&path("fedgkd/seed-3"));
    let study = load(dir.path());
    let found = Comparison::new(&study, &Options::default()).unwrap();
    let of = |found: &Comparison, row: usize| {
        let row = &found.rows[row];
        (row.unfinished, row.collapsed, row.difference.map_or(0, |found| found.summary.n), row.seeds_cell())
    };
    assert_eq!(of(&found, 1), (1, 0, 2, "2*".to_string()));
    assert_eq!(of(&found, 2), (0, 1, 2, "3†".to_string()));
    let what = &found.rows[2].marks[0].what;
    assert_eq!(
        what,
        "collapsed in round 6: client 7: drift 211, median of the round 2.00; accuracy fell from 74.0 % to \
                      28.0 % after client 7 was out of line in round 6"
    );
    let all = Include { unfinished: true, collapsed: true, unlearnt: true };
    let included = Comparison::new(&study, &Options { include: all, ..Options::default() }).unwrap();
    assert_eq!((of(&included, 1).2, of(&included, 2).2), (3, 3));
    assert!(found.rows.iter().all(|row| row.rank.is_some()));
    let html = ReportPage::new(&study, None).unwrap().html();
    let footnotes = ["seed 2: stopped after round 2 of 6", "seed 3: collapsed in round 6"];
    for (form, text) in [
        ("latex", render(&found, TableSyntax::Latex, &[])),
        ("markdown", render(&found, TableSyntax::Markdown, &[])),
        ("json", render(&found, TableSyntax::Json, &[])),
        ("page", html.clone()),
    ] {
        assert!(footnotes.iter().all(|note| text.contains(note)), "{form}: {text}");
    }
    assert!(render(&found, TableSyntax::Latex, &[]).contains("3$\\dagger$ &"));
    assert!(html.contains(">2*</td>") && html.contains(">3†</td>") && html.contains("What was noticed"));
    assert!(html.contains("optimizer.clip") && found.advice()[0].contains("optimizer.clip"));
    let json: serde_json::Value = serde_json::from_str(&render(&found, TableSyntax::Json, &[])).unwrap();
    assert_eq!((&json["rows"][1]["unfinished"], &json["rows"][2]["collapsed"]), (&1.into(), &1.into()));
    let csv = render(&found, TableSyntax::Csv, &[]);
    let marks: Vec<&str> = csv.lines().skip(1).map(|line| line.rsplit_once("fedavg,").unwrap().1).collect();
    let begins = |(line, marks): (&&str, &str)| line.starts_with(marks);
    assert!(marks.iter().zip([",,,,,", "2,,,,,", ",3,,,,"]).all(begins), "{csv}");
}

#[test]
fn runs_that_learnt_nothing_are_called_so() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 2, ..MADE });
    let path = dir.path().join("fedcad/seed-2");
    let flat = |guessing: Option<Guessing>, notices: &[Notice], collapse: Option<u64>| {
        let read = LoadedRun::read(&path).unwrap().0;
        fs::remove_file(path.join("rounds.jsonl")).unwrap();
        let header = Header { guessing, ..read.header };
        let mut file = RoundsFile::create(&path.join("rounds.jsonl"), &header).unwrap();
        let mut summary = Summary { status: Status::Finished, ..Summary::default() };
        for round in read.rounds {
            let of_last = if round.round == MADE.rounds { notices.to_vec() } else { Vec::new() };
            let record = RoundRecord { accuracy: Some(0.1), class_accuracy: None, notices: of_last, ..round };
            file.append(&record).unwrap();
            summary.add(&record);
        }
        summary.collapse = collapse;
        fs::write(path.join("summary.json"), serde_json::to_string(&summary).unwrap()).unwrap();
        let study = load(dir.path());
        let found = Comparison::new(&study, &Options::default()).unwrap();
        let html = ReportPage::new(&study, None).unwrap().html();
        (LoadedRun::read(&path).unwrap().0, found, html)
    };
    let unlearnt = Unlearnt { accuracy: 0.1, chance: 0.1, evaluations: MADE.rounds };
    let one_class = Notice::OneClass { class: 0, share: 1.0 };
    for (guessing, notices, collapse) in [
        // The end of a short run says it, from its records alone.
        (Guessing::of(&[100; 10]), vec![], None),
        // An earlier version noticed it, and called it a collapse.
        (None, vec![Notice::Unlearnt(unlearnt), one_class], Some(MADE.rounds)),
    ] {
        let (run, found, html) = flat(guessing, &notices, collapse);
        assert_eq!((run.summary.unlearnt, run.summary.collapse), (Some(unlearnt), None));
        assert_eq!(run.contradictions, Vec::<String>::new());
        let row = &found.rows[1];
        assert_eq!((row.unlearnt, row.collapsed, row.seeds_cell().as_str()), (1, 0, "2‡"));
        let said = "learnt nothing in 6 evaluations: accuracy 10.0 %; guessing gives 10.0 %";
        assert_eq!(row.marks[0].what, said);
        assert!(found.advice()[0].contains("optimizer.lr") && !found.advice()[0].contains("clip"));
        assert!(
            html.contains(said) && html.contains("(1 learnt nothing)") && !html.contains("collapsed in round"),
            "{notices:?}"
        );
        assert_eq!(row.difference.unwrap().summary.n, 1);
        let latex = render(&found, TableSyntax::Latex, &[]);
        assert!(latex.contains("2$\\ddagger$"), "{latex}");
        assert!(render(&found, TableSyntax::Csv, &[]).lines().nth(2).unwrap().contains("fedavg,,,2,"));
        let all = Options { include: Include { unlearnt: true, ..Include::default() }, ..Options::default() };
        assert_eq!(Comparison::new(&load(dir.path()), &all).unwrap().rows[1].difference.unwrap().summary.n, 2);
    }
    // Without a word about guessing, an old record says nothing.
    let (run, ..) = flat(None, &[], None);
    assert_eq!((run.summary.unlearnt, run.mark()), (None, None));
}

#[test]
fn a_run_that_diverged_was_not_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let planned = Header { rounds: 8, ..header(MADE, "fedcad", 1) };
    let path = run(&dir.path().join("a"), MADE, &planned, 1);
    let said = || load(dir.path()).left_out.iter().map(|out| out.what.clone()).collect::<Vec<_>>().join("\n");
    assert!(said().contains("it stopped after round 6 of 8"), "{}", said());
    let file = path.join("summary.json");
    let mut summary: Summary = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    summary.status = Status::Diverged { round: 7, client: Some(2) };
    fs::write(&file, serde_json::to_vec(&summary).unwrap()).unwrap();
    assert_eq!(said(), "it diverged in round 7 of 8");
}

#[test]
fn a_method_without_a_finished_run_is_not_ranked() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 3, seeds: 1, ..MADE });
    let path = dir.path().join("fedgkd/seed-1");
    fs::remove_file(path.join("summary.json")).unwrap();
    let text = fs::read_to_string(path.join("rounds.jsonl")).unwrap();
    fs::write(path.join("rounds.jsonl"), text.lines().take(4).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let found = Comparison::new(&load(dir.path()), &Options::default()).unwrap();
    let row = &found.rows[2];
    assert_eq!((row.unfinished, row.rank, row.difference, row.to_target), (1, None, None, None));
    assert_eq!(row.marks[0].what, "no end recorded, last round 3 of 6: it is running or was killed");
    assert_eq!(found.rows[0].rank.unwrap() + found.rows[1].rank.unwrap(), 3.0);
    let latex = render(&found, TableSyntax::Latex, &[]);
    assert!(!latex.lines().any(|line| line.starts_with("fedgkd") && line.contains("\\textbf")), "{latex}");
}
