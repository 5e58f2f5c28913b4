//! Inputs of a model.

use std::ops::Range;

use crate::architecture::InputShape;

#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Batch<'a> {
    /// Images as bytes: a value is `pixel * scale[channel] + shift[channel]`.
    Bytes {
        /// All images, `[image][channel][row][column]`.
        pixels: &'a [u8],
        indices: &'a [u32],
        /// Per channel.
        scale: &'a [f32],
        /// Per channel.
        shift: &'a [f32],
    },
    /// Inputs as given, `[sample][channel][row][column]`.
    Floats {
        /// The samples, one after another.
        rows: &'a [f32],
    },
    /// Rows of numbers, picked by index.
    Rows {
        /// All rows, `[row][column]`.
        values: &'a [f32],
        indices: &'a [u32],
    },
    /// Texts as token IDs. Each has at least one token and at most the model's maximum.
    Tokens {
        /// The tokens of all texts, concatenated.
        ids: &'a [u32],
        /// The start of each text, and the end of the last one.
        starts: &'a [u32],
        /// The texts in the batch.
        indices: &'a [u32],
    },
}

impl Batch<'_> {
    /// Number of samples, given the model's input shape.
    pub(crate) fn samples(&self, input: InputShape) -> usize {
        match self {
            Self::Bytes { indices, .. } | Self::Rows { indices, .. } | Self::Tokens { indices, .. } => indices.len(),
            Self::Floats { rows } => rows.len() / input.len(),
        }
    }

    /// A range of its samples.
    pub(crate) fn part(&self, samples: Range<usize>, input: InputShape) -> Self {
        match *self {
            Self::Bytes { pixels, indices, scale, shift } => {
                Self::Bytes { pixels, indices: &indices[samples], scale, shift }
            }
            Self::Floats { rows } => {
                Self::Floats { rows: &rows[samples.start * input.len()..samples.end * input.len()] }
            }
            Self::Rows { values, indices } => Self::Rows { values, indices: &indices[samples] },
            Self::Tokens { ids, starts, indices } => Self::Tokens { ids, starts, indices: &indices[samples] },
        }
    }
}
