//! `fedelity init`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use fedelity_data::{ColumnGuess, DataSource, FolderLayout, Shape, TableFormat, quoted};
use fedelity_experiment::{Config, Document, Settings};
use fedelity_keys::{Key, Keys, ValueType, inline};
use fedelity_methods::registry;
use toml::{Table, Value};

use super::keys::{self, Placed};
use crate::output::Overwrite;
use crate::overrides::{Overrides, settings};
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::units::wrap;

const EXAMPLES: &str = "\
Examples:
  fedelity init                                          the default experiment, as experiment.toml
  fedelity init mine.toml --data cifar10
  fedelity init --data photos                            a folder of images
  fedelity init --data visits.csv --set data.label=outcome
  fedelity init --data tables --set data.label=outcome   a folder with a table per site
  fedelity init --set method.name=fedntd --set rounds=100
  fedelity init -                                        to stdout

The file has every key with its description: keys that apply have their values, all others are
comments. Change or delete what you like, then run it: fedelity run experiment.toml.";

/// Write a configuration file with every key explained
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitCommand {
    /// The file to write; - for stdout.
    #[arg(default_value = "experiment.toml")]
    file: PathBuf,

    /// The data set, or your own data: a table or a folder.
    #[arg(long, value_name = "DATA")]
    data: Option<String>,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    overwrite: Overwrite,
}

/// Width of the comments.
const WIDTH: usize = 98;

impl InitCommand {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let to_stdout = self.file == Path::new("-");
        if !to_stdout {
            self.overwrite.check("FILE", &self.file)?;
        }
        let mut document = match &self.data {
            Some(name) => self.overrides.data_document(name, "--data")?,
            None => self.overrides.document(None)?,
        };
        let mut guesses = Guesses::new();
        for (key, value, reason) in guessed(&document, &Settings::read(&document)?, printer) {
            if !document.gives(&format!("data.{key}")) {
                document.put(&["data", key], value.into(), "--data")?;
                guesses.insert(format!("data.{key}"), reason);
            }
        }
        let first = settings(&document, printer)?;
        if let Some(model) = fitting_model(&first).filter(|_| !document.gives("model.name")) {
            document.put(&["model", "name"], model.into(), "--data")?;
        }
        if has_sites(&first) && !document.gives("partition.kind") {
            document.put(&["partition", "kind"], "natural".into(), "--data")?;
        }
        let settings = Settings::read(&document)?;
        let text = template(&self.file, &document, &settings.resolved("").parse()?, &guesses)?;
        if to_stdout {
            printer.raw(text.as_bytes())?;
            return Ok(ExitStatus::Done);
        }
        self.overwrite.write("FILE", &self.file, text.as_bytes())?;
        let file = quoted(&self.file);
        printer.say(format_args!("Wrote {file}"));
        for (key, reason) in &guesses {
            let value = document.table().get("data").and_then(|data| data.get(key.strip_prefix("data.")?));
            let value = value.map_or(String::new(), inline);
            printer.say(format_args!("{key} = {value} is a guess: {reason}"));
        }
        printer.say(format_args!("Next: fedelity check {file}, then fedelity run {file}"));
        Ok(ExitStatus::Done)
    }
}

/// What was guessed from the data, by key, and why.
type Guesses = BTreeMap<String, String>;

/// Keys of `[data]` that the data seem to call for, each with a value and a reason.
fn guessed(document: &Document, settings: &Settings, printer: &Printer) -> Vec<(&'static str, String, String)> {
    let (table, format) = match &settings.config.data.source {
        DataSource::Csv(table) => (table, TableFormat::Csv),
        DataSource::Jsonl(table) => (table, TableFormat::Jsonl),
        DataSource::Folder(images) => {
            let guess = |layout: FolderLayout| {
                let other = match layout {
                    FolderLayout::ClassKey => FolderLayout::KeyClass,
                    FolderLayout::Class | FolderLayout::KeyClass => FolderLayout::ClassKey,
                };
                let reason =
                    format!("there are two levels of folders; the other way round, it is \"{}\"", other.name());
                ("layout", layout.name().to_string(), reason)
            };
            return FolderLayout::guess(&images.path).map(guess).into_iter().collect();
        }
        DataSource::Named(_) | DataSource::Arrays(_) => return Vec::new(),
    };
    let found = match table.guess(format) {
        Ok(found) => found,
        // The data may come later.
        Err(error) => {
            printer.warn(format_args!("{error}; nothing is known of the columns"));
            return Vec::new();
        }
    };
    if found.label.is_none() && !document.gives("data.label") {
        printer.warn("no column looks like a label: set data.label in the file, or --set data.label=COLUMN");
    }
    let sure = |label: &ColumnGuess| label.column != table.label;
    let guesses = [("label", found.label.filter(sure)), ("key", found.key)];
    let guess = |(key, guess): (&'static str, Option<ColumnGuess>)| Some((key, guess?));
    guesses.into_iter().filter_map(guess).map(|(key, found)| (key, found.column, found.reason.to_string())).collect()
}

/// A small model that reads the data, if the default model does not.
fn fitting_model(settings: &Settings) -> Option<&'static str> {
    match &settings.config.data.source {
        DataSource::Named(set) => (set.name.entry().shape == Shape::Text).then_some("lstm"),
        DataSource::Folder(_) | DataSource::Arrays(_) => None,
        DataSource::Csv(table) | DataSource::Jsonl(table) => Some(if table.text.is_some() { "lstm" } else { "mlp" }),
    }
}

