//! `fedelity run`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use fedelity_experiment::{Document, ExperimentError, Study};
use fedelity_methods::Registry;
use fedelity_record::RecordError;
use fedelity_sim::Metrics;

use super::resume::resume;
use super::session::Session;
use crate::engine::resources;
use crate::overrides::{Overrides, path_value};
use crate::printer::Printer;
use crate::status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  fedelity run                              the built-in data, 20 skewed clients, FedAvg
  fedelity run experiment.toml              run a file; missing keys take their defaults
  fedelity run --set rounds=5 --set partition.alpha=1.0
  fedelity run experiment.toml --set seeds=[1,2,3] --output runs/three-seeds
  fedelity run runs/three-seeds/config.toml repeat a run with bit-identical results
  fedelity run examples/methods.toml        several methods on the same clients, one table
  fedelity run --json | jq .accuracy        one object per round

A run folder contains config.toml (all keys), partition.json, rounds.jsonl (one line per round),
summary.json, clients.json (each client at the end) and model.safetensors; with a validation part
(server.validation), best.safetensors is the best round's model. With several methods or seeds, each
run gets its own subfolder. You can stop a run at any moment, for example with Ctrl-C: fedelity
resume continues it from its checkpoints, with the same results.

The table shows means and standard deviations over seeds. 'to fedavg' is the first round that
reaches FedAvg's final accuracy with the same seed, or '-' if none does. 'traffic' is the number of
bytes in both directions, relative to FedAvg.";

/// Train a federation and record it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunCommand {
    /// The configuration [default: the built-in one].
    file: Option<PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    session: Session,

    /// Resume the runs in this folder instead; see fedelity resume.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["file", "output", "partition", "metrics"])]
    resume: Option<PathBuf>,

    /// New folder for the results [default: runs/<date-time>-<name>].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Read the partition from a file written by `fedelity partition -o`.
    #[arg(long, value_name = "FILE")]
    partition: Option<PathBuf>,

    #[arg(long, value_name = "METRICS", help = metrics_help())]
    metrics: Option<String>,
}

fn metrics_help() -> String {
    format!("How much to measure on local models: {}; see fedelity keys evaluation.metrics", Metrics::NAMES.join(", "))
}

impl RunCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        if let Some(run) = &self.resume {
            return resume(run, &self.overrides, &self.session, printer, methods);
        }
        let study = self.study(printer, methods)?;
        self.session.run(&study, printer, || {
            study.folder(self.output.as_deref()).map_err(|error| match error {
                ExperimentError::Record(error @ RecordError::Exists { .. }) => anyhow!("--output: {error}"),
                other => other.into(),
            })
        })
    }

    fn study(&self, printer: &Printer, methods: &Registry) -> Result<Study> {
        let mut document = self.overrides.document(self.file.as_deref())?;
        document.know(methods);
        if let Some(file) = &self.partition {
            document.remove_of_file("partition");
            document.put(&["partition", "file"], path_value(file, "--partition")?, "--partition")?;
        }
        if let Some(metrics) = &self.metrics {
            document.put(&["evaluation", "metrics"], metrics.as_str().into(), "--metrics")?;
        }
        load(&document, printer)
    }
}

/// Loads everything that a configuration names, and says what the user may not expect.
pub(crate) fn load(document: &Document, printer: &Printer) -> Result<Study> {
    let study = Study::load_with(document, &resources()?)?;
    study.settings.notes.iter().for_each(|note| printer.warn(note));
    printer.left_out(&study.pool.skipped);
    study.pool.notes.iter().for_each(|note| printer.warn(note));
    Ok(study)
}
