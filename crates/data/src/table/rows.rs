//! The rows of files, checked one by one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use csv::ByteRecord;
use serde_json::{Map, Value};

use super::TableFormat;
use super::files::TableFile;
use super::form::{Column, ColumnKind, TableForm, listed};
use crate::csv_file::{CsvFile, NOT_UTF8, field};
use crate::error::DataError;
use crate::files::{self, utf8};
use crate::skipped::Skipped;

/// Names in order of appearance.
#[derive(Default)]
pub(super) struct Names {
    pub(super) all: Vec<String>,
    /// The file and the line of the first occurrence.
    pub(super) first: Vec<(usize, u64)>,
    places: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str, first: (usize, u64)) -> u32 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.all.len() as u32;
        self.all.push(name.to_string());
        self.first.push(first);
        self.places.insert(name.to_string(), place);
        place
    }
}

/// What is read from the rows of a file.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) label: Option<&'a String>,
    pub(super) key: Option<&'a String>,
    pub(super) form: &'a TableForm,
}

/// The contents of rows.
#[derive(Default)]
pub(super) struct TableRows {
    /// The line of each row.
    pub(super) lines: Vec<u64>,
    pub(super) labels: Vec<u32>,
    pub(super) classes: Names,
    pub(super) key_of: Vec<u32>,
    pub(super) keys: Names,
    pub(super) texts: Vec<String>,
    pub(super) numbers: Vec<f32>,
    /// By file and column: how many values are not among its categories, and the first few.
    unknown: BTreeMap<(usize, String), (usize, BTreeSet<String>)>,
}

/// The value of a field, to find out what a column holds.
pub(super) enum Cell<'a> {
    Empty,
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    /// A list or an object.
    Nested,
}

/// One row of either format.
pub(super) enum TableRow<'a> {
    Csv {
        record: &'a ByteRecord,
        places: &'a [usize],
        /// Whether numbers may have a decimal comma.
        decimal_comma: bool,
    },
    Json(&'a Map<String, Value>),
}

