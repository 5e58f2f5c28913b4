//! `fedelity run`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use fedelity_record::{EventsFile, RoundRecord, RunFolder, Status as Ending, names};
use fedelity_sim::Simulation;
use serde::Serialize;

use crate::config::{Document, Method, Overrides, Settings, path_value};
use crate::execution::Run as Execution;
use crate::folder;
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::results::{self, Ended, Row};
use crate::server::{Server, open};
use crate::status::Status;
use crate::study::Study;
use crate::terminal;
use crate::units::{plural, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity run                              the built-in data, 20 skewed clients, FedAvg
  fedelity run experiment.toml              what the file says; keys it lacks have defaults
  fedelity run --set rounds=5 --set partition.alpha=1.0
  fedelity run experiment.toml --set seeds=[1,2,3] --output runs/three-seeds
  fedelity run runs/three-seeds/config.toml repeat a run, bit for bit
  fedelity run examples/methods.toml        several methods on the same clients, one table
  fedelity run --json | jq .accuracy        one object a round

A run folder holds config.toml (all keys), partition.json, rounds.jsonl (one line a round),
summary.json and model.safetensors. Several methods or seeds get a folder each inside it.

The table has means over seeds and their standard deviation. 'to fedavg' is the first round with
FedAvg's final accuracy of the same seed, '-' if a seed never has it. 'traffic' is the bytes both
ways, relative to FedAvg's.";

/// Train a federation and record it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The configuration [default: the built-in one].
    file: Option<PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    /// Worker threads, one client each; they do not change results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Folder for the results, which must not exist yet [default: runs/<date-time>-<name>].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Read the partition from a file that `fedelity partition -o` wrote.
    #[arg(long, value_name = "FILE")]
    partition: Option<PathBuf>,

    /// How much to measure of local models: on all test samples, on a part, or not at all.
    #[arg(long, value_name = "all|standard|fast")]
    metrics: Option<String>,

    /// Follow the run in a browser; see fedelity watch.
    #[arg(long)]
    open: bool,

    /// Write an event file for TensorBoard into each run folder, round by round.
    #[arg(long)]
    tensorboard: bool,

    /// Print one JSON object a round on stdout, and nothing else there.
    #[arg(long)]
    json: bool,
}

/// A line of `--json`: the record and whose it is.
#[derive(Serialize)]
struct Line<'a> {
    method: &'a str,
    seed: u64,
    #[serde(flatten)]
    record: &'a RoundRecord,
}

impl Run {
    pub(crate) fn run(self, printer: &Printer) -> Result<Status> {
        let with_data = printer.with_data();
        let printer = if self.json { &with_data } else { printer };
        let threads = threads(self.threads)?;
        let (document, settings) = self.settings(printer)?;
        let study = Study::load(&document, settings)?;
        printer.left_out(&study.pool.skipped);
        for note in &study.pool.notes {
            printer.warn(note);
        }
        // What cannot run is refused before anything is written.
        for method in &study.settings.methods {
            Simulation::new(study.experiment(method, study.settings.seeds[0], threads))?;
        }
        let interrupt = Interrupt::listen(printer)?;
        let labels = labels(&study.settings.methods);
        let folder = folder::create(self.output.as_deref(), &name(&study, &labels))?;
        printer.say(title(&study, threads));
        let server = if self.open { Some(Server::start(folder.path())?) } else { None };
        if let Some(server) = &server {
            printer.say(format_args!("Follow it at {}", server.address()));
            open(server.address());
        }
        let rows = self.execute(printer, &study, &labels, threads, &folder, &interrupt)?;
        if !self.json {
            for line in results::lines(&rows, printer, terminal::width()) {
                printer.line(line)?;
            }
        }
        server.into_iter().for_each(Server::end);
        printer.say(format_args!("Results are in {}", folder.path().display()));
        Ok(status(printer, &rows))
    }

