//! How the rows of a table become the inputs of a model: which columns are read, in which order, and as what.

use std::collections::HashSet;
use std::path::Path;

use crate::dataset::Normalisation;
use crate::error::DataError;

/// A column that a model reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub kind: ColumnKind,
}

/// What the values of a column are.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnKind {
    /// A number, stored as `(number - mean) / std` with the mean and standard deviation of the training rows.
    Number { mean: f64, std: f64 },
    /// One number per category: 1 for the row's own, 0 for the others. All are 0 if the field is empty or its category
    /// does not occur in the training rows.
    Categories(Vec<String>),
}

impl Column {
    /// How many numbers of a row come from this column.
    pub fn width(&self) -> usize {
        match &self.kind {
            ColumnKind::Number { .. } => 1,
            ColumnKind::Categories(names) => names.len(),
        }
    }
}

/// What is read from a table. It is found from the training rows and travels with the model, so that other rows are read
/// in the same way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableForm {
    /// The column with the label.
    pub label: String,
    /// The column with the text. If there is one, nothing else is read.
    pub text: Option<String>,
    /// The columns of a row, in the order of its numbers.
    pub columns: Vec<Column>,
    /// Columns that are known but not read: where a row comes from, and what is left out.
    pub others: Vec<String>,
    /// Columns of numbers with one value in all training rows.
    pub constant: Vec<String>,
    /// What a user may not expect: columns that are left out, say nothing or look like identifiers.
    pub notes: Vec<String>,
}

impl TableForm {
    /// Numbers per row.
    pub fn width(&self) -> usize {
        self.columns.iter().map(Column::width).sum()
    }

    /// The names of the columns that are read.
    pub(super) fn inputs(&self) -> Vec<&String> {
        self.text.iter().chain(self.columns.iter().map(|column| &column.name)).collect()
    }

    /// Mean and standard deviation of each number of a row; 0 and 1 for categories.
    pub(super) fn scales(&self) -> Vec<(f64, f64)> {
        let scale = |column: &Column| match column.kind {
            ColumnKind::Number { mean, std } => (mean, std),
            ColumnKind::Categories(_) => (0.0, 1.0),
        };
        self.columns.iter().flat_map(|column| vec![scale(column); column.width()]).collect()
    }

    /// The same in single precision.
    pub fn normalisation(&self) -> Normalisation {
        let (mean, std) = self.scales().into_iter().map(|(mean, std)| (mean as f32, std as f32)).unzip();
        Normalisation { mean, std }
    }

    /// Scales rows of numbers in place.
    pub(super) fn scale(&self, values: &mut [f32]) {
        let scales = self.scales();
        for row in values.chunks_exact_mut(scales.len().max(1)) {
            for (value, (mean, std)) in row.iter_mut().zip(&scales) {
                *value = ((f64::from(*value) - mean) / std) as f32;
            }
        }
    }

    /// Whether a file with these columns can be read: it needs all that the model reads, and no others than those it
    /// knows and those to ignore.
    pub(super) fn accepts(&self, path: &Path, names: &[String], ignore: &[String]) -> Result<(), DataError> {
        let inputs = self.inputs();
        let read = || listed(inputs.iter().copied());
        let found: HashSet<&String> = names.iter().collect();
        let missing: Vec<&String> = inputs.iter().copied().filter(|name| !found.contains(name)).collect();
        if !missing.is_empty() {
            let none = if missing.len() == 1 { "there is no column" } else { "there are no columns" };
            let reason = format!(
                "{none} {}: the model reads {}; the columns of the file are {}",
                listed(missing.into_iter()),
                read(),
                listed(names.iter())
            );
            return Err(DataError::unusable(path, Some(1), reason));
        }
        let known: HashSet<&String> =
            inputs.iter().copied().chain([&self.label]).chain(&self.others).chain(ignore).collect();
        // A model of texts reads one column, whatever the others are.
        let is_unknown = |name: &&String| self.text.is_none() && !known.contains(name);
        let unknown: Vec<&String> = names.iter().filter(is_unknown).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let (columns, leave) = if unknown.len() == 1 { ("column", "leaves it") } else { ("columns", "leave them") };
        let options: Vec<String> = unknown.iter().map(|name| format!("--ignore '{name}'")).collect();
        let reason = format!(
            "the model does not know the {columns} {}: it reads {}; {}, or data.ignore = {unknown:?}, {leave} out",
            listed(unknown.iter().copied()),
            read(),
            options.join(" ")
        );
        Err(DataError::unusable(path, Some(1), reason))
    }
}

/// Names in quotes.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
