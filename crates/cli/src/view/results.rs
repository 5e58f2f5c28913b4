//! The final table: one row per method, over its seeds.

use anyhow::Result;
use fedelity_record::Status;
use fedelity_report::{BASELINE, Comparison, ComparisonRow, Group, MarkKind, Options, Results, spread};

use crate::printer::{Printer, When};
use crate::view::sparkline::{CURVE_WIDTH, scale, sparkline};
use crate::view::table::{Align, Table};
use crate::view::units::{bytes, seconds, wrap};

/// The first cost column.
const COST: &str = "down";
const CURVE: &str = "accuracy";

/// The lines of the table, at most `width` wide. Numbers are over the finished seeds: mean ± standard deviation (with
/// divisor n - 1).
///
/// The curve is omitted if it alone would split the table in two.
pub(crate) fn lines(ended: &Results, printer: &Printer, width: usize) -> Result<Vec<String>> {
    if ended.groups.is_empty() {
        return Ok(Vec::new());
    }
    let comparison = Comparison::new(ended, &Options::default())?;
    let rows = &comparison.rows;
    let compared = rows.len() > 1 && rows.iter().any(|row| row.label == BASELINE);
    let mut columns = vec![
        ("method", Align::Left),
        ("seeds", Align::Right),
        ("final %", Align::Right),
        ("best %", Align::Right),
        ("forgetting", Align::Right),
    ];
    columns.extend(compared.then_some(("to fedavg", Align::Right)));
    columns.extend([
        (COST, Align::Right),
        ("up", Align::Right),
        ("traffic", Align::Right),
        ("time", Align::Right),
        (CURVE, Align::Left),
        ("", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    let scale = scale(rows.iter().flat_map(curve));
    for (row, group) in rows.iter().zip(&ended.groups) {
        table.row(cells(row, group, compared, scale));
    }
    let place = |name: &str| columns.iter().position(|(known, _)| *known == name).unwrap_or(columns.len());
    let plain = table.without(place(CURVE));
    let shown = if table.width() > width && plain.width() <= width { plain } else { table };
    let mut lines = shown.lines_within(printer, width, place(COST));
    if !comparison.footnotes.is_empty() {
        lines.push(String::new());
        let footnotes = comparison.footnotes.iter().map(String::as_str).chain(comparison.advice());
        lines.extend(footnotes.flat_map(|note| wrap(note, width)));
    }
    Ok(lines)
}

/// The same, without colours.
pub fn result_lines(ended: &Results, width: usize) -> Result<Vec<String>> {
    lines(ended, &Printer::new(When::Never, true, false), width)
}

fn cells(row: &ComparisonRow, group: &Group, compared: bool, scale: (f64, f64)) -> Vec<String> {
    let mut cells = vec![
        row.label.clone(),
        row.seeds_cell(),
        spread(row.final_accuracy, 100.0, 2),
        spread(row.best_accuracy, 100.0, 2),
        spread(row.forgetting, 1.0, 3),
    ];
    cells.extend(compared.then(|| row.to_target_cell()));
    cells.extend([
        bytes(row.bytes_down.map_or(0, |found| found.mean as u64)),
        bytes(row.bytes_up.map_or(0, |found| found.mean as u64)),
        row.traffic.map_or("-".to_string(), |found| format!("{:.2}x", found.mean)),
        seconds(row.seconds.map_or(0.0, |found| found.mean)),
        sparkline(&curve(row), CURVE_WIDTH, scale),
        remark(row, group),
    ]);
    cells
}

fn curve(row: &ComparisonRow) -> Vec<f64> {
    row.curve.iter().map(|(_, accuracy)| *accuracy).collect()
}

/// The status of seeds that did not run all rounds, collapsed or learnt nothing.
fn remark(row: &ComparisonRow, group: &Group) -> String {
    let count = |fits: fn(&Status) -> bool| group.runs.iter().filter(|run| fits(&run.summary.status)).count();
    let mut parts = Vec::new();
    for (n, what) in [
        (count(|status| matches!(status, Status::Diverged { .. })), "diverged"),
        (count(|status| *status == Status::Interrupted), "interrupted"),
        (count(|status| matches!(status, Status::StoppedEarly { .. })), "stopped early"),
        (row.collapsed, MarkKind::Collapsed.what()),
        (row.unlearnt, MarkKind::Unlearnt.what()),
    ] {
        if n > 0 {
            parts.push(if group.runs.len() == 1 { what.to_string() } else { format!("{n} {what}") });
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use fedelity_record::Summary;
    use fedelity_report::LoadedRun;

    use super::*;

    fn run(seed: u64, status: Status, accuracies: &[f64]) -> LoadedRun {
        let accuracies: Vec<(u64, f64)> = (1..).zip(accuracies.iter().copied()).collect();
        let final_accuracy = accuracies.last().map(|(_, accuracy)| *accuracy);
        LoadedRun::of(seed, Summary { status, final_accuracy, ..Summary::default() }, &accuracies)
    }

    fn table(groups: Vec<(&str, Vec<LoadedRun>)>) -> String {
        let groups = groups.into_iter().map(|(label, runs)| (label.to_string(), runs)).collect();
        let text = result_lines(&Results::of(groups), 80).unwrap().join("\n");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text
    }

    fn words(text: &str, label: &str) -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(label)).unwrap();
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn unfinished_seeds_are_reported_and_left_out() {
        let diverged = Status::Diverged { round: 3, client: None };
        let text = table(vec![("m", vec![run(1, Status::Finished, &[0.5]), run(2, diverged, &[0.1])])]);
        assert_eq!(words(&text, "m ")[1..3], ["1*", "50.00"], "{text}");
        assert!(text.contains("1 diverged") && text.contains("* m, seed 2: diverged in round 3"), "{text}");
        assert!(table(Vec::new()).is_empty());
    }

    #[test]
    fn rounds_to_the_baseline_are_paired_by_seed() {
        let done = Status::Finished;
        let fedavg = ("fedavg", vec![run(1, done, &[0.1, 0.6, 0.5]), run(2, done, &[0.1, 0.2, 0.3])]);
        let other = ("other", vec![run(1, done, &[0.5, 0.4, 0.4]), run(2, done, &[0.1, 0.3, 0.2])]);
        let never = ("never", vec![run(1, done, &[0.6, 0.6, 0.6]), run(2, done, &[0.1, 0.1, 0.1])]);
        let text = table(vec![fedavg, other, never]);
        assert!(text.contains("to fedavg") && text.contains("traffic"), "{text}");
        for (label, cell) in [("fedavg", "2.5"), ("other", "1.5"), ("never", "1.0 (1/2)")] {
            assert!(words(&text, label).join(" ").contains(&format!("- {cell}")), "{label}: {text}");
        }
        let alone = table(vec![("other", vec![run(1, done, &[0.5])])]);
        assert!(!alone.contains("to fedavg"), "{alone}");
    }
}
