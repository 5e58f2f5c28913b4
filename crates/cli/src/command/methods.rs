//! `fedelity methods`.

use anyhow::{Result, anyhow};
use fedelity_fl::Needs;
use fedelity_methods::registry::{self, Entry};

use crate::config::nearest;
use crate::printer::{Printer, Style};
use crate::status::Status;
use crate::table::{Align, Table};

const EXAMPLES: &str = "\
Examples:
  fedelity methods            all of them, and what each one needs
  fedelity methods fedavg     one of them: its equation, its keys and their defaults";

/// List the methods, or explain one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Methods {
    /// The method to explain.
    name: Option<String>,
}

impl Methods {
    pub(crate) fn run(self, printer: &Printer) -> Result<Status> {
        match self.name {
            None => list(printer)?,
            Some(name) => explain(printer, find(&name)?)?,
        }
        Ok(Status::Done)
    }
}

fn find(name: &str) -> Result<&'static Entry> {
    let names: Vec<&str> = registry::entries().iter().map(|entry| entry.id).collect();
    registry::find(name).map_err(|error| match nearest(name, &names) {
        Some(guess) => anyhow!("{error}; did you mean '{guess}'?"),
        None => anyhow!("{error}"),
    })
}

fn list(printer: &Printer) -> Result<()> {
    let mut table = Table::new(&[("method", Align::Left), ("what it does", Align::Left), ("needs", Align::Left)]);
    for entry in registry::entries() {
        let needs = needs(&entry.needs()?);
        let needs = if needs.is_empty() { "nothing more".to_string() } else { needs.join(", ") };
        table.row([entry.id.to_string(), entry.summary.to_string(), needs]);
    }
    for line in table.lines(printer) {
        printer.line(line)?;
    }
    Ok(())
}

fn explain(printer: &Printer, entry: &Entry) -> Result<()> {
    printer.line(printer.paint(Style::Heading, entry.id))?;
    printer.line(entry.summary)?;
    printer.line("")?;
    for line in entry.equation.lines() {
        printer.line(format!("    {line}"))?;
    }
    printer.line("")?;
    printer.line(format!("Published   {}", entry.reference))?;
    let needs = needs(&entry.needs()?);
    let needs = if needs.is_empty() { "nothing beyond the clients' own data".to_string() } else { needs.join(", ") };
    printer.line(format!("Needs       {needs}"))?;
    if entry.parameters.is_empty() {
        return printer.line("Keys        none of its own");
    }
    printer.line("")?;
    let columns = [
        ("key", Align::Left),
        ("symbol", Align::Left),
        ("default", Align::Right),
        ("paper", Align::Right),
        ("allowed", Align::Left),
        ("what it does", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for parameter in entry.parameters {
        let at_zero =
            if parameter.at_zero.is_empty() { String::new() } else { format!(" (at 0: {})", parameter.at_zero) };
        table.row([
            parameter.name.to_string(),
            parameter.symbol.to_string(),
            parameter.default.to_string(),
            parameter.paper.to_string(),
            parameter.range.to_string(),
            format!("{}{at_zero}", parameter.summary),
        ]);
    }
    for line in table.lines(printer) {
        printer.line(line)?;
    }
    Ok(())
}

/// What a method needs, in words.
fn needs(needs: &Needs) -> Vec<String> {
    let mut words: Vec<String> = [
        (needs.auxiliary, "labelled samples on the server"),
        (needs.validation, "validation samples on the server"),
        (needs.unlabelled, "unlabelled samples on the server"),
        (needs.client_memory, "clients that remember"),
        (needs.each_upload, "every upload by itself"),
        (needs.label_counts_leave_client, "label counts of clients"),
        (needs.projection, "a projection head"),
    ]
    .iter()
    .filter(|(needed, _)| *needed)
    .map(|(_, word)| word.to_string())
    .collect();
    match needs.extra_passes {
        0 => {}
        1 => words.push("1 more forward pass".to_string()),
        n => words.push(format!("{n} more forward passes")),
    }
    words
}
