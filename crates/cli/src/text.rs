//! Texts for a text model: the tokens, and the model that reads them.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use fedelity_data::{Dataset, Inputs, Split, Tokens};
use fedelity_nn::{Card, EncoderShape, Input, InputShape, Isa, Model, ModelSpec, Pretrained, Reading, encoder, zoo};
use fedelity_text::{Tokenizer, Vocabulary};

use crate::config::{Document, TextModel};

/// A model, and how its texts become tokens.
pub(crate) struct Prepared {
    pub(crate) model: Model,
    /// The sizes, if it is an encoder.
    pub(crate) encoder: Option<EncoderShape>,
    pub(crate) reading: Reading,
}

/// Turns texts into tokens.
pub(crate) enum Reader {
    Tokenizer(Box<Tokenizer>),
    Words { vocabulary: Vocabulary, max_length: usize },
}

impl Reader {
    /// The one that the model of a file was trained with.
    pub(crate) fn of(card: &Card, path: &Path) -> Result<Self> {
        let Input::Tokens { vocabulary, max_length } = card.input else {
            bail!("{}: it reads no texts", path.display())
        };
        match &card.reading {
            Some(Reading::Tokenizer(json)) => {
                Ok(Self::Tokenizer(Box::new(Tokenizer::parse(json, vocabulary, path, max_length)?)))
            }
            Some(Reading::Words(words)) => {
                let vocabulary = Vocabulary::from_words(words.clone());
                let vocabulary =
                    vocabulary.ok_or_else(|| anyhow!("{}: its words are no vocabulary", path.display()))?;
                Ok(Self::Words { vocabulary, max_length })
            }
            _ => bail!("{}: it does not say how texts become tokens", path.display()),
        }
    }

    pub(crate) fn encode(&self, texts: &[String]) -> Result<Tokens> {
        let tokens = match self {
            Self::Tokenizer(tokenizer) => tokenizer.encode(texts)?,
            Self::Words { vocabulary, max_length } => vocabulary.encode(texts, *max_length),
        };
        Ok(Tokens { ids: tokens.ids, starts: tokens.starts })
    }

    /// Turns the texts of a split into tokens.
    pub(crate) fn tokenise(&self, split: &mut Split) -> Result<()> {
        split.inputs = Inputs::Tokens(self.encode(texts(split)?)?);
        Ok(())
    }
}

/// Turns the texts of both splits into tokens and builds the model for them.
pub(crate) fn prepare(
    document: &Document,
    spec: &ModelSpec,
    keys: &TextModel,
    dataset: &mut Dataset,
    isa: Isa,
) -> Result<Prepared> {
    match (&keys.weights, EncoderShape::named(&spec.name)) {
        (Some(folder), Some(usual)) => pretrained(document, spec, keys, folder, &usual, dataset, isa),
        (_, usual) => from_scratch(document, spec, keys, usual, dataset, isa),
    }
}

/// A model from a folder, with its tokenizer.
fn pretrained(
    document: &Document,
    spec: &ModelSpec,
    keys: &TextModel,
    folder: &Path,
    usual: &EncoderShape,
    dataset: &mut Dataset,
    isa: Isa,
) -> Result<Prepared> {
    let wrong = |reason: String| document.error("model.weights", format!("model.weights: {reason}"));
    let found = Pretrained::open(folder).map_err(|error| wrong(error.to_string()))?;
    if found.shape().names != usual.names {
        let (name, file) = (&spec.name, found.config_file());
        return Err(wrong(format!("{}: model_type does not fit model.name = \"{name}\"", file.display())));
    }
    let layers = found.shape().layers;
    if let Some(freeze) = keys.freeze.filter(|&freeze| freeze > layers) {
        let message = format!("model.freeze = {freeze}: expected 0 to {layers}, the layers of {}", folder.display());
        return Err(document.error("model.freeze", message));
    }
    too_long(document, keys, found.shape().positions)?;
    let shape = found.shape().clone();
    let shape = keys.dropout.map_or(shape.clone(), |p| shape.with_dropout(p as f32));
    let input = InputShape::Tokens { vocabulary: found.vocabulary(), max_length: keys.max_length };
    let arch = encoder(&spec.name, &shape, spec.projection, keys.freeze, input, dataset.classes.len());
    let model = Model::compile(&arch, isa).and_then(|model| found.load(model)).map_err(|e| wrong(e.to_string()))?;
    let file = folder.join("tokenizer.json");
    let tokenizer = Tokenizer::open(&file, found.vocabulary(), &found.config_file(), keys.max_length)
        .map_err(|error| wrong(error.to_string()))?;
    let json = std::fs::read_to_string(&file).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
    let reader = Reader::Tokenizer(Box::new(tokenizer));
    for split in [&mut dataset.train, &mut dataset.test] {
        reader.tokenise(split)?;
    }
    Ok(Prepared { model, encoder: Some(shape), reading: Reading::Tokenizer(json) })
}

/// A fresh model on the words of the training texts.
fn from_scratch(
    document: &Document,
    spec: &ModelSpec,
    keys: &TextModel,
    usual: Option<EncoderShape>,
    dataset: &mut Dataset,
    isa: Isa,
) -> Result<Prepared> {
    if let Some(shape) = &usual {
        too_long(document, keys, shape.positions)?;
    }
    // An encoder classifies by the first token, so each text gets one that means nothing by itself.
    let words = texts(&dataset.train)?.iter().map(String::as_str);
    let vocabulary = Vocabulary::build(words, keys.vocabulary, usual.is_some());
    let input = InputShape::Tokens { vocabulary: vocabulary.words().len(), max_length: keys.max_length };
    let classes = dataset.classes.len();
    let shape = usual.map(|shape| keys.dropout.map_or(shape.clone(), |p| shape.with_dropout(p as f32)));
    let arch = match &shape {
        Some(shape) => encoder(&spec.name, shape, spec.projection, None, input, classes),
        None => zoo::build(spec, input, classes)?,
    };
    let model = Model::compile(&arch, isa)?;
    let reading = Reading::Words(vocabulary.words().to_vec());
    let reader = Reader::Words { vocabulary, max_length: keys.max_length };
    for split in [&mut dataset.train, &mut dataset.test] {
        reader.tokenise(split)?;
    }
    Ok(Prepared { model, encoder: shape, reading })
}

fn too_long(document: &Document, keys: &TextModel, positions: usize) -> Result<()> {
    if keys.max_length <= positions {
        return Ok(());
    }
    let message = format!("model.max-length = {}: expected 1 to {positions}, the positions it has", keys.max_length);
    Err(document.error("model.max-length", message))
}

fn texts(split: &Split) -> Result<&[String]> {
    match &split.inputs {
        Inputs::Texts(texts) => Ok(texts),
        _ => Err(anyhow!("the data are not texts")),
    }
}
