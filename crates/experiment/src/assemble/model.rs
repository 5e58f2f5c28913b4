//! The model of a configuration for its data, and the description in its file.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Shape};
use fedelity_nn::{Card, Engine, Input, Model, ModelSpec, Stem, zoo};

use super::columns::describe;
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
    let (name, data) = (&keys.name.0, &dataset.name);
    let wrong = |reason: &dyn std::fmt::Display| {
        document.error("model.name", format!("model.name = \"{name}\" with data.name = \"{data}\": {reason}"))
    };
    let input = match (dataset.shape, zoo::reads_text(name)) {
        (Shape::Text, true) => {
            let Prepared { model, input, encoder, reading, dataset } = text::prepare(document, keys, dataset, engine)?;
            let card = Card { encoder, reading: Some(reading), ..card(keys, input, &dataset) };
            return Ok(FittedModel { model, card, dataset: Arc::new(dataset) });
        }
        (Shape::Text, false) => return Err(wrong(&"the data are texts: use lstm, minilm, distilbert or bert")),
        (_, true) => return Err(wrong(&"the model reads texts, but the data are not texts")),
        (Shape::Image(ImageShape { channels, height, width }), false) => Input::Image { channels, height, width },
        (Shape::Numbers(width), false) => Input::Numbers { width },
    };
    let built = zoo::build(&keys.spec(), input.shape(), dataset.classes.len());
    let model = built.and_then(|arch| Model::compile(&arch, engine.clone())).map_err(|error| wrong(&error))?;
    Ok(FittedModel { model, card: card(keys, input, dataset), dataset: Arc::clone(dataset) })
}

fn card(keys: &ModelKeys, input: Input, dataset: &Dataset) -> Card {
    let stem = keys.stem.or_else(|| zoo::has_stem(&keys.name.0).then(|| Stem::usual(input.shape())));
    Card {
        model: keys.name.0.clone(),
        projection: keys.projection,
        stem,
        encoder: None,
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
    pub(super) fn spec(&self) -> ModelSpec {
        ModelSpec { stem: self.stem, ..ModelSpec::new(self.name.0.clone(), self.projection) }
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