    fn settings(&self, printer: &Printer) -> Result<(Document, Settings)> {
        let mut document = self.overrides.document(self.file.as_deref())?;
        if let Some(file) = &self.partition {
            document.remove_of_file("partition");
            document.put(&["partition", "file"], path_value(file), "--partition")?;
        }
        if let Some(metrics) = &self.metrics {
            document.put(&["evaluation", "metrics"], metrics.as_str().into(), "--metrics")?;
        }
        let settings = Settings::check(&document)?;
        for note in &settings.notes {
            printer.warn(note);
        }
        Ok((document, settings))
    }

    /// All methods and seeds, one after the other.
    fn execute(
        &self,
        printer: &Printer,
        study: &Study,
        labels: &[String],
        threads: usize,
        folder: &RunFolder,
        interrupt: &Interrupt,
    ) -> Result<Vec<Row>> {
        let settings = &study.settings;
        let runs = settings.methods.len() * settings.seeds.len();
        if runs > 1 {
            folder.write_config(&settings.resolved(names::PARTITION))?;
            study.pool.partition.write(&folder.file(names::PARTITION), false)?;
        }
        let mut progress = Progress::new(printer, runs, settings.rounds);
        let mut rows = Vec::new();
        for (method, label) in settings.methods.iter().zip(labels) {
            let mut row = Row { label: label.clone(), runs: Vec::new() };
            for &seed in &settings.seeds {
                if interrupt.is_asked() {
                    break;
                }
                let own = if runs > 1 {
                    RunFolder::create(&folder.path().join(label).join(format!("seed-{seed}")))?
                } else {
                    folder.clone()
                };
                progress.start(format!("{label}, seed {seed}"));
                let mut events = if self.tensorboard { Some(events(&own)?) } else { None };
                let run = Execution { study, method, seed, threads };
                let outcome = run.execute(&own, interrupt, &mut |record| {
                    progress.round(record);
                    if let Some(events) = &mut events {
                        events.append(record, now())?;
                    }
                    if self.json { printer.json(&Line { method: label, seed, record }) } else { Ok(()) }
                });
                let outcome = outcome.inspect_err(|_| progress.finish())?;
                if let Some(reason) = outcome.divergence {
                    progress.pause(|| printer.error(format_args!("{label}, seed {seed}: {reason}")));
                }
                row.runs.push(Ended { seed, summary: outcome.summary, accuracies: outcome.accuracies });
            }
            if !row.runs.is_empty() {
                rows.push(row);
            }
        }
        progress.finish();
        Ok(rows)
    }
}

/// An event file in the run folder.
fn events(folder: &RunFolder) -> Result<EventsFile> {
    let name = format!("events.out.tfevents.{}.fedelity", now() as u64);
    Ok(EventsFile::create(&folder.file(&name), now())?)
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

/// A name for each method: its id, and a number where the same one comes again with other keys.
fn labels(methods: &[Method]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for method in methods {
        let mut label = method.name.to_string();
        let mut n = 1;
        while labels.contains(&label) {
            n += 1;
            label = format!("{}-{n}", method.name);
        }
        labels.push(label);
    }
    labels
}

/// The short name of a study, for its folder.
fn name(study: &Study, labels: &[String]) -> String {
    let methods = if labels.len() == 1 { labels[0].clone() } else { format!("{}-methods", labels.len()) };
    format!("{methods}-{}", study.pool.dataset.name)
}

fn title(study: &Study, threads: usize) -> String {
    let settings = &study.settings;
    format!(
        "{}: {}\n{} with {} parameters, {} a round, {}, {}",
        study.pool.dataset.name,
        study.pool.partition.spec,
        settings.model.name,
        thousands(study.model.layout().trainable_len()),
        plural(study.per_round, "client"),
        plural(settings.rounds, "round"),
        plural(threads, "thread"),
    )
}

fn status(printer: &Printer, rows: &[Row]) -> Status {
    let endings = || rows.iter().flat_map(|row| &row.runs).map(|run| run.summary.status);
    if endings().any(|ending| ending == Ending::Interrupted) {
        printer.say("Interrupted; what was recorded is kept");
        Status::Interrupted
    } else if endings().any(|ending| matches!(ending, Ending::Diverged { .. })) {
        Status::Diverged
    } else {
        Status::Done
    }
}
