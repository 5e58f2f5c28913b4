//! Studies from files: grouping, comparison, tables, figures, and damaged files.

use std::fs;
use std::path::Path;

use crate::records::{Made, header, name, round, run, study};
use fedelity_record::{Guessing, Header, Measure, Notice, RoundRecord, RoundsFile, Status, Summary, Unlearnt};
use fedelity_report::{
    Comparison, ComparisonRow, Drawing, DrawnFigure, Include, Judged, LoadedRun, LoadedRuns, Options, PaperSize,
    ReportPage, Results, TableColumn, TableSyntax, Test, render,
};

const MADE: Made = Made { methods: 3, seeds: 4, rounds: 6, classes: 4 };

fn load(folder: &Path) -> Results {
    Results::new(LoadedRuns::load(&[folder.to_path_buf()]).unwrap())
}

fn finals(method: usize) -> Vec<f64> {
    (1..=MADE.seeds).map(|seed| round(MADE, method, seed, MADE.rounds).accuracy.unwrap()).collect()
}

#[test]
fn seeds_are_paired_and_everything_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), MADE);
    let found = Comparison::new(&load(dir.path()), &Options::default()).unwrap();
    assert_eq!(found.baseline, "fedavg");
    assert_eq!(found.rows.iter().map(|row| row.label.clone()).collect::<Vec<_>>(), ["fedavg", "fedcad", "fedgkd"]);
    let row = &found.rows[1];
    assert_eq!((row.seeds.as_slice(), row.unfinished), (&[1, 2, 3, 4][..], 0));
    let differences: Vec<f64> = finals(1).iter().zip(finals(0)).map(|(a, b)| a - b).collect();
    let mean = differences.iter().sum::<f64>() / 4.0;
    let difference = row.difference.unwrap();
    assert!((difference.summary.mean - mean).abs() < 1e-12);
    assert_eq!((difference.test, difference.summary.n), (Test::PairedT, 4));
    let interval = difference.interval.unwrap();
    assert!(interval.low < mean && mean < interval.high && ((interval.low + interval.high) / 2.0 - mean).abs() < 1e-12);
    // The area by hand: trapezoids over the rounds.
    let area = |seed| {
        let a: Vec<f64> = (1..=6).map(|r| round(MADE, 1, seed, r).accuracy.unwrap()).collect();
        (a[0] / 2.0 + a[1] + a[2] + a[3] + a[4] + a[5] / 2.0) / 5.0
    };
    assert!((row.area.unwrap().mean - (1..=4).map(area).sum::<f64>() / 4.0).abs() < 1e-12);
    assert_eq!(found.rows.iter().map(|row| row.rank.unwrap()).sum::<f64>(), 6.0);
    let to = found.rows[0].to_target.unwrap();
    assert_eq!((to.reached, to.of), (4, 4));
    assert!(found.notes[0].contains("paired t, n = 4") && found.notes[0].contains("Holm"), "{:?}", found.notes);
    let wanted = Options { target: Some(2.0), baseline: Some("fedcad".to_string()), ..Options::default() };
    let other = Comparison::new(&load(dir.path()), &wanted).unwrap();
    assert!(other.rows.iter().all(|row| row.to_target.unwrap().rounds.is_none()) && other.rows[1].difference.is_none());
    let unknown = Options { baseline: Some("fedsgd".to_string()), ..Options::default() };
    let error = Comparison::new(&load(dir.path()), &unknown).unwrap_err().to_string();
    assert_eq!(error, "no method 'fedsgd' among the runs; the methods are fedavg, fedcad, fedgkd");
}

