//! `fedelity run`.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use fedelity_data::quoted;
use fedelity_experiment::{ExperimentError, FrontError, Observer, Outcome, Run as OneRun, Study};
use fedelity_record::{EventsFile, Notice, RecordError, RoundRecord, RunFolder, Status as Ending, names};
use fedelity_report::{REMEDY, Results, config_values};
use fedelity_sim::Metrics;
use serde::Serialize;

use crate::engine::resources;
use crate::interrupt::Interrupt;
use crate::latest;
use crate::overrides::{Overrides, path_value};
use crate::printer::Printer;
use crate::server::{LiveServer, open};
use crate::status::ExitStatus;
use crate::view::progress::Progress;
use crate::view::units::{plural, thousands};
use crate::view::{results, terminal};

const EXAMPLES: &str = "\
Examples:
  fedelity run                              the built-in data, 20 skewed clients, FedAvg
  fedelity run experiment.toml              run a file; missing keys have their defaults
  fedelity run --set rounds=5 --set partition.alpha=1.0
  fedelity run experiment.toml --set seeds=[1,2,3] --output runs/three-seeds
  fedelity run runs/three-seeds/config.toml repeat a run with bit-identical results
  fedelity run examples/methods.toml        several methods on the same clients, one table
  fedelity run --json | jq .accuracy        one object per round

A run folder contains config.toml (all keys), partition.json, rounds.jsonl (one line per round),
summary.json and model.safetensors. With several methods or seeds, each run gets its own subfolder.

The table shows means over seeds and standard deviations. 'to fedavg' is the first round that
reaches FedAvg's final accuracy with the same seed, '-' if it is never reached. 'traffic' is the
number of bytes in both directions, relative to FedAvg.";

/// Train a federation and record it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunCommand {
    /// The configuration [default: the built-in one].
    file: Option<PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    /// Worker threads, one client each; results do not depend on them [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// New folder for the results [default: runs/<date-time>-<name>].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Read the partition from a file written by `fedelity partition -o`.
    #[arg(long, value_name = "FILE")]
    partition: Option<PathBuf>,

    #[arg(long, value_name = "METRICS", help = metrics_help())]
    metrics: Option<String>,

    /// Follow the run in a browser; see fedelity watch.
    #[arg(long)]
    open: bool,

    /// Write an event file for TensorBoard into each run folder, round by round.
    #[arg(long)]
    tensorboard: bool,

    /// Print one JSON object per round on stdout, and nothing else.
    #[arg(long)]
    json: bool,
}

/// A line of `--json`: a record with its method and seed.
#[derive(Serialize)]
struct Line<'a> {
    method: &'a str,
    seed: u64,
    #[serde(flatten)]
    record: &'a RoundRecord,
}

fn metrics_help() -> String {
    format!("How much to measure on local models: {}; see fedelity keys evaluation.metrics", Metrics::NAMES.join(", "))
}

impl RunCommand {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let with_data = printer.with_data();
        let printer = if self.json { &with_data } else { printer };
        let threads = threads(self.threads)?;
        let study = self.study(printer)?;
        study.check(threads)?;
        let interrupt = Interrupt::listen(printer)?;
        let folder = study.folder(self.output.as_deref()).map_err(|error| match error {
            ExperimentError::Record(error @ RecordError::Exists { .. }) => anyhow!("--output: {error}"),
            other => other.into(),
        })?;
        printer.say(title(&study, threads));
        let server = if self.open { Some(LiveServer::start(folder.path())?) } else { None };
        if let Some(server) = &server {
            printer.say(format_args!("Follow it at {}", server.address()));
            open(server.address());
        }
        let runs = study.settings.methods.len() * study.settings.config.seeds.len();
        let progress = Progress::new(printer, runs, study.settings.config.rounds);
        let mut viewer =
            RunViewer { command: &self, printer, interrupt: &interrupt, progress, events: None, noticed: Vec::new() };
        let ended = study.run(&folder, threads, &mut viewer);
        viewer.progress.finish();
        let ended = ended?;
        if !self.json {
            for line in results::lines(&ended, printer, terminal::width())? {
                printer.line(line)?;
            }
        }
        server.into_iter().for_each(LiveServer::end);
        printer.say(format_args!("Results are in {}", folder.path().display()));
        let status = status(printer, &ended);
        if ended.runs().next().is_some() {
            let named = quoted(&latest::name_of(folder.path()));
            printer.say(format_args!("Next: fedelity report {named} -o report.html"));
        }
        Ok(status)
    }

    fn study(&self, printer: &Printer) -> Result<Study> {
        let mut document = self.overrides.document(self.file.as_deref())?;
        if let Some(file) = &self.partition {
            document.remove_of_file("partition");
            document.put(&["partition", "file"], path_value(file), "--partition")?;
        }
        if let Some(metrics) = &self.metrics {
            document.put(&["evaluation", "metrics"], metrics.as_str().into(), "--metrics")?;
        }
        let study = Study::load_with(&document, &resources()?)?;
        study.settings.notes.iter().for_each(|note| printer.warn(note));
        printer.left_out(&study.pool.skipped);
        study.pool.notes.iter().for_each(|note| printer.warn(note));
        Ok(study)
    }
}

