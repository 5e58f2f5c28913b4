//! The model of a configuration for its data, and what its file says about it.

use std::collections::BTreeMap;

use anyhow::Result;
use fedelity_data::{Dataset, ImageShape, Shape};
use fedelity_nn::{Card, Input, Model, Stem, zoo};

use crate::config::{Document, Settings};
use crate::isa;
use crate::text;

/// A model for some data.
pub(crate) struct Fitted {
    pub(crate) model: Model,
    pub(crate) card: Card,
}

/// The model of the configuration for the data. Texts become tokens.
pub(crate) fn fit(document: &Document, settings: &Settings, dataset: &mut Dataset) -> Result<Fitted> {
    let name = &settings.model.name;
    let wrong = |reason: &str, data: &str| {
        let message = format!("model.name = \"{name}\" with data.name = \"{data}\": {reason}");
        document.error("model.name", message)
    };
    let input = match (dataset.shape, &settings.text) {
        (Shape::Text, Some(keys)) => {
            let prepared = text::prepare(document, &settings.model, keys, dataset, isa::chosen()?)?;
            let (vocabulary, max_length) = match prepared.model.input() {
                fedelity_nn::InputShape::Tokens { vocabulary, max_length } => (vocabulary, max_length),
                other => (0, other.len()),
            };
            let input = Input::Tokens { vocabulary, max_length };
            let card = card(settings, input, dataset);
            let card = Card { encoder: prepared.encoder, reading: Some(prepared.reading), ..card };
            return Ok(Fitted { model: prepared.model, card });
        }
        (Shape::Text, None) => {
            return Err(wrong("the data are texts: use lstm, minilm, distilbert or bert", &dataset.name));
        }
        (_, Some(_)) => return Err(wrong("the model reads texts, and the data are none", &dataset.name)),
        (Shape::Image(ImageShape { channels, height, width }), None) => Input::Image { channels, height, width },
        (Shape::Numbers(width), None) => Input::Numbers { width },
    };
    let model = model(document, settings, &dataset.name, input, dataset.classes.len())?;
    Ok(Fitted { model, card: card(settings, input, dataset) })
}

fn card(settings: &Settings, input: Input, dataset: &Dataset) -> Card {
    let spec = &settings.model;
    let stem = spec.stem.or_else(|| zoo::has_stem(&spec.name).then(|| Stem::usual(input.shape())));
    Card {
        model: spec.name.clone(),
        projection: spec.projection,
        stem,
        encoder: None,
        input,
        classes: dataset.classes.clone(),
        mean: dataset.normalisation.mean.clone(),
        std: dataset.normalisation.std.clone(),
        reading: None,
        origin: BTreeMap::from([
            ("fedelity".to_string(), env!("CARGO_PKG_VERSION").to_string()),
            ("dataset".to_string(), dataset.name.clone()),
        ]),
    }
}

/// The model of the configuration for these inputs.
fn model(document: &Document, settings: &Settings, data: &str, input: Input, classes: usize) -> Result<Model> {
    let (name, isa) = (&settings.model.name, isa::chosen()?);
    let built = zoo::build(&settings.model, input.shape(), classes);
    built.and_then(|architecture| Model::compile(&architecture, isa)).map_err(|error| {
        document.error("model.name", format!("model.name = \"{name}\" with data.name = \"{data}\": {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_does_not_fit_is_named_with_the_data() {
        let mut document = Document::default();
        document.set("model.name=simple-cnn").unwrap();
        let settings = Settings::check(&document).unwrap();
        let input = Input::Image { channels: 1, height: 4, width: 4 };
        let Err(error) = model(&document, &settings, "tiny", input, 10) else { panic!("accepted") };
        let text = error.to_string();
        assert!(text.starts_with("--set: model.name = \"simple-cnn\" with data.name = \"tiny\""), "{text}");
    }
}
