//! What can go wrong with a tokenizer.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not a tokenizer.
    #[error("{}: not a tokenizer ({reason})", path.display())]
    NotATokenizer {
        /// Why.
        reason: String,
        /// The file.
        path: PathBuf,
    },
    /// A token's number is outside of the model's vocabulary.
    #[error("{}: token {token:?} has number {id}, but the model knows {vocabulary} tokens (vocab_size of {})",
        path.display(), config.display())]
    OutsideVocabulary {
        /// The token.
        token: String,
        /// Its number.
        id: u32,
        /// Tokens the model knows.
        vocabulary: usize,
        /// The tokenizer's file.
        path: PathBuf,
        /// The file with the vocabulary's size.
        config: PathBuf,
    },
    /// There is no room for a text between the special tokens.
    #[error("{}: at most {max_length} tokens leave no room beside {special} special tokens", path.display())]
    TooShort {
        /// Tokens a text may have.
        max_length: usize,
        /// Special tokens each text gets.
        special: usize,
        /// The tokenizer's file.
        path: PathBuf,
    },
    /// A text could not be tokenised.
    #[error("{}: text {text} cannot be tokenised ({reason})", path.display())]
    Text {
        /// Its number, from 0.
        text: usize,
        /// Why.
        reason: String,
        /// The tokenizer's file.
        path: PathBuf,
    },
}