/// Differences, ranks and the best of a table are of the accuracy that is asked for.
#[test]
fn other_accuracies_than_the_last_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    // The mean of twelve rounds is not that of the last ten.
    let made = Made { rounds: 12, ..MADE };
    study(dir.path(), made);
    let of = |method, seed, by: Judged| {
        let curve: Vec<f64> = (1..=12).map(|r| round(made, method, seed, r).accuracy.unwrap()).collect();
        match by {
            Judged::Final => curve[11],
            Judged::LastTen => curve[2..].iter().sum::<f64>() / 10.0,
            Judged::Best => curve.iter().copied().fold(0.0, f64::max),
        }
    };
    for (by, column) in [(Judged::Final, "final %"), (Judged::LastTen, "last ten %"), (Judged::Best, "best %")] {
        let found = Comparison::new(&load(dir.path()), &Options { by, ..Options::default() }).unwrap();
        let mean = (1..=4).map(|seed| of(1, seed, by) - of(0, seed, by)).sum::<f64>() / 4.0;
        assert!((found.rows[1].difference.unwrap().summary.mean - mean).abs() < 1e-12, "{by:?}");
        let rank = |seed| 1 + (0..3).filter(|other| of(*other, seed, by) > of(2, seed, by)).count();
        assert_eq!(found.rows[2].rank.unwrap(), (1..=4).map(rank).sum::<usize>() as f64 / 4.0, "{by:?}");
        let latex = render(&found, TableSyntax::Latex, &[]);
        assert!(latex.contains(&format!("method & {} & ", column.replace('%', "\\%"))), "{latex}");
        assert_eq!(latex.matches("textbf").count(), 1);
        let said = found.notes[0].contains("the last ten rounds");
        assert_eq!(
            (said, render(&found, TableSyntax::Markdown, &[]).contains("last ten %")),
            (column == "last ten %", said)
        );
        let csv = render(&found, TableSyntax::Csv, &[]);
        let last: f64 = (1..=4).map(|seed| of(0, seed, Judged::LastTen)).sum::<f64>() / 4.0;
        assert!(
            csv.lines().next().unwrap().ends_with(",last-ten,last-ten-sd,by") && csv.contains(&last.to_string()),
            "{csv}"
        );
    }
}

#[test]
fn methods_follow_the_order_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), MADE);
    fs::rename(dir.path().join("fedavg"), dir.path().join("fedgkd-2")).unwrap();
    let methods = ["fedgkd", "fedcad", "fedgkd"].map(|name| format!("[[method]]\nname = \"{name}\"\n"));
    fs::write(dir.path().join("config.toml"), methods.concat()).unwrap();
    let groups = load(dir.path()).groups;
    assert_eq!(groups.iter().map(|group| &group.label[..]).collect::<Vec<_>>(), ["fedgkd", "fedcad", "fedavg"]);
}

/// Two methods on two partitions: on the first, `fedcad` is better than `fedavg`; on the second, both are worse than
/// either is on the first.
fn two_partitions(folder: &Path) {
    study(&folder.join("one"), Made { methods: 2, ..MADE });
    for (method, name) in ["fedavg", "fedcad"].iter().enumerate() {
        for seed in 1..=MADE.seeds {
            let mut other = header(MADE, name, seed);
            other.partition_fingerprint = "ee".repeat(32);
            let path = run(&folder.join(format!("two/{name}/{seed}")), MADE, &other, method);
            lower(&path, 0.3);
        }
    }
}

/// Lowers all accuracies of a run, in its rounds and its summary.
fn lower(path: &Path, by: f64) {
    let mut read = LoadedRun::read(path).unwrap().0;
    fs::remove_file(path.join("rounds.jsonl")).unwrap();
    let mut file = RoundsFile::create(&path.join("rounds.jsonl"), &read.header).unwrap();
    let mut summary = Summary { status: Status::Finished, ..Summary::default() };
    for round in &mut read.rounds {
        round.accuracy = round.accuracy.map(|accuracy| (accuracy - by).max(0.0));
        file.append(round).unwrap();
        summary.add(round);
    }
    fs::write(path.join("summary.json"), serde_json::to_string(&summary).unwrap()).unwrap();
}

