//! What can go wrong with a report.

use std::io;
use std::path::PathBuf;

/// What went wrong, with the values involved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No run was found.
    #[error("no run in {paths}{reasons}")]
    NoRun {
        /// Where was looked.
        paths: String,
        /// Why what was there could not be read.
        reasons: String,
    },
    /// The runs cannot be compared.
    #[error("the runs cannot be compared: {what}. --force compares them all the same")]
    Mismatch {
        /// What differs.
        what: String,
    },
    /// There is no such method among the runs.
    #[error("no method '{name}' among the runs: there are {known}")]
    UnknownBaseline {
        /// The name that was asked for.
        name: String,
        /// The methods of the runs.
        known: String,
    },
    /// A file cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// What the system said.
        source: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// A figure cannot be drawn.
    #[error("{figure}: cannot be drawn: {reason}")]
    Figure {
        /// The figure.
        figure: String,
        /// Why.
        reason: String,
    },
}
