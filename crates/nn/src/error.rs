//! Errors of models and model files.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NnError {
    /// The name is not in the zoo.
    #[error("there is no model {name:?}; the models are {known}")]
    UnknownModel { name: String, known: String },
    /// This machine has no such engine.
    #[error("there is no engine {name:?} on this machine; the engines are {known}")]
    UnknownEngine { name: String, known: String },
    /// The model does not accept inputs of this shape.
    #[error("model {model:?} does not fit the data: {reason}")]
    DoesNotFit {
        model: String,
        /// The layer and the shape that do not match.
        reason: String,
    },
    /// A model file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io { source: std::io::Error, path: PathBuf },
    /// The contents of a model file are invalid.
    #[error("{}: {reason}", path.display())]
    BadFile { reason: String, path: PathBuf },
}
