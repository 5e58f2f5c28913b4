//! The description stored in a model file: enough to use the file without the run that produced it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::architecture::{Architecture, InputShape};
use crate::encoder::{EncoderShape, MOST_LAYERS, encoder};
use crate::error::NnError;
use crate::model_file::ModelFile;
use crate::residual::Stem;
use crate::zoo::{self, ModelSpec};

/// The kind and shape of a model's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
#[non_exhaustive]
pub enum Input {
    /// Images.
    Image { channels: usize, height: usize, width: usize },
    /// Rows of numbers.
    Numbers {
        /// Numbers per row.
        width: usize,
    },
    /// Texts as token IDs.
    Tokens { vocabulary: usize, max_length: usize },
}

impl Input {
    /// The shape the layers see.
    #[must_use]
    pub fn shape(self) -> InputShape {
        match self {
            Self::Image { channels, height, width } => InputShape::Image { channels, height, width },
            Self::Numbers { width } => InputShape::Image { channels: 1, height: 1, width },
            Self::Tokens { vocabulary, max_length } => InputShape::Tokens { vocabulary, max_length },
        }
    }
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Image { channels, height, width } => write!(f, "images of {channels}x{height}x{width}"),
            Self::Numbers { width } => write!(f, "rows of {width} numbers"),
            Self::Tokens { max_length, .. } => write!(f, "texts of up to {max_length} tokens"),
        }
    }
}

/// How texts are turned into token IDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reading {
    /// A word list; a word's position is its token ID.
    Words(Vec<String>),
    /// A tokenizer, as the text of its tokenizer.json.
    Tokenizer(String),
}

/// How the rows of a table become inputs: columns are found by their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableCard {
    /// The column with the label.
    pub label: String,
    /// The column with the text. If there is one, nothing else is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The columns of a row, in the order of its numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnCard>,
    /// Columns that the training data had but the model does not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ColumnCard {
    pub name: String,
    #[serde(flatten)]
    pub values: ColumnValues,
}

/// What a column becomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnValues {
    /// `(number - mean) / std`.
    Number { mean: f64, std: f64 },
    /// One number per category: 1 for the row's own, 0 for the others; all are 0 if it is none of them.
    Categories(Vec<String>),
}

impl TableCard {
    /// Numbers per row; `None` if a scale is not one.
    fn width(&self) -> Option<usize> {
        let width = |column: &ColumnCard| match &column.values {
            ColumnValues::Number { mean, std } => (mean.is_finite() && std.is_finite() && *std > 0.0).then_some(1),
            ColumnValues::Categories(names) => Some(names.len()),
        };
        self.columns.iter().map(width).sum()
    }
}

/// How a model is built and what it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Card {
    pub model: String,
    pub projection: bool,
    /// The stem of a residual network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stem: Option<Stem>,
    /// The sizes of a text encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<EncoderShape>,
    /// The layers of a model of one's own, as the text of a model file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<String>,
    pub input: Input,
    /// The class names; output `k` means `classes[k]`.
    pub classes: Vec<String>,
    /// Subtracted from each channel (of pixels scaled to 0..1) or column.
    pub mean: Vec<f32>,
    /// Each channel or column is then divided by this.
    pub std: Vec<f32>,
    /// How texts are turned into token IDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// How the rows of a table become inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableCard>,
    /// Provenance, such as the data set, the method and the seed.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// Upper bounds that no model here reaches.
const MOST: usize = 1 << 24;
const MOST_CLASSES: usize = 1 << 16;

impl Card {
    /// The model's layers.
    ///
    /// # Errors
    /// When the description is inconsistent.
    pub fn architecture(&self) -> Result<Architecture, NnError> {
        self.check().map_err(|reason| NnError::DoesNotFit { model: self.model.clone(), reason })?;
        let (input, classes) = (self.input.shape(), self.classes.len());
        if let Some(text) = &self.layers {
            let file = ModelFile::parse(text);
            let built = file.and_then(|file| {
                file.architecture(&self.model, input, classes, self.projection).map_err(|misfit| misfit.to_string())
            });
            return built.map_err(|reason| NnError::DoesNotFit { model: self.model.clone(), reason });
        }
        match &self.encoder {
            Some(shape) => Ok(encoder(&self.model, shape, self.projection, None, input, classes)),
            None => {
                let spec = ModelSpec { stem: self.stem, ..ModelSpec::new(&self.model, self.projection) };
                zoo::build(&spec, input, classes)
            }
        }
    }

    /// Rejects values that a file can hold but no model can have.
    fn check(&self) -> Result<(), String> {
        if self.classes.is_empty() || self.classes.len() > MOST_CLASSES {
            return Err(format!("{} classes: expected 1 to {MOST_CLASSES}", self.classes.len()));
        }
        let channels = match self.input {
            Input::Image { channels, height, width } => {
                if [channels, height, width].iter().any(|&side| side == 0 || side > MOST >> 8) {
                    return Err(format!("it reads {}", self.input));
                }
                channels
            }
            Input::Numbers { width } if width == 0 || width > MOST => return Err(format!("it reads {}", self.input)),
            Input::Numbers { width } => width,
            Input::Tokens { vocabulary, max_length } => {
                let positions = self.encoder.as_ref().map_or(MOST, |shape| shape.positions);
                if vocabulary == 0 || vocabulary > MOST || max_length == 0 || max_length > positions {
                    return Err(format!("{vocabulary} tokens, {max_length} per text, {positions} positions"));
                }
                if let Some(Reading::Words(words)) = &self.reading
                    && words.len() > vocabulary
                {
                    return Err(format!("{} words for {vocabulary} tokens", words.len()));
                }
                0
            }
        };
        if self.mean.len() != channels || self.std.len() != channels {
            let (mean, std) = (self.mean.len(), self.std.len());
            return Err(format!("{mean} means and {std} standard deviations for {channels} channels"));
        }
        if let (Input::Numbers { width }, Some(table)) = (self.input, &self.table)
            && table.width() != Some(width)
        {
            return Err(format!("its columns do not make rows of {width} numbers"));
        }
        if !self.mean.iter().all(|x| x.is_finite()) || !self.std.iter().all(|x| x.is_finite() && *x > 0.0) {
            return Err("a mean or standard deviation is not finite, or a standard deviation is 0".to_owned());
        }
        match &self.encoder {
            Some(shape) if !matches!(self.input, Input::Tokens { .. }) => {
                Err(format!("an encoder of {} layers that reads {}", shape.layers, self.input))
            }
            Some(shape) => {
                let sizes = [shape.width, shape.heads, shape.hidden, shape.positions];
                let sound = sizes.iter().all(|&size| size > 0 && size <= MOST) && shape.types <= MOST;
                if sound && (1..=MOST_LAYERS).contains(&shape.layers) {
                    Ok(())
                } else {
                    Err(format!("an encoder with sizes {sizes:?} and {} layers", shape.layers))
                }
            }
            None => Ok(()),
        }
    }
}
