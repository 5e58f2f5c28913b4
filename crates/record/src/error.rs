//! What can go wrong with the files of a run.

use std::io;
use std::path::{Path, PathBuf};

/// An error, with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The run folder already exists.
    #[error("{} already exists; choose another folder or remove it", path.display())]
    Exists { path: PathBuf },
    /// Files cannot be created in the run folder.
    #[error("{}: cannot write here: {source}", path.display())]
    Unwritable { source: io::Error, path: PathBuf },
    /// Reading or writing failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io { action: &'static str, source: io::Error, path: PathBuf },
    /// The file is empty or its first line is incomplete.
    #[error(
        "{}: no header: the file is empty or its first line is incomplete; 'fedelity resume' on the run's folder starts the run over",
        path.display()
    )]
    NoHeader { path: PathBuf },
    /// The first line cannot be read.
    #[error(
        "{}: its first line, which describes the run, is damaged ({reason}); 'fedelity resume' on the run's folder writes it again",
        path.display()
    )]
    Header { reason: String, path: PathBuf },
    /// The file is longer than any record.
    #[error("{}: it has more than {most} GB", path.display())]
    Long { most: u64, path: PathBuf },
    /// The file is of another kind.
    #[error("{}: not a file of this kind: expected format '{expected}', found '{found}'", path.display())]
    Format { expected: &'static str, found: String, path: PathBuf },
    /// The file has an unknown version.
    #[error("{}: unknown format version {found}; this program reads version {expected}", path.display())]
    Version { expected: u32, found: u64, path: PathBuf },
    /// A number that no run has.
    #[error("{}: {what} {found}: no data set has more than {most}", path.display())]
    Count { what: &'static str, found: u64, most: u64, path: PathBuf },
    /// A line cannot be read.
    #[error("{}: line {line}: {reason}", path.display())]
    Line { line: usize, reason: String, path: PathBuf },
}

impl RecordError {
    /// An error in a file's JSON.
    pub(crate) fn json(error: &serde_json::Error, path: &Path) -> Self {
        Self::Line { line: error.line().max(1), reason: error.to_string(), path: path.to_path_buf() }
    }

    /// For `map_err` after a call that touches a file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, source, path }
    }
}