/// Shows the progress of runs.
struct RunViewer<'a> {
    command: &'a RunCommand,
    printer: &'a Printer,
    interrupt: &'a Interrupt,
    progress: Progress<'a>,
    events: Option<EventsFile>,
    /// What was noticed in the current run: the first of each kind.
    noticed: Vec<Notice>,
}

impl RunViewer<'_> {
    /// Says what a round noticed, once per run and kind of notice.
    fn warn(&mut self, run: &OneRun<'_>, record: &RoundRecord) {
        let classes = &run.study.pool.dataset.classes;
        for notice in &record.notices {
            if self.noticed.iter().any(|known| known.is_like(notice)) {
                continue;
            }
            let advice = if self.noticed.is_empty() { format!(". {REMEDY}") } else { String::new() };
            let (label, seed, round, what) = (run.label, run.seed, record.round, notice.describe(classes));
            let text = format!("{label}, seed {seed}, round {round}: {what}{advice}");
            self.progress.pause(|| self.printer.warn(&text));
            self.noticed.push(notice.clone());
        }
    }
}

impl Observer for RunViewer<'_> {
    fn start(&mut self, run: &OneRun<'_>, folder: &RunFolder) -> Result<(), FrontError> {
        self.progress.start(format!("{}, seed {}", run.label, run.seed));
        self.noticed.clear();
        self.events = if self.command.tensorboard { Some(events(run, folder)?) } else { None };
        Ok(())
    }

    fn round(&mut self, run: &OneRun<'_>, record: &RoundRecord) -> Result<(), FrontError> {
        self.progress.round(record);
        self.warn(run, record);
        if let Some(events) = &mut self.events {
            events.append(record, now())?;
        }
        if self.command.json {
            self.printer.json(&Line { method: run.label, seed: run.seed, record })?;
        }
        Ok(())
    }

    fn end(&mut self, run: &OneRun<'_>, outcome: &Outcome) {
        if let Some(Err(error)) = self.events.take().map(|mut events| events.end(outcome.summary.status, now())) {
            self.progress.pause(|| self.printer.warn(&error));
        }
        if let Some(reason) = &outcome.divergence {
            let advice = if self.noticed.is_empty() { format!(". {REMEDY}") } else { String::new() };
            let text = format!("{}, seed {}: {reason}{advice}", run.label, run.seed);
            self.progress.pause(|| self.printer.error(&text));
        }
    }

    fn stop(&self) -> bool {
        self.interrupt.is_asked()
    }
}

/// Creates an event file in the run folder, with the run's settings.
fn events(run: &OneRun<'_>, folder: &RunFolder) -> Result<EventsFile> {
    let name = format!("events.out.tfevents.{}.fedelity", now() as u64);
    let mut events = EventsFile::create(&folder.file(&name), now(), &run.study.pool.dataset.classes)?;
    let config = std::fs::read_to_string(folder.file(names::CONFIG)).unwrap_or_default();
    events.settings(&config_values(&config), run.label, now())?;
    Ok(events)
}

/// Seconds since 1970.
fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

pub(crate) fn threads(asked: Option<usize>) -> Result<usize> {
    match asked {
        Some(n @ (0 | 1_025..)) => bail!("--threads {n}: expected a whole number of at least 1 and at most 1024"),
        Some(n) => Ok(n),
        None => Ok(default_threads()),
    }
}

/// All cores.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn title(study: &Study, threads: usize) -> String {
    let settings = &study.settings;
    format!(
        "{}: {}\n{} with {} parameters, {} per round, {}, {}",
        study.pool.dataset.name,
        study.pool.partition.spec,
        study.card.model,
        thousands(study.model.layout().trainable_len()),
        plural(study.per_round, "client"),
        plural(settings.config.rounds, "round"),
        plural(threads, "thread"),
    )
}

fn status(printer: &Printer, ended: &Results) -> ExitStatus {
    let endings = || ended.runs().map(|run| run.summary.status);
    if endings().any(|ending| ending == Ending::Interrupted) {
        printer.say("Interrupted; the rounds recorded so far are kept");
        ExitStatus::Interrupted
    } else if endings().any(|ending| matches!(ending, Ending::Diverged { .. })) {
        ExitStatus::Diverged
    } else {
        ExitStatus::Done
    }
}
