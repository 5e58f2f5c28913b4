//! The rows of a file, checked one by one.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use csv::ByteRecord;
use serde_json::{Map, Value};

use super::{Columns, Format};
use crate::csv_file::{CsvFile, field};
use crate::error::Error;
use crate::files;
use crate::skipped::Skipped;

/// The greatest number of bytes of a row.
const LONGEST: u64 = 1 << 24;

/// Names in the order they came in.
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

/// What the rows of one file hold.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) labels: Vec<u32>,
    pub(super) classes: Names,
    pub(super) key_of: Vec<u32>,
    pub(super) keys: Names,
    pub(super) texts: Vec<String>,
    pub(super) numbers: Vec<f32>,
}

/// One row of either format.
pub(super) enum Row<'a> {
    Csv { record: &'a ByteRecord, places: &'a [usize] },
    Json(&'a Map<String, Value>),
}

impl Row<'_> {
    /// The text of a column; `place` is its position among the columns that are read.
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

    /// A name that must be there.
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

/// The start of a text, for a message.
fn cut(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

/// The lines of a file with their numbers, empty ones left out, until `each` says no.
pub(super) fn lines(path: &Path, mut each: impl FnMut(u64, &[u8]) -> Result<bool, Error>) -> Result<(), Error> {
    let (file, _) = files::open(path)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut text = Vec::new();
    let mut number = 0;
    loop {
        text.clear();
        number += 1;
        let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut text);
        if read.map_err(|source| Error::Io { action: "read", source, path: path.to_path_buf() })? == 0 {
            return Ok(());
        }
        if text.len() as u64 == LONGEST && text.last() != Some(&b'\n') {
            let reason = format!("the line is longer than {LONGEST} bytes");
            return Err(Error::Unusable { path: path.to_path_buf(), line: Some(number), reason });
        }
        let line = text.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(&text).trim_ascii();
        if !line.is_empty() && !each(number, line)? {
            return Ok(());
        }
    }
}

pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("not UTF-8 from byte {} of the line on", error.valid_up_to()))?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("expected a JSON object, found {}", cut(&other.to_string()))),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}

pub(super) fn read_rows(format: Format, path: &Path, columns: &Columns, skipped: &mut Skipped) -> Result<Rows, Error> {
    let mut rows = Rows::default();
    match format {
        Format::Csv => {
            let mut file = CsvFile::open(path)?;
            let names = file.header()?;
            let wanted = [&columns.label].into_iter().chain(&columns.key).chain(&columns.inputs);
            let places: Result<Vec<usize>, Error> = wanted
                .map(|name| {
                    names.iter().position(|known| known == name).ok_or_else(|| Error::Unusable {
                        path: path.to_path_buf(),
                        line: Some(1),
                        reason: format!("there is no column '{name}': there are {}", names.join(", ")),
                    })
                })
                .collect();
            let places = places?;
            let mut record = ByteRecord::new();
            while let Some(line) = file.next(&mut record)? {
                let row = Row::Csv { record: &record, places: &places };
                let added = if record.len() == names.len() {
                    rows.add(&row, columns, line)
                } else {
                    Err(format!("{} fields, but the first line names {} columns", record.len(), names.len()))
                };
                added.or_else(|reason| skipped.bad(path, Some(line), reason))?;
            }
        }
        Format::Jsonl => lines(path, |line, text| {
            let added = object(text).and_then(|object| rows.add(&Row::Json(&object), columns, line));
            added.or_else(|reason| skipped.bad(path, Some(line), reason))?;
            Ok(true)
        })?,
    }
    if rows.labels.is_empty() {
        let reason = "there is no row that can be used".to_string();
        return Err(Error::Unusable { path: path.to_path_buf(), line: None, reason });
    }
    Ok(rows)
}

impl Rows {
    /// Adds a row whole or not at all.
    fn add(&mut self, row: &Row<'_>, columns: &Columns, line: u64) -> Result<(), String> {
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
