//! `fedelity data show`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use fedelity_data::catalogue::CatalogueEntry;
use fedelity_data::{Column, ColumnKind, DataSource, Dataset, SetName, Skipped, Split};
use fedelity_experiment::Loaded;
use serde_json::json;

use crate::engine::resources;
use crate::output::Overwrite;
use crate::overrides::{Overrides, settings};
use crate::printer::Printer;
use crate::view::sheet::Sheet;
use crate::view::table::{Align, Table};
use crate::view::units::{bytes, plural, thousands};

/// Load a data set and describe it
#[derive(Debug, clap::Args)]
pub(super) struct ShowData {
    /// The data set, a table, a folder, or a configuration that names one.
    #[arg(value_name = "DATA")]
    what: String,

    #[command(flatten)]
    overrides: Overrides,

    /// Draw samples of each class to this file, PNG or SVG by its extension.
    #[arg(long, value_name = "FILE")]
    sheet: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl ShowData {
    pub(super) fn run(self, printer: &Printer) -> Result<()> {
        self.sheet.iter().try_for_each(|path| self.overwrite.check("--sheet", path))?;
        let document = self.overrides.data_document(&self.what, "DATA")?;
        let source = settings(&document, printer)?.config.data;
        let Loaded { dataset, skipped, fingerprint } = resources()?.load(&document, &source)?;
        let source = &source.source;
        printer.left_out(&skipped);
        dataset.remarks().iter().for_each(|note| printer.warn(note));
        if let Some(path) = &self.sheet {
            let Some(shape) = dataset.shape.image() else {
                bail!("--sheet: the samples of {} are {}, not images", dataset.name, dataset.shape);
            };
            let sheet = Sheet { classes: &dataset.classes, split: &dataset.train, shape };
            self.overwrite.write("--sheet", path, &sheet.bytes(path)?)?;
        }
        if self.json {
            printer.json(&as_json(&dataset, source, &skipped, &fingerprint)?)?;
        } else {
            describe(printer, &dataset, source, &fingerprint)?;
        }
        if let Some(path) = &self.sheet {
            printer.say(format_args!("Samples are in {}", path.display()));
        }
        Ok(())
    }
}

fn describe(printer: &Printer, dataset: &Dataset, source: &DataSource, fingerprint: &str) -> Result<()> {
    let entry = source.set().map(SetName::entry);
    let title = entry.map_or("Your own data", |entry| entry.title);
    printer.heading(title)?;
    printer.line(format!("name     {}", dataset.name))?;
    if let Some(entry) = entry {
        printer.line(format!("task     {}", entry.task))?;
    }
    printer.line(format!("sample   {}", dataset.shape))?;
    if let Some(form) = &dataset.table {
        let constant: HashSet<&String> = form.constant.iter().collect();
        for (i, column) in form.columns.iter().enumerate() {
            let what = if i == 0 { "columns" } else { "" };
            printer.line(format!("{what:<8} {}: {}", column.name, values(column, constant.contains(&column.name))))?;
        }
    }
    for (split, what) in [(&dataset.train, "train"), (&dataset.test, "test")] {
        let memory = bytes(split.bytes());
        printer.line(format!("{what:<8} {} samples, {memory} in memory", thousands(split.len())))?;
    }
    if let Some(keys) = &dataset.train.keys {
        let shown: Vec<&str> = keys.names.iter().take(3).map(String::as_str).collect();
        let more = if keys.names.len() > shown.len() { ", ..." } else { "" };
        printer.line(format!("keys     {}: {}{more}", plural(keys.names.len(), "natural key"), shown.join(", ")))?;
    }
    if let Some(entry) = entry {
        printer.line(format!("licence  {}", entry.licence))?;
    }
    printer.line(format!("source   {}", origin(source, entry)?))?;
    printer.line(format!("sha256   {fingerprint}"))?;
    printer.line("")?;
    printer.drawn(classes(dataset).lines(printer))?;
    Ok(())
}

/// What a column of a table holds.
fn values(column: &Column, constant: bool) -> String {
    const SHOWN: usize = 8;
    match &column.kind {
        // It was read in single precision.
        ColumnKind::Number { mean, .. } if constant => format!("number, always {}: it carries nothing", *mean as f32),
        ColumnKind::Number { mean, std } => format!("number, mean {mean:.4}, sd {std:.4}"),
        ColumnKind::Categories(names) => {
            let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
            let more = if names.len() > SHOWN { ", ..." } else { "" };
            let count = if names.len() == 1 { "1 category".to_string() } else { format!("{} categories", names.len()) };
            format!("{count}: {shown}{more}")
        }
    }
}

/// The source of the data.
fn origin(source: &DataSource, entry: Option<&CatalogueEntry>) -> Result<String> {
    match source {
        DataSource::Folder(folder) => absolute(&folder.path),
        DataSource::Arrays(_) => Ok(String::new()),
        DataSource::Csv(table) | DataSource::Jsonl(table) => {
            let paths: Vec<String> = table.train.paths().iter().map(|path| absolute(path)).collect::<Result<_>>()?;
            Ok(paths.join(", "))
        }
        DataSource::Named(_) => Ok(entry.map_or(String::new(), |entry| entry.source.to_string())),
    }
}

fn as_json(dataset: &Dataset, source: &DataSource, skipped: &Skipped, fingerprint: &str) -> Result<serde_json::Value> {
    let entry = source.set().map(SetName::entry);
    let split = |split: &Split| {
        json!({
            "samples": split.len(),
            "bytes": split.bytes(),
            "by-class": split.label_counts(dataset.classes.len()),
        })
    };
    let column = |column: &Column, constant: bool| match &column.kind {
        // What it is divided by is not how it spreads.
        ColumnKind::Number { mean, .. } if constant => json!({ "name": column.name, "mean": mean, "std": 0.0 }),
        ColumnKind::Number { mean, std } => json!({ "name": column.name, "mean": mean, "std": std }),
        ColumnKind::Categories(names) => json!({ "name": column.name, "categories": names }),
    };
    let columns = dataset.table.as_ref().map(|form| {
        let constant: HashSet<&String> = form.constant.iter().collect();
        form.columns.iter().map(|one| column(one, constant.contains(&one.name))).collect::<Vec<_>>()
    });
    Ok(json!({
        "name": dataset.name,
        "title": entry.map(|entry| entry.title),
        "task": entry.map(|entry| entry.task),
        "licence": entry.map(|entry| entry.licence),
        "source": origin(source, entry)?,
        "sample": dataset.shape.to_string(),
        "classes": dataset.classes,
        "columns": columns,
        "notes": dataset.remarks(),
        "train": split(&dataset.train),
        "test": split(&dataset.test),
        "keys": dataset.train.keys.as_ref().map(|keys| keys.names.len()),
        "left-out": skipped.count,
        "sha256": fingerprint,
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