#[test]
fn other_partitions_are_compared_separately() {
    let dir = tempfile::tempdir().unwrap();
    two_partitions(dir.path());
    let found = Comparison::new(&load(dir.path()), &Options::default()).unwrap();
    let labels: Vec<&str> = found.settings.iter().map(|setting| setting.label.as_str()).collect();
    assert_eq!(labels, ["partition=c0c0c0c0", "partition=eeeeeeee"]);
    let rows: Vec<(usize, &str)> = found.rows.iter().map(|row| (row.setting, row.name.as_str())).collect();
    assert_eq!(rows, [(0, "fedavg"), (0, "fedcad"), (1, "fedavg"), (1, "fedcad")]);
    // Each fedavg is the baseline of its own partition, with two ranks in each, and what compares one partition alone
    // is the same.
    let alone = Comparison::new(&load(&dir.path().join("two")), &Options::default()).unwrap();
    assert_eq!(found.rows[3].baseline.as_deref(), Some("fedavg partition=eeeeeeee"));
    let plain = |row: &ComparisonRow| {
        let difference = row.difference.unwrap();
        (difference.summary, difference.interval, difference.p, row.rank, row.to_target)
    };
    assert_eq!(plain(&found.rows[3]), plain(&alone.rows[1]));
    assert!(found.rows[3].difference.unwrap().summary.mean.abs() < 0.15, "not that of the other partition");
    assert_eq!(found.rows.iter().filter(|row| row.difference.is_none()).count(), 2);
    assert_eq!(found.rows.iter().map(|row| row.rank.unwrap()).sum::<f64>(), 6.0);
    assert!(found.notes.iter().any(|note| note.contains("only runs of the same setting")), "{:?}", found.notes);
    // Every format has a heading, or a column, for each setting, and a winner in each.
    let latex = render(&found, TableSyntax::Latex, &[]);
    assert_eq!((latex.matches("\\textbf").count(), latex.matches("\\midrule").count()), (2, 2), "{latex}");
    assert_eq!(latex.matches("\\emph{partition=").count(), 2, "{latex}");
    assert_eq!(render(&found, TableSyntax::Markdown, &[]).matches("| **partition=").count(), 2);
    let csv = render(&found, TableSyntax::Csv, &[]);
    assert_eq!(csv.lines().filter(|line| line.contains(",partition=eeeeeeee,fedavg partition=eeeeeeee,")).count(), 2);
    let json: serde_json::Value = serde_json::from_str(&render(&found, TableSyntax::Json, &[])).unwrap();
    assert_eq!((&json["rows"][3]["setting"], &json["settings"][1]["label"]), (&1.into(), &"partition=eeeeeeee".into()));
    let html = ReportPage::new(&load(dir.path()), None).unwrap().html();
    assert_eq!(html.matches("<tr class=setting-of>").count(), 2);
}

#[test]
fn only_what_is_named_is_mixed() {
    let dir = tempfile::tempdir().unwrap();
    two_partitions(dir.path());
    for path in ["one/fedcad", "two/fedcad"] {
        fs::remove_dir_all(dir.path().join(path)).unwrap();
    }
    let source = || LoadedRuns::load(&[dir.path().to_path_buf()]).unwrap();
    let apart = Comparison::new(&Results::new(source()), &Options::default()).unwrap();
    assert!(apart.rows.iter().all(|row| row.difference.is_none() && row.rank.is_none()));
    let mixed = Results::mixing(source(), &["partition.fingerprint".to_string()]).unwrap();
    let mixed = Comparison::new(&mixed, &Options::default()).unwrap();
    assert_eq!((mixed.settings.len(), mixed.rows[1].rank), (1, Some(2.0)));
    assert!(mixed.notes.iter().any(|note| note.contains("as asked")), "{:?}", mixed.notes);
    let idle = Results::mixing(source(), &["rounds".to_string()]).unwrap();
    assert_eq!((idle.mixed.len(), idle.idle[0].name.as_str()), (0, "rounds"));
    assert!(idle.idle[0].what.starts_with("the runs do not differ in it"), "{:?}", idle.idle);
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

/// Two data sets with as many classes, and one with fewer: each figure has the classes of its own runs.
#[test]
fn classes_of_one_data_set_are_not_those_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let few = Made { classes: 2, ..MADE };
    for (made, data, class) in [(MADE, "pets", "cat"), (MADE, "cars", "van"), (few, "coins", "head")] {
        let classes = (0..made.classes).map(|number| format!("{class} {number}")).collect();
        let prints = (data.repeat(16), format!("p-{data}"));
        let header = Header {
            dataset: data.to_string(),
            classes,
            dataset_fingerprint: prints.0,
            partition_fingerprint: prints.1,
            ..header(made, "fedavg", 1)
        };
        run(&dir.path().join(data), made, &header, 0);
    }
    let page = ReportPage::new(&load(dir.path()), None).unwrap();
    let mut seen = 0;
    for figure in page.cards.iter().flat_map(|card| &card.figures) {
        let (names, own): (Vec<&String>, usize) = match &figure.drawing {
            Drawing::Heat { method: Some(method), rows, columns, .. } => {
                (rows.iter().chain(columns).filter(|name| name.parse::<u64>().is_err()).collect(), *method)
            }
            Drawing::Classes { classes, series, .. } => {
                let marked: Vec<usize> =
                    (0..3).filter(|&method| series[method].iter().any(|round| !round.is_empty())).collect();
                assert_eq!((marked.len(), series[marked[0]].len() as u64), (1, MADE.rounds), "{}", figure.id);
                (classes.iter().collect(), marked[0])
            }
            _ => continue,
        };
        // Folders are in the order of their names.
        let class = ["van", "head", "cat"][own];
        let strange = names
            .iter()
            .find(|name| ["van", "head", "cat"].iter().any(|other| *other != class && name.starts_with(other)));
        assert_eq!(strange, None, "{}: {}", figure.id, figure.title);
        seen += 1;
    }
    assert!(seen >= 9, "{seen}");
}

