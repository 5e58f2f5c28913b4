//! A view of some samples of a split.

use fedelity_data::{Inputs, Normalisation, Split, Tokens, label_counts};
use fedelity_nn::Batch;

/// Turns a pixel into a network input: `pixel * scale + shift`, per channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

impl From<&Normalisation> for Scaling {
    /// `(pixel / 255 - mean) / std`.
    fn from(normalisation: &Normalisation) -> Self {
        let pairs = || normalisation.mean.iter().zip(&normalisation.std).map(|(&m, &s)| (f64::from(m), f64::from(s)));
        Self {
            scale: pairs().map(|(_, std)| (1.0 / (255.0 * std)) as f32).collect(),
            shift: pairs().map(|(mean, std)| (-mean / std) as f32).collect(),
        }
    }
}

/// Some samples of a split: a client's own, or those the server holds.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    pub split: &'a Split,
    pub indices: &'a [u32],
    /// How pixels become numbers.
    pub scaling: &'a Scaling,
}

impl<'a> Samples<'a> {
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Other samples of the same split.
    pub fn at(&self, indices: &'a [u32]) -> Self {
        Self { indices, ..*self }
    }

    /// The samples as one batch for a model.
    pub fn batch(&self) -> Batch<'a> {
        match &self.split.inputs {
            Inputs::Bytes(pixels) => {
                Batch::Bytes { pixels, indices: self.indices, scale: &self.scaling.scale, shift: &self.scaling.shift }
            }
            Inputs::Floats(values) => Batch::Rows { values, indices: self.indices },
            Inputs::Tokens(Tokens { ids, starts }) => Batch::Tokens { ids, starts, indices: self.indices },
            // Models take texts as tokens; raw texts are refused before training.
            Inputs::Texts(_) => Batch::Floats { rows: &[] },
        }
    }

    /// Samples per class.
    pub fn label_counts(&self, classes: usize) -> Vec<usize> {
        label_counts(self.labels(), classes)
    }

    /// The labels, in order.
    pub fn labels(&self) -> impl Iterator<Item = u16> + 'a {
        let split = self.split;
        self.indices.iter().map(move |&i| split.labels[i as usize])
    }
}
