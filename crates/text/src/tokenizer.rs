//! A tokenizer.json, as shipped with a model.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::tokenizer::PostProcessor;
use tokenizers::{TruncationDirection, TruncationParams, TruncationStrategy};

use crate::error::TextError;
use crate::tokens::TokenIds;

/// Turns texts into the tokens of a pretrained model.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    vocabulary: usize,
    /// The file with the vocabulary's size.
    config: PathBuf,
    path: PathBuf,
}

impl Tokenizer {
    /// Reads a tokenizer and truncates texts to `max_length` tokens, including special ones. All token IDs must be
    /// below `vocabulary`, which is given in the file `config`.
    ///
    /// # Errors
    /// When the file is not a tokenizer or does not fit the vocabulary.
    pub fn open(path: &Path, vocabulary: usize, config: &Path, max_length: usize) -> Result<Self, TextError> {
        let bad = |reason: String| TextError::NotATokenizer { reason, path: path.to_owned() };
        let json = fedelity_files::read_text(path, fedelity_files::LISTING).map_err(|e| bad(e.to_string()))?;
        Self::new(&json, path, vocabulary, config, max_length)
    }

    /// As [`Tokenizer::open`], from the text of a tokenizer.json embedded in the file `path`.
    ///
    /// # Errors
    /// When the text is not a tokenizer or does not fit the vocabulary.
    pub fn parse(json: &str, vocabulary: usize, path: &Path, max_length: usize) -> Result<Self, TextError> {
        Self::new(json, path, vocabulary, path, max_length)
    }

    fn new(json: &str, path: &Path, vocabulary: usize, config: &Path, max_length: usize) -> Result<Self, TextError> {
        let bad = |reason: String| TextError::NotATokenizer { reason, path: path.to_owned() };
        // The tokenizers crate panics at some places that are not JSON, and where a template does not fit.
        let parts: Value = serde_json::from_str(json).map_err(|e| bad(e.to_string()))?;
        templates(&parts["post_processor"]).map_err(bad)?;
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|e| bad(e.to_string()))?;
        // The highest ID, ties by name, so that the message is always the same.
        let highest = inner.get_vocab(true).into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
        if let Some((token, id)) = highest.filter(|(_, id)| *id as usize >= vocabulary) {
            let (path, config) = (path.to_owned(), config.to_owned());
            return Err(TextError::OutsideVocabulary { token, id, vocabulary, path, config });
        }
        let special = inner.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        if special == 0 {
            let reason = "its post_processor adds no token before a text, but the classifier reads the first token";
            return Err(bad(reason.to_owned()));
        }
        if max_length <= special {
            return Err(TextError::TooShort { max_length, special, path: path.to_owned() });
        }
        // The file's padding and length settings are ignored: the engine needs neither padding nor a fixed length.
        inner.with_padding(None);
        let truncation = TruncationParams {
            max_length,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: TruncationDirection::Right,
        };
        inner.with_truncation(Some(truncation)).map_err(|e| bad(e.to_string()))?;
        let new = Self { inner, vocabulary, config: config.to_owned(), path: path.to_owned() };
        // The post-processor has IDs of its own for the special tokens, which need not be those of the vocabulary.
        new.encode(&[String::new()])?;
        Ok(new)
    }

    /// The tokens of each text, including the special ones around them.
    ///
    /// # Errors
    /// When a text cannot be tokenised, has no tokens, or one outside the vocabulary.
    pub fn encode(&self, texts: &[String]) -> Result<TokenIds, TextError> {
        let mut tokens = TokenIds::default();
        for (i, text) in texts.iter().enumerate() {
            let bad = |reason: String| TextError::Text { text: i, reason, path: self.path.clone() };
            let encoded = self.inner.encode_fast(text.as_str(), true).map_err(|e| bad(e.to_string()))?;
            if encoded.get_ids().is_empty() {
                return Err(bad("the text has no tokens, and the tokenizer adds none".to_owned()));
            }
            let outside = |(_, id): &(usize, &u32)| **id as usize >= self.vocabulary;
            if let Some((at, &id)) = encoded.get_ids().iter().enumerate().find(outside) {
                let token = encoded.get_tokens().get(at).cloned().unwrap_or_default();
                let (vocabulary, path, config) = (self.vocabulary, self.path.clone(), self.config.clone());
                return Err(TextError::OutsideVocabulary { token, id, vocabulary, path, config });
            }
            tokens.push(encoded.get_ids().iter().copied());
        }
        Ok(tokens)
    }
}

/// Checks the templates of a post-processor: the special tokens must be described, and one text has no second part.
fn templates(processor: &Value) -> Result<(), String> {
    if let Some(inner) = processor["processors"].as_array() {
        return inner.iter().try_for_each(templates);
    }
    let known = |id: &Value| id.as_str().is_some_and(|id| !processor["special_tokens"][id].is_null());
    for piece in processor["single"].as_array().into_iter().flatten() {
        if let Some(token) = piece.get("SpecialToken").filter(|token| !known(&token["id"])) {
            return Err(format!("its post_processor has no special token {}", token["id"]));
        }
        if piece.get("Sequence").is_some_and(|part| part["id"] != "A") {
            return Err("its post_processor expects two texts".to_owned());
        }
    }
    Ok(())
}
