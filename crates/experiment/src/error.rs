//! What can go wrong between a configuration and its results.

use std::path::{Path, PathBuf};

use fedelity_data::DataError;
use fedelity_fl::FlError;
use fedelity_nn::NnError;
use fedelity_record::RecordError;
use fedelity_text::TextError;

use crate::incomplete::Incomplete;

/// An error between a configuration and its results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The configuration: the message starts with the file and line, or the option, that gave the value.
    #[error("{0}")]
    Config(String),
    /// A site does not allow what the server asks for.
    #[error("{0}")]
    Policy(String),
    /// A site's data cannot be used under the agreement.
    #[error("{0}")]
    SiteData(String),
    /// An invalid file or folder.
    #[error("{}: {reason}", path.display())]
    Path { path: PathBuf, reason: String },
    #[error("{}: cannot lock the folder: {source}", path.display())]
    Lock { path: PathBuf, source: std::io::Error },
    /// This process seemed dead to another one, which goes on with the run.
    #[error("another process has taken over the run")]
    TakenOver,
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
    /// Some runs of a study stopped because too few uploads counted.
    #[error("{0}")]
    Incomplete(Box<Incomplete>),
    /// The front end stopped the run: its own error, returned after the record was completed.
    #[error(transparent)]
    Stopped(Box<dyn std::error::Error + Send + Sync>),
}

pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

impl ExperimentError {
    /// An error about a file or folder.
    pub fn path(path: &Path, reason: impl Into<String>) -> Self {
        Self::Path { path: path.to_path_buf(), reason: reason.into() }
    }

    /// Whether training diverged: a result, not a mistake.
    pub fn is_divergence(&self) -> bool {
        matches!(self, Self::Federation(error) if error.is_divergence())
    }
}