/// Whether the data say which site each sample is from: a folder of tables, a column, or a level of folders does.
fn has_sites(settings: &Settings) -> bool {
    match &settings.config.data.source {
        DataSource::Named(_) | DataSource::Arrays(_) => false,
        DataSource::Folder(images) => images.layout != FolderLayout::Class,
        DataSource::Csv(table) | DataSource::Jsonl(table) => {
            table.key.is_some() || table.train.paths().len() > 1 || table.train.paths().iter().any(|path| path.is_dir())
        }
    }
}

/// The whole file. `values` has every key that applies.
fn template(file: &Path, document: &Document, values: &Table, guesses: &Guesses) -> Result<String> {
    let file = if file == Path::new("-") { Path::new("experiment.toml") } else { file };
    let mut out = Template { text: String::new(), guesses };
    out.comment(&format!(
        "A configuration of Fedelity. Every key is optional: without it, the default applies. fedelity check {0} shows \
         what would run, fedelity run {0} runs it, --set KEY=VALUE changes a key for one run.",
        quoted(file)
    ));
    let mut all = Vec::new();
    keys::list("", Config::SCHEMA, &mut all);
    let (methods, outside): (Vec<&Key>, Vec<&Key>) =
        Config::SCHEMA.keys.iter().partition(|key| matches!(key.value, ValueType::Raw));
    let names: BTreeSet<&str> = outside.iter().map(|key| key.name).collect();
    for placed in all.iter().filter(|placed| names.contains(&*placed.path)) {
        out.key(placed, &placed.path, values.get(&placed.path));
    }
    let kind = values.get("partition").and_then(|partition| partition.get("kind")?.as_str());
    let (nothing, natural) = (Table::new(), kind == Some("natural"));
    for key in Config::SCHEMA.keys {
        let section = match (values.get(key.name), &key.value) {
            (Some(Value::Table(section)), _) => section,
            // None of its keys has a value.
            (None, ValueType::Table(_)) => &nothing,
            _ => continue,
        };
        if methods.iter().any(|method| method.name == key.name) {
            out.method(key, section)?;
            continue;
        }
        out.section(key);
        let start = format!("{}.", key.name);
        for placed in all.iter().filter(|placed| placed.path.starts_with(&start)) {
            let name = &placed.path[start.len()..];
            // The folder of data sets is the user's, not the experiment's, unless an option names it.
            let is_own = placed.path == "data.dir"
                && (!document.gives("data.dir") || document.is_from("data.dir", "FEDELITY_DATA"));
            // All sites take part if they are fewer than that.
            let by_sites = placed.path == "clients.per-round" && natural && !document.gives("clients.per-round");
            out.key(placed, name, section.get(name).filter(|_| !is_own && !by_sites && placed.applies(values)));
        }
    }
    Ok(out.text)
}

/// The file while it is written.
struct Template<'a> {
    text: String,
    guesses: &'a Guesses,
}

impl Template<'_> {
    fn comment(&mut self, text: &str) {
        for line in wrap(text, WIDTH) {
            self.text += &format!("# {line}\n");
        }
    }

    fn section(&mut self, key: &Key) {
        self.text += "\n";
        self.comment(key.about);
        self.text += &format!("[{}]\n", key.name);
    }

    /// A key with its value, or as a comment if it has none here.
    fn key(&mut self, placed: &Placed, name: &str, value: Option<&Value>) {
        self.text += "\n";
        self.comment(placed.about);
        let only = placed.condition().filter(|_| value.is_none()).map(|with| format!(" Only with {with}."));
        self.comment(&format!("Expected: {}.{}", placed.expected, only.unwrap_or_default()));
        if let Some(reason) = self.guesses.get(&placed.path) {
            self.comment(&format!("A guess: {reason}. Change it if it is wrong."));
        }
        match (value, placed.default) {
            (Some(value), _) => self.text += &format!("{name} = {}\n", inline(value)),
            (None, Some(default)) => self.text += &format!("# {name} = {default}\n"),
            (None, None) => self.text += &format!("# {name} =\n"),
        }
    }

    fn method(&mut self, key: &Key, section: &Table) -> Result<()> {
        self.section(key);
        let name = section.get("name").and_then(Value::as_str).unwrap_or(registry::DEFAULT);
        let all: Vec<&str> = registry::entries().iter().map(|entry| entry.id).collect();
        self.text += "\n";
        self.comment(&format!("One of {}.", all.join(", ")));
        self.text += &format!("name = \"{name}\"\n");
        for key in registry::find(name).map_or(&[][..], |entry| entry.schema.keys) {
            let placed = Placed::new(key.name.to_string(), key, None);
            self.key(&placed, key.name, section.get(key.name));
        }
        Ok(())
    }
}
