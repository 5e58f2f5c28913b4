//! `fedelity check`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fedelity_data::partition::Skew;
use fedelity_experiment::{Estimate, MethodChoice, Pool, PrivacyPlan, Study, estimate};
use fedelity_methods::Registry;
use fedelity_record::PrivacySpent;
use serde_json::json;

use super::partition::{self, statistics};
use crate::engine::resources;
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::table::{Align, Table};
use crate::view::units::{bytes, plural, seconds, shortened, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity check                                the built-in configuration
  fedelity check experiment.toml
  fedelity check experiment.toml --set clients.epochs=10
  fedelity check examples/cifar10-dirichlet.toml --data-dir ~/data";

/// Show what a configuration would run, and about how long it would take
///
/// Prints the whole configuration with its defaults, the clients and their classes, the size of the model, the bytes per
/// round, and an estimate of time and memory from a short measurement. Nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The configuration [default: the built-in one].
    file: Option<PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    /// Number of worker threads to assume [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Maximum clients in the short table.
const ROWS: usize = 10;
/// Maximum width of a name in it.
const LONGEST: usize = 24;

impl Check {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        let threads = threads("--threads", self.threads, printer)?;
        let mut document = self.overrides.document(self.file.as_deref())?;
        document.know(methods);
        let study = Study::load_with(&document, &resources()?)?;
        study.settings.notes.iter().for_each(|note| printer.warn(note));
        let skew = study.pool.skew()?;
        let heading = |text: &str| printer.heading(text);
        let file = study.settings.config.partition.file.as_deref().unwrap_or(Path::new(""));
        let resolved = study.settings.resolved(&file.display().to_string());
        if self.json {
            printer.json(&as_json(&study, &resolved, &skew, threads)?)?;
            return Ok(ExitStatus::Done);
        }

        heading("# Configuration")?;
        printer.line(resolved.trim_end())?;
        printer.line("")?;
        heading(&format!("# Clients: {}", study.pool.partition.spec))?;
        printer.drawn(clients(&study.pool, &skew).lines(printer))?;
        let more = skew.counts.len().saturating_sub(ROWS);
        if more > 0 {
            printer.line(format!("... and {} more; fedelity partition shows them all", thousands(more)))?;
        }
        for line in statistics(&study.pool, &skew) {
            printer.line(line)?;
        }
        printer.left_out(&study.pool.skipped);
        for note in &study.pool.notes {
            printer.line(format!("Note: {note}"))?;
        }
        printer.line("")?;
        heading("# Cost")?;
        let layout = study.model.layout();
        let trainable = layout.trainable_len();
        let fixed = layout.len() - trainable;
        let fixed = if fixed > 0 { format!(" and {} buffers", thousands(fixed)) } else { String::new() };
        let frozen = study.model.frozen_layout().len();
        let frozen = if frozen > 0 { format!(", plus {} frozen", thousands(frozen)) } else { String::new() };
        let size = bytes(4 * layout.len() as u64);
        printer.line(format!("Parameters  {}{fixed} of {}{frozen}, {size}", thousands(trainable), study.card.model))?;
        let methods = &study.settings.methods;
        let found = methods.iter().map(|method| estimate(&study, method, threads)).collect::<Result<Vec<_>, _>>()?;
        let lines = match &found[..] {
            [one] => cost(&study, one.as_ref(), threads),
            all => costs(&study, all, threads, printer),
        };
        printer.drawn(lines)?;
        for line in faults(&study).into_iter().chain(privacy(&study)) {
            printer.line(line)?;
        }
        Ok(ExitStatus::Done)
    }
}

fn as_json(study: &Study, resolved: &str, skew: &Skew, threads: usize) -> Result<serde_json::Value> {
    let cost = |method: &MethodChoice| -> Result<serde_json::Value> {
        let found = estimate(study, method, threads)?;
        Ok(json!({
            "method": method.name,
            "bytes-down": found.map(|found| found.bytes_down),
            "bytes-up": found.map(|found| found.bytes_up),
            "traffic": found.map(|found| found.traffic),
            "seconds": found.map(|found| found.seconds),
            "memory": found.and_then(|found| found.memory),
            "privacy": planned(study, method).map(|(_, spent)| spent),
            "epsilon-if-poisson": study.privacy(method).and_then(|plan| plan.as_if_poisson(study.settings.config.rounds)),
            "leaves": study.leaves(method),
        }))
    };
    Ok(json!({
        "configuration": resolved.parse::<toml::Table>()?,
        "partition": partition::as_json(&study.pool, skew),
        "notes": study.pool.notes,
        "parameters": study.model.layout().trainable_len(),
        "frozen": study.model.frozen_layout().len(),
        "model-bytes": 4 * study.model.layout().len(),
        "clients-per-round": study.per_round,
        "rounds": study.settings.config.rounds,
        "seeds": study.settings.config.seeds,
        "threads": threads,
        "costs": study.settings.methods.iter().map(cost).collect::<Result<Vec<_>>>()?,
    }))
}

