//! `fedelity keys`.

use anyhow::{Result, bail};
use fedelity_experiment::Config;
use fedelity_keys::{Condition, Key, Keys, Schema, ValueType, nearest};
use serde_json::json;

use crate::printer::{Printer, Style};
use crate::status::ExitStatus;
use crate::view::terminal;
use crate::view::units::wrap;

const EXAMPLES: &str = "\
Examples:
  fedelity keys                   all keys of a configuration with their defaults
  fedelity keys clients           the keys of one section
  fedelity keys optimizer.lr      one key
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
struct Placed {
    path: String,
    about: &'static str,
    default: Option<&'static str>,
    expected: String,
    /// The selector's value that the key requires, such as `kind = "shards"`.
    with: Option<String>,
}

impl KeysCommand {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let mut all = Vec::new();
        list("", Config::SCHEMA, &mut all);
        if let Some(wanted) = &self.key {
            let below = format!("{wanted}.");
            let paths: Vec<String> = all.iter().map(|placed| placed.path.clone()).collect();
            all.retain(|placed| placed.path == *wanted || placed.path.starts_with(&below));
            if all.is_empty() {
                let known: Vec<&str> = paths.iter().map(String::as_str).collect();
                let guess = nearest(wanted, &known).map_or(String::new(), |key| format!("; did you mean '{key}'?"));
                bail!("there is no key '{wanted}'{guess}");
            }
        }
        for placed in &all {
            if self.json { printer.json(&placed.json())? } else { placed.show(printer)? }
        }
        Ok(ExitStatus::Done)
    }
}

/// All keys of a table and its subtables, in configuration file order.
fn list(at: &str, schema: &Schema, found: &mut Vec<Placed>) {
    let path = |name: &str| if at.is_empty() { name.to_string() } else { format!("{at}.{name}") };
    let mut tables = Vec::new();
    for selector in schema.selectors {
        let expected = format!("one of {}", selector.words().join(", "));
        let (about, default) = (selector.about, selector.default);
        found.push(Placed { path: path(selector.name), about, default, expected, with: None });
        let at = found.len();
        for variant in selector.variants {
            let words: Vec<String> = variant.words.iter().map(|word| format!("\"{word}\"")).collect();
            for key in variant.keys.iter().filter(|key| key.name != selector.name) {
                // Several variants may have the same key.
                match found[at..].iter_mut().find(|one| one.path == path(key.name) && one.about == key.about) {
                    Some(Placed { with: Some(with), .. }) => with.push_str(&format!(" or {}", words.join(" or "))),
                    _ => {
                        let with = format!("{} = {}", path(selector.name), words.join(" or "));
                        found.push(Placed::new(path(key.name), key, Some(with)));
                    }
                }
            }
        }
    }
    for key in schema.keys {
        match key.value {
            ValueType::Table(inner) if !key.optional => tables.push((key, inner)),
            _ => found.push(Placed::new(path(key.name), key, None)),
        }
    }
    tables.into_iter().for_each(|(key, inner)| list(&path(key.name), inner, found));
}

impl Placed {
    fn new(path: String, key: &Key, with: Option<String>) -> Self {
        let depends = |(other, _): Condition| format!("some values of {}", path.replace(key.name, other));
        let with = with.or(key.only.map(depends));
        Self { path, about: key.about, default: key.default, expected: key.expected(), with }
    }

    fn show(&self, printer: &Printer) -> Result<()> {
        let default = self.default.map_or(String::new(), |default| format!(" = {default}"));
        printer.line(printer.paint(Style::Heading, &format!("{}{default}", self.path)))?;
        let mut facts = vec![format!("Expected: {}.", self.expected)];
        facts.extend(self.with.as_ref().map(|with| format!("Only with {with}.")));
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
            "with": self.with,
        })
    }
}
