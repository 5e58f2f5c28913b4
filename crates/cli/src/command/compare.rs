//! `fedelity compare`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use fedelity_experiment::{Document, Settings};
use fedelity_report::{
    Comparison, ComparisonRow, Include, Judged, LoadedRuns, MarkKind, Options, Results, TableColumn, TableSyntax,
    config_values, is_within, render, spread,
};

use crate::command::keys::{ending_in, unknown_key};
use crate::command::methods::paper_name;
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
  fedelity compare runs/a --format latex --columns final,best,interval
  fedelity compare runs/a --json | jq '.rows[].difference'
  fedelity compare runs/sweep --mix partition.alpha
  fedelity compare runs/a --by last-ten             compare the mean of the last ten rounds

Runs that differ only in their seed form one row: mean and standard deviation. Rows that differ only
in the method form a setting; each is compared with the baseline of its own setting. --mix names
other keys that may differ within a setting. After a sweep with [tune], the settings chosen for a
method are part of that method, and 'chosen' shows them.

'difference' is the final accuracy, or the one selected by --by, minus the baseline's on the same
seeds, in points, with its 95 % interval. 'p' is the p-value of that difference (paired t-test with
fewer than 10 seeds, otherwise Wilcoxon signed-rank test), and 'p (Holm)' is corrected for the
number of rows. 'area' is the mean of the accuracy curve. 'to target' is the first round that
reaches the target accuracy: that of --target, or the baseline's final accuracy with the same seed.
'rank' is the mean rank over seeds. 'epsilon' is shown if runs have a privacy account: the largest
of the row's runs, each taken by itself.

Unfinished runs (*), collapsed runs (†) and runs that learnt nothing (‡) do not count in
differences, rounds to target and ranks, unless --include names them. A LaTeX table has the columns
final, forgetting, difference and p, which fit a column of a paper, unless --columns names others.";

/// Compare methods over seeds, with statistics
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// Run folders, or folders that contain runs.
    #[arg(required = true, value_name = "RUNS")]
    runs: Vec<PathBuf>,

    /// The method to compare the others with [default: fedavg, or the first].
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// The target accuracy, from 0 to 1 [default: the baseline's final accuracy].
    #[arg(long, value_name = "SHARE")]
    target: Option<f64>,

    /// The accuracy to use for differences and ranks.
    #[arg(long, value_enum, value_name = "ACCURACY", default_value_t)]
    by: By,

    /// Keys or sections that may differ between compared runs, such as partition.alpha or server.
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    mix: Vec<String>,

    /// Marked runs to count in differences, rounds to target and ranks.
    #[arg(long, value_enum, value_name = "WHICH", value_delimiter = ',')]
    include: Vec<Marked>,

    /// Print the table in a format for other programs.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Form>,

    /// Columns of a Markdown or LaTeX table, in this order.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(TableColumn::ALL.map(TableColumn::name)),
        requires = "format"
    )]
    columns: Vec<String>,

    /// Print one JSON object at full precision; the same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum By {
    /// The accuracy of the last round.
    #[default]
    Final,
    /// The mean of the last ten rounds; single rounds swing if clients are skewed.
    LastTen,
    /// The accuracy of the best round, chosen on the test data.
    Best,
}