#[test]
fn one_method_in_each_setting_is_compared_with_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (alpha, print) in [("0.1", "aa"), ("1.0", "bb")] {
        let header = Header { partition_fingerprint: print.repeat(32), ..header(MADE, "fedavg", 1) };
        let path = run(&dir.path().join(alpha), MADE, &header, 0);
        fs::write(path.join("config.toml"), format!("[partition]\nalpha = {alpha}\n")).unwrap();
    }
    let found = Comparison::new(&load(dir.path()), &Options::default()).unwrap();
    assert!(!found.has_rivals() && found.settings.len() == 2);
    let said = "Each setting has one method, so it is compared with nothing. fedelity compare --mix KEY compares runs that \
                differ in KEY: here partition.alpha.";
    assert!(found.notes.iter().any(|note| note == said), "{:?}", found.notes);
    let source = LoadedRuns::load(&[dir.path().to_path_buf()]).unwrap();
    let mixed = Results::mixing(source, &["partition.alpha".to_string()]).unwrap();
    let mixed = Comparison::new(&mixed, &Options::default()).unwrap();
    assert!(mixed.has_rivals() && !mixed.notes.iter().any(|note| note == said), "{:?}", mixed.notes);
}

/// The folder of a sweep with `[tune]`: FedAvg has another learning rate than FedCAD, and its partition another name.
fn tuned(folder: &Path, chosen: &str) {
    for (stage, seeds) in [("choose", 11..=12), ("compare", 1..=3)] {
        for (method, (name, lr)) in [("fedavg", 0.05), ("fedcad", 0.01)].iter().enumerate() {
            for seed in seeds.clone() {
                let path = folder.join(format!("{stage}/{name}-lr/seed-{seed}"));
                let mut header = header(MADE, name, seed);
                if stage == "choose" {
                    header.dataset.push_str("-held-out");
                }
                run(&path, MADE, &header, method);
                fs::write(path.join("config.toml"), format!("[optimizer]\nlr = {lr}\n")).unwrap();
                fs::write(path.join("sweep.json"), format!(r#"{{"set": ["rounds=6", "optimizer.lr={lr}"]}}"#)).unwrap();
            }
        }
    }
    fs::write(folder.join("chosen.json"), chosen).unwrap();
}

#[test]
fn tuned_methods_are_compared_from_the_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    tuned(dir.path(), r#"[{"task": "fedavg", "tuned": ["optimizer.lr"]}, {"task": "fedcad", "tuned": []}]"#);
    for folder in [dir.path().to_path_buf(), dir.path().join("compare")] {
        let found = Comparison::new(&load(&folder), &Options::default()).unwrap();
        assert_eq!((found.settings.len(), found.tuned.as_slice()), (1, &["optimizer.lr".to_string()][..]));
        let rows: Vec<(&str, &[u64])> =
            found.rows.iter().map(|row| (row.name.as_str(), row.seeds.as_slice())).collect();
        assert_eq!(rows, [("fedavg", &[1, 2, 3][..]), ("fedcad", &[1, 2, 3])], "those that chose are no results");
        assert_eq!(found.rows[1].difference.unwrap().summary.n, 3);
        assert_eq!(found.rows[0].chosen.as_deref(), Some("lr=0.05"));
        assert!(found.notes.iter().any(|note| note.ends_with("held-out training samples: optimizer.lr.")));
        let markdown = render(&found, TableSyntax::Markdown, &[]);
        assert!(
            markdown.lines().next().unwrap().ends_with(" chosen |") && markdown.contains("| lr=0.01 |"),
            "{markdown}"
        );
        assert!(render(&found, TableSyntax::Csv, &[]).lines().nth(2).unwrap().contains(",lr=0.01,"));
        let latex = render(&found, TableSyntax::Latex, &[TableColumn::Difference, TableColumn::Chosen]);
        assert!(latex.contains("& lr=0.01 \\\\") && latex.contains("\nfedcad & "), "{latex}");
        let html = ReportPage::new(&load(&folder), None).unwrap().html();
        assert!(html.contains("<th>chosen</th>") && html.contains(">lr=0.05</td>") && !html.contains("fedavg lr"));
    }
    // By themselves, the runs that chose can be looked at.
    assert_eq!(load(&dir.path().join("choose")).groups[0].runs.len(), 2);
}

#[test]
fn runs_of_an_earlier_choice_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let line = |task, lr| format!(r#"{{"task": "{task}", "set": ["rounds=6", "optimizer.lr={lr}"], "tuned": []}}"#);
    let chosen = format!("[{}, {}]", line("fedavg", 0.05), line("fedcad", 0.01));
    tuned(dir.path(), &chosen);
    assert_eq!(load(dir.path()).left_out, []);
    for seed in 1..=2 {
        let path = dir.path().join(format!("compare/fedavg-old/seed-{seed}"));
        run(&path, MADE, &header(MADE, "fedavg", seed), 0);
        fs::write(path.join("config.toml"), "[optimizer]\nlr = 0.5\n").unwrap();
        fs::write(path.join("sweep.json"), r#"{"set": ["rounds=6", "optimizer.lr=0.5"]}"#).unwrap();
    }
    for folder in [dir.path().to_path_buf(), dir.path().join("compare")] {
        let study = load(&folder);
        assert_eq!(study.groups.iter().map(|group| group.runs.len()).collect::<Vec<_>>(), [3, 3], "{folder:?}");
        let [out] = &study.left_out[..] else { panic!("{:?}", study.left_out) };
        assert_eq!(out.path, dir.path().join("compare"));
        assert!(out.what.starts_with("2 runs of an earlier choice are left out: chosen.json"), "{}", out.what);
        assert!(ReportPage::new(&study, None).unwrap().html().contains("2 runs of an earlier choice"));
    }
    // By themselves, they can be looked at.
    assert_eq!(load(&dir.path().join("compare/fedavg-old")).groups[0].runs.len(), 2);
}

#[test]
fn choices_of_earlier_versions_and_damaged_ones_are_read() {
    for (chosen, problems) in [(r#"[{"task": "fedavg", "set": []}]"#, 0), ("[{\"tuned\": 3", 1)] {
        let dir = tempfile::tempdir().unwrap();
        tuned(dir.path(), chosen);
        let study = load(&dir.path().join("compare"));
        assert_eq!((study.settings.len(), study.tuned().len()), (2, 0), "{chosen}");
        let said = study.left_out.iter().filter(|out| out.what.starts_with("chosen.json of its sweep cannot be read"));
        assert_eq!(said.count(), 6 * problems, "{:?}", study.left_out);
    }
}

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
fn tables_for_other_programs() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), MADE);
    let mut found = Comparison::new(&load(dir.path()), &Options::default()).unwrap();
    found.rows[1].name = "a_b & 50% | \"x\", y".to_string();
    found.rows[1].title = found.rows[1].name.clone();
    let markdown = render(&found, TableSyntax::Markdown, &[]);
    assert_eq!(
        markdown.lines().take(5).map(|line| line.replace("\\|", "").matches('|').count()).collect::<Vec<_>>(),
        [13; 5]
    );
    let latex = render(&found, TableSyntax::Latex, &[]);
    assert!(
        latex.contains("\\toprule") && latex.contains("\\bottomrule") && latex.contains("a\\_b \\& 50\\% |"),
        "{latex}"
    );
    assert_eq!(latex.lines().filter(|line| line.ends_with("\\\\")).count(), 4);
    assert_eq!(latex.matches("\\textbf").count(), 1);
    let first = latex.lines().find(|line| line.starts_with("fedavg")).unwrap();
    assert!(first.contains(" & -- & ") && first.matches('&').count() == 4, "{first}");
    // Chosen columns, in the chosen order, in both formats.
    let chosen = [TableColumn::Rank, TableColumn::Interval];
    let latex = render(&found, TableSyntax::Latex, &chosen);
    assert!(latex.contains("method & rank & 95 \\% interval \\\\") && latex.contains("{@{}lrr@{}}"), "{latex}");
    assert!(render(&found, TableSyntax::Markdown, &chosen).starts_with("| method | rank | 95 % interval |\n"));
    let csv = render(&found, TableSyntax::Csv, &[]);
    assert!(csv.contains("\"a_b & 50% | \"\"x\"\", y\""), "{csv}");
    let mean = finals(0).iter().sum::<f64>() / 4.0;
    assert!(csv.contains(&format!("fedavg,4,{mean},")), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&render(&found, TableSyntax::Json, &[])).unwrap();
    assert_eq!(json["rows"][0]["final-accuracy"]["mean"], mean);
    assert!(json["rows"][2]["difference"]["p-holm"].is_number());
}

#[test]
fn other_seeds_are_named_and_only_shared_ones_are_paired() {
    let dir = tempfile::tempdir().unwrap();
    study(&dir.path().join("one"), Made { methods: 1, seeds: 2, ..MADE });
    run(&dir.path().join("two"), MADE, &header(MADE, "fedntd", 1), 1);
    let study = load(dir.path());
    let found = Comparison::new(&study, &Options::default()).unwrap();
    assert_eq!((found.settings.len(), found.rows[1].difference.unwrap().summary.n), (1, 1));
    assert!(found.rows[1].difference.unwrap().interval.is_none());
    assert!(found.notes[0].contains("one seed gives no interval"), "{:?}", found.notes);
    let note = found.notes.last().unwrap();
    assert!(note.starts_with("The seeds that count differ: 1 2 (fedavg), 1 (fedntd)."), "{note}");
    let html = ReportPage::new(&study, None).unwrap().html();
    assert!(html.contains("The seeds that count differ"), "the page notes it");
}

#[test]
fn the_same_method_with_other_keys_is_another_row() {
    let dir = tempfile::tempdir().unwrap();
    for (at, beta) in [0.5, 1.0].iter().enumerate() {
        let mut header = header(MADE, "fedntd", 1);
        header.method_settings = [("beta".to_string(), (*beta).into()), ("tau".to_string(), 1.into())].into();
        run(&dir.path().join(at.to_string()), MADE, &header, at);
    }
    run(
        &dir.path().join("again"),
        MADE,
        &{
            let mut h = header(MADE, "fedntd", 1);
            h.method_settings = [("beta".to_string(), 1.0.into()), ("tau".to_string(), 1.into())].into();
            h
        },
        1,
    );
    let study = load(dir.path());
    assert_eq!(
        study.groups.iter().map(|group| group.label.as_str()).collect::<Vec<_>>(),
        ["fedntd beta=0.5", "fedntd beta=1.0"]
    );
    assert!(study.left_out.iter().any(|out| out.what.contains("seed 1 occurs twice")), "{:?}", study.left_out);
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
fn curves_show_single_seeds() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 3, ..MADE });
    let report = ReportPage::new(&load(dir.path()), None).unwrap();
    let figure = &report.cards[0].figures[0];
    let Drawing::Lines { series, .. } = &figure.drawing else { panic!("{figure:?}") };
    let line = &series[1].seeds[2];
    let expected: Vec<[f64; 2]> = (1..=6).map(|r| [r as f64, round(MADE, 1, 3, r).accuracy.unwrap()]).collect();
    assert_eq!((series[1].seeds.len(), line.seed, line.points.len()), (3, 3, 6));
    assert!(line.points.iter().zip(&expected).all(|(a, b)| a[0] == b[0] && (a[1] - b[1]).abs() < 1e-8));
    // A line and a dot for each run, beside the means.
    let text = DrawnFigure::new(figure, &report.methods, PaperSize::default()).svg();
    assert_eq!(text.matches("<circle").count(), 6, "{text}");
    assert_eq!(text.matches("stroke-opacity=\"0.75\"").count(), 6, "{text}");
    let alone = tempfile::tempdir().unwrap();
    study(alone.path(), Made { methods: 2, seeds: 1, ..MADE });
    let report = ReportPage::new(&load(alone.path()), None).unwrap();
    let Drawing::Lines { series, .. } = &report.cards[0].figures[0].drawing else { panic!("no curves") };
    assert!(series.iter().all(|series| series.seeds.is_empty()));
}

