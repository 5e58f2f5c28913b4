//! A first look at all rows of a table: what each column holds, and which columns to learn from.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::files::TableFile;
use super::form::{Column, ColumnKind, TableForm};
use super::rows::{Cell, each_row};
use super::{TableFormat, TableSource, no_column};
use crate::csv_file::CsvFile;
use crate::error::DataError;

/// The most categories of a column that is not named in the configuration.
const USUAL_CATEGORIES: usize = 50;
/// The most categories of any column.
const MOST_CATEGORIES: usize = 1_000;
/// Columns of fewer rows can have different values in all of them by chance.
const ENOUGH_ROWS: usize = 20;
/// Words in the names of columns that identify rows.
const IDENTIFIERS: [&str; 10] = ["id", "ids", "uid", "uuid", "guid", "mrn", "ssn", "identifier", "index", "unnamed"];

/// What a column holds.
pub(super) struct Contents {
    numbers: usize,
    texts: usize,
    empty: usize,
    /// Whether there are lists or objects.
    nested: bool,
    /// The different values; `None` if there are more than [`MOST_CATEGORIES`].
    values: Option<BTreeSet<String>>,
    /// Hashes of the values, as long as they are whole numbers or texts and all different.
    unique: Option<HashSet<u64>>,
}

impl Contents {
    fn new() -> Self {
        let (values, unique) = (Some(BTreeSet::new()), Some(HashSet::new()));
        Self { numbers: 0, texts: 0, empty: 0, nested: false, values, unique }
    }

    fn add(&mut self, cell: &Cell<'_>) {
        let text = match cell {
            Cell::Empty => return self.empty += 1,
            Cell::Nested => return self.nested = true,
            Cell::Number(text) => {
                self.numbers += 1;
                self.unique.take_if(|_| text.parse::<i64>().is_err());
                text
            }
            Cell::Text(text) => {
                self.texts += 1;
                text
            }
        };
        if let Some(values) = &mut self.values
            && !values.contains(&**text)
        {
            values.insert(text.to_string());
            self.values.take_if(|values| values.len() > MOST_CATEGORIES);
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        self.unique.take_if(|unique| !unique.insert(hasher.finish()));
    }

    /// Whether the column may name classes: a few different words or whole numbers, in nearly every row.
    pub(super) fn may_be_label(&self) -> bool {
        let is_whole = |text: &String| text.parse::<f64>().map_or(true, |number| number.fract() == 0.0);
        let few = |values: &&BTreeSet<String>| (2..=USUAL_CATEGORIES).contains(&values.len());
        let named = |values: &BTreeSet<String>| 2 * values.len() <= self.rows() && values.iter().all(is_whole);
        !self.nested && 20 * self.empty <= self.rows() && self.values.as_ref().filter(few).is_some_and(named)
    }

    /// Whether the column may say where rows come from: names or numbers that many rows share, in every row.
    pub(super) fn may_be_site(&self) -> bool {
        let several = |values: &BTreeSet<String>| values.len() > 1 && 2 * values.len() <= self.rows();
        !self.nested && self.empty == 0 && self.values.as_ref().is_some_and(several)
    }

    fn rows(&self) -> usize {
        self.numbers + self.texts + self.empty
    }

    /// Whether the column holds numbers: then a text among them is a mistake.
    fn is_numeric(&self) -> bool {
        self.numbers > 0 && self.numbers >= self.texts
    }

    /// Why a column of texts is not encoded unless it is named, if it is not.
    fn unsuited(&self) -> Option<String> {
        let rows = self.rows();
        match &self.values {
            _ if self.nested => Some("it holds lists or objects".to_string()),
            Some(values) if values.is_empty() => Some("it is empty".to_string()),
            Some(values) if values.len() == 1 && self.empty == 0 => {
                Some("it has the same value in every row".to_string())
            }
            Some(values) if values.len() <= USUAL_CATEGORIES && 2 * values.len() <= rows => None,
            Some(values) => Some(format!("it has {} different texts in {rows} rows", values.len())),
            None => Some(format!("it has more than {MOST_CATEGORIES} different texts")),
        }
    }

    /// Why the column looks like an identifier, if it does.
    fn identifies(&self, name: &str) -> Option<String> {
        let rows = self.rows();
        if self.unique.is_some() && self.empty == 0 && rows >= ENOUGH_ROWS {
            return Some(format!("it is different in each of {rows} rows"));
        }
        let words = words(name);
        let named = words.is_empty() || words.iter().any(|word| IDENTIFIERS.contains(&word.as_str()));
        named.then(|| "by its name".to_string())
    }
}

/// The words of a name in lower case: `patientID`, `patient_id` and `Patient-Id` have the same.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What to read from a table, by its training rows, in files whose columns are known. The scales of numbers are not known
/// yet.
pub(super) fn survey(
    format: TableFormat,
    table: &TableSource,
    files: &[TableFile],
    columns: &[Vec<String>],
) -> Result<TableForm, DataError> {
    // All files have the columns of the first, apart from those to ignore.
    let names = columns.first().map_or(&[][..], Vec::as_slice);
    let chosen = ColumnChoice { table, names, path: table.train.first() };
    let label = chosen.need(&table.label, "data.label")?;
    let key = table.key.as_ref().map(|key| chosen.need(key, "data.key")).transpose()?;
    for name in table.ignore.iter().filter(|name| !columns.iter().any(|names| names.contains(name))) {
        chosen.need(name, "data.ignore")?;
    }
    let text = match (&table.text, &table.features) {
        (Some(text), _) => Some(chosen.need(text, "data.text")?),
        (None, None) if label != "text" => names.iter().find(|name| *name == "text" && !table.ignore.contains(name)),
        _ => None,
    };
    let mut form = TableForm { label: label.clone(), text: text.cloned(), ..TableForm::default() };
    for path in files.iter().map(|file| &file.path).filter(|_| format == TableFormat::Csv) {
        if CsvFile::table(path)?.has_semicolons() {
            let file = path.display();
            form.notes.push(format!("{file}: columns are separated by semicolons, so 1,5 is read as 1.5"));
        }
    }
    if text.is_none() {
        let usable = |name: &&String| *name != label && Some(*name) != key && !table.ignore.contains(name);
        let candidates: Vec<&String> = match &table.features {
            Some(features) => {
                features.iter().map(|name| chosen.need(name, "data.features")).collect::<Result<_, _>>()?
            }
            None => names.iter().filter(usable).collect(),
        };
        for name in &table.categories {
            if !candidates.contains(&chosen.need(name, "data.categories")?) {
                let reason = format!("column '{name}' of data.categories is not one of those to learn from");
                return Err(chosen.wrong(reason));
            }
        }
        let contents = contents(format, files, &candidates)?;
        for (name, contents) in candidates.into_iter().zip(contents) {
            chosen.column(name, &contents, &mut form)?;
        }
    }
    let read: HashSet<&String> = form.inputs().into_iter().collect();
    let mut others: Vec<String> = names.iter().filter(|name| *name != label && !read.contains(name)).cloned().collect();
    let of_first: HashSet<&String> = names.iter().collect();
    let elsewhere = columns.iter().skip(1).flatten().filter(|name| !of_first.contains(name));
    others.extend(elsewhere.cloned());
    if read.is_empty() {
        let left = if form.notes.is_empty() { String::new() } else { format!(": {}", form.notes.join("; ")) };
        return Err(chosen.wrong(format!("there is no column to learn from{left}")));
    }
    form.others = others;
    Ok(form)
}

/// The columns of a table, and what the configuration says about them.
struct ColumnChoice<'a> {
    table: &'a TableSource,
    names: &'a [String],
    path: &'a Path,
}

