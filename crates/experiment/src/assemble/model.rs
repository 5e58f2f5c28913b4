//! The model of a configuration for its data, and the description in its file.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Shape};
use fedelity_nn::{Card, Engine, Input, Model, ModelSpec, Stem, zoo};

use super::columns::describe;
use super::own::OwnModel;
use super::text::{self, Prepared};
use crate::config::{Document, ModelKeys};
use crate::error::Result;

/// A model fitted to its data.
pub(crate) struct FittedModel {
    pub(crate) model: Model,
    pub(crate) card: Card,
    /// The data in the model's format: texts have become token IDs.
    pub(crate) dataset: Arc<Dataset>,
}

/// The model of the configuration for the data.
pub(crate) fn fit(
    document: &Document,
    keys: &ModelKeys,
    dataset: &Arc<Dataset>,
    engine: &Arc<dyn Engine>,
) -> Result<FittedModel> {
    let (own, data) = (OwnModel::of(document, keys)?, &dataset.name);
    let own = own.as_ref();
    let (key, given) = match &keys.file {
        Some(path) => ("model.file", path.display().to_string()),
        None => ("model.name", keys.zoo_name().to_string()),
    };
    let wrong = |reason: &dyn std::fmt::Display| {
        document.error(key, format!("{key} = \"{given}\" with data.name = \"{data}\": {reason}"))
    };
    let reads_text = own.map_or_else(|| zoo::reads_text(keys.zoo_name()), |own| own.file.reads_text());
    if let Some(own) = own.filter(|_| !reads_text) {
        let stray = ["model.max-length", "model.vocabulary"].into_iter().find(|key| document.gives(key));
        if let Some(key) = stray {
            let message = format!("{key}: not a key of this model, {}, which does not read texts", own.name);
            return Err(document.error(key, message));
        }
    }
    let input = match (dataset.shape, reads_text) {
        (Shape::Text, true) => {
            let Prepared { model, input, encoder, reading, dataset } =
                text::prepare(document, keys, own, dataset, engine)?;
            let card = Card { encoder, reading: Some(reading), ..card(keys, own, input, &dataset) };
            return Ok(FittedModel { model, card, dataset: Arc::new(dataset) });
        }
        (Shape::Text, false) if own.is_some() => {
            return Err(wrong(&"the data are texts: start the layers with an embedding"));
        }
        (Shape::Text, false) => return Err(wrong(&"the data are texts: use lstm, minilm, distilbert or bert")),
        (_, true) => return Err(wrong(&"the model reads texts, but the data are not texts")),
        (Shape::Image(ImageShape { channels, height, width }), false) => Input::Image { channels, height, width },
        (Shape::Numbers(width), false) => Input::Numbers { width },
    };
    let classes = dataset.classes.len();
    let arch = match own {
        Some(own) => own.architecture(input.shape(), classes, keys.projection, &format!("{data}, {input}"))?,
        None => zoo::build(&keys.spec(), input.shape(), classes).map_err(|error| wrong(&error))?,
    };
    let model = Model::compile(&arch, engine.clone()).map_err(|error| match (own, input) {
        (None, Input::Numbers { .. }) => wrong(&format!("{error}; the data are rows of numbers: use mlp or logistic")),
        (None, Input::Image { channels, height, width }) => {
            let like = format!("--input {channels}x{height}x{width} --classes {classes}");
            wrong(&format!("{error}; 'fedelity models {like}' shows which models fit"))
        }
        _ => wrong(&error),
    })?;
    Ok(FittedModel { model, card: card(keys, own, input, dataset), dataset: Arc::clone(dataset) })
}

fn card(keys: &ModelKeys, own: Option<&OwnModel>, input: Input, dataset: &Dataset) -> Card {
    let stem = keys.stem.or_else(|| zoo::has_stem(keys.zoo_name()).then(|| Stem::usual(input.shape())));
    Card {
        model: own.map_or(keys.zoo_name(), |own| &own.name).to_string(),
        projection: keys.projection,
        stem,
        encoder: None,
        layers: own.map(|own| own.file.text()),
        input,
        classes: dataset.classes.clone(),
        mean: dataset.normalisation.mean.clone(),
        std: dataset.normalisation.std.clone(),
        reading: None,
        table: dataset.table.as_ref().map(describe),
        origin: BTreeMap::from([
            ("fedelity".to_string(), env!("CARGO_PKG_VERSION").to_string()),
            ("dataset".to_string(), dataset.name.clone()),
        ]),
    }
}

impl ModelKeys {
    /// The name of the model in the zoo; empty if the model has a file.
    pub(super) fn zoo_name(&self) -> &str {
        self.name.as_ref().map_or("", |name| &name.0)
    }

    pub(super) fn spec(&self) -> ModelSpec {
        ModelSpec { stem: self.stem, ..ModelSpec::new(self.zoo_name(), self.projection) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn a_mismatch_names_the_model_and_the_data() {
        let mut document = Document::default();
        document.set("model.name=simple-cnn").unwrap();
        let settings = Settings::read(&document).unwrap();
        let shape = Shape::Image(ImageShape { channels: 1, height: 4, width: 4 });
        let (train, test, normalisation) = Default::default();
        let classes = vec![String::new(); 10];
        let dataset = Dataset { name: "tiny".into(), classes, shape, train, test, normalisation, table: None };
        let Err(error) = fit(&document, &settings.config.model, &Arc::new(dataset), &fedelity_nn::cpu()) else {
            panic!("accepted")
        };
        let text = error.to_string();
        assert!(text.starts_with("--set: model.name = \"simple-cnn\" with data.name = \"tiny\""), "{text}");
    }
}
