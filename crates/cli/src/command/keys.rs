//! `fedelity keys`.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use fedelity_experiment::{Config, Preset, Sweep};
use fedelity_keys::{Key, Keys, Schema, ValueType, nearest};
use fedelity_methods::registry;
use fedelity_nn::zoo;
use fedelity_report::is_within;
use serde_json::json;
use toml::{Table, Value};

use super::model_file;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::terminal;
use crate::view::units::wrap;

const EXAMPLES: &str = "\
Examples:
  fedelity keys                   all keys of a configuration with their defaults
  fedelity keys clients           the keys of one section
  fedelity keys optimizer.lr      one key
  fedelity keys layers            the kinds of layers of a model file, and their keys
  fedelity keys layers.conv       one kind of layer
  fedelity keys sweep             the keys of a sweep file
  fedelity keys tune.validation   one key of a sweep file
  fedelity keys preset            the keys of a preset, the file of a published table
  fedelity keys --json            one object per key

fedelity methods NAME explains the keys of a method.";

/// Explain the keys of a configuration
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeysCommand {
    /// A key or a section.
    key: Option<String>,

    /// Print one JSON object per key.
    #[arg(long)]
    json: bool,
}

/// A key with its path.
pub(super) struct Placed {
    pub(super) path: String,
    pub(super) about: &'static str,
    pub(super) default: Option<&'static str>,
    pub(super) expected: String,
    /// Types, bounds and choices.
    value: String,
    /// The key that this one depends on, and the values that it requires; none if it exists with all of them.
    with: Option<(String, Vec<&'static str>)>,
}

impl KeysCommand {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let layers = self.key.as_deref().and_then(|key| key.strip_prefix(model_file::SECTION));
        match layers.map(|rest| (rest, rest.strip_prefix('.'))) {
            Some((_, kind @ Some(_))) | Some(("", kind)) => {
                model_file::explain(printer, kind, self.json)?;
                return Ok(ExitStatus::Done);
            }
            Some(_) | None => {}
        }
        let mut all = Vec::new();
        list("", Config::SCHEMA, &mut all);
        if let Some(wanted) = &self.key {
            let paths: Vec<String> = all.iter().map(|placed| placed.path.clone()).collect();
            let is_known = paths.iter().any(|path| is_within(path, wanted));
            if !is_known && self.of_other_files(wanted, printer)? {
                return Ok(ExitStatus::Done);
            }
            let is_near = nearest(wanted, &[sections(), outside(&paths)].concat()).is_some();
            let wanted = &match ending_in(wanted, paths.iter().map(String::as_str))[..] {
                [key] if !is_known && !is_near => key.to_string(),
                _ => wanted.clone(),
            };
            all.retain(|placed| is_within(&placed.path, wanted));
            if all.is_empty() {
                bail!("{}", unknown(wanted, &paths));
            }
        }
        for placed in &all {
            if self.json { printer.json(&placed.json())? } else { placed.show(printer)? }
        }
        if self.key.as_deref() == Some("model.file") && !self.json {
            model_file::explain(printer, None, false)?;
        }
        Ok(ExitStatus::Done)
    }

    /// Explains what is wanted of the files that are not configurations; false if they have nothing of this name.
    fn of_other_files(&self, wanted: &str, printer: &Printer) -> Result<bool> {
        let (mut found, mut near) = (false, None);
        for (file, title, keys) in other_files() {
            let rest = wanted.strip_prefix(file).and_then(|rest| rest.strip_prefix('.')).unwrap_or(wanted);
            let chosen = || keys.iter().filter(|placed| wanted == file || is_within(&placed.path, rest));
            if chosen().next().is_none() {
                let paths: Vec<&str> = keys.iter().map(|placed| placed.path.as_str()).collect();
                let is_here = rest != wanted
                    || rest.split_once('.').is_some_and(|(table, _)| paths.iter().any(|path| is_within(path, table)));
                near = near.or_else(|| Some((title, nearest(rest, &paths)?.to_string())).filter(|_| is_here));
                continue;
            }
            found = true;
            if !self.json {
                printer.heading(title)?;
            }
            for placed in chosen() {
                if self.json {
                    let mut object = placed.json();
                    object["file"] = file.into();
                    printer.json(&object)?;
                } else {
                    placed.show(printer)?;
                }
            }
        }
        match near {
            Some((title, key)) if !found => {
                bail!("there is no key '{wanted}'; did you mean '{key}' of {}?", title.to_lowercase())
            }
            _ => Ok(found),
        }
    }
}

