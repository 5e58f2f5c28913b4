//! The rows of a file, checked one by one.

use std::collections::HashMap;
use std::path::Path;

use csv::ByteRecord;
use serde_json::{Map, Value};

use super::{Columns, TableFormat};
use crate::csv_file::{CsvFile, field};
use crate::error::DataError;
use crate::files::{self, utf8};
use crate::skipped::Skipped;

/// Names in order of appearance.
#[derive(Default)]
pub(super) struct Names {
    pub(super) all: Vec<String>,
    pub(super) lines: Vec<u64>,
    places: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str, line: u64) -> u32 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.all.len() as u32;
        self.all.push(name.to_string());
        self.lines.push(line);
        self.places.insert(name.to_string(), place);
        place
    }
}

/// The contents of one file's rows.
#[derive(Default)]
pub(super) struct TableRows {
    pub(super) labels: Vec<u32>,
    pub(super) classes: Names,
    pub(super) key_of: Vec<u32>,
    pub(super) keys: Names,
    pub(super) texts: Vec<String>,
    pub(super) numbers: Vec<f32>,
}

/// One row of either format.
pub(super) enum TableRow<'a> {
    Csv { record: &'a ByteRecord, places: &'a [usize] },
    Json(&'a Map<String, Value>),
}

impl TableRow<'_> {
    /// The text of a column; `place` is its position among the columns read.
    pub(super) fn text(&self, name: &str, place: usize) -> Result<String, String> {
        match self {
            Self::Csv { record, places } => field(record, places[place], name).map(str::to_string),
            Self::Json(object) => match object.get(name) {
                Some(Value::String(text)) => Ok(text.clone()),
                Some(Value::Number(number)) => Ok(number.to_string()),
                Some(Value::Bool(flag)) => Ok(flag.to_string()),
                Some(Value::Null) => Ok(String::new()),
                Some(_) => Err(format!("key '{name}': expected a text or a number, found a list or an object")),
                None => Err(format!("there is no key '{name}'")),
            },
        }
    }

    /// A name that must not be missing.
    fn name(&self, name: &str, place: usize, what: &str) -> Result<String, String> {
        let text = self.text(name, place)?;
        let text = text.trim();
        if text.is_empty() { Err(format!("no {what}: column '{name}' is empty")) } else { Ok(text.to_string()) }
    }

    fn number(&self, name: &str, place: usize) -> Result<f32, String> {
        let value = match self {
            Self::Csv { .. } => {
                let text = self.name(name, place, "number")?;
                text.parse::<f64>()
                    .map_err(|_| format!("column '{name}': expected a number, found '{}'", cut(&text)))?
            }
            Self::Json(object) => match object.get(name) {
                Some(value) => value
                    .as_f64()
                    .ok_or_else(|| format!("key '{name}': expected a number, found {}", cut(&value.to_string())))?,
                None => return Err(format!("there is no key '{name}'")),
            },
        };
        let number = value as f32;
        if number.is_finite() {
            Ok(number)
        } else {
            Err(format!("column '{name}': expected a finite number, found {value}"))
        }
    }
}

/// The start of a text, for messages.
fn cut(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(utf8(line)?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("expected a JSON object, found {}", cut(&other.to_string()))),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}

/// Calls a function for every row of a file with its line and these columns, or with why it is unusable.
pub(super) fn each_row(
    format: TableFormat,
    path: &Path,
    wanted: &[&String],
    mut each: impl FnMut(u64, Result<TableRow<'_>, String>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    if format == TableFormat::Jsonl {
        return files::lines(path, |line, text| {
            let object = object(text);
            each(line, object.as_ref().map(TableRow::Json).map_err(String::clone)).map(|()| true)
        });
    }
    let mut file = CsvFile::open(path)?;
    let names = file.header()?;
    let place = |name: &&String| {
        let reason = || format!("there is no column '{name}'; the columns are {}", names.join(", "));
        let place = names.iter().position(|known| known == *name);
        place.ok_or_else(|| DataError::unusable(path, Some(1), reason()))
    };
    let places: Vec<usize> = wanted.iter().map(place).collect::<Result<_, _>>()?;
    let mut record = ByteRecord::new();
    while let Some(line) = file.next(&mut record)? {
        let row = if record.len() == names.len() {
            Ok(TableRow::Csv { record: &record, places: &places })
        } else {
            Err(format!("expected {} fields, as in the first line, found {}", names.len(), record.len()))
        };
        each(line, row)?;
    }
    Ok(())
}

pub(super) fn read_rows(
    format: TableFormat,
    path: &Path,
    columns: &Columns,
    skipped: &mut Skipped,
) -> Result<TableRows, DataError> {
    let mut rows = TableRows::default();
    let wanted: Vec<&String> = [&columns.label].into_iter().chain(&columns.key).chain(&columns.inputs).collect();
    each_row(format, path, &wanted, |line, row| {
        let added = row.and_then(|row| rows.add(&row, columns, line));
        added.or_else(|reason| skipped.bad(path, Some(line), reason))
    })?;
    if rows.labels.is_empty() {
        return Err(DataError::unusable(path, None, "no row can be used"));
    }
    Ok(rows)
}

impl TableRows {
    /// Adds a row completely or not at all.
    fn add(&mut self, row: &TableRow<'_>, columns: &Columns, line: u64) -> Result<(), String> {
        let label = row.name(&columns.label, 0, "label")?;
        let key = columns.key.as_ref().map(|key| row.name(key, 1, "key")).transpose()?;
        let first = 1 + usize::from(columns.key.is_some());
        if columns.text {
            self.texts.push(row.text(&columns.inputs[0], first)?);
        } else {
            let before = self.numbers.len();
            for (i, name) in columns.inputs.iter().enumerate() {
                match row.number(name, first + i) {
                    Ok(number) => self.numbers.push(number),
                    Err(reason) => {
                        self.numbers.truncate(before);
                        return Err(reason);
                    }
                }
            }
        }
        self.labels.push(self.classes.number(&label, line));
        self.key_of.extend(key.map(|key| self.keys.number(&key, line)));
        Ok(())
    }
}