#[test]
fn the_page_says_what_lines_are_drawn() {
    let said = |methods: usize, seeds: u64| {
        let dir = tempfile::tempdir().unwrap();
        study(dir.path(), Made { methods, seeds, rounds: 2, classes: 2 });
        let report = ReportPage::new(&load(dir.path()), None).unwrap();
        let html = report.html();
        let note = html.split("<p class=note>In the figures, ").nth(1).map(|rest| rest.split("</p>").next().unwrap());
        let captions = report.captions(|figure| figure.id.clone());
        let caption = captions.lines().nth(1).unwrap().split(". ").nth(1).unwrap();
        (note.unwrap_or_default().to_string(), caption.to_string())
    };
    let bands = "bands one standard deviation";
    let thin = "thin lines that end in a dot are single seeds";
    let few = (
        format!("lines are means over seeds, {bands}; {thin}."),
        format!("Lines are means over 2 seeds, {bands}; {thin}"),
    );
    assert_eq!(said(6, 2), few);
    let many = (
        format!(
            "lines are means over seeds. If at most 6 methods are shown, there is more: {bands}; {thin}. Hide some methods to \
             see it."
        ),
        "Lines are means over 2 seeds, without bands".to_string(),
    );
    assert_eq!(said(7, 2), many);
    // Very many seeds have a band, and no lines.
    let crowd = (format!("lines are means over seeds, {bands}."), format!("Lines are means over 21 seeds, {bands}"));
    assert_eq!(said(1, 21), crowd);
    assert_eq!(said(2, 1), (String::new(), "Lines are single runs".to_string()));
}

