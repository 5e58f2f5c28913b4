//! `fedelity runs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::PossibleValuesParser;
use fedelity_files::Lock;
use fedelity_keys::Choice;
use fedelity_record::{Status as Ending, names, read_tags, salvage_rounds, write_tags};
use fedelity_report::{LoadedRun, LoadedRuns, MarkKind};
use serde_json::json;

use crate::command::trackers;
use crate::latest::{resolve, resolve_all};
use crate::output::Overwrite;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::sparkline::{scale, sparkline};
use crate::view::table::{Align, Table};
use crate::view::terminal::width;
use crate::view::units::plural;

const EXAMPLES: &str = "\
Examples:
  fedelity runs                                     list the runs in ./runs
  fedelity runs list runs/old --method fedntd --tag paper
  fedelity runs tag paper runs/2026-01-31-fedntd    add a tag; --untag removes it
  fedelity runs remove runs/2026-01-31-fedntd --yes
  fedelity runs export runs/a --csv rounds.csv      one row per round
  fedelity runs export runs/sweep --csv all.csv     the rounds of all runs in one table
  fedelity runs export runs/a --tensorboard logs    then: tensorboard --logdir logs
  fedelity runs export runs/a --mlflow mlruns       metrics, settings and tags for MLflow

On a narrow terminal, the list drops the data set if all runs share it, otherwise the curve.
--json always includes the data set.";

/// List, tag, remove and export runs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Runs {
    #[command(subcommand)]
    action: Option<RunsAction>,

    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum RunsAction {
    /// List runs
    #[command(visible_alias = "ls")]
    List(List),
    /// Add a tag to runs, or remove it
    Tag {
        /// The tag.
        tag: String,
        /// Run folders.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Remove the tag.
        #[arg(long)]
        untag: bool,
        /// Print one JSON object per run.
        #[arg(long)]
        json: bool,
    },
    /// Remove run folders with all their contents
    #[command(visible_alias = "rm")]
    Remove {
        /// Run folders.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Remove them; without this, only show what would be removed.
        #[arg(long)]
        yes: bool,
        /// Print one JSON object per run.
        #[arg(long)]
        json: bool,
    },
    /// Export the rounds for other programs
    Export {
        /// A run folder, or a folder with several runs, such as a sweep's.
        run: PathBuf,
        /// Write one row per round to this file, with columns that tell several runs apart; - for stdout.
        #[arg(long, value_name = "FILE", required_unless_present_any = ["tensorboard", "mlflow"])]
        csv: Option<PathBuf>,
        /// Write to this folder for TensorBoard.
        #[arg(long, value_name = "DIR")]
        tensorboard: Option<PathBuf>,
        /// Write to this folder for MLflow (its file store); it may be new or hold other runs.
        #[arg(long, value_name = "DIR")]
        mlflow: Option<PathBuf>,
        #[command(flatten)]
        overwrite: Overwrite,
        /// Print one JSON object that names what was written.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct List {
    /// Folders to look in.
    #[arg(default_value = "runs")]
    folders: Vec<PathBuf>,

    /// Only runs of this method.
    #[arg(long, value_name = "NAME")]
    method: Option<String>,

    /// Only runs on this data set.
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,

    /// Only runs with this tag.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,

    /// Only runs with this status.
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(RunState::NAMES))]
    status: Option<String>,

    /// Print one JSON object per run.
    #[arg(long)]
    json: bool,
}

impl Runs {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        match self.action {
            None => self.list.run(printer)?,
            Some(RunsAction::List(list)) => list.run(printer)?,
            Some(RunsAction::Tag { tag, runs, untag, json }) => {
                tagged(printer, &tag, &resolve_all(&runs, printer)?, untag, json)?
            }
            Some(RunsAction::Remove { runs, yes, json }) => remove(printer, &resolve_all(&runs, printer)?, yes, json)?,
            Some(RunsAction::Export { run, csv, tensorboard, mlflow, overwrite, json }) => {
                if json && csv.as_deref() == Some(Path::new("-")) {
                    bail!("--csv - and --json both write to stdout: name a file");
                }
                let run = resolve(&run, printer)?;
                if let Some(csv) = &csv {
                    trackers::csv(printer, &run, csv, overwrite)?;
                }
                let events =
                    tensorboard.map_or(Ok(Vec::new()), |folder| trackers::tensorboard(printer, &run, &folder))?;
                let stored = mlflow.map_or(Ok(Vec::new()), |folder| trackers::mlflow(printer, &run, &folder))?;
                if json {
                    let shown =
                        |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
                    let csv = csv.map(|csv| csv.display().to_string());
                    printer.json(&json!({ "csv": csv, "tensorboard": shown(&events), "mlflow": shown(&stored) }))?;
                }
            }
        }
        Ok(ExitStatus::Done)
    }
}

