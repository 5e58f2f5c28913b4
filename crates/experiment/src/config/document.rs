//! A configuration as written: the values, and where each one came from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedelity_keys::{KeyError, Keys, ValueType, describe};
use fedelity_methods::Registry;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::Config;
use crate::ExperimentError;
use crate::error::Result;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the file, at this line and column, both counted from 1.
    File { line: usize, column: usize },
    /// In another file that changes this one, such as a sweep, at this line and column.
    Other { file: Arc<OtherFile>, line: usize, column: usize },
    /// On the command line, with this option.
    Option(&'static str),
}

/// A file with values for another one.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherFile {
    name: String,
    folder: PathBuf,
}

impl Origin {
    /// Whether the value is the file's own.
    pub fn is_file(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Other { .. } | Self::Option(_) => false,
        }
    }
}

/// Values that have not been checked yet.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The name of the file, empty if there is none.
    name: String,
    folder: PathBuf,
    table: Table,
    /// By dotted path.
    origins: BTreeMap<String, Origin>,
    /// The methods that it may name.
    methods: Registry,
}

impl Document {
    /// Reads a file. Only its syntax is checked.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fedelity_files::read_named(path, fedelity_files::TEXT)
            .map_err(|error| wrong(format!("cannot read {}: {error}", path.display())))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Self::parse(path.display().to_string(), folder, &text)
    }

    /// Reads a configuration from text, for programs without a file. `name` is used in messages, and relative paths
    /// start from `folder`.
    pub fn parse(name: String, folder: PathBuf, text: &str) -> Result<Self> {
        let syntax = |error: toml::de::Error| match error.span() {
            Some(span) => {
                let (line, column) = position(text, &span);
                let message = several(text, line).unwrap_or_else(|| error.message().to_string());
                wrong(format!("{name}:{line}:{column}: {message}"))
            }
            None => wrong(format!("{name}: {}", error.message())),
        };
        let spans = DeTable::parse(text).map_err(syntax)?;
        let table = text.parse().map_err(syntax)?;
        let mut starts = Vec::new();
        note_table(&mut starts, "", spans.get_ref());
        Ok(Self { name, folder, table, origins: positions(text, starts), methods: Registry::default() })
    }

    /// Lets it name other methods than those of the library.
    pub fn know(&mut self, methods: &Registry) {
        self.methods = methods.clone();
    }

    pub(super) fn methods(&self) -> &Registry {
        &self.methods
    }

    /// Applies `KEY=VALUE`: a dotted path and a TOML value. A word that is not a TOML value is a string.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let (path, value) = Self::assignment(assignment)?;
        self.put(&path.split('.').collect::<Vec<_>>(), value, "--set")
    }

    /// Reads `KEY=VALUE`: the dotted path and the value.
    pub(crate) fn assignment(assignment: &str) -> Result<(&str, Value)> {
        let (path, text) = assignment
            .split_once('=')
            .ok_or_else(|| wrong(format!("--set {assignment}: expected KEY=VALUE, such as clients.epochs=5")))?;
        let (path, text) = (path.trim(), text.trim());
        if path.split('.').any(str::is_empty) {
            let message =
                format!("--set {assignment}: expected KEY=VALUE with a dotted path, such as clients.epochs=5");
            return Err(wrong(message));
        }
        Ok((path, value_of(assignment, text)?))
    }

    /// Sets a value on behalf of a command-line option, replacing any existing one.
    pub fn put(&mut self, keys: &[&str], value: Value, option: &'static str) -> Result<()> {
        self.put_from(keys, value, Origin::Option(option))
    }

    /// Sets a value from a place, replacing any existing one.
    pub fn put_from(&mut self, keys: &[&str], value: Value, origin: Origin) -> Result<()> {
        let path = keys.join(".");
        if keys.len() > DEEPEST {
            let start = keys[..DEEPEST].join(".");
            return Err(wrong(self.placed(&origin, &format!("{start}...: no key has more than {DEEPEST} parts"))));
        }
        let (last, parents) = keys.split_last().ok_or_else(|| wrong("an empty path".to_string()))?;
        let table = match table_at(&mut self.table, parents, last) {
            Ok(table) => table,
            Err(reason) => {
                return Err(wrong(match &origin {
                    Origin::Option(option) => format!("{option} {path}: {reason}"),
                    Origin::File { .. } | Origin::Other { .. } => self.placed(&origin, &format!("{path}: {reason}")),
                }));
            }
        };
        table.insert(last.to_string(), value);
        self.forget(&path);
        self.origins.insert(path.clone(), origin);
        // Of two keys that exclude each other, this one replaces the file's.
        for (a, b) in Config::SCHEMA.alternatives() {
            for (one, other) in [(&a, &b), (&b, &a)] {
                if path == *one && self.origins.get(other).is_some_and(Origin::is_file) {
                    self.remove(other);
                }
            }
        }
        Ok(())
    }

    /// Where a value of this file is, for a document that takes it over.
    pub fn place(&self, path: &str) -> Option<Origin> {
        let Some(&Origin::File { line, column }) = self.origin(path) else { return None };
        let file = Arc::new(OtherFile { name: self.name.clone(), folder: self.folder.clone() });
        Some(Origin::Other { file, line, column })
    }

    /// Removes a value.
    pub fn remove(&mut self, path: &str) -> Option<Value> {
        let keys: Vec<&str> = path.split('.').collect();
        let (last, parents) = keys.split_last()?;
        let mut table = &mut self.table;
        for key in parents {
            table = table.get_mut(*key)?.as_table_mut()?;
        }
        let value = table.remove(*last);
        self.forget(path);
        value
    }

    /// Removes the values given in the file from a table.
    pub fn remove_of_file(&mut self, section: &str) {
        let keys = self.table.get(section).and_then(Value::as_table).map(|table| table.keys().cloned().collect());
        let keys: Vec<String> = keys.unwrap_or_default();
        for path in keys.iter().map(|key| format!("{section}.{key}")) {
            if self.origin(&path).is_some_and(Origin::is_file) {
                self.remove(&path);
            }
        }
    }

    fn forget(&mut self, path: &str) {
        let below = format!("{path}.");
        self.origins.retain(|key, _| key != path && !key.starts_with(&below));
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The origin of the value at a path: the nearest known one above it.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        let mut at = path;
        loop {
            if let Some(origin) = self.origins.get(at) {
                return Some(origin);
            }
            at = &at[..at.rfind('.')?];
        }
    }

    /// Whether this option set the value.
    pub fn is_from(&self, path: &str, option: &str) -> bool {
        matches!(self.origin(path), Some(Origin::Option(given)) if *given == option)
    }

    /// The folder that this value's relative paths start from: that of its file, or the current one.
    pub fn folder_of(&self, path: &str) -> &Path {
        match self.origin(path) {
            Some(Origin::File { .. }) => &self.folder,
            Some(Origin::Other { file, .. }) => &file.folder,
            Some(Origin::Option(_)) | None => Path::new(""),
        }
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// An error about the value at a path, with its origin.
    pub fn error(&self, path: &str, message: impl AsRef<str>) -> ExperimentError {
        let message = message.as_ref();
        // A table that only the command line names has no origin of its own.
        let below = || {
            let start = format!("{path}.");
            self.origins.iter().find(|(key, _)| key.starts_with(&start)).map(|(_, origin)| origin)
        };
        let origin = self.origin(path).or_else(below);
        wrong(origin.map_or(message.to_string(), |origin| self.placed(origin, message)))
    }

    fn placed(&self, origin: &Origin, message: &str) -> String {
        match origin {
            Origin::File { line, column } => format!("{}:{line}:{column}: {message}", self.name),
            Origin::Other { file, line, column } => format!("{}:{line}:{column}: {message}", file.name),
            Origin::Option(option) => format!("{option}: {message}"),
        }
    }

    /// An error about a key, with the origin of its value.
    pub fn key_error(&self, error: &KeyError) -> ExperimentError {
        self.error(&error.key, &error.message)
    }

    /// The error that a key's value is not what is expected.
    pub fn expected(
        &self,
        path: &str,
        value: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> ExperimentError {
        self.key_error(&KeyError::expected(path, value, expected))
    }

    /// Whether this key has a value.
    pub fn gives(&self, path: &str) -> bool {
        self.origins.contains_key(path)
    }
}

/// Most parts of a dotted path. Tables in tables are read by functions that call themselves.
const DEEPEST: usize = 32;

/// What to write instead of a second table with the same name, if a configuration may have several of them.
fn several(text: &str, line: usize) -> Option<String> {
    let is_header = |line: &str, name: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        [format!("[{name}]"), format!("[[{name}]]")].contains(&line.replace(' ', ""))
    };
    let lists = Config::SCHEMA.keys.iter().filter(|key| matches!(key.value, ValueType::Raw)).map(|key| key.name);
    let lines: Vec<&str> = text.lines().take(line).collect();
    let name = lists.into_iter().find(|name| is_header(lines.last().unwrap_or(&""), name))?;
    let before = lines.iter().rev().skip(1).any(|line| is_header(line, name));
    before.then(|| format!("a second table [{name}]: for several, write [[{name}]] with two brackets for each of them"))
}

