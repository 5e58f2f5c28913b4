//! Published numbers beside ours.

use fedelity_record::{Best, Status, Summary};
use fedelity_report::{
    CellRuns, Departure, LoadedRun, PublishedCell, PublishedRow, PublishedTable, PublishedValue, Quantity,
    QuantityKind, Replication, RowRuns, TableSyntax, Verdict, WhichRound,
};

/// A run that has these accuracies, in percent.
fn run(seed: u64, accuracies: &[f64]) -> LoadedRun {
    let shares: Vec<(u64, f64)> = (1..).zip(accuracies.iter().map(|found| found / 100.0)).collect();
    let best = shares.iter().copied().fold((0, 0.0), |best, one| if one.1 > best.1 { one } else { best });
    let summary = Summary {
        status: Status::Finished,
        rounds: shares.len() as u64,
        final_accuracy: shares.last().map(|(_, found)| *found),
        best: Some(Best { accuracy: best.1, round: best.0 }),
        forgetting: Some(0.25),
        ..Summary::default()
    };
    LoadedRun::of(seed, summary, &shares)
}

fn number(value: f64) -> Option<PublishedValue> {
    Some(PublishedValue::Number { value, sd: None })
}

/// Two rows: a baseline with 50 %, and a method.
fn table(kind: QuantityKind, base: Option<PublishedValue>, method: Option<PublishedValue>) -> PublishedTable {
    let row = |name: &str, value| PublishedRow {
        name: name.to_string(),
        title: name.to_uppercase(),
        values: vec![vec![value]],
    };
    PublishedTable {
        name: "mine".to_string(),
        title: "A | table".to_string(),
        source: "made up".to_string(),
        quantities: vec![Quantity { name: "q".to_string(), title: "quantity".to_string(), kind }],
        cells: vec![PublishedCell { name: "a".to_string(), title: "cell".to_string(), target: None, rounds: 3 }],
        rows: vec![row("base", base), row("method", method)],
        departures: vec![Departure { paper: "It is silent.".to_string(), here: "We chose.".to_string() }],
        ..PublishedTable::default()
    }
}

fn compare(table: &PublishedTable, base: Vec<LoadedRun>, method: Vec<LoadedRun>, rounds: u64) -> Replication {
    let row = |at: usize, runs| RowRuns {
        name: table.rows[at].name.clone(),
        title: table.rows[at].title.clone(),
        row: Some(at),
        runs,
    };
    Replication::new(table, &[CellRuns { cell: 0, rounds, rows: vec![row(0, base), row(1, method)] }], Vec::new())
}

fn verdict(published: f64, gaps: &[f64]) -> (Verdict, String) {
    let table = table(QuantityKind::Final, number(50.0), number(50.0 + published));
    let runs = |of: &dyn Fn(f64) -> f64| {
        (1..).zip(gaps).map(|(seed, gap)| run(seed, &[10.0, 20.0, of(*gap)])).collect::<Vec<_>>()
    };
    let found = compare(&table, runs(&|_| 40.0), runs(&|gap| 40.0 + gap), 3);
    let value = &found.cells[0].rows[1].values[0];
    (value.verdict.unwrap(), value.verdict_cell())
}

/// Gaps of 4, 5 and 6 have the mean 5 and the 95 % interval 5 ± 4.303 / sqrt(3) = [2.52, 7.48].
#[test]
fn a_verdict_follows_from_the_sign_and_the_interval() {
    let gaps = [4.0, 5.0, 6.0];
    for (published, expected, said) in [
        (7.4, Verdict::GapWithin, "gap within interval"),
        (2.6, Verdict::GapWithin, "gap within interval"),
        (7.6, Verdict::SameOrder, "same order, smaller gap"),
        (2.4, Verdict::SameOrder, "same order, larger gap"),
        (-1.0, Verdict::OtherOrder, "other order"),
        (0.0, Verdict::LevelThere, "level in the paper"),
    ] {
        assert_eq!(verdict(published, &gaps), (expected, said.to_string()), "{published}");
    }
    // [-3.97, 5.97]: the seeds do not decide.
    assert_eq!(verdict(-1.0, &[-1.0, 1.0, 3.0]), (Verdict::Open, "gap within interval, order open".to_string()));
    assert_eq!(verdict(0.0, &[-1.0, 1.0, 3.0]).0, Verdict::GapWithin);
    // One seed, or seeds that all agree, have no interval.
    for gaps in [&[2.0][..], &[2.0, 2.0]] {
        assert_eq!(verdict(2.0, gaps), (Verdict::SameOrder, "same order, no interval".to_string()));
        assert_eq!(verdict(-2.0, gaps), (Verdict::OtherOrder, "other order, no interval".to_string()));
        assert_eq!(verdict(0.0, gaps).0, Verdict::LevelThere);
    }
    // Equal numbers are in no order.
    for gaps in [&[0.0][..], &[0.0, 0.0]] {
        assert_eq!(verdict(2.0, gaps), (Verdict::LevelHere, "level here".to_string()));
        assert_eq!(verdict(0.0, gaps).0, Verdict::SameOrder);
    }
}

