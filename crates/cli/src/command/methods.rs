//! `fedelity methods`.

use anyhow::{Result, anyhow};
use fedelity_experiment::{Travel, Trial};
use fedelity_fl::Needs;
use fedelity_keys::{AtZero, Key, nearest};
use fedelity_methods::registry::{self, Built, Entry, Registry};
use fedelity_nn::InputShape;
use fedelity_record::what_leaves;
use serde_json::json;

use super::models::labelled;
use crate::engine::resources;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::table::{Align, Table};
use crate::view::terminal;
use crate::view::units::{thousands, wrap};

const EXAMPLES: &str = "\
Examples:
  fedelity methods            list the methods: what each does and needs
  fedelity methods fedntd     explain one: its equation, its keys and their defaults
  fedelity methods --json     one object per method, with the numbers sent and kept

The columns of the table, from left to right: samples that the server must hold; what a client keeps
between rounds, in models; what it sends besides its weights, its numbers of samples and steps and
its mean loss; extra forward passes per step; bytes in both directions, relative to FedAvg. Traffic
is measured with default keys on the default model, with a projection head if the method was
published with one.";

/// List the methods, or explain one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Methods {
    /// The method to explain.
    name: Option<String>,

    /// Print one JSON object per method.
    #[arg(long)]
    json: bool,
}

/// The default model on the default data: small enough to run all methods in a moment.
pub(super) const MODEL: &str = "simple-cnn";
pub(super) const INPUT: InputShape = InputShape::Image { channels: 1, height: 28, width: 28 };
pub(super) const CLASSES: usize = 10;

impl Methods {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        let trial = Trial::new(MODEL, INPUT, CLASSES, &resources()?.engine)?;
        let entry = self.name.as_deref().map(|name| find(name, methods)).transpose()?;
        let all: Vec<&Entry> = entry.map_or_else(|| methods.entries().iter().collect(), |entry| vec![entry]);
        if self.json {
            for entry in all {
                as_json(printer, entry, &trial)?;
            }
        } else if let Some(entry) = entry {
            explain(printer, entry, &trial)?;
        } else {
            list(printer, &all, &trial)?;
        }
        Ok(ExitStatus::Done)
    }
}

/// The name of a method in papers, by its ID.
pub(crate) fn paper_name(id: &str) -> Option<&'static str> {
    registry::find(id).map(|entry| entry.title)
}

fn find<'a>(name: &str, methods: &'a Registry) -> Result<&'a Entry> {
    let names = methods.names();
    methods.find(name).ok_or_else(|| {
        let guess = nearest(name, &names).map_or(String::new(), |guess| format!("; did you mean '{guess}'?"));
        anyhow!("there is no method '{name}'; the methods are {}{guess}", names.join(", "))
    })
}

/// The method with all keys at their defaults.
pub(super) fn defaults(entry: &Entry) -> Result<Built> {
    Ok(entry.build(&toml::Table::new(), "method", &mut ())?)
}

fn list(printer: &Printer, entries: &[&Entry], trial: &Trial) -> Result<()> {
    let columns = [
        ("method", Align::Left),
        ("server data", Align::Left),
        ("keeps", Align::Right),
        ("sends besides weights", Align::Left),
        ("passes", Align::Right),
        ("traffic", Align::Right),
    ];
    let mut table = Table::new(&columns);
    let or_none = |text: String| if text.is_empty() { "-".to_string() } else { text };
    for entry in entries {
        let built = defaults(entry)?;
        let (needs, travel) = (built.method.needs(), trial.count(built.method)?);
        table.row([
            entry.id.to_string(),
            or_none(server_data(&needs).join(", ")),
            if travel.memory == 0 { "-".to_string() } else { models(travel.memory, travel.weights) },
            or_none(travel.leaves.join(", ")),
            if needs.extra_passes == 0 { "-".to_string() } else { needs.extra_passes.to_string() },
            format!("{:.2}x", travel.relative()),
        ]);
    }
    for entry in entries {
        labelled(printer, entry.id, entry.summary)?;
    }
    printer.line("")?;
    printer.drawn(table.lines(printer))?;
    printer.line("")?;
    printer.line("fedelity methods NAME explains a method, fedelity methods --help the columns.")
}

fn explain(printer: &Printer, entry: &Entry, trial: &Trial) -> Result<()> {
    let built = defaults(entry)?;
    let (needs, travel) = (built.method.needs(), trial.count(built.method)?);
    let width = terminal::width().min(100);
    // Text next to a label, with following lines aligned to the first.
    let paragraph = |indent: usize, label: &str, text: &str| {
        for (i, line) in wrap(text, width.saturating_sub(indent)).iter().enumerate() {
            let lead = if i == 0 { label } else { "" };
            printer.line(format!("{lead:<indent$}{line}"))?;
        }
        anyhow::Ok(())
    };
    printer.heading(entry.id)?;
    paragraph(0, "", entry.summary)?;
    printer.line("")?;
    for line in entry.equation.lines() {
        paragraph(4, "", line)?;
    }
    printer.line("")?;
    let fact = |label: &str, text: &str| paragraph(12, label, text);
    fact("Published", entry.reference)?;
    fact("Helps", entry.helps)?;
    fact("Needs", &in_words(&needs))?;
    fact("Sends", &sends(&travel))?;
    fact("Traffic", &traffic(&travel, &needs))?;
    if entry.schema.keys.is_empty() {
        return fact("Keys", "none");
    }
    printer.line("")?;
    printer.heading("Keys of [method]")?;
    for key in entry.schema.keys {
        let symbol = if ["", key.name].contains(&key.symbol) { String::new() } else { format!(" ({})", key.symbol) };
        printer.line(format!("  {} = {}{symbol}", key.name, key.default.unwrap_or("none")))?;
        paragraph(6, "", key.summary())?;
        let mut facts = vec![format!("expected: {}", key.expected())];
        if !key.paper.is_empty() {
            facts.push(format!("paper: {}", key.paper));
        }
        facts.extend(at_zero(entry, key).map(|text| format!("at 0: {text}")));
        paragraph(6, "", &facts.join("; "))?;
    }
    Ok(())
}