fn wrong(message: String) -> ExperimentError {
    ExperimentError::Config(message)
}

/// The table that holds a key, created if there is none, or the reason why there cannot be one.
fn table_at<'t>(mut table: &'t mut Table, parents: &[&str], last: &str) -> Result<&'t mut Table, String> {
    let mut at = String::new();
    let mut parents = parents.iter();
    while let Some(key) = parents.next() {
        extend(&mut at, key);
        let next = table.entry(key.to_string()).or_insert_with(|| Value::Table(Table::new()));
        table = match next {
            Value::Table(inner) => inner,
            Value::Array(items) => {
                let n = items.len();
                let index = parents.next().copied().unwrap_or("");
                let item = index.parse::<usize>().ok().and_then(|i| items.get_mut(i));
                extend(&mut at, index);
                match item {
                    Some(Value::Table(inner)) => inner,
                    _ => return Err(format!("there are {n} [[{key}]] tables: choose one, such as {key}.0.{last}")),
                }
            }
            other => return Err(format!("{at} is {}, not a table", describe(other))),
        };
    }
    Ok(table)
}

fn value_of(assignment: &str, text: &str) -> Result<Value> {
    let parsed = format!("value = {text}").parse::<Table>();
    match parsed {
        Ok(mut table) if table.len() == 1 => {
            table.remove("value").ok_or_else(|| wrong(format!("--set {assignment}: expected one value")))
        }
        Ok(_) => Err(wrong(format!("--set {assignment}: expected one value"))),
        Err(error) if text.is_empty() || text.starts_with(['[', '{', '"', '\'']) => {
            Err(wrong(format!("--set {assignment}: not a TOML value: {}", error.message())))
        }
        Err(_) => Ok(Value::String(text.to_string())),
    }
}

