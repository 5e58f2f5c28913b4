//! The user's own tables: rows of CSV or JSON Lines, with a label and either a text or numbers.

mod rows;
mod texts;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use csv::ByteRecord;
use fedelity_keys::{Choice, KeyError, keys};

use crate::csv_file::CsvFile;
use crate::dataset::{Dataset, Inputs, NaturalKeys, Normalisation, Shape, Split};
use crate::deviation::population_deviation;
use crate::error::DataError;
use crate::files;
use crate::partition::hold_out;
use crate::skipped::Skipped;
pub use texts::texts;

use rows::{TableRows, object, read_rows};

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum TableFormat {
    /// Comma-separated values with column names in the first line; tab-separated if the file name ends in `.tsv`.
    Csv,
    /// One JSON object per line.
    Jsonl,
}

/// Which files and columns to read.
#[keys(check = TableSource::has_features)]
pub struct TableSource {
    /// The file with the training rows.
    #[key(what = "the path of a file")]
    pub train: PathBuf,
    /// The file with the test rows. Without it, some training rows are kept for testing.
    #[key(what = "the path of a file")]
    pub test: Option<PathBuf>,
    /// The share of each class that is kept for testing.
    #[key(default = 0.2, above = 0, below = 1, unless("test", is_given))]
    pub test_fraction: Option<f64>,
    /// The column with the label.
    #[key(default = "label", what = "the name of a column")]
    pub label: String,
    /// The column with the text. Without it, `text` if there is such a column and no features are named.
    #[key(what = "the name of a column")]
    pub text: Option<String>,
    /// The numeric columns. Without them, all columns with a number in the first row.
    #[key(what = "a list of column names, such as [\"age\", \"weight\"]")]
    pub features: Option<Vec<String>>,
    /// The column that names where a row comes from: its writer, user or site.
    #[key(what = "the name of a column")]
    pub key: Option<String>,
}

impl TableSource {
    fn has_features(&self) -> Result<(), KeyError> {
        if self.features.as_ref().is_some_and(Vec::is_empty) {
            let expected = "a list of column names, such as [\"age\", \"weight\"]";
            return Err(KeyError::expected("features", "[]", expected));
        }
        Ok(())
    }
}

fn is_given(path: &str) -> bool {
    !path.is_empty()
}

/// Labels are 16 bits wide.
const MOST_CLASSES: usize = 1 << 16;

struct Columns {
    label: String,
    key: Option<String>,
    inputs: Vec<String>,
    text: bool,
}

/// Reads a table. Unusable rows are rejected or skipped, depending on `skipped`.
pub fn read(format: TableFormat, table: &TableSource, skipped: &mut Skipped) -> Result<Dataset, DataError> {
    let columns = choose(format, table)?;
    let train = read_rows(format, &table.train, &columns, skipped)?;
    let mut names: Vec<(String, u32)> = train.classes.all.iter().cloned().zip(0..).collect();
    // Integers in numeric order, other names in alphabetical order.
    if names.iter().all(|(name, _)| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|(name, _)| name.parse::<i64>().unwrap_or_default());
    } else {
        names.sort();
    }
    if names.len() > MOST_CLASSES {
        let reason = format!(
            "column '{}' has {} different labels; at most {MOST_CLASSES} are allowed",
            columns.label,
            names.len()
        );
        return Err(DataError::unusable(&table.train, None, reason));
    }
    let mut label_of = vec![0u16; names.len()];
    names.iter().enumerate().for_each(|(label, (_, place))| label_of[*place as usize] = label as u16);
    let by_name: HashMap<&str, u16> =
        names.iter().enumerate().map(|(label, (name, _))| (name.as_str(), label as u16)).collect();
    let train = train.split(&label_of, columns.text);
    let (mut train, mut test) = match &table.test {
        Some(path) => {
            let rows = read_rows(format, path, &columns, skipped)?;
            let labels = rows.classes.all.iter().zip(&rows.classes.lines).map(|(name, &line)| {
                let reason = || format!("label '{name}' has no samples in {}", table.train.display());
                let label = by_name.get(name.as_str()).copied();
                label.ok_or_else(|| DataError::unusable(path, Some(line), reason()))
            });
            let labels: Vec<u16> = labels.collect::<Result<_, _>>()?;
            (train, rows.split(&labels, columns.text))
        }
        None => {
            let held = hold_out(&train.labels, table.test_fraction.unwrap_or_default());
            train.divide(&held)
        }
    };
    let width = columns.inputs.len();
    let normalisation = standardise(&mut train, &mut test, width);
    Ok(Dataset {
        name: format.name().to_string(),
        classes: names.into_iter().map(|(name, _)| name).collect(),
        shape: if columns.text { Shape::Text } else { Shape::Numbers(width) },
        train,
        test,
        normalisation,
    })
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

