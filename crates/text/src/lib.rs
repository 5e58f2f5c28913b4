//! Texts to token IDs: by a tokenizer that came with a model, or by a vocabulary of words.

mod error;
mod tokenizer;
mod tokens;
mod vocabulary;

pub use error::TextError;
pub use tokenizer::Tokenizer;
pub use tokens::TokenIds;
pub use vocabulary::{PAD, START, UNKNOWN, Vocabulary};
