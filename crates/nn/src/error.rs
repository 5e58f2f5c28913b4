//! What can go wrong with a model.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is not in the zoo.
    #[error("there is no model {name:?}; the models are {known}")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The model does not take inputs of this shape.
    #[error("model {model:?} does not fit the data: {reason}")]
    DoesNotFit {
        /// The model.
        model: String,
        /// The layer and the shape that do not go together.
        reason: String,
    },
    /// A model file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The operating system's reason.
        source: std::io::Error,
        /// The file.
        path: PathBuf,
    },
    /// A model file is not what it should be.
    #[error("{}: {reason}", path.display())]
    BadFile {
        /// What is wrong with it.
        reason: String,
        /// The file.
        path: PathBuf,
    },
}