impl TableRow<'_> {
    /// The text of a column; `place` is its position among the columns read.
    pub(super) fn text(&self, name: &str, place: usize) -> Result<String, String> {
        match self {
            Self::Csv { record, places, .. } => field(record, places[place], name).map(str::to_string),
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

    /// The value of a column.
    pub(super) fn cell(&self, name: &str, place: usize) -> Cell<'_> {
        match self {
            Self::Csv { record, places, decimal_comma } => {
                let text = String::from_utf8_lossy(record.get(places[place]).unwrap_or_default());
                let text = match text {
                    Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
                    Cow::Owned(text) => Cow::Owned(text.trim().to_string()),
                };
                match parse(&text, *decimal_comma) {
                    _ if text.is_empty() => Cell::Empty,
                    Some(_) => Cell::Number(text),
                    None => Cell::Text(text),
                }
            }
            Self::Json(object) => match object.get(name) {
                None | Some(Value::Null) => Cell::Empty,
                Some(Value::String(text)) if text.trim().is_empty() => Cell::Empty,
                Some(Value::String(text)) => Cell::Text(Cow::Borrowed(text.trim())),
                Some(Value::Bool(flag)) => Cell::Text(Cow::Owned(flag.to_string())),
                Some(Value::Number(number)) => Cell::Number(Cow::Owned(number.to_string())),
                Some(Value::Array(_) | Value::Object(_)) => Cell::Nested,
            },
        }
    }

    fn number(&self, name: &str, place: usize) -> Result<f32, String> {
        let value = match self {
            Self::Csv { decimal_comma, .. } => {
                let text = self.name(name, place, "number")?;
                parse(&text, *decimal_comma)
                    .ok_or_else(|| format!("column '{name}': expected a number, found '{}'", cut(&text)))?
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
            let found = if value.is_finite() { format!("{value:e}") } else { value.to_string() };
            Err(format!("column '{name}': expected a finite number of at most {:e}, found {found}", f32::MAX))
        }
    }
}

/// A number, with a decimal comma where that is usual.
fn parse(text: &str, decimal_comma: bool) -> Option<f64> {
    let point = || decimal_comma.then(|| text.replacen(',', ".", 1).parse().ok()).flatten();
    text.parse().ok().or_else(point)
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

/// The names of a file's columns: its first row, or the keys of its first object.
pub(super) fn names(format: TableFormat, path: &Path) -> Result<Vec<String>, DataError> {
    let empty = || DataError::unusable(path, None, "the file has no rows");
    match format {
        TableFormat::Csv => {
            let mut file = CsvFile::table(path)?;
            let names = file.header()?;
            file.next(&mut ByteRecord::new())?.ok_or_else(empty)?;
            Ok(names)
        }
        TableFormat::Jsonl => {
            let mut found = None;
            files::lines(path, |line, text| {
                found = Some(object(text).map_err(|reason| DataError::unusable(path, Some(line), reason))?);
                Ok(false)
            })?;
            Ok(found.ok_or_else(empty)?.into_iter().map(|(name, _)| name).collect())
        }
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
    let mut file = CsvFile::table(path)?;
    let decimal_comma = file.has_semicolons();
    let names = file.header()?;
    let by_name: HashMap<&String, usize> = names.iter().zip(0..).collect();
    let place = |name: &&String| {
        let reason = || format!("there is no column '{name}'; the columns are {}", names.join(", "));
        by_name.get(name).copied().ok_or_else(|| DataError::unusable(path, Some(1), reason()))
    };
    let places: Vec<usize> = wanted.iter().map(place).collect::<Result<_, _>>()?;
    let mut record = ByteRecord::new();
    while let Some(line) = file.next(&mut record)? {
        for (name, &place) in wanted.iter().zip(&places) {
            field(&record, place, name)
                .map_err(|reason| DataError::unusable(path, Some(line), format!("{reason}: {NOT_UTF8}")))?;
        }
        let row = if record.len() == names.len() {
            Ok(TableRow::Csv { record: &record, places: &places, decimal_comma })
        } else {
            Err(format!("expected {} fields, as in the first line, found {}", names.len(), record.len()))
        };
        each(line, row)?;
    }
    Ok(())
}

/// The rows of files, one after the other. Unusable ones are rejected or skipped, depending on `skipped`.
pub(super) fn read_rows(
    format: TableFormat,
    files: &[TableFile],
    wanted: Wanted<'_>,
    skipped: &mut Skipped,
) -> Result<TableRows, DataError> {
    let mut rows = TableRows::default();
    let inputs = wanted.form.inputs();
    let columns: Vec<&String> = wanted.label.into_iter().chain(wanted.key).chain(inputs).collect();
    for (number, TableFile { path, site }) in files.iter().enumerate() {
        let before = rows.lines.len();
        each_row(format, path, &columns, |line, row| {
            let added = row.and_then(|row| rows.add(&row, wanted, site.as_deref(), (number, line)));
            added.or_else(|reason| skipped.bad(path, Some(line), reason))
        })?;
        if rows.lines.len() == before {
            return Err(DataError::unusable(path, None, "no row can be used"));
        }
    }
    Ok(rows)
}

impl TableRows {
    /// Adds a row of a file and a line completely or not at all.
    fn add(
        &mut self,
        row: &TableRow<'_>,
        wanted: Wanted<'_>,
        site: Option<&str>,
        at: (usize, u64),
    ) -> Result<(), String> {
        let first = usize::from(wanted.label.is_some());
        let label = wanted.label.map(|label| row.name(label, 0, "label")).transpose()?;
        let key = wanted.key.map(|key| row.name(key, first, "key")).transpose()?.or(site.map(String::from));
        let first = first + usize::from(wanted.key.is_some());
        if let Some(text) = &wanted.form.text {
            self.texts.push(row.text(text, first)?);
        } else {
            let before = self.numbers.len();
            for (i, column) in wanted.form.columns.iter().enumerate() {
                if let Err(reason) = self.value(row, column, first + i, at.0) {
                    self.numbers.truncate(before);
                    return Err(reason);
                }
            }
        }
        self.labels.extend(label.map(|label| self.classes.number(&label, at)));
        self.key_of.extend(key.map(|key| self.keys.number(&key, at)));
        self.lines.push(at.1);
        Ok(())
    }

    /// Adds the numbers of a column.
    fn value(&mut self, row: &TableRow<'_>, column: &Column, place: usize, file: usize) -> Result<(), String> {
        match &column.kind {
            ColumnKind::Number { .. } => self.numbers.push(row.number(&column.name, place)?),
            ColumnKind::Categories(names) => {
                let text = row.text(&column.name, place)?;
                let text = text.trim();
                self.numbers.extend(names.iter().map(|name| if name == text { 1.0 } else { 0.0 }));
                if !text.is_empty() && !names.iter().any(|name| name == text) {
                    let (count, first) = self.unknown.entry((file, column.name.clone())).or_default();
                    *count += 1;
                    if first.len() <= NAMED {
                        first.insert(cut(text));
                    }
                }
            }
        }
        Ok(())
    }

    /// Values that are not among the categories of their column, in words.
    pub(super) fn notes(&self, files: &[TableFile]) -> Vec<String> {
        let note = |((file, column), (count, first)): (&(usize, String), &(usize, BTreeSet<String>))| {
            let more = if first.len() > NAMED { ", ..." } else { "" };
            let (values, they) = match count {
                1 => ("1 value is".to_string(), "it counts"),
                _ => (format!("{count} values are"), "they count"),
            };
            format!(
                "{}: {values} not among the categories of column '{column}' that the training rows have: {}{more}; {they} \
                 as none of them",
                files[*file].path.display(),
                listed(first.iter().take(NAMED))
            )
        };
        self.unknown.iter().map(note).collect()
    }
}

/// Unknown values named in a message.
const NAMED: usize = 3;
