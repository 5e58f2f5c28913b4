//! Studies from files: grouping, comparison, tables, figures, and damaged files.

use std::fs;
use std::path::Path;

use crate::records::{Made, header, name, round, run, study};
use fedelity_record::Summary;
use fedelity_report::{
    Comparison, Group, LoadedRun, LoadedRuns, Options, ReportPage, Results, TableSyntax, Test, png, render, svg,
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

#[test]
fn other_partitions_are_compared_separately() {
    let dir = tempfile::tempdir().unwrap();
    study(&dir.path().join("one"), Made { methods: 2, ..MADE });
    for (method, name) in ["fedavg", "fedcad"].iter().enumerate() {
        for seed in 1..=MADE.seeds {
            let mut other = header(MADE, name, seed);
            other.partition_fingerprint = "ee".repeat(32);
            run(&dir.path().join(format!("two/{name}/{seed}")), MADE, &other, method);
        }
    }
    let found = load(dir.path());
    assert!(Comparison::new(&found, &Options::default()).is_err());
    let apart = Comparison::new(&found, &Options { apart: true, ..Options::default() }).unwrap();
    assert_eq!(apart.rows.len(), 4);
    // Each fedavg is the baseline of its own partition, with two ranks in each.
    assert_eq!(apart.rows.iter().filter(|row| row.difference.is_none()).count(), 2);
    assert_eq!(apart.rows.iter().map(|row| row.rank.unwrap()).sum::<f64>(), 6.0);
    assert!(apart.notes.last().unwrap().contains("different data or partitions"), "{:?}", apart.notes);
}

#[test]
fn tables_for_other_programs() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), MADE);
    let mut found = Comparison::new(&load(dir.path()), &Options::default()).unwrap();
    found.rows[1].label = "a_b & 50% | \"x\", y".to_string();
    let markdown = render(&found, TableSyntax::Markdown);
    assert_eq!(
        markdown.lines().take(5).map(|line| line.replace("\\|", "").matches('|').count()).collect::<Vec<_>>(),
        [12; 5]
    );
    let latex = render(&found, TableSyntax::Latex);
    assert!(
        latex.contains("\\toprule") && latex.contains("\\bottomrule") && latex.contains("a\\_b \\& 50\\% |"),
        "{latex}"
    );
    assert_eq!(latex.lines().filter(|line| line.ends_with("\\\\")).count(), 4);
    assert_eq!(latex.matches("\\textbf").count(), 1);
    let first = latex.lines().find(|line| line.starts_with("fedavg")).unwrap();
    assert!(first.contains(" & -- & ") && first.matches('&').count() == 10, "{first}");
    let csv = render(&found, TableSyntax::Csv);
    assert!(csv.contains("\"a_b & 50% | \"\"x\"\", y\""), "{csv}");
    let mean = finals(0).iter().sum::<f64>() / 4.0;
    assert!(csv.contains(&format!("fedavg,4,{mean},")), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&render(&found, TableSyntax::Json)).unwrap();
    assert_eq!(json["rows"][0]["final-accuracy"]["mean"], mean);
    assert!(json["rows"][2]["difference"]["p-holm"].is_number());
}

#[test]
fn mismatches_are_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    study(&dir.path().join("one"), Made { methods: 1, seeds: 2, ..MADE });
    let mut other = header(MADE, "fedntd", 1);
    other.partition_fingerprint = "ee".repeat(32);
    run(&dir.path().join("two"), MADE, &other, 1);
    let study = load(dir.path());
    let error = Comparison::new(&study, &Options::default()).unwrap_err().to_string();
    for text in
        ["the partitions differ", "[c0c0c0c0]", "[eeeeeeee]", "the seeds differ: 1 2 (fedavg), 1 (fedntd)", "--force"]
    {
        assert!(error.contains(text), "{text:?} in {error}");
    }
    let forced = Comparison::new(&study, &Options { force: true, ..Options::default() }).unwrap();
    assert_eq!((forced.mismatches.len(), forced.rows[1].difference.unwrap().summary.n), (2, 1));
    assert!(forced.rows[1].difference.unwrap().interval.is_none());
    assert!(forced.notes[0].contains("one seed gives no interval"), "{:?}", forced.notes);
    let html = ReportPage::new(&study, None).unwrap().html(false);
    assert!(html.contains("These runs differ in more than the method"), "the page notes it");
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
    let html = ReportPage::new(&study, None).unwrap().html(false);
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
    let row = &Comparison::new(&found, &Options { force: true, ..Options::default() }).unwrap().rows[1];
    assert_eq!((row.seeds.as_slice(), row.unfinished), (&[1, 2][..], 0));
    assert_eq!(row.final_accuracy.unwrap().mean, (finals(1)[0] + finals(1)[1]) / 2.0);
    let report = ReportPage::new(&found, None).unwrap();
    let html = report.html(false);
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
fn every_figure_becomes_svg_and_png() {
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
        let text = svg(figure, &report.methods).unwrap();
        assert!(text.starts_with("<svg") && text.contains("<text"), "{}", figure.id);
        let image = png(&text, &figure.id).unwrap();
        assert_eq!(&image[..8], b"\x89PNG\r\n\x1a\n");
        // Three times the pixels, and something is drawn: plain white compresses far better.
        assert!(
            u32::from_be_bytes(image[16..20].try_into().unwrap()) >= 1_680 && image.len() > 12_000,
            "{}",
            figure.id
        );
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
            let results = Results { groups: vec![Group { label: "m".to_string(), runs }], left_out: Vec::new() };
            let options = Options { target: Some(target), ..Options::default() };
            Comparison::new(&results, &options).unwrap().rows[0].to_target.unwrap().rounds
        };
        assert_eq!(found(case["inputs"]["target"].as_f64().unwrap()), case["expect"]["round"].as_f64());
        assert_eq!(found(curve[6].1), Some(curve.iter().find(|point| point.1 >= curve[6].1).unwrap().0 as f64));
        seen += 1;
    }
    assert!(seen > 0);
}
