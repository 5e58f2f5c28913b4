//! The user's own tables: rows of CSV or JSON Lines, with a label and either a text or numbers and categories.

mod files;
mod form;
mod guess;
mod rows;
mod survey;
mod texts;
mod unlabelled;

use std::collections::HashMap;
use std::path::Path;

use fedelity_keys::{Choice, KeyError, keys};

use crate::dataset::{Dataset, Inputs, NaturalKeys, Shape, Split};
use crate::deviation::population_deviation;
use crate::error::DataError;
use crate::partition::hold_out;
use crate::skipped::Skipped;
pub use files::TableFiles;
pub use form::{Column, ColumnKind, TableForm};
pub use guess::{ColumnGuess, TableGuess};
pub use texts::texts;
pub use unlabelled::{UnlabelledRows, unlabelled};

use files::{TableFile, same_columns};
use rows::{TableRows, Wanted, names, read_rows};
use survey::survey;

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum TableFormat {
    /// Rows with column names in the first line, separated by commas, semicolons or tabs.
    Csv,
    /// One JSON object per line.
    Jsonl,
}

impl TableFormat {
    /// How names of its files end.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Csv => &["csv", "tsv"],
            Self::Jsonl => &["jsonl"],
        }
    }

    /// The format of a file, by the end of its name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let end = path.extension()?.to_str()?.to_ascii_lowercase();
        [Self::Csv, Self::Jsonl].into_iter().find(|format| format.endings().contains(&end.as_str()))
    }
}

/// Which files and columns to read.
#[keys(check = TableSource::has_features)]
pub struct TableSource {
    /// The training rows: a file, a list of files such as ["a.csv", "b.csv"], or a folder of files. They must have the same
    /// columns, in any order. Several files are one site each, named after its file, unless `key` names a column.
    #[key(what = "the path of a file or a folder, or a list of files such as [\"a.csv\", \"b.csv\"]")]
    pub train: TableFiles,
    /// The test rows, likewise; files with the same name as for training belong to the same site. Without it, some training
    /// rows are kept for testing.
    #[key(what = "the path of a file or a folder, or a list of files such as [\"a.csv\", \"b.csv\"]")]
    pub test: Option<TableFiles>,
    /// The share of each class that is kept for testing.
    #[key(default = 0.2, above = 0, below = 1, unless("test", is_given))]
    pub test_fraction: Option<f64>,
    /// The column with the label.
    #[key(default = "label", what = "the name of a column")]
    pub label: String,
    /// The column with the text. Without it, `text` if there is such a column and no features are named.
    #[key(what = "the name of a column")]
    pub text: Option<String>,
    /// The columns to learn from. Without them, all columns of numbers, and columns of words with at most 50 different
    /// values; others are left out, with a note.
    #[key(what = "a list of column names, such as [\"age\", \"weight\"]")]
    pub features: Option<Vec<String>>,
    /// Columns whose values are names even where they look like numbers, such as codes. Like words, they are read as one
    /// number per category: 1 for the row's own, 0 for the others. A category that no training row has counts as none.
    #[key(default = [], what = "a list of column names, such as [\"ward\", \"diagnosis\"]")]
    pub categories: Vec<String>,
    /// Columns to leave out, such as identifiers.
    #[key(default = [], what = "a list of column names, such as [\"patient-id\"]")]
    pub ignore: Vec<String>,
    /// The column that names where a row comes from: its writer, user or site. Without it, each of several files is a site.
    #[key(what = "the name of a column")]
    pub key: Option<String>,
}

impl TableSource {
    fn has_features(&self) -> Result<(), KeyError> {
        if self.features.as_ref().is_some_and(Vec::is_empty) {
            let expected = "a list of column names, such as [\"age\", \"weight\"]";
            return Err(KeyError::expected("features", "[]", expected));
        }
        for (key, files) in [("train", Some(&self.train)), ("test", self.test.as_ref())] {
            if files.is_some_and(|files| files.paths().is_empty()) {
                return Err(KeyError::expected(key, "[]", "at least one file"));
            }
        }
        let ignored = |names: &[String]| names.iter().find(|name| self.ignore.contains(name)).cloned();
        let features = self.features.as_deref().unwrap_or_default();
        for (key, names) in [("features", features), ("categories", &self.categories[..])] {
            if let Some(name) = ignored(names) {
                return Err(KeyError::new("ignore", format!("ignore: column '{name}' is also in data.{key}")));
            }
        }
        Ok(())
    }
}

fn is_given(path: &str) -> bool {
    !path.is_empty()
}

/// Labels are 16 bits wide.
const MOST_CLASSES: usize = 1 << 16;

/// How a table is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableReading<'a> {
    /// The form of a trained model's rows; without it, the training rows determine it.
    pub(crate) form: Option<&'a TableForm>,
    /// Whether some of the training rows are kept for testing if there is no file with test rows. Otherwise all rows are
    /// test samples.
    pub(crate) divide: bool,
}

