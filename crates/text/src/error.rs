//! What can go wrong with a tokenizer.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file is not a tokenizer.
    #[error("{}: not a tokenizer ({reason})", path.display())]
    NotATokenizer { reason: String, path: PathBuf },
    /// A token ID is outside the model's vocabulary.
    #[error("{}: token {token:?} has ID {id}, but the model has {vocabulary} tokens (vocab_size in {})",
        path.display(), config.display())]
    OutsideVocabulary {
        token: String,
        id: u32,
        vocabulary: usize,
        path: PathBuf,
        /// The file with the vocabulary's size.
        config: PathBuf,
    },
    /// There is no room for a text between the special tokens.
    #[error("{}: a limit of {max_length} tokens leaves no room besides {special} special tokens", path.display())]
    TooShort { max_length: usize, special: usize, path: PathBuf },
    /// A text could not be tokenised.
    #[error("{}: text {text} cannot be tokenised ({reason})", path.display())]
    Text { text: usize, reason: String, path: PathBuf },
}