impl By {
    fn judged(self) -> Judged {
        match self {
            Self::Final => Judged::Final,
            Self::LastTen => Judged::LastTen,
            Self::Best => Judged::Best,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Marked {
    /// Runs that were stopped or killed, are still running, or diverged.
    Unfinished,
    /// Runs that end with a collapsed global model.
    Collapsed,
    /// Runs whose global model was never better than guessing.
    Unlearnt,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Form {
    /// A Markdown table.
    Markdown,
    /// A LaTeX tabular with booktabs rules.
    Latex,
    /// Comma-separated values at full precision.
    Csv,
    /// One JSON object at full precision.
    Json,
}

impl Form {
    pub(super) fn syntax(self) -> TableSyntax {
        match self {
            Self::Markdown => TableSyntax::Markdown,
            Self::Latex => TableSyntax::Latex,
            Self::Csv => TableSyntax::Csv,
            Self::Json => TableSyntax::Json,
        }
    }
}

impl Compare {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        if let Some(target) = self.target.filter(|target| !(0.0..=1.0).contains(target)) {
            bail!("--target {target}: expected a share from 0 to 1, such as 0.75");
        }
        if !self.columns.is_empty() && matches!(self.format, Some(Form::Csv | Form::Json)) {
            bail!("--columns: CSV and JSON always have all columns; choose --format markdown or latex");
        }
        let source = LoadedRuns::load(&resolve_all(&self.runs, printer)?)?;
        let left_out = source.left_out.clone();
        let study = mixing(source, &self.mix, printer);
        // Before any error: what is left out may be its cause.
        for out in study.as_ref().map_or(&left_out, |study| &study.left_out) {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        let include = Include {
            unfinished: self.include.contains(&Marked::Unfinished),
            collapsed: self.include.contains(&Marked::Collapsed),
            unlearnt: self.include.contains(&Marked::Unlearnt),
        };
        let (baseline, target, by) = (self.baseline, self.target, self.by.judged());
        let options = Options { baseline, target, by, include, ..Options::default() };
        let format = match self.format {
            _ if self.json => Some(TableSyntax::Json),
            form => form.map(Form::syntax),
        };
        // In a terminal, methods have the names that commands take; elsewhere those of papers.
        let study = if format.is_some() { study?.named(paper_name) } else { study? };
        let comparison = Comparison::new(&study, &options)?;
        match format {
            Some(format) => {
                let chosen = |name: &String| TableColumn::ALL.into_iter().find(|column| column.name() == name);
                let columns: Vec<TableColumn> = self.columns.iter().filter_map(chosen).collect();
                printer.rendered(&render(&comparison, format, &columns), format)?;
            }
            None => {
                printer.drawn(lines(&comparison, printer, terminal::width()))?;
                let which: Vec<&str> = comparison.not_counted(include).into_iter().map(MarkKind::name).collect();
                if !which.is_empty() && comparison.rows.len() > 1 {
                    printer.say(format_args!("To count marked runs: --include {}", which.join(",")));
                }
            }
        }
        Ok(ExitStatus::Done)
    }
}

/// The runs in settings that ignore some keys or sections. If FedAvg occurs with several values of these, the one with
/// their defaults is the baseline. A key that does not exist is an error; one in which the runs do not differ is not, so that
/// one command serves for several folders.
pub(super) fn mixing(source: LoadedRuns, mix: &[String], printer: &Printer) -> Result<Results> {
    let mix = &mix.iter().map(|name| whole_key(name, &source)).collect::<Vec<_>>();
    let defaults = config_values(&Settings::read(&Document::default())?.resolved(""));
    let in_runs = |name: &str| source.runs.iter().any(|run| run.config.keys().any(|key| is_within(key, name)));
    let strange: Vec<&String> = mix.iter().filter(|name| !in_runs(name)).collect();
    let study = Results::mixing(source, mix)?.usually(defaults);
    for idle in &study.idle {
        // A key of an earlier version is known by its runs.
        if let Some(reason) = unknown_key(&idle.name).filter(|_| strange.contains(&&idle.name)) {
            bail!("--mix {}: {reason}", idle.name);
        }
        printer.warn(format_args!("--mix {}: {}", idle.name, idle.what));
    }
    Ok(study)
}

/// The key that a name means. Labels have the last part of a key, such as `alpha`, so that is enough if only one key of the
/// runs ends so.
fn whole_key(name: &str, source: &LoadedRuns) -> String {
    let keys: BTreeSet<&str> = source.runs.iter().flat_map(|run| run.config.keys()).map(String::as_str).collect();
    let is_known = keys.iter().any(|key| is_within(key, name));
    match ending_in(name, keys.iter().copied())[..] {
        [key] if !is_known => key.to_string(),
        _ => name.to_string(),
    }
}

/// The column of the curve in the table of results, and in that of costs.
const CURVE: usize = 6;
const COST_CURVE: usize = 3;
const COST_EPSILON: usize = 4;
const COST_CHOSEN: usize = 5;
/// The column of the last ten rounds, which is there if they are compared: it moves those behind it.
const LAST_TEN: usize = 3;
/// Where the tables are split if they are too wide.
const FORGETTING: usize = 4;
const TO_TARGET: usize = 5;

/// The comparison as text, at most `width` columns wide unless names are very long. Curves share one scale; rows
/// of several settings are below the setting's label.
pub(crate) fn lines(comparison: &Comparison, printer: &Printer, width: usize) -> Vec<String> {
    let mut results = Table::new(&[
        ("method", Align::Left),
        ("seeds", Align::Right),
        ("final %", Align::Right),
        ("last ten %", Align::Right),
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
    let mut costs = Table::new(&[
        ("method", Align::Left),
        ("bytes", Align::Right),
        ("time", Align::Right),
        ("curve", Align::Left),
        ("epsilon", Align::Right),
        ("chosen", Align::Left),
    ]);
    let scale = scale(comparison.rows.iter().flat_map(|row| row.curve.iter().map(|(_, accuracy)| *accuracy)));
    let mut setting = None;
    for row in &comparison.rows {
        if setting != Some(row.setting) && comparison.settings.len() > 1 {
            let label = &comparison.settings[row.setting].label;
            for table in [&mut results, &mut differences, &mut costs] {
                table.heading(label);
            }
        }
        setting = Some(row.setting);
        let curve: Vec<f64> = row.curve.iter().map(|(_, accuracy)| *accuracy).collect();
        results.row([
            row.name.clone(),
            row.seeds_cell(),
            spread(row.final_accuracy, 100.0, 2),
            spread(row.last_ten, 100.0, 2),
            spread(row.best_accuracy, 100.0, 2),
            spread(row.forgetting, 1.0, 3),
            spread(row.area, 100.0, 2),
            sparkline(&curve, CURVE_WIDTH, scale),
        ]);
        differences.row(difference(row));
        costs.row([
            row.name.clone(),
            row.bytes.map_or("-".to_string(), |found| bytes(found.mean as u64)),
            row.seconds.map_or("-".to_string(), |found| seconds(found.mean)),
            sparkline(&curve, CURVE_WIDTH, scale),
            row.epsilon_cell(),
            row.chosen_cell(),
        ]);
    }
    if !comparison.has_chosen() {
        costs = costs.without(COST_CHOSEN);
    }
    if !comparison.has_epsilon() {
        costs = costs.without(COST_EPSILON);
    }
    let moved = usize::from(comparison.by == Judged::LastTen);
    if moved == 0 {
        results = results.without(LAST_TEN);
    }
    // Long names and long curves push the curve from the first table into the last.
    if results.width() > width {
        results = results.without(CURVE + moved);
    } else {
        costs = costs.without(COST_CURVE);
    }
    let mut lines = results.lines_within(printer, width, FORGETTING + moved);
    if comparison.has_rivals() || (comparison.rows.len() > 1 && comparison.target.is_some()) {
        lines.push(String::new());
        lines.extend(differences.lines_within(printer, width, TO_TARGET));
    }
    lines.push(String::new());
    lines.extend(costs.lines(printer));
    for note in &comparison.notes {
        lines.push(String::new());
        lines.extend(wrap(note, width));
    }
    if !comparison.footnotes.is_empty() {
        lines.push(String::new());
        let footnotes = comparison.footnotes.iter().map(String::as_str).chain(comparison.advice());
        lines.extend(footnotes.flat_map(|note| wrap(note, width)));
    }
    lines
}

fn difference(row: &ComparisonRow) -> [String; 7] {
    let ([difference, interval], [p, p_holm]) = (row.difference_cells(), row.p_cells());
    [row.name.clone(), difference, interval, p, p_holm, row.to_target_cell(), row.rank_cell()]
}