/// Reads a table. Unusable rows are rejected or skipped, depending on `skipped`.
pub(crate) fn read(
    format: TableFormat,
    table: &TableSource,
    reading: TableReading<'_>,
    skipped: &mut Skipped,
) -> Result<Dataset, DataError> {
    let train_files = table.train.list(format, table)?;
    let test_files = table.test.as_ref().map(|test| test.list(format, table)).transpose()?;
    let columns =
        |files: &[TableFile]| files.iter().map(|file| names(format, &file.path)).collect::<Result<Vec<_>, _>>();
    let mut form = match reading.form {
        Some(form) => {
            let text = form.text.as_ref().and(table.text.as_ref()).or(form.text.as_ref());
            let form = TableForm {
                label: table.label.clone(),
                text: text.cloned(),
                constant: Vec::new(),
                notes: Vec::new(),
                ..form.clone()
            };
            for file in train_files.iter().chain(test_files.iter().flatten()) {
                let (path, names) = (&file.path, names(format, &file.path)?);
                if !names.contains(&form.label) {
                    return Err(no_column(path, &form.label, "data.label", &names));
                }
                form.accepts(path, &names, &table.ignore)?;
            }
            form
        }
        None => {
            let known = columns(&train_files)?;
            same_columns(&train_files, &known, &table.ignore)?;
            survey(format, table, &train_files, &known)?
        }
    };
    let (train, classes) = read_labelled(format, &train_files, table, &form, None, skipped)?;
    let test = match &test_files {
        Some(files) => Some(read_labelled(format, files, table, &form, Some(&classes), skipped)?.0),
        None => None,
    };
    let read = [Some(&train), test.as_ref()].into_iter().flatten();
    form.notes.extend(read.flat_map(|read| read.notes.clone()).collect::<Vec<_>>());
    let (mut train, mut test) = match test {
        Some(test) => (train.split, test.split),
        None if reading.divide => {
            let held = hold_out(&train.split.labels, table.test_fraction.unwrap_or_default());
            train.split.divide(&held)
        }
        None => (Split { inputs: train.split.inputs.none(), labels: Vec::new(), keys: None }, train.split),
    };
    if reading.form.is_none() {
        measure(&train, &mut form);
    }
    for split in [&mut train, &mut test] {
        if let Inputs::Floats(values) = &mut split.inputs {
            form.scale(values);
        }
    }
    Ok(Dataset {
        name: format.name().to_string(),
        classes,
        shape: if form.text.is_some() { Shape::Text } else { Shape::Numbers(form.width()) },
        train,
        test,
        normalisation: form.normalisation(),
        table: Some(form),
    })
}

/// The rows of files, not yet scaled.
struct LabelledRows {
    split: Split,
    notes: Vec<String>,
}

/// Reads the rows of files and their classes, which must be among the `known` ones, if any.
fn read_labelled(
    format: TableFormat,
    files: &[TableFile],
    table: &TableSource,
    form: &TableForm,
    known: Option<&[String]>,
    skipped: &mut Skipped,
) -> Result<(LabelledRows, Vec<String>), DataError> {
    let rows = read_rows(format, files, Wanted { label: Some(&form.label), key: table.key.as_ref(), form }, skipped)?;
    let classes = match known {
        Some(known) => known.to_vec(),
        None => in_order(rows.classes.all.clone()),
    };
    if classes.len() > MOST_CLASSES {
        let (label, found) = (&form.label, classes.len());
        let reason = format!("column '{label}' has {found} different labels; at most {MOST_CLASSES} are allowed");
        return Err(DataError::unusable(table.train.first(), None, reason));
    }
    let by_name: HashMap<&String, u16> = classes.iter().zip(0..=u16::MAX).collect();
    let label_of = rows.classes.all.iter().zip(&rows.classes.first).map(|(name, &(file, line))| {
        let reason = || format!("label '{name}' has no samples in {}", table.train);
        by_name.get(name).copied().ok_or_else(|| DataError::unusable(&files[file].path, Some(line), reason()))
    });
    let label_of: Vec<u16> = label_of.collect::<Result<_, _>>()?;
    let notes = rows.notes(files);
    Ok((LabelledRows { split: rows.split(&label_of, form.text.is_some()), notes }, classes))
}

/// The error that a column of the configuration does not exist.
fn no_column(path: &Path, name: &str, key: &str, names: &[String]) -> DataError {
    let reason = format!("there is no column '{name}' for {key}; the columns are {}", names.join(", "));
    DataError::unusable(path, Some(1), reason)
}

/// Class names: integers in numeric order, other names in alphabetical order.
fn in_order(mut names: Vec<String>) -> Vec<String> {
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or_default());
    } else {
        names.sort();
    }
    names
}

impl TableRows {
    fn split(self, label_of: &[u16], text: bool) -> Split {
        let keys = (!self.key_of.is_empty()).then_some(NaturalKeys { of: self.key_of, names: self.keys.all });
        Split {
            inputs: if text { Inputs::Texts(self.texts) } else { Inputs::Floats(self.numbers) },
            labels: self.labels.iter().map(|&place| label_of[place as usize]).collect(),
            keys,
        }
    }
}

/// Finds mean and standard deviation of every column of numbers over the training rows. A constant column becomes 0, and is
/// noted.
fn measure(train: &Split, form: &mut TableForm) {
    let Inputs::Floats(values) = &train.inputs else { return };
    let width = form.width();
    let rows = (values.len() / width.max(1)).max(1) as f64;
    let mut first = 0;
    for column in &mut form.columns {
        let place = first;
        first += column.width();
        let ColumnKind::Number { mean, std } = &mut column.kind else { continue };
        let numbers = || values.iter().skip(place).step_by(width.max(1)).map(|&value| f64::from(value));
        // The mean of equal numbers need not be exactly that number.
        if let Some(first) = numbers().next().filter(|first| numbers().all(|value| value == *first)) {
            (*mean, *std) = (first, 1.0);
            let name = &column.name;
            form.notes.push(format!(
                "column '{name}' has the same value in every training row, so nothing can be learnt from it: data.ignore = \
                 [\"{name}\"] leaves it out"
            ));
            form.constant.push(name.clone());
            continue;
        }
        *mean = numbers().sum::<f64>() / rows;
        let square: f64 = numbers().map(|value| (value - *mean) * (value - *mean)).sum();
        let deviation = population_deviation(square / rows);
        // The squares of tiny differences may be 0.
        *std = if deviation > 0.0 { deviation } else { 1.0 };
    }
}

#[cfg(test)]
mod tests;