/// The keys of files that are not configurations, by what `fedelity keys` and people call the file.
fn other_files() -> [(&'static str, &'static str, Vec<Placed>); 2] {
    let (mut sweep, mut preset) = (Vec::new(), Vec::new());
    list("", Sweep::KEYS, &mut sweep);
    for key in Sweep::KEYS.keys {
        if let ValueType::Table(inner) = key.value {
            list(key.name, inner, &mut sweep);
        }
    }
    list("", Preset::KEYS, &mut preset);
    Preset::PARTS.iter().for_each(|(name, schema)| list(name, schema, &mut preset));
    [("sweep", "A sweep file", sweep), ("preset", "A preset", preset)]
}

/// Why there is no such key or section, if there is none.
pub(super) fn unknown_key(wanted: &str) -> Option<String> {
    let mut all = Vec::new();
    list("", Config::SCHEMA, &mut all);
    let paths: Vec<String> = all.into_iter().map(|placed| placed.path).collect();
    let of_method = |key: &str| registry::entries().iter().any(|entry| entry.schema.key(key).is_some());
    let known = paths.iter().any(|path| is_within(path, wanted))
        || wanted == "method"
        || wanted.strip_prefix("method.").is_some_and(of_method);
    (!known).then(|| unknown(wanted, &paths))
}

/// The names of the sections.
fn sections() -> Vec<&'static str> {
    let is_table = |key: &&Key| matches!(key.value, ValueType::Table(_));
    Config::SCHEMA.keys.iter().filter(is_table).map(|key| key.name).collect()
}

/// The keys outside the sections.
fn outside(paths: &[String]) -> Vec<&str> {
    let names = sections();
    paths.iter().map(String::as_str).filter(|path| !path.contains('.') && !names.contains(path)).collect()
}

/// The keys in sections that end like this, each once.
pub(super) fn ending_in<'a>(end: &str, paths: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let found: BTreeSet<&str> =
        paths.filter(|path| path.rsplit_once('.').is_some_and(|(_, last)| last == end)).collect();
    found.into_iter().collect()
}

/// The message about a key that does not exist.
fn unknown(wanted: &str, paths: &[String]) -> String {
    let owners = |key: &str| -> Vec<&str> {
        registry::entries().iter().filter(|entry| entry.schema.key(key).is_some()).map(|entry| entry.id).collect()
    };
    if let Some(key) = wanted.strip_prefix("method.") {
        let owners = owners(key);
        return match owners[..] {
            [] => format!("there is no key '{wanted}'; fedelity methods NAME explains the keys of a method"),
            [first, ..] => {
                format!("{wanted} is a key of {}: fedelity methods {first} explains it", owners.join(", "))
            }
        };
    }
    let elsewhere = [("method", registry::find(wanted).is_some()), ("model", zoo::NAMES.contains(&wanted))];
    if let Some((what, _)) = elsewhere.iter().find(|(_, is_one)| *is_one) {
        return format!("there is no key '{wanted}', but a {what}: fedelity {what}s {wanted} explains it");
    }
    let (sections, outside) = (sections(), outside(paths));
    let known: Vec<&str> = paths.iter().map(String::as_str).chain(sections.iter().copied()).collect();
    let ending = |end: &str| -> Vec<String> {
        ending_in(end, paths.iter().map(String::as_str)).iter().map(|key| format!("'{key}'")).collect()
    };
    let ends = ending(wanted);
    let lasts: Vec<&str> = paths.iter().filter_map(|path| Some(path.rsplit_once('.')?.1)).collect();
    let short = if wanted.contains('.') { Vec::new() } else { [&sections[..], &outside].concat() };
    let hint = match nearest(wanted, &short).or_else(|| nearest(wanted, &known)) {
        Some(key) if !key.contains('.') => format!("did you mean '{key}'?"),
        _ if !ends.is_empty() => format!("did you mean {}?", ends.join(" or ")),
        _ if !owners(wanted).is_empty() => {
            let owners = owners(wanted);
            format!("method.{wanted} is a key of {}: fedelity methods {} explains it", owners.join(", "), owners[0])
        }
        Some(key) => format!("did you mean '{key}'?"),
        None if nearest(wanted, &lasts).is_some() => {
            let ends = nearest(wanted, &lasts).map(ending).unwrap_or_default();
            format!("did you mean {}?", ends.join(" or "))
        }
        None => {
            format!("the sections are {}; the keys outside them are {}", sections.join(", "), outside.join(", "))
        }
    };
    format!("there is no key '{wanted}'; {hint}")
}

