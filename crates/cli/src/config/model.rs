//! `[model]`: which network, and what some need beside their name.

use std::path::PathBuf;

use anyhow::Result;
use fedelity_nn::{EncoderShape, ModelSpec, Stem, zoo};

use super::defaults;
use super::document::Document;
use super::section::Section;
use super::settings::refuse_foreign;

const MODEL: &[&str] = &["name", "projection", "stem", "weights", "max-length", "freeze", "dropout", "vocabulary"];

/// The keys that only text models have.
#[derive(Clone, Debug)]
pub(crate) struct TextModel {
    /// A folder as Hugging Face saves it.
    pub(crate) weights: Option<PathBuf>,
    /// Tokens a text has at most.
    pub(crate) max_length: usize,
    /// Blocks that stay as they were loaded, and with them the embeddings.
    pub(crate) freeze: Option<usize>,
    /// Dropout inside the encoder, instead of the one of the folder.
    pub(crate) dropout: Option<f64>,
    /// Words of the vocabulary, where there is no tokenizer.
    pub(crate) vocabulary: usize,
}

/// Reads `[model]`. The text part is there if the model reads texts.
pub(super) fn check(document: &Document, notes: &mut Vec<String>) -> Result<(ModelSpec, Option<TextModel>)> {
    let section = Section::of(document, "model", MODEL)?;
    let name = section.choice("name", zoo::NAMES)?.unwrap_or(defaults::MODEL);
    let stem = section.choice("stem", &Stem::NAMES)?.and_then(Stem::from_name);
    let spec = ModelSpec { stem, ..ModelSpec::new(name, section.flag("projection")?.unwrap_or(false)) };
    let encoder = EncoderShape::named(name).is_some();
    let own: &[&str] = match name {
        _ if encoder => &["weights", "max-length", "freeze", "dropout", "vocabulary"],
        "lstm" => &["max-length", "vocabulary"],
        _ if zoo::has_stem(name) => &["stem"],
        _ => &[],
    };
    refuse_foreign(&section, ("name", name), own, &MODEL[2..], notes)?;
    if !encoder && name != "lstm" {
        return Ok((spec, None));
    }
    let weights = section.text("weights", "the path of a folder")?;
    let weights = weights.map(|folder| document.folder_of("model.weights").join(folder));
    let freeze = section.count("freeze", 0)?;
    if freeze.is_some() && weights.is_none() {
        let message = "model.freeze: there is nothing to keep without model.weights, the folder with trained weights";
        return Err(document.error("model.freeze", message));
    }
    if weights.is_some() && section.get("vocabulary").is_some() {
        let message = "model.vocabulary: not allowed beside model.weights, whose tokenizer has its own";
        return Err(document.error("model.vocabulary", message));
    }
    let below_one = |p: f64| (0.0..1.0).contains(&p);
    let text = TextModel {
        weights,
        max_length: section.count("max-length", 1)?.unwrap_or(defaults::MAX_LENGTH),
        freeze,
        dropout: section.number("dropout", "a number of at least 0 and below 1", below_one)?,
        vocabulary: section.count("vocabulary", 3)?.unwrap_or(defaults::VOCABULARY),
    };
    Ok((spec, Some(text)))
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn a_stem_is_kept() {
        let mut document = Document::default();
        document.set("model.name=resnet50-bn").unwrap();
        assert_eq!(Settings::check(&document).unwrap().model.stem, None);
        document.set("model.stem=imagenet").unwrap();
        let settings = Settings::check(&document).unwrap();
        assert_eq!(settings.model.stem, Some(Stem::ImageNet));
        assert!(settings.resolved("").contains("stem = \"imagenet\""));
    }
}
