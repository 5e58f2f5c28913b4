//! Which column of a table may be the label, for a configuration that does not exist yet.

use super::files::TableFile;
use super::rows::names;
use super::survey::{contents, words};
use super::{TableFormat, TableSource};
use crate::error::DataError;

/// What label columns are called, the likeliest first.
const LABELS: [&str; 14] = [
    "label",
    "labels",
    "class",
    "classes",
    "target",
    "y",
    "outcome",
    "diagnosis",
    "species",
    "category",
    "sentiment",
    "response",
    "result",
    "quality",
];

/// A column that may be the label, and what speaks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelGuess {
    pub column: String,
    /// A clause.
    pub reason: &'static str,
}

impl TableSource {
    /// The column that is likeliest to be the label, if any looks like one: by its name, or as the last, the first or the
    /// only column with few different values. A column that the configuration uses for something else is none.
    pub fn guess_label(&self, format: TableFormat) -> Result<Option<LabelGuess>, DataError> {
        let files = self.train.list(format, self)?;
        let Some(first) = files.first() else { return Ok(None) };
        let all = names(format, &first.path)?;
        let taken = |name: &&String| {
            let features = self.features.iter().flatten();
            let named = features.chain(&self.categories).chain(&self.ignore).chain(&self.key).chain(&self.text);
            named.into_iter().all(|other| other != *name)
        };
        let columns: Vec<&String> = all.iter().filter(taken).collect();
        let held = contents(format, &[TableFile::alone(&first.path)], &columns)?;
        let fit: Vec<&String> =
            columns.iter().zip(&held).filter(|(_, held)| held.may_be_label()).map(|(name, _)| *name).collect();
        let guess = |column: &String, reason| Some(LabelGuess { column: column.clone(), reason });
        if let Some(name) = by_name(&fit) {
            return Ok(guess(name, "its name says so"));
        }
        let [last, first] = [columns.last(), columns.first()].map(|name| name.filter(|name| fit.contains(name)));
        Ok(match (last, first, &fit[..]) {
            (Some(name), ..) => guess(name, "it is the last column, with few different values"),
            (None, Some(name), _) => guess(name, "it is the first column, with few different values"),
            (None, None, [name]) => guess(name, "it is the only column with few different values"),
            _ => None,
        })
    }
}

/// The first column that is called like a label: by its whole name, or by its last word.
fn by_name<'a>(columns: &[&'a String]) -> Option<&'a String> {
    let find = |fits: &dyn Fn(&[String], &str) -> bool| {
        LABELS.iter().find_map(|label| columns.iter().find(|name| fits(&words(name), label)).copied())
    };
    let whole = find(&|words, label| words.concat() == label);
    // A single letter at the end of a name says little.
    whole.or_else(|| find(&|words, label| label.len() > 1 && words.last().is_some_and(|last| last == label)))
}
