//! Rows without labels, for a model to read.

use std::path::Path;

use super::TableFormat;
use super::files::TableFile;
use super::form::TableForm;
use super::rows::{Wanted, names, read_rows};
use crate::error::DataError;
use crate::skipped::Skipped;

/// Rows as a model reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct UnlabelledRows {
    /// The line of each row.
    pub lines: Vec<u64>,
    /// The numbers of all rows, scaled.
    pub numbers: Vec<f32>,
    /// What a user may not expect, such as unknown categories.
    pub notes: Vec<String>,
}

/// The rows of a file in the form of a trained model: JSON Lines if its name ends in `.jsonl`, otherwise CSV. Columns are
/// matched by name. Unusable rows are rejected or skipped, depending on `skipped`.
pub fn unlabelled(
    path: &Path,
    form: &TableForm,
    ignore: &[String],
    skipped: &mut Skipped,
) -> Result<UnlabelledRows, DataError> {
    let json = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("jsonl"));
    let format = if json { TableFormat::Jsonl } else { TableFormat::Csv };
    form.accepts(path, &names(format, path)?, ignore)?;
    let files = [TableFile::alone(path)];
    let mut rows = read_rows(format, &files, Wanted { label: None, key: None, form }, skipped)?;
    form.scale(&mut rows.numbers);
    let notes = rows.notes(&files);
    Ok(UnlabelledRows { lines: rows.lines, numbers: rows.numbers, notes })
}
