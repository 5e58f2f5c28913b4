//! The final table: one row a method, over its seeds.

use fedelity_record::{Status, Summary};

use crate::printer::Printer;
use crate::sparkline::{scale, sparkline};
use crate::table::{Align, Table};
use crate::units::{bytes, seconds};

/// A method and the runs of its seeds.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) runs: Vec<Ended>,
}

/// A run that ended, one way or another.
pub(crate) struct Ended {
    pub(crate) seed: u64,
    pub(crate) summary: Summary,
    /// Rounds that were evaluated, and their accuracy.
    pub(crate) accuracies: Vec<(u64, f64)>,
}

/// The method that others are compared with.
const BASELINE: &str = "fedavg";
/// The first column on what a run cost.
const COST: &str = "down";
/// Columns of the picture of the accuracy.
const CURVE_WIDTH: usize = 16;
const CURVE: &str = "accuracy";

/// The lines of the table, at most `width` wide. Numbers are over the seeds that finished: mean ± standard deviation
/// (divided by n - 1).
///
/// The curve is left out where it alone would break the table in two.
pub(crate) fn lines(rows: &[Row], printer: &Printer, width: usize) -> Vec<String> {
    let baseline = rows.iter().find(|row| row.label == BASELINE).filter(|_| rows.len() > 1);
    let mut columns = vec![
        ("method", Align::Left),
        ("seeds", Align::Right),
        ("final %", Align::Right),
        ("best %", Align::Right),
        ("forgetting", Align::Right),
    ];
    columns.extend(baseline.map(|_| ("to fedavg", Align::Right)));
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
    for row in rows {
        table.row(cells(row, baseline, scale));
    }
    let place = |name: &str| columns.iter().position(|(known, _)| *known == name).unwrap_or(columns.len());
    let plain = table.without(place(CURVE));
    let shown = if table.width() > width && plain.width() <= width { plain } else { table };
    shown.lines_within(printer, width, place(COST))
}

fn cells(row: &Row, baseline: Option<&Row>, scale: (f64, f64)) -> Vec<String> {
    let whole: Vec<&Summary> = finished(row).map(|run| &run.summary).collect();
    // Where nothing finished, what there is.
    let shown = if whole.is_empty() { row.runs.iter().map(|run| &run.summary).collect() } else { whole };
    let values = |of: fn(&Summary) -> Option<f64>| shown.iter().filter_map(|s| of(s)).collect::<Vec<f64>>();
    let mean = |of: fn(&Summary) -> f64| shown.iter().map(|s| of(s)).sum::<f64>() / shown.len().max(1) as f64;
    let traffic = values(|s| s.traffic);
    let mut cells = vec![
        row.label.clone(),
        shown.len().to_string(),
        spread(&values(|s| s.final_accuracy), 100.0, 2),
        spread(&values(|s| s.best.map(|best| best.accuracy)), 100.0, 2),
        spread(&values(|s| s.forgetting), 1.0, 3),
    ];
    cells.extend(
        baseline.map(|baseline| rounds_to(row, baseline).map_or("-".to_string(), |rounds| format!("{rounds:.1}"))),
    );
    cells.extend([
        bytes(mean(|s| s.bytes_down as f64) as u64),
        bytes(mean(|s| s.bytes_up as f64) as u64),
        if traffic.is_empty() {
            "-".to_string()
        } else {
            format!("{:.2}x", traffic.iter().sum::<f64>() / traffic.len() as f64)
        },
        seconds(mean(|s| s.seconds.total())),
        sparkline(&curve(row), CURVE_WIDTH, scale),
        remark(row),
    ]);
    cells
}

fn finished(row: &Row) -> impl Iterator<Item = &Ended> {
    row.runs.iter().filter(|run| run.summary.status == Status::Finished)
}

/// The first round whose accuracy reaches the baseline's final one of the same seed: the mean over seeds. None if a seed
/// never reaches it, or if the baseline has no such seed.
fn rounds_to(row: &Row, baseline: &Row) -> Option<f64> {
    let rounds: Option<Vec<u64>> = finished(row)
        .map(|run| {
            let target = finished(baseline).find(|other| other.seed == run.seed)?.summary.final_accuracy?;
            run.accuracies.iter().find(|(_, accuracy)| *accuracy >= target).map(|(round, _)| *round)
        })
        .collect();
    let rounds = rounds.filter(|rounds| !rounds.is_empty())?;
    Some(rounds.iter().sum::<u64>() as f64 / rounds.len() as f64)
}