fn extend(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// Line and column, counted from 1, with columns in characters.
fn position(text: &str, span: &Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The places of values, from where they start. The text is passed through once, however many they are.
fn positions(text: &str, mut starts: Vec<(String, usize)>) -> BTreeMap<String, Origin> {
    starts.sort_by_key(|(_, start)| *start);
    let (mut line, mut column, mut at) = (1, 1, 0);
    let mut place = |start: usize| {
        for letter in text.get(at..start).unwrap_or_default().chars() {
            (line, column) = if letter == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        at = start;
        Origin::File { line, column }
    };
    starts.into_iter().map(|(path, start)| (path, place(start))).collect()
}

/// Where each key and each item of a list starts.
fn note_table(starts: &mut Vec<(String, usize)>, path: &str, table: &DeTable<'_>) {
    for (key, value) in table {
        let mut at = path.to_string();
        extend(&mut at, key.get_ref());
        starts.push((at.clone(), key.span().start));
        match value.get_ref() {
            DeValue::Table(inner) => note_table(starts, &at, inner),
            DeValue::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let at = format!("{at}.{i}");
                    starts.push((at.clone(), item.span().start));
                    if let DeValue::Table(inner) = item.get_ref() {
                        note_table(starts, &at, inner);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Document {
        Document::parse("x.toml".to_string(), PathBuf::from("dir"), text).unwrap()
    }

    #[test]
    fn origins_are_lines_and_columns() {
        let mut doc = parse("rounds = 3\n[clients]\n  batch = 0\n[[method]]\nname = \"a\"\n[[method]]\nname = \"b\"\n");
        assert_eq!(doc.origin("clients.batch"), Some(&Origin::File { line: 3, column: 3 }));
        assert_eq!(doc.origin("method.1.name"), Some(&Origin::File { line: 7, column: 1 }));
        assert_eq!(doc.error("clients.batch", "no").to_string(), "x.toml:3:3: no");
        doc.set("clients.batch=7").unwrap();
        assert_eq!(doc.error("clients.batch", "no").to_string(), "--set: no");
        assert_eq!(doc.folder_of("rounds"), Path::new("dir"));
        assert_eq!(doc.folder_of("clients.batch"), Path::new(""));
    }

    #[test]
    fn places_of_many_values_are_found_in_one_pass() {
        let text = format!("\"é\" = [{}]\nlast = 1\n", "0,".repeat(100_000));
        let start = std::time::Instant::now();
        let doc = parse(&text);
        assert_eq!(doc.origin("é.99999"), Some(&Origin::File { line: 1, column: 200_006 }));
        assert_eq!(doc.origin("last"), Some(&Origin::File { line: 2, column: 1 }));
        // A pass for each value takes minutes.
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }

    #[test]
    fn set_takes_toml_values_and_bare_words() {
        let mut doc = Document::default();
        for assignment in ["model.name=simple-cnn", "optimizer.lr = 1e-2", "seeds=[1, 2]", "model.projection=true"] {
            doc.set(assignment).unwrap();
        }
        assert_eq!(doc.table()["model"]["name"].as_str(), Some("simple-cnn"));
        assert_eq!(doc.table()["model"]["projection"].as_bool(), Some(true));
        assert_eq!(doc.table()["optimizer"]["lr"].as_float(), Some(0.01));
        assert_eq!(doc.table()["seeds"].as_array().unwrap().len(), 2);
        let deep = format!("{}b=1", "a.".repeat(5_000));
        for wrong in ["rounds", "=3", "a..b=3", "seeds=[1", "rounds=", "rounds=1\nseed=2", &deep] {
            assert!(doc.set(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn set_replaces_the_alternative_of_the_file() {
        let mut doc = parse("seed = 3\n[clients]\nper-round = 4\n");
        doc.set("clients.fraction=0.5").unwrap();
        doc.set("seeds=[1]").unwrap();
        assert!(doc.table()["clients"].get("per-round").is_none());
        assert!(doc.table().get("seed").is_none());
    }

    #[test]
    fn set_reaches_into_lists_of_tables() {
        let mut doc = parse("[[method]]\nname = \"a\"\n[[method]]\nname = \"b\"\n");
        doc.set("method.1.beta=0.5").unwrap();
        assert_eq!(doc.table()["method"][1]["beta"].as_float(), Some(0.5));
        assert!(doc.set("method.beta=0.5").unwrap_err().to_string().contains("method.0.beta"));
        assert!(doc.set("method.7.beta=0.5").is_err());
    }
}