fn as_json(printer: &Printer, entry: &Entry, trial: &Trial) -> Result<()> {
    let built = defaults(entry)?;
    let (needs, travel) = (built.method.needs(), trial.count(built.method)?);
    printer.json(&json!({
        "method": entry.id,
        "title": entry.title,
        "summary": entry.summary,
        "reference": entry.reference,
        "equation": entry.equation,
        "helps": entry.helps,
        "defaults": built.keys,
        "server-data": server_data(&needs),
        "client-memory": needs.client_memory,
        "each-upload": needs.each_upload,
        "update-norms": needs.update_norms,
        "label-counts-leave-client": needs.label_counts_leave_client,
        "projection": needs.projection,
        "extra-passes": needs.extra_passes,
        "trained-features": needs.trained_features,
        "least-classes": needs.classes,
        "fedavg-at-0": entry.coefficients(),
        "sends-beside-weights": travel.leaves,
        "weights": travel.weights,
        "classes": CLASSES,
        "numbers-down": travel.down,
        "numbers-up": travel.up,
        "numbers-kept": travel.memory,
        "traffic": travel.relative(),
    }))
}

/// What leaves a client.
pub(super) fn sends(travel: &Travel) -> String {
    let arrays: Vec<&str> = travel.leaves.iter().map(String::as_str).collect();
    what_leaves("the client's weights", &arrays, true)
}

/// The numbers that travel.
pub(super) fn traffic(travel: &Travel, needs: &Needs) -> String {
    format!(
        "{:.2} times FedAvg's: {} numbers down and {} up for a model of {} weights with {CLASSES} classes{}",
        travel.relative(),
        thousands(travel.down as usize),
        thousands(travel.up as usize),
        thousands(travel.weights as usize),
        if needs.projection { " and a projection head" } else { "" }
    )
}

/// What a key does at 0, unless 0 is rejected or meaningless.
pub(super) fn at_zero(entry: &Entry, key: &Key) -> Option<String> {
    match key.at_zero() {
        AtZero::FedAvg => {
            let others: Vec<&str> = entry.coefficients().into_iter().filter(|other| *other != key.name).collect();
            Some(match others.len() {
                0 => "FedAvg".to_string(),
                1 => format!("FedAvg, if {} is 0 too", others[0]),
                _ => format!("FedAvg, if {} are 0 too", others.join(" and ")),
            })
        }
        AtZero::Does(text) => Some(text.to_string()),
        AtZero::Refused | AtZero::None => None,
    }
}

/// A count of numbers, in multiples of the model.
pub(super) fn models(numbers: u64, weights: u64) -> String {
    let models = numbers as f64 / weights as f64;
    if models < 0.005 { "<0.01".to_string() } else { format!("{models:.2}") }
}

/// The samples that the server must hold.
fn server_data(needs: &Needs) -> Vec<&'static str> {
    let sets = [(needs.auxiliary, "auxiliary"), (needs.validation, "validation"), (needs.unlabelled, "unlabelled")];
    sets.into_iter().filter(|(needed, _)| *needed).map(|(_, name)| name).collect()
}

/// What a method needs, in words.
pub(super) fn in_words(needs: &Needs) -> String {
    let mut words: Vec<String> = [
        (needs.auxiliary, "labelled samples on the server (server.auxiliary)"),
        (needs.validation, "validation samples on the server (server.validation)"),
        (needs.unlabelled, "unlabelled samples on the server (server.unlabelled)"),
        (needs.client_memory, "memory on clients between rounds"),
        (needs.each_upload, "every single upload on the server"),
        (needs.update_norms, "the norms of single updates on the server"),
        (needs.label_counts_leave_client, "the clients' label counts"),
        (needs.projection, "a projection head, as published (model.projection)"),
    ]
    .iter()
    .filter(|(needed, _)| *needed)
    .map(|(_, word)| word.to_string())
    .collect();
    match needs.extra_passes {
        0 => {}
        1 => words.push("1 extra forward pass per step, or per round with the teacher cache".to_string()),
        n => words.push(format!("{n} extra forward passes per step, or per round with the teacher cache")),
    }
    if needs.trained_features {
        words.push("a trained layer before the classifier: without one, it is FedAvg".to_string());
    }
    if needs.classes > 0 {
        words.push(format!("at least {} classes: with fewer, it is FedAvg", needs.classes));
    }
    if words.is_empty() { "nothing beyond the clients' own data".to_string() } else { words.join(", ") }
}
