//! Studies from files: grouping, comparison and tables.

use std::fs;
use std::path::Path;

use crate::records::{Made, header, round, run, study};
use fedelity_record::{Header, RoundsFile, Status, Summary};
use fedelity_report::{
    Comparison, ComparisonRow, Judged, LoadedRun, LoadedRuns, Options, ReportPage, Results, TableColumn, TableSyntax,
    Test, render,
};

pub(crate) const MADE: Made = Made { methods: 3, seeds: 4, rounds: 6, classes: 4 };

pub(crate) fn load(folder: &Path) -> Results {
    Results::new(LoadedRuns::load(&[folder.to_path_buf()]).unwrap())
}

pub(crate) fn finals(method: usize) -> Vec<f64> {
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