/// A run's status in one word.
#[derive(Clone, Copy, Choice)]
enum RunState {
    Finished,
    Diverged,
    Interrupted,
    /// It finished with a collapsed global model.
    Collapsed,
    /// It finished, and its global model never was better than guessing.
    Unlearnt,
    /// A process is writing to it.
    Running,
    /// It was killed before it could record its end; it can be resumed.
    Killed,
}

impl RunState {
    fn of(run: &LoadedRun) -> Self {
        match run.summary.status {
            _ if run.running => Self::Running,
            _ if !run.ended => Self::Killed,
            Ending::Finished | Ending::StoppedEarly { .. } => match run.mark().map(|mark| mark.kind) {
                Some(MarkKind::Collapsed) => Self::Collapsed,
                Some(MarkKind::Unlearnt) => Self::Unlearnt,
                Some(MarkKind::Unfinished) | None => Self::Finished,
            },
            Ending::Diverged { .. } => Self::Diverged,
            Ending::Interrupted => Self::Interrupted,
        }
    }
}

/// The rounds of a run; of an unfinished one, how many there should be.
fn rounds(run: &LoadedRun) -> String {
    let (done, planned) = (run.rounds.len() as u64, run.header.rounds);
    if done < planned && !run.summary.status.is_complete() { format!("{done}/{planned}") } else { done.to_string() }
}

/// Positions of columns in the list.
const DATA: usize = 1;
const CURVE: usize = 5;
const TAGS: usize = 7;

/// The list, without its least informative column if that makes the lines fit: with one data set the curve is more
/// informative, with several the data set is.
fn within(table: Table, several: bool, width: usize) -> Table {
    let (some, least) = (table.without(if several { CURVE } else { DATA }), table.without(CURVE).without(DATA));
    match [&table, &some, &least].map(|table| table.width() <= width) {
        [true, _, _] => table,
        [false, false, true] => least,
        _ => some,
    }
}

