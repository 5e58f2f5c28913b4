//! A preset: a published table, the configuration behind each of its numbers, and where that had to be chosen.

mod embedded;
mod keys;
mod pace;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fedelity_keys::{KeyError, Keys, Schema, nearest};
use fedelity_methods::registry;
use fedelity_report::{PublishedCell, PublishedRow, PublishedTable, PublishedValue, Quantity, QuantityKind};
use toml::Value;

use crate::ExperimentError;
use crate::config::{Document, Origin, Settings};
use crate::error::Result;
use crate::sweep::{Assignment, assignments, flat};
use keys::{CellKeys, PresetKeys, RowKeys, departures, entries, quantities, tables};

pub use embedded::PRESETS;
pub use pace::{Exactness, Paces, absent};
pub use plan::{PlannedCell, PlannedRow, PresetChoice, PresetPlan};

/// A preset whose configurations have all been checked.
#[derive(Debug)]
pub struct Preset {
    pub table: PublishedTable,
    pub seeds: Vec<u64>,
    /// The file as it was written.
    pub text: String,
    document: Document,
    path: PathBuf,
    shared: Vec<Assignment>,
    cells: Vec<CellSettings>,
    /// By row.
    rows: Vec<Vec<Assignment>>,
}

/// The settings of a cell.
#[derive(Debug)]
struct CellSettings {
    own: Vec<Assignment>,
    /// By the name of a row: what only this row has here.
    rows: BTreeMap<String, Vec<Assignment>>,
}

impl Preset {
    /// The keys of a preset.
    pub const KEYS: &'static Schema = PresetKeys::SCHEMA;
    /// The keys of its parts, by their names.
    pub const PARTS: [(&'static str, &'static Schema); 4] = keys::PARTS;

    /// Reads a file, or the preset of this name that is part of the program.
    pub fn find(name: &Path) -> Result<Self> {
        let text = name.to_str().and_then(|name| PRESETS.iter().find(|(known, _)| *known == name));
        match text {
            Some((known, text)) => Self::parse(known, Path::new(known), Path::new(""), text),
            None if name.extension().is_some_and(|end| end == "toml") || name.is_file() => Self::read(name),
            None => Err(ExperimentError::Config(unknown(&name.display().to_string()))),
        }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fedelity_files::read_named(path, fedelity_files::TEXT)
            .map_err(|error| ExperimentError::Config(format!("cannot read {}: {error}", path.display())))?;
        let name = path.file_stem().map_or_else(|| "table".into(), |stem| stem.to_string_lossy());
        Self::parse(&name, path, path.parent().unwrap_or(Path::new("")), &text)
    }

    /// A preset from its text. Relative paths in it start from `folder`.
    fn parse(name: &str, path: &Path, folder: &Path, text: &str) -> Result<Self> {
        let document = Document::parse(path.display().to_string(), folder.to_path_buf(), text)?;
        let preset = Self::of(name, path, &document, text).map_err(|error| document.key_error(&error))?;
        preset.checked()
    }

    fn of(name: &str, path: &Path, document: &Document, text: &str) -> Result<Self, KeyError> {
        let keys = fedelity_keys::read::<PresetKeys>(document.table(), "", &mut ())?.0;
        if keys.seeds.is_empty() || keys.seeds.iter().collect::<BTreeSet<_>>().len() < keys.seeds.len() {
            return Err(KeyError::new("seeds", "seeds: expected a list of different whole numbers, such as [1, 2, 3]"));
        }
        let shared = assignments("config", &flat("", entries("config", &keys.config)?));
        if let Some(seed) = shared.iter().find(|one| one.key == "seed" || one.key == "seeds") {
            let message = format!("{}: seeds go at the top of the preset: seeds = [1, 2, 3]", seed.at);
            return Err(KeyError::new(&seed.at, message));
        }
        let quantities = quantities(&keys.quantity)?;
        distinct("quantity", quantities.iter().map(|one| &*one.name))?;
        let (mut cells, mut of_cells) = (Vec::new(), Vec::new());
        for (at, table) in tables("cell", &keys.cell)? {
            let own = fedelity_keys::read::<CellKeys>(table, &at, &mut ())?.0;
            let set = assignments(&format!("{at}.set"), &flat("", entries(&format!("{at}.set"), &own.set)?));
            let mut rows = BTreeMap::new();
            for (row, keys) in entries(&format!("{at}.rows"), &own.rows)? {
                let at = format!("{at}.rows.{row}");
                rows.insert(row.clone(), assignments(&at, &flat("", entries(&at, keys)?)));
            }
            let title = own.title.unwrap_or_else(|| own.name.clone());
            cells.push(PublishedCell { name: own.name, title, target: own.target, rounds: 0 });
            of_cells.push(CellSettings { own: set, rows });
        }
        distinct("cell", cells.iter().map(|cell| &*cell.name))?;
        let (mut rows, mut of_rows) = (Vec::new(), Vec::new());
        for (at, table) in tables("row", &keys.row)? {
            let own = fedelity_keys::read::<RowKeys>(table, &at, &mut ())?.0;
            let values = values(&at, &own, &quantities, &cells)?;
            let mut set = assignments(&format!("{at}.set"), &flat("", entries(&format!("{at}.set"), &own.set)?));
            if !set.iter().any(|one| one.key == "method.name") {
                let (key, value) = ("method.name".to_string(), Value::String(own.name.clone()));
                set.insert(0, Assignment { key, value, at: format!("{at}.name") });
            }
            let title = own.title.unwrap_or_else(|| title_of(&own.name, &set));
            rows.push(PublishedRow { name: own.name, title, values });
            of_rows.push(set);
        }
        distinct("row", rows.iter().map(|row| &*row.name))?;
        for (i, cell) in of_cells.iter().enumerate() {
            if let Some(name) = cell.rows.keys().find(|name| rows.iter().all(|row| row.name != **name)) {
                let at = format!("cell.{i}.rows.{name}");
                let known: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
                return Err(KeyError::new(&at, missing(&at, "row", name, &known)));
            }
        }
        let known: Vec<&str> = rows.iter().filter(|row| row.is_published()).map(|row| &*row.name).collect();
        let Some(baseline) = rows.iter().position(|row| row.name == keys.baseline && row.is_published()) else {
            return Err(KeyError::new(
                "baseline",
                missing("baseline", "row with published numbers", &keys.baseline, &known),
            ));
        };
        let table = PublishedTable {
            name: name.to_string(),
            title: keys.title,
            source: keys.source,
            about: keys.about.unwrap_or_default(),
            baseline,
            quantities,
            cells,
            rows,
            departures: departures(&keys.departure)?,
        };
        let (seeds, text, path, document) = (keys.seeds, text.to_string(), path.to_path_buf(), document.clone());
        Ok(Self { table, seeds, text, document, path, shared, cells: of_cells, rows: of_rows })
    }

