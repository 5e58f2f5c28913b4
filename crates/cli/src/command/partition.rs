//! `fedelity partition`.

use std::path::PathBuf;

use anyhow::Result;
use fedelity_data::partition::Skew;
use fedelity_experiment::Pool;
use fedelity_methods::Registry;
use serde_json::json;

use crate::engine::resources;
use crate::output::Overwrite;
use crate::overrides::{Overrides, settings};
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::heatmap::Heatmap;
use crate::view::terminal;
use crate::view::units::{plural, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity partition                                the default: Dirichlet 0.1 over 20 clients
  fedelity partition --set partition.alpha=0.5      less skew
  fedelity partition --set partition.kind=shards --set partition.shards=2
  fedelity partition experiment.toml -o split.json  write the partition to a file
  fedelity run experiment.toml --partition split.json   use it";

/// Show which client holds which classes, and write the partition to a file
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PartitionCommand {
    /// The configuration [default: the built-in one].
    file: Option<PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    /// Write the partition to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// Show all clients, however many there are.
    #[arg(long)]
    all: bool,

    /// Print one JSON object instead of the heat map.
    #[arg(long)]
    json: bool,
}

/// Screen lines not used for clients.
const FRAME: usize = 15;
/// Clients shown if output is not a terminal.
const ROWS: usize = 100;

impl PartitionCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        self.output.iter().try_for_each(|path| self.overwrite.check("-o", path))?;
        let mut document = self.overrides.document(self.file.as_deref())?;
        document.know(methods);
        let pool = Pool::load(&document, &settings(&document, printer)?, &resources()?)?;
        let skew = pool.skew()?;
        if let Some(path) = &self.output {
            pool.partition.write(path, self.overwrite.overwrite)?;
        }
        if self.json {
            printer.json(&as_json(&pool, &skew))?;
        } else {
            self.draw(printer, &pool, &skew)?;
        }
        if let Some(path) = &self.output {
            printer.say(format_args!("Written to {}", path.display()));
        }
        Ok(ExitStatus::Done)
    }

    fn draw(&self, printer: &Printer, pool: &Pool, skew: &Skew) -> Result<()> {
        let rows = match (self.all, terminal::height()) {
            (true, _) => usize::MAX,
            (false, Some(height)) => height.saturating_sub(FRAME).max(5),
            (false, None) => ROWS,
        };
        let clients = pool.partition.clients.len();
        // Hiding a single row saves nothing: the note takes a line too.
        let rows = if clients <= rows + 1 { clients } else { rows };
        printer.heading(&pool.dataset.name)?;
        printer.line(&pool.partition.spec)?;
        printer.line("")?;
        let (clients, classes) = (&pool.partition.names[..], &pool.dataset.classes[..]);
        let map = Heatmap { counts: &skew.counts, clients, classes, width: terminal::width(), rows };
        printer.drawn(map.lines(printer))?;
        for line in statistics(pool, skew) {
            printer.line(line)?;
        }
        printer.left_out(&pool.skipped);
        for note in &pool.notes {
            printer.line(format!("Note: {note}"))?;
        }
        Ok(())
    }
}

/// Sizes and skew in three lines, and further ones if clients have their own test samples or the server holds any.
pub(crate) fn statistics(pool: &Pool, skew: &Skew) -> Vec<String> {
    let (sizes, classes) = (skew.sizes, pool.dataset.classes.len());
    let mut lines = vec![
        format!(
            "Clients   {}, {} to {} samples, mean {:.1}, sd {:.1}",
            thousands(pool.partition.clients.len()),
            thousands(sizes.min),
            thousands(sizes.max),
            sizes.mean,
            sizes.std
        ),
        format!(
            "Classes   {:.1} of {classes} per client, {:.1} effective (exp of entropy)",
            skew.mean_classes, skew.mean_effective_classes
        ),
        format!(
            "Skew      {:.2} mean total variation from the pooled data (0 to 1), {}",
            skew.mean_total_variation,
            plural(pool.partition.draws as usize, "draw")
        ),
    ];
    if let Some(owners) = pool.partition.test_owners(&pool.dataset) {
        let mut own = vec![0; pool.partition.clients.len()];
        owners.iter().flatten().for_each(|&client| own[client as usize] += 1);
        let (least, most) = (own.iter().min().copied().unwrap_or(0), own.iter().max().copied().unwrap_or(0));
        lines.push(format!(
            "Test      {} samples, {} to {} of them from each client's own site",
            thousands(owners.len()),
            thousands(least),
            thousands(most)
        ));
    }
    let held = &pool.held_out;
    if !held.is_empty() {
        let sets = [(&held.auxiliary, "auxiliary"), (&held.validation, "validation"), (&held.unlabelled, "unlabelled")];
        let held = sets.iter().filter(|(set, _)| !set.is_empty());
        let held: Vec<String> = held.map(|(set, what)| format!("{} {what}", thousands(set.len()))).collect();
        lines.push(format!("Server    {} samples", held.join(", ")));
    }
    lines
}

pub(super) fn as_json(pool: &Pool, skew: &Skew) -> serde_json::Value {
    let partition = &pool.partition;
    json!({
        "dataset": partition.dataset,
        "kind": partition.kind,
        "parameters": partition.parameters,
        "seed": partition.seed,
        "draws": partition.draws,
        "clients": partition.clients.len(),
        "names": partition.names,
        "samples": partition.clients.iter().map(Vec::len).sum::<usize>(),
        "classes": pool.dataset.classes,
        "counts": skew.counts,
        "size_min": skew.sizes.min,
        "size_max": skew.sizes.max,
        "size_mean": skew.sizes.mean,
        "size_sd": skew.sizes.std,
        "mean_classes": skew.mean_classes,
        "mean_effective_classes": skew.mean_effective_classes,
        "mean_total_variation": skew.mean_total_variation,
        "server": {
            "auxiliary": pool.held_out.auxiliary,
            "validation": pool.held_out.validation,
            "unlabelled": pool.held_out.unlabelled,
        },
        "notes": pool.notes,
    })
}