impl List {
    fn run(&self, printer: &Printer) -> Result<()> {
        let source = LoadedRuns::load(&resolve_all(&self.folders, printer)?)?;
        let fits = |run: &&LoadedRun| {
            let same = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
            same(&self.method, &run.header.method)
                && same(&self.dataset, &run.header.dataset)
                && same(&self.status, RunState::of(run).name())
                && self.tag.as_ref().is_none_or(|tag| run.tags.contains(tag))
        };
        let runs: Vec<&LoadedRun> = source.runs.iter().filter(fits).collect();
        if self.json {
            for run in &runs {
                printer.json(&json!({
                    "path": run.path.display().to_string(),
                    "status": RunState::of(run).name(),
                    "method": run.header.method,
                    "dataset": run.header.dataset,
                    "data-gaps": run.header.data_gaps,
                    "partition": run.header.partition,
                    "model": run.header.model,
                    "seed": run.header.seed,
                    "rounds": run.rounds.len(),
                    "planned": run.header.rounds,
                    "final-accuracy": run.summary.final_accuracy,
                    "forgetting": run.summary.forgetting,
                    "mark": run.mark().map(|mark| mark.what),
                    "notices": run.notices(),
                    "tags": run.tags,
                    "version": run.header.stamp.version,
                    "fedelity": run.header.fedelity,
                }))?;
            }
            return Ok(());
        }
        let mut table = Table::new(&[
            ("method", Align::Left),
            ("data", Align::Left),
            ("seed", Align::Right),
            ("rounds", Align::Right),
            ("final %", Align::Right),
            ("curve", Align::Left),
            ("status", Align::Left),
            ("tags", Align::Left),
            ("folder", Align::Left),
        ]);
        for run in &runs {
            let curve: Vec<f64> = run.curve(|round| round.accuracy).into_iter().map(|(_, accuracy)| accuracy).collect();
            table.row([
                run.header.method.clone(),
                run.header.dataset.clone(),
                run.header.seed.to_string(),
                rounds(run),
                run.summary.final_accuracy.map_or("-".to_string(), |accuracy| format!("{:.2}", 100.0 * accuracy)),
                sparkline(&curve, 10, scale(curve.iter().copied())),
                RunState::of(run).name().to_string(),
                run.tags.join(" "),
                run.path.display().to_string(),
            ]);
        }
        if runs.iter().all(|run| run.tags.is_empty()) {
            table = table.without(TAGS);
        }
        let several = runs.iter().any(|run| run.header.dataset != runs[0].header.dataset);
        printer.drawn(within(table, several, width()).lines(printer))?;
        let gaps = |run: &&LoadedRun| -> Vec<String> {
            run.header.data_gaps.iter().map(|gap| format!("{}: {gap}", run.header.dataset)).collect()
        };
        for gap in runs.iter().flat_map(gaps).collect::<BTreeSet<_>>() {
            printer.warn(gap);
        }
        for run in &runs {
            let mark = run.mark().filter(|mark| mark.kind != MarkKind::Unfinished).map(|mark| mark.what);
            for what in mark.iter().chain(&run.contradictions) {
                printer.warn(format_args!("{}: {what}", run.path.display()));
            }
        }
        for out in source.left_out.iter().filter(|out| !source.runs.iter().any(|run| run.path == out.path)) {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        Ok(())
    }
}

/// Most runs that a message names.
const NAMED: usize = 10;

/// Rejects a folder that does not contain a run.
fn expect_run(path: &Path) -> Result<()> {
    let rounds = path.join(names::ROUNDS);
    if !rounds.is_file() {
        let inside = LoadedRuns::load(&[path.to_path_buf()]).map_or(Vec::new(), |found| found.runs);
        let some: Vec<String> = inside.iter().take(NAMED).map(|run| run.path.display().to_string()).collect();
        let more = if inside.len() > NAMED { ", ..." } else { "" };
        let hint = match &some[..] {
            [] => String::new(),
            some => format!("; choose one of the runs in it: {}{more}", some.join(", ")),
        };
        bail!("{}: not a run folder: it has no {}{hint}", path.display(), names::ROUNDS);
    }
    Ok(())
}

fn tagged(printer: &Printer, tag: &str, runs: &[PathBuf], untag: bool, json: bool) -> Result<()> {
    if tag.trim().is_empty() || tag.chars().any(char::is_control) {
        bail!("{tag:?}: expected a tag with at least one visible character");
    }
    for run in runs {
        expect_run(run)?;
    }
    for run in runs {
        let mut tags = read_tags(run)?;
        tags.retain(|known| known != tag);
        if !untag {
            tags.push(tag.to_string());
        }
        write_tags(run, &tags)?;
        if json {
            printer.json(&json!({ "path": run.display().to_string(), "tags": tags }))?;
        }
    }
    printer.say(format_args!("{} {}", if untag { "Untagged" } else { "Tagged" }, plural(runs.len(), "run")));
    Ok(())
}

fn remove(printer: &Printer, runs: &[PathBuf], yes: bool, json: bool) -> Result<()> {
    for run in runs {
        expect_run(run)?;
        // A folder is removed only if it has the header of a run.
        salvage_rounds(&run.join(names::ROUNDS)).with_context(|| format!("{} is not removed", run.display()))?;
        let real = fs::canonicalize(run).with_context(|| format!("{} is not removed", run.display()))?;
        if std::env::current_dir().and_then(fs::canonicalize).is_ok_and(|here| here.starts_with(&real)) {
            bail!("{} is the folder you are in, or contains it: it is not removed", run.display());
        }
        if let Some(holder) = Lock::holder(run) {
            bail!("{}: {holder} is writing to this run: it is not removed", run.display());
        }
    }
    for run in runs {
        if yes {
            // Nobody resumes it meanwhile.
            let _lock = Lock::acquire(run).map_err(|error| anyhow!("{} is not removed: {error}", run.display()))?;
            fs::remove_dir_all(run).with_context(|| format!("{}: cannot remove", run.display()))?;
        }
        if json {
            printer.json(&json!({ "path": run.display().to_string(), "removed": yes }))?;
            continue;
        }
        printer.line(format_args!("{} {}", if yes { "removed" } else { "would remove" }, run.display()))?;
    }
    if !yes {
        printer.say("Nothing was removed; add --yes to remove");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_keeps_the_most_informative_column() {
        let columns = ["method", "data", "seed", "rounds", "final %", "curve", "status", "folder"];
        let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
        table.row(["fedavg", "cifar10", "1", "9", "70.00", "0123456789", "finished", "runs/a"].map(String::from));
        let full = table.width();
        let shown = |several, width| {
            let printer = Printer::new(crate::printer::When::Never, false, false);
            let line = within(table.clone(), several, width).lines(&printer).remove(0);
            ["data", "curve"].map(|name| line.contains(name))
        };
        for several in [false, true] {
            assert_eq!(shown(several, full), [true, true]);
            assert_eq!(shown(several, full - 1), [several, !several]);
        }
        // If neither fits, both are dropped.
        assert_eq!(shown(false, full - 10), [false, false]);
        assert_eq!(shown(false, 10), [false, true]);
    }
}
