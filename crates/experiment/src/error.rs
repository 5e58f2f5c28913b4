//! What can go wrong between a configuration and its results.

use std::path::{Path, PathBuf};

use fedelity_data::DataError;
use fedelity_fl::FlError;
use fedelity_nn::NnError;
use fedelity_record::RecordError;
use fedelity_text::TextError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The configuration: the message starts with the file and line, or the option, that gave the value.
    #[error("{0}")]
    Config(String),
    /// A file or folder that is not what it should be.
    #[error("{}: {reason}", path.display())]
    Path { path: PathBuf, reason: String },
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Federation(#[from] FlError),
    #[error(transparent)]
    Model(#[from] NnError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Text(#[from] TextError),
    /// The front end stopped the run: its own error, after what was recorded has been completed.
    #[error(transparent)]
    Stopped(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

impl ExperimentError {
    /// What is wrong with a file or folder.
    pub fn path(path: &Path, reason: impl Into<String>) -> Self {
        Self::Path { path: path.to_path_buf(), reason: reason.into() }
    }

    /// Whether training left the finite numbers: a result, not a mistake.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Federation(error) if error.is_divergence())
    }
}
