//! Errors of this crate.

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A folder that was searched, and the files it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedFolder {
    pub folder: PathBuf,
    pub exists: bool,
    /// Names of the missing files.
    pub missing: Vec<String>,
}

impl fmt::Display for SearchedFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exists {
            write!(f, "{} (lacks {})", self.folder.display(), self.missing.join(", "))
        } else {
            write!(f, "{} (no such folder)", self.folder.display())
        }
    }
}

fn join(places: &[SearchedFolder]) -> String {
    let shown: Vec<String> = places.iter().map(SearchedFolder::to_string).collect();
    shown.join("; ")
}

/// A path, quoted for use in a command.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/\\.:_-+,@=".contains(c);
    // Between double quotes, a shell of Unix still replaces these.
    let replaced = |c: char| "$`\"\\!".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else if cfg!(unix) && text.contains(replaced) {
        format!("'{}'", text.replace('\'', r"'\''"))
    } else {
        format!("\"{text}\"")
    }
}

/// A file, with the line if there is one.
fn at(path: &Path, line: Option<u64>) -> String {
    line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
}

/// An error, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    // The catalogue.
    #[error("unknown data set '{name}': expected one of {}", known.join(", "))]
    UnknownDataset { name: String, known: &'static [&'static str] },
    /// The data set is read from a folder, and none was given.
    #[error("data set '{dataset}' is read from a folder, and none is given")]
    NoFolder { dataset: &'static str },
    /// The files of a data set are in none of the folders searched.
    #[error(
        "data set '{dataset}': files not found; looked in {}; 'fedelity data fetch {dataset} --data-dir {}' puts them \
         there, and --data-dir, FEDELITY_DATA or data.dir names another folder",
        join(places),
        quoted(dir)
    )]
    Missing { dataset: &'static str, dir: PathBuf, places: Vec<SearchedFolder> },

    // Data files.
    /// A file could not be opened, read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, source: io::Error, path: PathBuf },
    /// The path names something that is not a regular file.
    #[error("{}: expected a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: truncated at byte {offset}: expected {expected} bytes, found {found}", path.display())]
    Truncated { offset: u64, expected: u64, found: u64, path: PathBuf },
    /// There are bytes after the content.
    #[error("{}: trailing bytes from byte {offset}: expected {expected} bytes, found {}", path.display(), found.map_or("more".to_string(), |n| n.to_string()))]
    Trailing { offset: u64, expected: u64, found: Option<u64>, path: PathBuf },
    /// The file does not start with the magic number of its format.
    #[error("{}: wrong magic number at byte 0: expected {expected:#010x}, found {found:#010x}", path.display())]
    Magic { expected: u32, found: u32, path: PathBuf },
    /// A number in the header cannot be right.
    #[error("{}: {field} at byte {offset}: expected {expected}, found {found}", path.display())]
    Header { field: &'static str, offset: u64, expected: String, found: u64, path: PathBuf },
    /// A label is not one of the classes.
    #[error(
        "{}: label at byte {offset}: expected {first} to {}, found {label}",
        path.display(), (usize::from(*first) + classes).saturating_sub(1)
    )]
    Label { offset: u64, label: u16, first: u16, classes: usize, path: PathBuf },
    /// The compressed stream is damaged.
    #[error("{}: damaged gzip stream after byte {offset} of its content: {reason}", path.display())]
    Gzip { offset: u64, reason: String, path: PathBuf },
    /// Images and labels do not belong together.
    #[error("{} has {images} images (byte 4) but {} has {labels} labels (byte 4)", images_path.display(), labels_path.display())]
    Counts { images: u64, labels: u64, images_path: PathBuf, labels_path: PathBuf },
    /// A file of class names has the wrong number of names.
    #[error("{}: expected {expected} class names, one per line, found {found}", path.display())]
    ClassNames { expected: usize, found: usize, path: PathBuf },

    /// A sample is unusable. It may be skipped if the reader allows it.
    #[error("{}: {reason}; --skip-bad, or data.skip-bad = true, skips what cannot be used, and counts it", at(path, *line))]
    Bad { path: PathBuf, line: Option<u64>, reason: String },
    /// A file or folder is invalid.
    #[error("{}: {reason}", at(path, *line))]
    Unusable { path: PathBuf, line: Option<u64>, reason: String },

    // Partitions.
    /// The data set does not say where its samples come from.
    #[error("data set '{dataset}' has no natural keys: a natural partition needs data with data.key or data.layout")]
    NoKeys { dataset: String },
    /// A parameter of a partition is out of range.
    #[error("partition parameter {parameter} = {value}: expected {allowed}")]
    Parameter { parameter: &'static str, value: String, allowed: String },
    /// A label is not below the number of classes.
    #[error("label {label} of sample {index} is out of range: expected below {classes}")]
    LabelRange { index: usize, label: u16, classes: usize },
    /// A client holds a sample that does not exist.
    #[error("client {client} holds sample {index}, but there are only {samples} samples")]
    SampleRange { client: usize, index: u32, samples: usize },

    /// The server took all samples.
    #[error("none of the {samples} training samples is left for clients")]
    NothingLeft { samples: usize },
    /// The server took all samples of a client.
    #[error("client {client} is left with no samples")]
    NothingKept { client: usize },

    // Partition files.
    /// The file exists and may not be replaced.
    #[error("{} already exists and is not overwritten", path.display())]
    Exists { path: PathBuf },
    /// The file is not JSON of the right form.
    #[error("{}: not a partition file: {reason}", path.display())]
    Json { reason: String, path: PathBuf },
    /// The file is of another format or version.
    #[error("{}: {field}: expected {expected}, found {found}", path.display())]
    PartitionHeader { field: &'static str, expected: String, found: String, path: PathBuf },
    #[error("{}: client {client} has no samples", path.display())]
    EmptyClient { client: usize, path: PathBuf },
    /// A client has a sample that does not exist.
    #[error("{}: client {client} has index {index}, but there are only {samples} samples", path.display())]
    IndexRange { client: usize, index: u32, samples: usize, path: PathBuf },
    /// A sample is assigned twice.
    #[error("{}: client {client} has index {index}, which client {owner} already has", path.display())]
    DuplicateIndex { client: usize, index: u32, owner: usize, path: PathBuf },
    /// The partition was made for other labels.
    #[error(
        "{}: made for other data ('{dataset}', {samples} samples, labels {expected}); the labels \
         given are {found_samples} samples, {found}", path.display()
    )]
    OtherData { dataset: String, samples: usize, expected: String, found_samples: usize, found: String, path: PathBuf },
}

impl DataError {
    /// Turns a failed file operation into an error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { action, source, path: path.to_path_buf() }
    }

    /// Whether the expected number of bytes was found; `total` is the length of the whole file, if known.
    pub(crate) fn length(path: &Path, expected: u64, found: u64, total: Option<u64>) -> Result<(), Self> {
        let path = path.to_path_buf();
        match found.cmp(&expected) {
            Ordering::Less => Err(Self::Truncated { offset: found, expected, found, path }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(Self::Trailing { offset: expected, expected, found: total, path }),
        }
    }

    pub(crate) fn unusable(path: &Path, line: Option<u64>, reason: impl Into<String>) -> Self {
        Self::Unusable { path: path.to_path_buf(), line, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_path_can_be_pasted_into_a_shell() {
        let shown = |path| quoted(Path::new(path));
        assert_eq!(shown("runs/a-1.toml"), "runs/a-1.toml");
        assert_eq!(shown("my runs"), "\"my runs\"");
        assert_eq!(shown("a $(touch b) `c`"), "'a $(touch b) `c`'");
        assert_eq!(shown("it's $1"), r"'it'\''s $1'");
    }
}
