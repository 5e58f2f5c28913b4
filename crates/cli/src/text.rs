//! Texts for a text model: the tokens, and the model that reads them.

use std::path::Path;

use anyhow::{Result, anyhow};
use fedelity_data::{Dataset, Inputs, Split, Tokens};
use fedelity_nn::{EncoderShape, InputShape, Isa, Model, ModelSpec, Pretrained, encoder, zoo};
use fedelity_text::{Tokenizer, Vocabulary};

use crate::config::{Document, TextModel};

/// Turns the texts of both splits into tokens and builds the model for them.
pub(crate) fn prepare(
    document: &Document,
    spec: &ModelSpec,
    keys: &TextModel,
    dataset: &mut Dataset,
    isa: Isa,
) -> Result<Model> {
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
) -> Result<Model> {
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
    for split in [&mut dataset.train, &mut dataset.test] {
        let tokens = tokenizer.encode(texts(split)?)?;
        split.inputs = Inputs::Tokens(Tokens { ids: tokens.ids, starts: tokens.starts });
    }
    Ok(model)
}

/// A fresh model on the words of the training texts.
fn from_scratch(
    document: &Document,
    spec: &ModelSpec,
    keys: &TextModel,
    usual: Option<EncoderShape>,
    dataset: &mut Dataset,
    isa: Isa,
) -> Result<Model> {
    if let Some(shape) = &usual {
        too_long(document, keys, shape.positions)?;
    }
    // An encoder classifies by the first token, so each text gets one that means nothing by itself.
    let words = texts(&dataset.train)?.iter().map(String::as_str);
    let vocabulary = Vocabulary::build(words, keys.vocabulary, usual.is_some());
    let input = InputShape::Tokens { vocabulary: vocabulary.words().len(), max_length: keys.max_length };
    let classes = dataset.classes.len();
    let arch = match usual {
        Some(shape) => {
            let shape = keys.dropout.map_or(shape.clone(), |p| shape.with_dropout(p as f32));
            encoder(&spec.name, &shape, spec.projection, None, input, classes)
        }
        None => zoo::build(spec, input, classes)?,
    };
    let model = Model::compile(&arch, isa)?;
    for split in [&mut dataset.train, &mut dataset.test] {
        let tokens = vocabulary.encode(texts(split)?, keys.max_length);
        split.inputs = Inputs::Tokens(Tokens { ids: tokens.ids, starts: tokens.starts });
    }
    Ok(model)
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