    /// Checks every configuration, and notes the rounds of each cell.
    fn checked(mut self) -> Result<Self> {
        for cell in 0..self.cells.len() {
            for row in (0..self.rows.len()).rev() {
                let (settings, document) = self.settings(cell, &self.assignments(cell, Some(row), &[]))?;
                let methods = settings.methods.len();
                if methods > 1 {
                    return Err(document.error("method", "method: a row has one method: set.method.name = \"fedavg\""));
                }
                self.table.cells[cell].rounds = settings.config.rounds as u64;
            }
            let rounds = self.table.cells[cell].rounds;
            for (i, quantity) in self.table.quantities.iter().enumerate() {
                if let QuantityKind::Round(at) = quantity.kind
                    && at > rounds
                {
                    let (key, name) = (format!("quantity.{i}.at"), &self.table.cells[cell].name);
                    let message = format!("{key} = {at}: the cell '{name}' has {rounds} rounds");
                    return Err(self.document.error(&key, message));
                }
            }
        }
        Ok(self)
    }

    /// The keys of a row in a cell: shared ones, the cell's, the row's, and those of the row in this cell. `own` replaces the
    /// keys of a row that the preset does not have.
    fn assignments(&self, cell: usize, row: Option<usize>, own: &[Assignment]) -> Vec<Assignment> {
        let of_cell = &self.cells[cell];
        let special = row.and_then(|row| of_cell.rows.get(&self.table.rows[row].name));
        let of_row = row.map_or(own, |row| &self.rows[row]);
        let parts = [&self.shared[..], &of_cell.own, of_row, special.map_or(&[], Vec::as_slice)];
        // Of two values for one key, the later one counts.
        let mut all: Vec<Assignment> = Vec::new();
        for one in parts.into_iter().flatten() {
            all.retain(|other| other.key != one.key);
            all.push(one.clone());
        }
        all
    }

    /// The settings that all cells share, and those of each cell and row, a line each.
    pub fn settings_lines(&self) -> Vec<String> {
        let list = |all: &[Assignment]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let mut lines = vec![format!("All runs: {}", list(&self.shared))];
        for (cell, own) in self.table.cells.iter().zip(&self.cells) {
            lines.extend((!own.own.is_empty()).then(|| format!("Cell {}: {}", cell.name, list(&own.own))));
            let of_row =
                |(row, keys): (&String, &Vec<Assignment>)| format!("Cell {}, row {row}: {}", cell.name, list(keys));
            lines.extend(own.rows.iter().map(of_row));
        }
        let of_row = |(row, keys): (&PublishedRow, &Vec<Assignment>)| {
            let added = if row.is_published() { "" } else { " (not in the table)" };
            format!("Row {}{added}: {}", row.name, list(keys))
        };
        lines.extend(self.table.rows.iter().zip(&self.rows).map(of_row));
        lines
    }