#[test]
fn captions_are_true_of_their_figure() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 2, rounds: 3, classes: 4 });
    let report = ReportPage::new(&load(dir.path()), None).unwrap();
    let captions = report.captions(|figure| figure.id.clone());
    let of = |id: &str| {
        let found = captions.split("\n\n").find_map(|part| part.strip_prefix(id)?.strip_prefix('\n'));
        found.unwrap_or_else(|| panic!("no {id} in {captions}"))
    };
    for (id, start) in [
        ("accuracy", "Accuracy of the global model on the test set after each round. Lines are means over 2 seeds"),
        ("loss", "Cross-entropy loss of the global model on the test set after each round."),
        ("forgetting", "Forgetting of the global model: how far"),
        ("class-cosine", "Cosine between the global model's class accuracies"),
        ("holdings", "Training samples by client and class (dirichlet, alpha 0.1, 20 clients)."),
        (
            "classes-fedcad",
            "Accuracy of the global model on the test set by class and round: fedcad, mean over 2 seeds.",
        ),
        (
            "confusion-before-fedavg",
            "Confusion matrix of the global model that client 3 received in round 3 (fedavg, seed 1)",
        ),
        (
            "confusion-after-fedavg",
            "Confusion matrix of the model of client 3 after its training in round 3 (fedavg, seed 1)",
        ),
        ("confusion-global-fedcad", "Confusion matrix of the global model after round 3 (fedcad, seed 1)"),
        ("forgot-fedavg", "Share of each class's test samples that clients predicted correctly before"),
        ("gradient-diversity", "Gradient diversity: how much"),
        ("term-kd", "The term 'kd' of the mean loss"),
    ] {
        assert!(of(id).starts_with(start), "{id}: {}", of(id));
    }
    assert!(!of("forgetting").contains("osine") && !of("confusion-global-fedavg").contains("client 3"));
    // Every figure has a text of its own.
    let mut texts: Vec<&String> = report.cards.iter().flat_map(|card| &card.figures).map(|one| &one.text).collect();
    let all = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert!(texts.len() == all && texts.iter().all(|text| text.ends_with('.')), "{texts:#?}");
}