/// The mean accuracy over seeds, by evaluation. Seeds that stopped early count as far as they go.
fn curve(row: &Row) -> Vec<f64> {
    let longest = row.runs.iter().map(|run| run.accuracies.len()).max().unwrap_or(0);
    let mean = |at: usize| {
        let values: Vec<f64> = row.runs.iter().filter_map(|run| Some(run.accuracies.get(at)?.1)).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    (0..longest).map(mean).collect()
}

/// What happened to seeds that did not finish.
fn remark(row: &Row) -> String {
    let count = |fits: fn(&Status) -> bool| row.runs.iter().filter(|run| fits(&run.summary.status)).count();
    let mut parts = Vec::new();
    for (n, what) in [
        (count(|status| matches!(status, Status::Diverged { .. })), "diverged"),
        (count(|status| *status == Status::Interrupted), "interrupted"),
    ] {
        if n > 0 {
            parts.push(if row.runs.len() == 1 { what.to_string() } else { format!("{n} {what}") });
        }
    }
    parts.join(", ")
}

fn spread(values: &[f64], scale: f64, digits: usize) -> String {
    let n = values.len() as f64;
    if values.is_empty() {
        return "-".to_string();
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() == 1 {
        return format!("{:.digits$}", scale * mean);
    }
    let sd = (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0)).sqrt();
    format!("{:.digits$} ± {:.digits$}", scale * mean, scale * sd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_sample_standard_deviation() {
        assert_eq!(spread(&[], 1.0, 2), "-");
        assert_eq!(spread(&[0.5], 100.0, 2), "50.00");
        assert_eq!(spread(&[1.0, 2.0, 3.0], 1.0, 2), "2.00 ± 1.00");
    }

    fn run(seed: u64, status: Status, accuracies: &[f64]) -> Ended {
        let accuracies: Vec<(u64, f64)> = (1..).zip(accuracies.iter().copied()).collect();
        let final_accuracy = accuracies.last().map(|(_, accuracy)| *accuracy);
        Ended { seed, summary: Summary { status, final_accuracy, ..Summary::default() }, accuracies }
    }

    fn row(label: &str, runs: Vec<Ended>) -> Row {
        Row { label: label.to_string(), runs }
    }

    #[test]
    fn unfinished_seeds_are_told_and_left_out() {
        let diverged = Status::Diverged { round: 3, client: None };
        let runs = vec![run(1, Status::Finished, &[0.5]), run(2, diverged, &[0.1])];
        let cells = cells(&row("m", runs), None, (0.0, 1.0));
        assert_eq!((cells[1].as_str(), cells[2].as_str(), cells[10].as_str()), ("1", "50.00", "1 diverged"));
    }

    #[test]
    fn rounds_to_the_baseline_are_first_passages_of_the_same_seed() {
        let done = Status::Finished;
        let fedavg = row("fedavg", vec![run(1, done, &[0.1, 0.6, 0.5]), run(2, done, &[0.1, 0.2, 0.3])]);
        let other = row("other", vec![run(1, done, &[0.5, 0.4, 0.4]), run(2, done, &[0.1, 0.3, 0.2])]);
        let never = row("never", vec![run(1, done, &[0.6, 0.6, 0.6]), run(2, done, &[0.1, 0.1, 0.1])]);
        assert_eq!(rounds_to(&fedavg, &fedavg), Some(2.5));
        assert_eq!(rounds_to(&other, &fedavg), Some(1.5));
        assert_eq!(rounds_to(&never, &fedavg), None);
        let printer = Printer::new(crate::printer::When::Never, false, false);
        let text = lines(&[fedavg, other, never], &printer, 80).join("\n");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("to fedavg") && text.contains("traffic"), "{text}");
        let alone = lines(&[row("other", vec![run(1, done, &[0.5])])], &printer, 80).join("\n");
        assert!(!alone.contains("to fedavg"), "{alone}");
    }
}