    /// The configuration with these keys, checked.
    fn settings(&self, cell: usize, keys: &[Assignment]) -> Result<(Settings, Document)> {
        let mut document = Document::default();
        for one in keys {
            let origin = self.document.place(&one.at).unwrap_or(Origin::Option("--methods"));
            document.put_from(&one.key.split('.').collect::<Vec<_>>(), one.value.clone(), origin)?;
        }
        let name = &self.table.cells[cell].name;
        let settings = Settings::read(&document)
            .map_err(|error| ExperimentError::Config(format!("{error} (in the cell '{name}')")))?;
        Ok((settings, document))
    }
}

/// The name that a row's method has in papers, or that of the row if it is not a method.
fn title_of(name: &str, set: &[Assignment]) -> String {
    let method = set.iter().find(|one| one.key == "method.name").and_then(|one| one.value.as_str());
    let entry = method.filter(|method| *method == name).and_then(registry::find);
    entry.map_or_else(|| name.to_string(), |entry| entry.title.to_string())
}

/// Rejects an empty list of parts, names that cannot be folders, and names that occur twice.
fn distinct<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<(), KeyError> {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        let key = format!("{what}.{i}.name");
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if !plain || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            let expected = "letters, digits, '.', '_' and '-', starting with a letter or digit";
            return Err(KeyError::expected(&key, format!("\"{name}\""), expected));
        }
        // Some file systems do not distinguish upper and lower case.
        if !seen.insert(name.to_lowercase()) {
            return Err(KeyError::new(&key, format!("{key}: there are two with the name '{name}'")));
        }
    }
    if seen.is_empty() {
        Err(KeyError::new(what, format!("{what}: expected at least one table [[{what}]]")))
    } else {
        Ok(())
    }
}

/// The error that there is no such part.
fn missing(at: &str, what: &str, name: &str, known: &[&str]) -> String {
    let guess = nearest(name, known).map_or(String::new(), |guess| format!("; did you mean '{guess}'?"));
    format!("{at}: there is no {what} '{name}'; there are {}{guess}", known.join(", "))
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    let below: Vec<&str> = names.iter().filter(|known| known.starts_with(&format!("{name}/"))).copied().collect();
    let guess = match nearest(name, &names) {
        _ if !below.is_empty() => format!("; did you mean one of {}?", below.join(", ")),
        Some(guess) => format!("; did you mean '{guess}'?"),
        None => String::new(),
    };
    format!("there is no table '{name}', and no such file; 'fedelity reproduce' lists the tables{guess}")
}

/// The published values of a row, by quantity and cell.
fn values(
    at: &str,
    row: &RowKeys,
    quantities: &[Quantity],
    cells: &[PublishedCell],
) -> Result<Vec<Vec<Option<PublishedValue>>>, KeyError> {
    let mut all = vec![vec![None; cells.len()]; quantities.len()];
    let names: Vec<&str> = quantities.iter().map(|quantity| &*quantity.name).collect();
    let find = |at: &str, name: &str| {
        let found = names.iter().position(|known| *known == name);
        found.ok_or_else(|| KeyError::new(at, missing(at, "quantity", name, &names)))
    };
    let list = |at: &str, value: &Value| {
        let items = value.as_array().filter(|items| items.len() == cells.len()).cloned();
        let expected = format!("a list with one value for each of {} cells", cells.len());
        items.ok_or_else(|| KeyError::expected(at, value, expected))
    };
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    let is = |value: &Value, word: &str| value.as_str() == Some(word);
    for (name, value) in entries(&format!("{at}.published"), &row.published)? {
        let at = format!("{at}.published.{name}");
        let quantity = find(&at, name)?;
        let kind = &quantities[quantity].kind;
        let to_target = *kind == QuantityKind::ToTarget;
        for (i, value) in list(&at, value)?.iter().enumerate() {
            let range = kind.range();
            all[quantity][i] = match number(value) {
                Some(value) if range.contains(&value) => Some(PublishedValue::Number { value, sd: None }),
                None if is(value, "-") => None,
                None if to_target && is(value, "never") => Some(PublishedValue::Never),
                _ => {
                    let never = if to_target { " or \"never\"" } else { "" };
                    let (low, high) = (range.start(), range.end());
                    let expected = format!("a number from {low} to {high}, \"-\" where there is none{never}");
                    return Err(KeyError::expected(&format!("{at}.{i}"), value, expected));
                }
            };
        }
    }
    for (name, value) in entries(&format!("{at}.sd"), &row.sd)? {
        let at = format!("{at}.sd.{name}");
        let quantity = find(&at, name)?;
        for (i, given) in list(&at, value)?.iter().enumerate() {
            match (number(given), &mut all[quantity][i]) {
                (Some(new), Some(PublishedValue::Number { sd, .. })) if new >= 0.0 && new.is_finite() => {
                    *sd = Some(new)
                }
                (None, _) if is(given, "-") => {}
                _ => {
                    let expected = "a number of at least 0 beside a published one, or \"-\"";
                    return Err(KeyError::expected(&format!("{at}.{i}"), given, expected));
                }
            }
        }
    }
    Ok(all)
}