impl<'a> ColumnChoice<'a> {
    fn wrong(&self, reason: String) -> DataError {
        DataError::unusable(self.path, Some(1), reason)
    }

    /// The name of a column that must exist.
    fn need(&self, name: &str, what: &str) -> Result<&'a String, DataError> {
        let found = self.names.iter().find(|known| *known == name);
        found.ok_or_else(|| no_column(self.path, name, what, self.names))
    }

    /// Adds a column to the form, or says why it is left out.
    fn column(&self, name: &str, contents: &Contents, form: &mut TableForm) -> Result<(), DataError> {
        let coded = self.table.categories.iter().any(|one| one == name);
        let asked = coded || self.table.features.is_some();
        let numeric = contents.is_numeric() && !contents.nested && !coded;
        if !numeric {
            match (contents.unsuited(), &contents.values) {
                (Some(reason), _) if !asked => {
                    form.notes.push(format!("column '{name}' is left out: {reason}"));
                    return Ok(());
                }
                (_, Some(values)) if !contents.nested && !values.is_empty() => {
                    let values = values.iter().cloned().collect();
                    form.columns.push(Column { name: name.to_string(), kind: ColumnKind::Categories(values) });
                }
                (reason, _) => {
                    let reason = reason.unwrap_or_default();
                    return Err(self.wrong(format!("column '{name}' cannot be used as categories: {reason}")));
                }
            }
        } else {
            form.columns.push(Column { name: name.to_string(), kind: ColumnKind::Number { mean: 0.0, std: 1.0 } });
        }
        if let Some(reason) = contents.identifies(name).filter(|_| !asked) {
            form.notes.push(format!(
                "column '{name}' looks like an identifier ({reason}), from which a model can learn rows by heart: \
                 data.ignore = [\"{name}\"] leaves it out"
            ));
        }
        Ok(())
    }
}

/// What these columns hold.
pub(super) fn contents(
    format: TableFormat,
    files: &[TableFile],
    columns: &[&String],
) -> Result<Vec<Contents>, DataError> {
    let mut all: Vec<Contents> = columns.iter().map(|_| Contents::new()).collect();
    for file in files {
        each_row(format, &file.path, columns, |_, row| {
            // Unusable rows are dealt with when the table is read.
            if let Ok(row) = row {
                for ((place, name), contents) in columns.iter().enumerate().zip(&mut all) {
                    contents.add(&row.cell(name, place));
                }
            }
            Ok(())
        })?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_by_name() {
        let identifies = |name: &str| Contents::new().identifies(name).is_some();
        for name in ["id", "ID", "patient_id", "patientId", "Patient ID", "row.index", "MRN", ""] {
            assert!(identifies(name), "{name}");
        }
        for name in ["idle", "age", "acid", "width", "midday"] {
            assert!(!identifies(name), "{name}");
        }
    }
}