/// All keys of a table and its subtables, in configuration file order.
pub(super) fn list(at: &str, schema: &Schema, found: &mut Vec<Placed>) {
    let path = |name: &str| if at.is_empty() { name.to_string() } else { format!("{at}.{name}") };
    let mut tables = Vec::new();
    for selector in schema.selectors {
        let all = selector.words();
        let expected = format!("one of {}", all.join(", "));
        let (about, default) = (selector.about, selector.default);
        found.push(Placed { path: path(selector.name), about, default, value: expected.clone(), expected, with: None });
        let start = found.len();
        for variant in selector.variants {
            for key in variant.keys.iter().filter(|key| key.name != selector.name) {
                let words = variant.words_of(key, selector.name);
                let new = Placed::new(path(key.name), key, Some((path(selector.name), words)));
                // Several variants may have the same key.
                match found[start..].iter_mut().find(|one| one.is_same_key(&new)) {
                    Some(one) => one.add_words_of(new),
                    None => found.push(new),
                }
            }
        }
        for one in &mut found[start..] {
            one.with.take_if(|(_, words)| words.len() == all.len());
        }
    }
    for key in schema.keys {
        let with = key.only.map(|condition| (path(condition.0), schema.words_where(condition)));
        match key.value {
            ValueType::Table(inner) if !key.optional => tables.push((key, inner)),
            _ => found.push(Placed::new(path(key.name), key, with)),
        }
    }
    tables.into_iter().for_each(|(key, inner)| list(&path(key.name), inner, found));
}

impl Placed {
    pub(super) fn new(path: String, key: &Key, with: Option<(String, Vec<&'static str>)>) -> Self {
        let value = key.value.expected(&key.bounds);
        Self { path, about: key.about, default: key.default, expected: key.expected(), value, with }
    }

    /// Whether two keys differ at most in the values they require.
    fn is_same_key(&self, other: &Self) -> bool {
        let facts = |one: &Self| (one.about, one.default, one.expected.clone(), one.value.clone());
        self.path == other.path && facts(self) == facts(other)
    }

    fn add_words_of(&mut self, other: Self) {
        if let (Some((_, words)), Some((_, more))) = (&mut self.with, other.with) {
            words.extend(more);
        }
    }

    /// Whether the key exists with these values of a configuration. Several keys may have one path.
    pub(super) fn applies(&self, values: &Table) -> bool {
        let Some((key, words)) = &self.with else { return true };
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let table = if section.is_empty() { Some(values) } else { values.get(section).and_then(Value::as_table) };
        table.and_then(|table| table.get(name)).and_then(Value::as_str).is_some_and(|word| words.contains(&word))
    }

    /// The condition, such as `partition.kind = "shards"`.
    pub(super) fn condition(&self) -> Option<String> {
        let (key, words) = self.with.as_ref()?;
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let words = match quoted.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => quoted.concat(),
        };
        Some(format!("{key} = {words}"))
    }

    fn show(&self, printer: &Printer) -> Result<()> {
        let default = self.default.map_or(String::new(), |default| format!(" = {default}"));
        printer.heading(&format!("{}{default}", self.path))?;
        let mut facts = vec![format!("Expected: {}.", self.expected)];
        facts.extend(self.condition().map(|with| format!("Only with {with}.")));
        let width = terminal::width().min(100).saturating_sub(4);
        for text in self.about.lines().map(String::from).chain([facts.join(" ")]) {
            for line in wrap(&text, width) {
                printer.line(format!("    {line}"))?;
            }
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "key": self.path,
            "about": self.about,
            "default": self.default,
            "expected": self.expected,
            "with": self.condition(),
        })
    }
}
