//! Texts to token IDs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tokenizer;