#[test]
fn every_figure_becomes_pdf_svg_and_png() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 2, rounds: 3, classes: 4 });
    let report = ReportPage::new(&load(dir.path()), None).unwrap();
    let ids: Vec<&str> = report.cards.iter().map(|card| card.id.as_str()).collect();
    let expected = [
        "accuracy",
        "forgetting",
        "holdings",
        "classes",
        "class-round",
        "local",
        "changes",
        "confusion",
        "drift",
        "cost",
        "terms",
    ];
    assert_eq!(ids, expected);
    let mut kinds = 0;
    for figure in report.cards.iter().flat_map(|card| card.figures.first()) {
        let drawn = DrawnFigure::new(figure, &report.methods, PaperSize::default());
        let text = drawn.svg();
        assert!(text.starts_with("<svg") && text.contains("<text"), "{}", figure.id);
        let image = drawn.png().unwrap();
        assert_eq!(&image[..8], b"\x89PNG\r\n\x1a\n");
        // 88 mm at 600 dots per inch, and something is drawn: plain white compresses far better.
        let wide = u32::from_be_bytes(image[16..20].try_into().unwrap());
        assert!(wide == 2_079 && image.len() > 12_000, "{}: {wide}", figure.id);
        let pdf = drawn.pdf();
        assert!(pdf.starts_with(b"%PDF-") && pdf.ends_with(b"%%EOF"), "{}", figure.id);
        kinds += 1;
    }
    assert_eq!(kinds, expected.len());
    assert_eq!(name(0), report.methods[0].label);
}

