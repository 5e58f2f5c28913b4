//! The final table: one row a method, over its seeds.

use fedelity_record::{Status, Summary};

use crate::printer::Printer;
use crate::table::{Align, Table};
use crate::units::{bytes, seconds};

/// A method and the summaries of its seeds.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) summaries: Vec<Summary>,
}

/// The lines of the table. Numbers are over the seeds that finished: mean ± standard deviation (divided by n - 1).
pub(crate) fn lines(rows: &[Row], printer: &Printer) -> Vec<String> {
    let columns = [
        ("method", Align::Left),
        ("seeds", Align::Right),
        ("accuracy %", Align::Right),
        ("best %", Align::Right),
        ("forgetting", Align::Right),
        ("down", Align::Right),
        ("up", Align::Right),
        ("time", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(cells(row));
    }
    table.lines(printer)
}

fn cells(row: &Row) -> Vec<String> {
    let whole: Vec<&Summary> = row.summaries.iter().filter(|s| s.status == Status::Finished).collect();
    // Where nothing finished, what there is.
    let shown: Vec<&Summary> = if whole.is_empty() { row.summaries.iter().collect() } else { whole };
    let values = |of: fn(&Summary) -> Option<f64>| shown.iter().filter_map(|s| of(s)).collect::<Vec<f64>>();
    let mean = |of: fn(&Summary) -> f64| shown.iter().map(|s| of(s)).sum::<f64>() / shown.len().max(1) as f64;
    vec![
        row.label.clone(),
        shown.len().to_string(),
        spread(&values(|s| s.final_accuracy), 100.0, 2),
        spread(&values(|s| s.best.map(|best| best.accuracy)), 100.0, 2),
        spread(&values(|s| s.forgetting), 1.0, 3),
        bytes(mean(|s| s.bytes_down as f64) as u64),
        bytes(mean(|s| s.bytes_up as f64) as u64),
        seconds(mean(|s| s.seconds.total())),
        remark(&row.summaries),
    ]
}

/// What happened to seeds that did not finish.
fn remark(summaries: &[Summary]) -> String {
    let count = |fits: fn(&Status) -> bool| summaries.iter().filter(|s| fits(&s.status)).count();
    let mut parts = Vec::new();
    for (n, what) in [
        (count(|status| matches!(status, Status::Diverged { .. })), "diverged"),
        (count(|status| *status == Status::Interrupted), "interrupted"),
    ] {
        if n > 0 {
            parts.push(if summaries.len() == 1 { what.to_string() } else { format!("{n} {what}") });
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

    #[test]
    fn unfinished_seeds_are_told_and_left_out() {
        let summary = |status, accuracy| Summary { status, final_accuracy: Some(accuracy), ..Summary::default() };
        let summaries = vec![summary(Status::Finished, 0.5), summary(Status::Diverged { round: 3, client: None }, 0.1)];
        let cells = cells(&Row { label: "m".to_string(), summaries });
        assert_eq!((cells[1].as_str(), cells[2].as_str(), cells[8].as_str()), ("1", "50.00", "1 diverged"));
    }
}
