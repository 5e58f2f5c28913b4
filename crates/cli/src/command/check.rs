//! `fedelity check`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fedelity_data::partition::Skew;
use fedelity_experiment::{Estimate, MethodChoice, Pool, PrivacyPlan, Study, estimate};
use fedelity_methods::{Registry, Rule};
use fedelity_record::{PrivacySpent, shown_epsilon};
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

/// Show what a configuration would run, and estimate its time and memory
///
/// Prints the whole configuration with its defaults, the clients and their classes, the size of the model, the bytes per
/// round, and an estimate of time and memory from a short measurement. Writes nothing.
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
        "faults": faults_as_json(study),
        "noise": noisiness(study).map(|Noisiness { norm, clip }| json!({ "norm": norm, "clip-update": clip })),
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

/// How much noise the mean of the updates has.
struct Noisiness {
    norm: f64,
    /// The longest that the mean can be without it.
    clip: f64,
}

/// Of the first method: it is the same for all.
fn noisiness(study: &Study) -> Option<Noisiness> {
    let plan = study.privacy(study.settings.methods.first()?)?;
    let clip = study.settings.config.server.clip_update?;
    Some(Noisiness { norm: plan.norm(clip, study.model.layout().trainable_len()), clip })
}

/// A number with two digits that matter.
fn digits(number: f64) -> String {
    if (0.01..100.0).contains(&number) { format!("{number:.2}") } else { format!("{number:.1e}") }
}

/// How many uploads of a round can be expected to count.
fn expected_uploads(study: &Study) -> f64 {
    let sizes: Vec<usize> = study.pool.partition.clients.iter().map(Vec::len).collect();
    study.per_round as f64 * study.settings.config.faults.expected_share(&sizes)
}

fn faults_as_json(study: &Study) -> Option<serde_json::Value> {
    let (faults, clients) = (&study.settings.config.faults, study.pool.partition.clients.len());
    (!faults.is_none()).then(|| {
        json!({
            "expected-uploads": expected_uploads(study),
            "needed-uploads": study.needed(),
            "chances": faults.injected().into_iter().collect::<BTreeMap<_, _>>(),
            "attackers": faults.attackers(clients),
            "attack": faults.attack.name(),
        })
    })
}

/// What can be expected of rounds with faults.
fn faults(study: &Study) -> Vec<String> {
    let (faults, partition) = (&study.settings.config.faults, &study.pool.partition);
    if faults.is_none() {
        return Vec::new();
    }
    let (expected, needed) = (expected_uploads(study), study.needed());
    let few = if expected < needed as f64 { ", so most rounds are repeated" } else { "" };
    let clients = partition.clients.len();
    let attack = match faults.attackers(clients) {
        0 => String::new(),
        attackers => format!("; {attackers} of {clients} clients attack"),
    };
    let (all, close) = (study.per_round, plural(needed, "upload"));
    let mut lines =
        vec![format!("Faults      about {expected:.1} of {all} uploads count, and {close} close a round{few}{attack}")];
    let chances: Vec<String> =
        faults.injected().iter().map(|(name, chance)| format!("{:.1} {name}", chance * all as f64)).collect();
    if !chances.is_empty() {
        lines.push(format!("            in a round, on average: {}", chances.join(", ")));
    }
    let server = &study.settings.config.server;
    if let Some(attack) = faults.attack.describe() {
        let clipped = server.clip_update.map_or(String::new(), |clip| format!(" of updates clipped to norm {clip}"));
        let defence = match server.rule {
            Rule::Mean if clipped.is_empty() => "the mean has no defence against that".to_string(),
            rule => format!("the server takes the {}{clipped}", rule.name()),
        };
        lines.push(format!("            attackers send {attack}; {defence}"));
    }
    lines
}

fn privacy(study: &Study) -> Vec<String> {
    let (rounds, methods) = (study.settings.config.rounds, &study.settings.methods);
    let mut lines = Vec::new();
    for method in methods {
        let Some(plan) = study.privacy(method) else { continue };
        let of = if methods.len() == 1 { String::new() } else { format!("{}: ", method.name) };
        let after = plural(rounds, "round");
        lines.push(match planned(study, method) {
            Some((_, spent)) => format!("Privacy     {of}{} after {after}, {}", spent.describe(), plan.describe()),
            None => format!("Privacy     {of}no bound on epsilon after {after}: no protection"),
        });
        if let Some(epsilon) = plan.as_if_poisson(rounds) {
            let like =
                "under the assumptions of TensorFlow Privacy and Opacus, which do not hold here: only to compare";
            lines.push(format!("            epsilon {} {like}", shown_epsilon(epsilon)));
        }
    }
    if let Some(Noisiness { norm, clip }) = noisiness(study) {
        let (all, own, times) = (plural(study.per_round, "update"), digits(norm), digits(norm / clip));
        lines.push(format!(
            "Noise       norm about {own} in the mean of {all}, which has at most {clip} without it: {times} times as much"
        ));
    }
    lines
}

/// Shown for a method that cannot be measured.
const UNKNOWN: &str = "unknown: training diverges in its first steps";

fn memory(found: &Estimate) -> String {
    found.memory.map_or("unknown on this system".to_string(), |n| format!("about {}", bytes(n)))
}