fn clients(pool: &Pool, skew: &Skew) -> Table {
    let (names, classes) = (&pool.partition.names, &pool.dataset.classes);
    let columns = [
        ("client", if names.is_empty() { Align::Right } else { Align::Left }),
        ("samples", Align::Right),
        ("classes", Align::Right),
        ("largest classes", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (client, row) in skew.counts.iter().enumerate().take(ROWS) {
        let total: u64 = row.iter().map(|&n| u64::from(n)).sum();
        let mut order: Vec<usize> = (0..row.len()).filter(|&class| row[class] > 0).collect();
        let held = order.len();
        order.sort_by_key(|&class| (std::cmp::Reverse(row[class]), class));
        let share = |class: usize| 100.0 * f64::from(row[class]) / total.max(1) as f64;
        let top = order.iter().take(3).map(|&class| {
            let name = classes.get(class).map_or_else(|| class.to_string(), |name| shortened(name, LONGEST));
            format!("{name} ({:.0} %)", share(class))
        });
        let top = top.collect::<Vec<String>>().join(", ");
        let name = names.get(client).map_or_else(|| client.to_string(), |name| shortened(name, LONGEST));
        table.row([name, thousands(total as usize), held.to_string(), top]);
    }
    table
}

/// The cost of a single method.
fn cost(study: &Study, found: Option<&Estimate>, threads: usize) -> Vec<String> {
    let Some(found) = found else { return vec![format!("Time        {UNKNOWN}")] };
    let (rounds, seeds) = (study.settings.config.rounds, study.settings.config.seeds.len());
    let all = rounds as u64 * (found.bytes_down + found.bytes_up);
    let runs = if seeds == 1 {
        String::new()
    } else {
        format!(", {} for {}", seconds(found.seconds * seeds as f64), plural(seeds, "seed"))
    };
    vec![
        format!(
            "Traffic     {} down and {} up per round of {}, {} in total, {:.2}x FedAvg's",
            bytes(found.bytes_down),
            bytes(found.bytes_up),
            plural(study.per_round, "client"),
            bytes(all),
            found.traffic
        ),
        format!(
            "Time        about {} for {} on {}{runs} (estimated on this machine)",
            seconds(found.seconds),
            plural(rounds, "round"),
            plural(threads, "thread"),
        ),
        format!("Memory      {} (estimated)", memory(found)),
    ]
}

/// The costs of several methods, as a table.
fn costs(study: &Study, found: &[Option<Estimate>], threads: usize, printer: &Printer) -> Vec<String> {
    let columns = [
        ("method", Align::Left),
        ("down", Align::Right),
        ("up", Align::Right),
        ("traffic", Align::Right),
        ("time", Align::Right),
        ("memory", Align::Right),
    ];
    let mut table = Table::new(&columns);
    let (mut unknown, mut total) = (false, 0.0);
    for (method, found) in study.settings.methods.iter().zip(found) {
        let Some(found) = found else {
            table.row([method.name, "-", "-", "-", "-", "-"].map(String::from));
            unknown = true;
            continue;
        };
        total += found.seconds;
        table.row([
            method.name.to_string(),
            bytes(found.bytes_down),
            bytes(found.bytes_up),
            format!("{:.2}x", found.traffic),
            seconds(found.seconds),
            memory(found),
        ]);
    }
    let mut lines = table.lines(printer);
    let (rounds, seeds) = (study.settings.config.rounds, study.settings.config.seeds.len());
    lines.push(format!(
        "Bytes per round of {}, traffic relative to FedAvg's; time for {} on {}.",
        plural(study.per_round, "client"),
        plural(rounds, "round"),
        plural(threads, "thread")
    ));
    let all = seconds(total * seeds as f64);
    lines.push(format!("All methods, {}: about {all} (estimated on this machine).", plural(seeds, "seed")));
    if unknown {
        lines.push(format!("-: {UNKNOWN}"));
    }
    lines
}

/// What the planned rounds reveal about one client, if there is noise.
pub(super) fn planned(study: &Study, method: &MethodChoice) -> Option<(PrivacyPlan, PrivacySpent)> {
    let (plan, config) = (study.privacy(method)?, &study.settings.config);
    let spent = plan.after(config.rounds, &config.seeds)?;
    Some((plan, spent))
}

/// What can be expected of rounds with faults.
fn faults(study: &Study) -> Option<String> {
    let (faults, partition) = (&study.settings.config.faults, &study.pool.partition);
    if faults.is_none() {
        return None;
    }
    let sizes: Vec<usize> = partition.clients.iter().map(Vec::len).collect();
    let (expected, needed) = (study.per_round as f64 * faults.expected_share(&sizes), study.needed());
    let few = if expected < needed as f64 { ", so most rounds are repeated" } else { "" };
    let attack = match faults.attackers(sizes.len()) {
        0 => String::new(),
        attackers => format!("; {attackers} of {} clients attack", sizes.len()),
    };
    let (all, close) = (study.per_round, plural(needed, "upload"));
    Some(format!("Faults      about {expected:.1} of {all} uploads count, and {close} close a round{few}{attack}"))
}

fn privacy(study: &Study) -> Vec<String> {
    let (rounds, methods) = (study.settings.config.rounds, &study.settings.methods);
    let mut lines = Vec::new();
    for method in methods {
        let Some((plan, spent)) = planned(study, method) else { continue };
        let of = if methods.len() == 1 { String::new() } else { format!("{}: ", method.name) };
        let (spent, about) = (spent.describe(), plan.describe());
        lines.push(format!("Privacy     {of}{spent} after {}, {about}", plural(rounds, "round")));
        if let Some(epsilon) = plan.as_if_poisson(rounds) {
            let like =
                "under the assumptions of TensorFlow Privacy and Opacus, which do not hold here: only to compare";
            lines.push(format!("            epsilon {epsilon:.2} {like}"));
        }
    }
    lines
}

/// Shown for a method that cannot be measured.
const UNKNOWN: &str = "unknown: training diverges in its first steps";

fn memory(found: &Estimate) -> String {
    found.memory.map_or("unknown on this system".to_string(), |n| format!("about {}", bytes(n)))
}
