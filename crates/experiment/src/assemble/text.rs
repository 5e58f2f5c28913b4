//! Prepares texts for a text model: the tokens, and the model that reads them.

use std::path::Path;
use std::sync::Arc;

use fedelity_data::{Dataset, Inputs, Split, Tokens};
use fedelity_nn::{Card, EncoderShape, Engine, Input, Model, Pretrained, Reading, encoder, zoo};
use fedelity_text::{Tokenizer, Vocabulary};

use super::own::OwnModel;
use crate::ExperimentError;
use crate::config::{Document, ModelKeys};
use crate::error::Result;

/// A model, and how its texts are tokenised.
pub(crate) struct Prepared {
    pub(crate) model: Model,
    pub(crate) input: Input,
    /// The sizes, if it is an encoder.
    pub(crate) encoder: Option<EncoderShape>,
    pub(crate) reading: Reading,
    /// The data, with texts as tokens.
    pub(crate) dataset: Dataset,
}

/// Turns texts into tokens.
pub enum TextReader {
    Tokenizer(Box<Tokenizer>),
    Words { vocabulary: Vocabulary, max_length: usize },
}

impl TextReader {
    /// The tokeniser or vocabulary that a saved model was trained with.
    pub fn of(card: &Card, path: &Path) -> Result<Self> {
        let Input::Tokens { vocabulary, max_length } = card.input else {
            return Err(ExperimentError::path(path, "the model does not read texts"));
        };
        match &card.reading {
            Some(Reading::Tokenizer(json)) => {
                Ok(Self::Tokenizer(Box::new(Tokenizer::parse(json, vocabulary, path, max_length)?)))
            }
            Some(Reading::Words(words)) => {
                let vocabulary = Vocabulary::from_words(words.clone());
                let vocabulary =
                    vocabulary.ok_or_else(|| ExperimentError::path(path, "its list of words is not a vocabulary"))?;
                Ok(Self::Words { vocabulary, max_length })
            }
            _ => Err(ExperimentError::path(path, "the file does not record how texts become token IDs")),
        }
    }

    pub fn encode(&self, texts: &[String]) -> Result<Tokens> {
        let tokens = match self {
            Self::Tokenizer(tokenizer) => tokenizer.encode(texts)?,
            Self::Words { vocabulary, max_length } => vocabulary.encode(texts, *max_length),
        };
        Ok(Tokens { ids: tokens.ids, starts: tokens.starts })
    }

    /// Turns the texts of a split into tokens.
    pub fn tokenise(&self, split: &mut Split) -> Result<()> {
        split.inputs = Inputs::Tokens(self.encode(texts(split)?)?);
        Ok(())
    }
}

/// Turns the texts of both splits into tokens and builds the model for them.
pub(crate) fn prepare(
    document: &Document,
    keys: &ModelKeys,
    own: Option<&OwnModel>,
    dataset: &Dataset,
    engine: &Arc<dyn Engine>,
) -> Result<Prepared> {
    let max_length = keys.max_length.unwrap_or(usize::MAX);
    let usual = EncoderShape::named(keys.zoo_name());
    let too_long = |positions: usize| {
        let expected = format!("1 to {positions}, the number of positions of the encoder");
        if max_length <= positions { Ok(()) } else { Err(document.expected("model.max-length", max_length, expected)) }
    };
    let tokens = |vocabulary: usize| Input::Tokens { vocabulary, max_length };
    let mut dataset = dataset.clone();
    let classes = dataset.classes.len();
    let dropped = |shape: EncoderShape| keys.dropout.map_or(shape.clone(), |p| shape.with_dropout(p));
    let (model, input, encoder, reading, reader) = match (&keys.weights, usual) {
        (Some(folder), Some(usual)) => {
            let wrong = |reason: String| document.error("model.weights", format!("model.weights: {reason}"));
            let found = Pretrained::open(folder).map_err(|error| wrong(error.to_string()))?;
            if found.shape().names != usual.names {
                let (name, file) = (keys.zoo_name(), found.config_file());
                return Err(wrong(format!("{}: model_type does not fit model.name = \"{name}\"", file.display())));
            }
            let layers = found.shape().layers;
            if let Some(freeze) = keys.freeze.filter(|&freeze| freeze > layers) {
                let expected = format!("0 to {layers}, the number of layers of {}", folder.display());
                return Err(document.expected("model.freeze", freeze, expected));
            }
            too_long(found.shape().positions)?;
            let shape = dropped(found.shape().clone());
            let input = tokens(found.vocabulary());
            let arch = encoder(keys.zoo_name(), &shape, keys.projection, keys.freeze, input.shape(), classes);
            let model = Model::compile(&arch, engine.clone()).and_then(|model| found.load(model));
            let model = model.map_err(|error| wrong(error.to_string()))?;
            let file = folder.join("tokenizer.json");
            let tokenizer = Tokenizer::open(&file, found.vocabulary(), &found.config_file(), max_length)
                .map_err(|error| wrong(error.to_string()))?;
            let json = fedelity_files::read_text(&file, fedelity_files::LISTING)
                .map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            (model, input, Some(shape), Reading::Tokenizer(json), TextReader::Tokenizer(Box::new(tokenizer)))
        }
        // A fresh model with a vocabulary from the training texts.
        (_, usual) => {
            let limit = own.map_or(usual.as_ref().map(|shape| shape.positions), |own| own.file.positions());
            limit.map_or(Ok(()), too_long)?;
            // An encoder classifies by the first token, so each text gets a start token.
            let start = usual.is_some() || own.is_some_and(|own| own.file.needs_start_token());
            let words = texts(&dataset.train)?.iter().map(String::as_str);
            let vocabulary = Vocabulary::build(words, keys.vocabulary.unwrap_or(usize::MAX), start);
            let input = tokens(vocabulary.words().len());
            let shape = usual.map(dropped);
            let arch = match (&shape, own) {
                (_, Some(own)) => {
                    own.architecture(input.shape(), classes, keys.projection, &format!("{}, {input}", dataset.name))?
                }
                (Some(shape), None) => encoder(keys.zoo_name(), shape, keys.projection, None, input.shape(), classes),
                (None, None) => zoo::build(&keys.spec(), input.shape(), classes)?,
            };
            let reading = Reading::Words(vocabulary.words().to_vec());
            (
                Model::compile(&arch, engine.clone())?,
                input,
                shape,
                reading,
                TextReader::Words { vocabulary, max_length },
            )
        }
    };
    for split in [&mut dataset.train, &mut dataset.test] {
        reader.tokenise(split)?;
    }
    Ok(Prepared { model, input, encoder, reading, dataset })
}

fn texts(split: &Split) -> Result<&[String]> {
    match &split.inputs {
        Inputs::Texts(texts) => Ok(texts),
        _ => Err(ExperimentError::Config("the data are not texts".to_string())),
    }
}