/// The columns to read, from the names and the first row of the training file.
fn choose(format: TableFormat, table: &TableSource) -> Result<Columns, DataError> {
    let (names, first) = head(format, &table.train)?;
    let wrong = |reason: String| DataError::unusable(&table.train, Some(1), reason);
    let need = |name: &str, what: &str| {
        if names.iter().any(|known| known == name) {
            return Ok(name.to_string());
        }
        Err(wrong(format!("there is no column '{name}' for {what}; the columns are {}", names.join(", "))))
    };
    let label = need(&table.label, "data.label")?;
    let key = table.key.as_deref().map(|key| need(key, "data.key")).transpose()?;
    let text = match (&table.text, &table.features) {
        (Some(text), _) => Some(need(text, "data.text")?),
        (None, None) if label != "text" && names.iter().any(|name| name == "text") => Some("text".to_string()),
        _ => None,
    };
    let inputs = match (&text, &table.features) {
        (Some(text), _) => vec![text.clone()],
        (None, Some(features)) => features.iter().map(|name| need(name, "data.features")).collect::<Result<_, _>>()?,
        (None, None) => {
            let own = |name: &String| *name != label && Some(name) != key.as_ref();
            names
                .iter()
                .zip(&first)
                .filter(|(name, number)| own(name) && **number)
                .map(|(name, _)| name.clone())
                .collect()
        }
    };
    if inputs.is_empty() {
        return Err(wrong("there is no numeric column to learn from, and no data.text".to_string()));
    }
    Ok(Columns { label, key, inputs, text: text.is_some() })
}

/// The names of the columns, and whether each has a number in the first row.
fn head(format: TableFormat, path: &Path) -> Result<(Vec<String>, Vec<bool>), DataError> {
    let empty = || DataError::unusable(path, None, "the file has no rows");
    match format {
        TableFormat::Csv => {
            let mut file = CsvFile::open(path)?;
            let names = file.header()?;
            let mut record = ByteRecord::new();
            if file.next(&mut record)?.is_none() {
                return Err(empty());
            }
            let number = |field: Option<&[u8]>| {
                field.and_then(|field| std::str::from_utf8(field).ok()?.trim().parse::<f64>().ok()).is_some()
            };
            let numbers = (0..names.len()).map(|i| number(record.get(i))).collect();
            Ok((names, numbers))
        }
        TableFormat::Jsonl => {
            let mut found = None;
            files::lines(path, |line, text| {
                found = Some(object(text).map_err(|reason| DataError::unusable(path, Some(line), reason))?);
                Ok(false)
            })?;
            let object = found.ok_or_else(empty)?;
            Ok(object.iter().map(|(name, value)| (name.clone(), value.is_number())).unzip())
        }
    }
}

/// Gives every column mean 0 and standard deviation 1 over the training rows. A constant column becomes 0.
fn standardise(train: &mut Split, test: &mut Split, width: usize) -> Normalisation {
    let Inputs::Floats(values) = &train.inputs else { return Normalisation::default() };
    let rows = (values.len() / width.max(1)).max(1) as f64;
    let mut mean = vec![0.0f64; width];
    let mut square = vec![0.0f64; width];
    for row in values.chunks_exact(width) {
        row.iter().zip(&mut mean).for_each(|(&value, sum)| *sum += f64::from(value));
    }
    mean.iter_mut().for_each(|sum| *sum /= rows);
    for row in values.chunks_exact(width) {
        for ((&value, mean), sum) in row.iter().zip(&mean).zip(&mut square) {
            let difference = f64::from(value) - mean;
            *sum += difference * difference;
        }
    }
    let std = square.iter().map(|sum| population_deviation(sum / rows));
    let std: Vec<f64> = std.map(|std| if std > 0.0 { std } else { 1.0 }).collect();
    for split in [train, test] {
        let Inputs::Floats(values) = &mut split.inputs else { continue };
        for row in values.chunks_exact_mut(width) {
            for ((value, mean), std) in row.iter_mut().zip(&mean).zip(&std) {
                *value = ((f64::from(*value) - mean) / std) as f32;
            }
        }
    }
    let single = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
    Normalisation { mean: single(mean), std: single(std) }
}

#[cfg(test)]
mod tests;
