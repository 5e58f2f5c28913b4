//! `fedelity compare`.

use std::path::PathBuf;

use anyhow::Result;
use fedelity_report::{Comparison, ComparisonRow, LoadedRuns, Options, Results, TableSyntax, render, spread};

use crate::latest::resolve_all;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::sparkline::{CURVE_WIDTH, scale, sparkline};
use crate::view::table::{Align, Table};
use crate::view::terminal;
use crate::view::units::{bytes, seconds, wrap};

const EXAMPLES: &str = "\
Examples:
  fedelity compare runs/three-seeds                 all runs in a folder
  fedelity compare runs/a runs/b --baseline fedprox
  fedelity compare runs/a --target 0.75             rounds to 75 % accuracy
  fedelity compare runs/a --format latex > table.tex
  fedelity compare runs/a --json | jq '.rows[].difference'

Runs that differ only in their seed form one row: mean and standard deviation. 'difference' is the
final accuracy minus the baseline's on the same seeds, in points, with its 95 % interval. p is the
p-value of that difference (paired t-test with fewer than 10 seeds, otherwise Wilcoxon signed-rank
test), and p (Holm) is corrected for the number of methods. 'area' is the mean of the accuracy
curve. 'to target' is the first round that reaches the target accuracy: that of --target, or the
baseline's final accuracy with the same seed. 'rank' is the mean rank over seeds.";

/// Compare methods over seeds, with statistics
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// Run folders, or folders that contain runs.
    #[arg(required = true, value_name = "RUNS")]
    runs: Vec<PathBuf>,

    /// The method that the others are compared with [default: fedavg, or the first].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// The target accuracy, from 0 to 1 [default: the baseline's final accuracy].
    #[arg(long, value_name = "SHARE")]
    target: Option<f64>,

    /// Compare the runs even if their data, partitions or seeds differ.
    #[arg(long)]
    force: bool,

    /// Write the table for another program.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Form>,

    /// Print one JSON object at full precision; the same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    /// A Markdown table.
    Markdown,
    /// A LaTeX tabular with booktabs rules.
    Latex,
    /// Comma-separated values at full precision.
    Csv,
    /// One JSON object at full precision.
    Json,
}

impl Compare {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        if let Some(target) = self.target.filter(|target| !(0.0..=1.0).contains(target)) {
            anyhow::bail!("--target {target}: expected a share from 0 to 1, such as 0.75");
        }
        let study = Results::new(LoadedRuns::load(&resolve_all(&self.runs, printer)?)?);
        // Before any error: what is left out may be its cause.
        for out in &study.left_out {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        let options = Options { baseline: self.baseline, target: self.target, force: self.force, apart: false };
        let comparison = Comparison::new(&study, &options)?;
        for mismatch in &comparison.mismatches {
            printer.warn(mismatch);
        }
        let format = match self.format {
            _ if self.json => Some(TableSyntax::Json),
            Some(Form::Markdown) => Some(TableSyntax::Markdown),
            Some(Form::Latex) => Some(TableSyntax::Latex),
            Some(Form::Csv) => Some(TableSyntax::Csv),
            Some(Form::Json) => Some(TableSyntax::Json),
            None => None,
        };
        match format {
            Some(format) => printer.raw(render(&comparison, format).as_bytes())?,
            None => {
                for line in lines(&comparison, printer, terminal::width()) {
                    printer.line(line)?;
                }
            }
        }
        Ok(ExitStatus::Done)
    }
}

/// The column of the curve in the table of results, and in that of costs.
const CURVE: usize = 6;
const COST_CURVE: usize = 3;
/// Where the tables are split if they are too wide.
const FORGETTING: usize = 4;
const TO_TARGET: usize = 5;

/// The comparison as text, at most `width` columns wide unless names are very long. Curves share one scale.
pub(crate) fn lines(comparison: &Comparison, printer: &Printer, width: usize) -> Vec<String> {
    let mut results = Table::new(&[
        ("method", Align::Left),
        ("seeds", Align::Right),
        ("final %", Align::Right),
        ("best %", Align::Right),
        ("forgetting", Align::Right),
        ("area %", Align::Right),
        ("curve", Align::Left),
    ]);
    let mut differences = Table::new(&[
        ("method", Align::Left),
        ("difference", Align::Right),
        ("95 % interval", Align::Left),
        ("p", Align::Right),
        ("p (Holm)", Align::Right),
        ("to target", Align::Right),
        ("rank", Align::Right),
    ]);
    let mut costs =
        Table::new(&[("method", Align::Left), ("bytes", Align::Right), ("time", Align::Right), ("curve", Align::Left)]);
    let scale = scale(comparison.rows.iter().flat_map(|row| row.curve.iter().map(|(_, accuracy)| *accuracy)));
    for row in &comparison.rows {
        let curve: Vec<f64> = row.curve.iter().map(|(_, accuracy)| *accuracy).collect();
        results.row([
            row.label.clone(),
            row.seeds.len().to_string(),
            spread(row.final_accuracy, 100.0, 2),
            spread(row.best_accuracy, 100.0, 2),
            spread(row.forgetting, 1.0, 3),
            spread(row.area, 100.0, 2),
            sparkline(&curve, CURVE_WIDTH, scale),
        ]);
        differences.row(difference(row));
        costs.row([
            row.label.clone(),
            row.bytes.map_or("-".to_string(), |found| bytes(found.mean as u64)),
            row.seconds.map_or("-".to_string(), |found| seconds(found.mean)),
            sparkline(&curve, CURVE_WIDTH, scale),
        ]);
    }
    // Long names and long curves push the curve from the first table into the last.
    if results.width() > width {
        results = results.without(CURVE);
    } else {
        costs = costs.without(COST_CURVE);
    }
    let mut lines = results.lines_within(printer, width, FORGETTING);
    if comparison.rows.len() > 1 {
        lines.push(String::new());
        lines.extend(differences.lines_within(printer, width, TO_TARGET));
    }
    lines.push(String::new());
    lines.extend(costs.lines(printer));
    let unfinished: usize = comparison.rows.iter().map(|row| row.unfinished).sum();
    let mut notes = comparison.notes.clone();
    if comparison.rows.len() == 1 {
        notes.clear();
    }
    if unfinished > 0 {
        notes.push(format!("Unfinished runs that do not count: {unfinished}."));
    }
    for note in notes {
        lines.push(String::new());
        lines.extend(wrap(&note, width));
    }
    lines
}

fn difference(row: &ComparisonRow) -> [String; 7] {
    let ([difference, interval], [p, p_holm]) = (row.difference_cells(), row.p_cells());
    [row.label.clone(), difference, interval, p, p_holm, row.to_target_cell(), row.rank_cell()]
}