#[test]
fn every_quantity_follows_from_the_records() {
    let accuracies: Vec<f64> = (1..=12).map(f64::from).chain([5.0]).collect();
    let mut one = run(1, &accuracies);
    one.rounds[11].forgetting = Some(0.125);
    for (kind, expected) in [
        (QuantityKind::Final, 5.0),
        (QuantityKind::Best, 12.0),
        // Rounds 4 to 13.
        (QuantityKind::LastTen, (4..=12).map(f64::from).sum::<f64>() / 10.0 + 0.5),
        (QuantityKind::Round(7), 7.0),
        (QuantityKind::Forgetting(WhichRound::Final), 0.25),
        (QuantityKind::Forgetting(WhichRound::Best), 0.125),
    ] {
        let table = table(kind.clone(), number(0.5), number(0.75));
        let found = compare(&table, vec![run(1, &[1.0])], vec![one.clone()], 13);
        let ours = found.cells[0].rows[1].values[0].ours.unwrap().mean;
        assert!((ours - expected).abs() < 1e-9, "{kind:?}: {ours}");
        assert!((found.cells[0].rows[1].last_ten.unwrap().mean - 0.077).abs() < 1e-9);
    }
}

#[test]
fn a_target_may_never_be_reached() {
    let base = || vec![run(1, &[10.0, 60.0, 40.0]), run(2, &[10.0, 20.0, 40.0])];
    let never = || vec![run(1, &[10.0, 20.0, 30.0]), run(2, &[10.0, 20.0, 30.0])];
    let once = || vec![run(1, &[50.0, 20.0, 30.0]), run(2, &[10.0, 20.0, 30.0])];
    for (published, runs, expected) in [
        (Some(PublishedValue::Never), never(), Verdict::NeverInBoth),
        (Some(PublishedValue::Never), once(), Verdict::NeverThere),
        (number(2.0), never(), Verdict::NeverHere),
        (number(2.0), once(), Verdict::SameOrder),
    ] {
        let table = table(QuantityKind::ToTarget, number(3.0), published);
        let found = compare(&table, base(), runs, 3);
        let rows = &found.cells[0].rows;
        // The baseline reaches its own final accuracy in rounds 2 and 3.
        assert_eq!(rows[0].values[0].ours.unwrap().mean, 2.5);
        assert_eq!(rows[1].values[0].verdict, Some(expected), "{published:?}");
    }
    let table = table(QuantityKind::ToTarget, number(3.0), number(2.0));
    let text = compare(&table, base(), once(), 3).render(TableSyntax::Markdown);
    assert!(text.contains("| METHOD | 2 | 2 | 1.0 (1/2) |"), "{text}");
}

#[test]
fn runs_that_collapsed_count_and_those_that_did_not_end_do_not() {
    let table = table(QuantityKind::Final, number(50.0), number(51.0));
    let mut collapsed = run(2, &[10.0]);
    collapsed.summary.collapse = Some(1);
    let mut diverged = run(3, &[99.0]);
    diverged.summary.status = Status::Diverged { round: 1, client: None };
    let found = compare(&table, vec![run(1, &[40.0])], vec![run(1, &[50.0]), collapsed, diverged], 3);
    let row = &found.cells[0].rows[1];
    assert_eq!((row.seeds.as_slice(), row.values[0].ours.unwrap().mean), (&[1, 2][..], 30.0));
    // Only seed 1 is on both sides.
    assert_eq!(row.values[0].gap.unwrap().summary.n, 1);
    assert_eq!(found.footnotes.len(), 2, "{:?}", found.footnotes);
    assert!(found.notes[0].contains("One seed gives no interval"), "{:?}", found.notes);
    assert!(found.render(TableSyntax::Markdown).contains("2\\*†"));
}

#[test]
fn other_rounds_are_said_in_every_format() {
    let of = |kind, rounds| {
        let table = table(kind, number(50.0), number(51.0));
        let runs = |gap: f64| (1..=3).map(|seed| run(seed, &[10.0, 40.0 + gap * seed as f64])).collect::<Vec<_>>();
        compare(&table, runs(0.0), runs(1.0), rounds)
    };
    assert!(of(QuantityKind::Final, 3).changes.is_empty());
    let cut = of(QuantityKind::Final, 2);
    let said = "This is not the published setting, and no replication: 2 rounds instead of 3 in a.";
    assert_eq!(cut.warning().as_deref(), Some(said));
    // A round that has been run is the same, however many follow.
    assert_eq!(of(QuantityKind::Round(2), 2).changes, ["2 rounds instead of 3 in a, except for quantity"]);
    let [markdown, latex, csv, json] = [TableSyntax::Markdown, TableSyntax::Latex, TableSyntax::Csv, TableSyntax::Json]
        .map(|format| cut.render(format));
    assert!(markdown.contains(said) && markdown.starts_with("**A \\| table** (made up)\n"), "{markdown}");
    assert!(
        markdown.contains("| METHOD | 3 | 51.00 | 42.00 ± 1.00 | [39.52, 44.48] | +1.00 | +2.00 | [-0.48, +4.48] |"),
        "{markdown}"
    );
    assert!(markdown.contains("- It is silent. We chose.") && markdown.contains("1 of 1 in a"), "{markdown}");
    assert!(latex.contains(said) && latex.contains("METHOD & 3 & 51.00 & 42.00 $\\pm$ 1.00"), "{latex}");
    let line = csv.lines().nth(2).unwrap();
    assert!(line.starts_with("mine,a,method,q,51,,42") && line.ends_with(",2,3"), "{csv}");
    assert_eq!(csv.lines().map(|line| line.split(',').count()).collect::<Vec<_>>(), [22; 3]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["cells"][0]["rows"][1]["values"][0]["verdict"], "gap-within");
    assert_eq!(value["cells"][0]["published-rounds"], 3);
}
