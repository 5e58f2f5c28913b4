//! Which columns of a table may be the label and the site, for a configuration that does not exist yet.

use super::files::TableFile;
use super::rows::names;
use super::survey::{Contents, contents, words};
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

/// What columns are called that say where a row comes from.
const SITES: [&str; 10] =
    ["site", "hospital", "clinic", "centre", "center", "institution", "client", "user", "writer", "device"];

/// Columns that may have a meaning of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableGuess {
    pub label: Option<ColumnGuess>,
    /// Where a row comes from.
    pub key: Option<ColumnGuess>,
}

/// A column, and what speaks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnGuess {
    pub column: String,
    /// A clause.
    pub reason: &'static str,
}

impl TableSource {
    /// The column that is likeliest to be the label, by its name, or as the last, the first or the only column with few
    /// different values; and the one that is called like a site. Columns that the configuration uses for something else are
    /// neither.
    pub fn guess(&self, format: TableFormat) -> Result<TableGuess, DataError> {
        let files = self.train.list(format, self)?;
        let Some(first) = files.first() else { return Ok(TableGuess::default()) };
        let all = names(format, &first.path)?;
        let free = |name: &&String| {
            let features = self.features.iter().flatten();
            let mut named = features.chain(&self.categories).chain(&self.ignore).chain(&self.key).chain(&self.text);
            named.all(|other| other != *name)
        };
        let columns: Vec<&String> = all.iter().filter(free).collect();
        let held = contents(format, &[TableFile::alone(&first.path)], &columns)?;
        let with = |fits: fn(&Contents) -> bool| -> Vec<&String> {
            columns.iter().zip(&held).filter(|(_, held)| fits(held)).map(|(name, _)| *name).collect()
        };
        let guess = |column: &String, reason| ColumnGuess { column: column.clone(), reason };
        let by_name = |name: &String| guess(name, "its name says so");
        let lone = files.len() == 1 && self.key.is_none();
        let site = called(&SITES, &with(Contents::may_be_site)).filter(|_| lone);
        let fit: Vec<&String> = with(Contents::may_be_label).into_iter().filter(|name| Some(*name) != site).collect();
        let [last, first] = [columns.last(), columns.first()].map(|name| name.filter(|name| fit.contains(name)));
        let label = match (called(&LABELS, &fit), last, first, &fit[..]) {
            (Some(name), ..) => Some(by_name(name)),
            (None, Some(name), ..) => Some(guess(name, "it is the last column, with few different values")),
            (None, None, Some(name), _) => Some(guess(name, "it is the first column, with few different values")),
            (None, None, None, [name]) => Some(guess(name, "it is the only column with few different values")),
            (None, None, None, _) => None,
        };
        Ok(TableGuess { label, key: site.map(by_name) })
    }
}

/// The first column that has one of these names: as a whole, or as its last word before words such as `id`.
fn called<'a>(known: &[&str], columns: &[&'a String]) -> Option<&'a String> {
    let find = |fits: &dyn Fn(&[String], &str) -> bool| {
        known.iter().find_map(|word| columns.iter().find(|name| fits(&words(name), word)).copied())
    };
    let last = |words: &[String]| words.iter().rfind(|word| !["id", "name", "code", "no"].contains(&&***word)).cloned();
    let whole = find(&|words, known| words.concat() == known);
    // A single letter at the end of a name says little.
    whole.or_else(|| find(&|words, known| known.len() > 1 && last(words).is_some_and(|word| word == known)))
}