/// The first round whose accuracy reaches the target, from the golden vectors; and one that is reached.
#[test]
fn golden_rounds_to_target() {
    let default = || std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden"));
    let folder = std::env::var_os("FEDELITY_GOLDEN").map_or_else(default, std::path::PathBuf::from);
    let text = std::fs::read_to_string(folder.join("rules.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cases = golden["rules"].as_array().unwrap().iter().filter(|case| case["name"] == "rounds-to-target");
    let mut seen = 0;
    for case in cases {
        let accuracies = case["inputs"]["accuracy_by_round"].as_array().unwrap();
        let curve: Vec<(u64, f64)> = (1..).zip(accuracies.iter().map(|value| value.as_f64().unwrap())).collect();
        let found = |target: f64| {
            let runs = vec![LoadedRun::of(1, Summary::default(), &curve)];
            let results = Results::of(vec![("m".to_string(), runs)]);
            let options = Options { target: Some(target), ..Options::default() };
            Comparison::new(&results, &options).unwrap().rows[0].to_target.unwrap().rounds
        };
        assert_eq!(found(case["inputs"]["target"].as_f64().unwrap()), case["expect"]["round"].as_f64());
        assert_eq!(found(curve[6].1), Some(curve.iter().find(|point| point.1 >= curve[6].1).unwrap().0 as f64));
        seen += 1;
    }
    assert!(seen > 0);
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
