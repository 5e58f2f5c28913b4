//! `fedelity data show`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use fedelity_data::{Dataset, Skipped, Source, Split};
use serde_json::json;

use crate::config::{Data, Overrides, find};
use crate::printer::{Printer, Style};
use crate::sheet::Sheet;
use crate::study::load_data;
use crate::table::{Align, Table};
use crate::units::{bytes, plural, thousands};

/// Load one data set and show what is in it
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The data set, or a configuration that names one.
    #[arg(value_name = "NAME")]
    what: String,

    #[command(flatten)]
    overrides: Overrides,

    /// Draw samples of each class into this file, PNG or SVG by its name. It must not exist yet.
    #[arg(long, value_name = "FILE")]
    sheet: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self, printer: &Printer) -> Result<()> {
        let document = self.overrides.data_document(&self.what, "NAME")?;
        let mut notes = Vec::new();
        let mut data = Data::check(&document, &mut notes)?;
        notes.iter().for_each(|note| printer.warn(note));
        let (dataset, skipped) = load_data(&document, &mut data)?;
        printer.left_out(&skipped);
        dataset.absent().iter().for_each(|note| printer.warn(note));
        if let Some(path) = &self.sheet {
            let Some(shape) = dataset.shape.image() else {
                bail!("--sheet: the samples of {} are {}, not images", dataset.name, dataset.shape);
            };
            Sheet { classes: &dataset.classes, split: &dataset.train, shape }.write(path)?;
        }
        if self.json {
            printer.json(&as_json(&dataset, &data, &skipped)?)?;
        } else {
            describe(printer, &dataset, &data)?;
        }
        if let Some(path) = &self.sheet {
            printer.say(format_args!("Samples are in {}", path.display()));
        }
        Ok(())
    }
}

fn describe(printer: &Printer, dataset: &Dataset, data: &Data) -> Result<()> {
    let entry = match &data.source {
        Source::Named { name, .. } => Some(find(name)?),
        _ => None,
    };
    let title = entry.map_or("Your own data", |entry| entry.title);
    printer.line(printer.paint(Style::Heading, title))?;
    printer.line(format!("name     {}", dataset.name))?;
    if let Some(entry) = entry {
        printer.line(format!("task     {}", entry.task))?;
    }
    printer.line(format!("samples  {}", dataset.shape))?;
    for (split, what) in [(&dataset.train, "train"), (&dataset.test, "test")] {
        let memory = bytes(split.bytes());
        printer.line(format!("{what:<8} {} samples, {memory} in memory", thousands(split.len())))?;
    }
    if let Some(keys) = &dataset.train.keys {
        let shown: Vec<&str> = keys.names.iter().take(3).map(String::as_str).collect();
        let more = if keys.names.len() > shown.len() { ", ..." } else { "" };
        printer.line(format!("keys     {}: {}{more}", plural(keys.names.len(), "natural key"), shown.join(", ")))?;
    }
    match &data.source {
        Source::Folder(folder) => printer.line(format!("source   {}", absolute(&folder.dir)?))?,
        Source::Table(table) => printer.line(format!("source   {}", absolute(&table.train)?))?,
        Source::Named { .. } => {
            if let Some(entry) = entry {
                printer.line(format!("licence  {}", entry.licence))?;
                printer.line(format!("source   {}", entry.source))?;
            }
        }
    }
    printer.line(format!("sha256   {}", dataset.fingerprint()))?;
    printer.line("")?;
    for line in classes(dataset).lines(printer) {
        printer.line(line)?;
    }
    Ok(())
}

fn as_json(dataset: &Dataset, data: &Data, skipped: &Skipped) -> Result<serde_json::Value> {
    let entry = match &data.source {
        Source::Named { name, .. } => Some(find(name)?),
        _ => None,
    };
    let path = match &data.source {
        Source::Folder(folder) => Some(absolute(&folder.dir)?),
        Source::Table(table) => Some(absolute(&table.train)?),
        Source::Named { .. } => None,
    };
    let split = |split: &Split| {
        json!({
            "samples": split.len(),
            "bytes": split.bytes(),
            "by-class": split.label_counts(dataset.classes.len()),
        })
    };
    Ok(json!({
        "name": dataset.name,
        "title": entry.map(|entry| entry.title),
        "task": entry.map(|entry| entry.task),
        "licence": entry.map(|entry| entry.licence),
        "source": entry.map_or(path, |entry| Some(entry.source.to_string())),
        "sample": dataset.shape.to_string(),
        "classes": dataset.classes,
        "train": split(&dataset.train),
        "test": split(&dataset.test),
        "keys": dataset.train.keys.as_ref().map(|keys| keys.names.len()),
        "left-out": skipped.count,
        "sha256": dataset.fingerprint(),
    }))
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

fn classes(dataset: &Dataset) -> Table {
    let columns = [("label", Align::Right), ("class", Align::Left), ("train", Align::Right), ("test", Align::Right)];
    let mut table = Table::new(&columns);
    let counts = |split: &Split| split.label_counts(dataset.classes.len());
    let (train, test) = (counts(&dataset.train), counts(&dataset.test));
    for (label, class) in dataset.classes.iter().enumerate() {
        table.row([label.to_string(), class.clone(), thousands(train[label]), thousands(test[label])]);
    }
    table
}
