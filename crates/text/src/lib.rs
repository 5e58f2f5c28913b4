//! Texts to numbers of tokens: by a tokenizer that came with a model, or by a vocabulary of words.

mod error;
mod tokenizer;
mod tokens;
mod vocabulary;

pub use error::Error;
pub use tokenizer::Tokenizer;
pub use tokens::Tokens;
pub use vocabulary::{PAD, START, UNKNOWN, Vocabulary};
