//! What can go wrong with the files of a run.

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run folder is there already.
    #[error("{} exists already; choose another folder or remove it", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// Files cannot be made in the run folder.
    #[error("{}: cannot write here: {source}", path.display())]
    Unwritable {
        /// What the system said.
        source: io::Error,
        /// The folder.
        path: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// The file is empty or its first line is cut.
    #[error("{}: no header: the file is empty or its first line is not complete", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// The file is of another kind.
    #[error("{}: not a file of this kind: expected format '{expected}', found '{found}'", path.display())]
    Format {
        /// The format that is read.
        expected: &'static str,
        /// The format that the file names.
        found: String,
        /// The file.
        path: PathBuf,
    },
    /// The file is of a version that is not known.
    #[error("{}: version {found} of the format is not known; this program reads version {expected}", path.display())]
    Version {
        /// The version that is read.
        expected: u32,
        /// The version that the file names.
        found: u64,
        /// The file.
        path: PathBuf,
    },
    /// A line cannot be read.
    #[error("{}: line {line}: {reason}", path.display())]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// For `map_err` after a call that touches a file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, source, path }
    }
}
