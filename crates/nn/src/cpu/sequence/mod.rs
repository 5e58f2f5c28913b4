//! Runs the token part of a model: tokens in, one row per sample out, and back.
//!
//! The tokens of all samples stand one after the other, `[token][width]`, without padding. A row of a matrix product does
//! not depend on the others and every other step works on one sample or one row, so a sample's outputs do not depend on
//! its batch.

mod embeddings;
mod encoder;
mod lstm;
mod plan;

use std::sync::Arc;

use fedelity_kernels::{Buffer, Isa, dense};

pub(crate) use plan::{Body, SequencePlan, plan};

use plan::{Affine, Linear};

/// Tokens and samples evaluated together, so that memory does not grow with the number and length of the texts.
const EVALUATION_TOKENS: usize = 2048;
const EVALUATION_SAMPLES: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a> {
    pub ids: &'a [u32],
    pub starts: &'a [u32],
    pub indices: &'a [u32],
}

impl<'a> Texts<'a> {
    fn sample(&self, i: u32) -> &'a [u32] {
        &self.ids[self.starts[i as usize] as usize..self.starts[i as usize + 1] as usize]
    }
}

/// The weights a pass reads.
#[derive(Clone, Copy)]
struct SequenceWeights<'a> {
    params: &'a [f32],
    frozen: &'a [f32],
}

impl<'a> SequenceWeights<'a> {
    fn of(&self, frozen: bool) -> &'a [f32] {
        if frozen { self.frozen } else { self.params }
    }
}

/// Tokens that are processed together.
#[derive(Clone, Debug, Default)]
struct Packed {
    ids: Vec<u32>,
    /// The start of each sample, and the end of the last one.
    starts: Vec<usize>,
}

impl Packed {
    fn load<'a>(&mut self, samples: impl Iterator<Item = &'a [u32]>) {
        self.ids.clear();
        self.starts.clear();
        self.starts.push(0);
        for sample in samples {
            self.ids.extend_from_slice(sample);
            self.starts.push(self.ids.len());
        }
    }

    fn tokens(&self) -> usize {
        self.ids.len()
    }

    fn samples(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// First token and number of tokens of each sample.
    fn spans(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.starts.windows(2).map(|w| (w[0], w[1] - w[0]))
    }

    /// Position of each token in its sample.
    fn positions(&self) -> impl Iterator<Item = u32> + '_ {
        self.spans().flat_map(|(_, len)| 0..len as u32)
    }
}

/// One pass over some tokens.
#[derive(Clone, Copy)]
struct TokenPass<'a> {
    isa: Isa,
    packed: &'a Packed,
    /// The dropout key; `None` in evaluation mode.
    key: Option<u64>,
}

impl TokenPass<'_> {
    /// The dropout probability and key at this site, if anything is dropped.
    fn drop(&self, p: f32, place: usize) -> Option<(f32, u64)> {
        // Sites are numbered after the row operations, which count from 0.
        let mix = (place as u64 + 1001).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.key.filter(|_| p > 0.0).map(|key| (p, key ^ mix))
    }

    fn linear(&self, weights: &[f32], linear: &Linear, y: &mut [f32], x: &[f32], rows: usize) {
        let (w, b) = (&weights[linear.weight.clone()], &weights[linear.bias.clone()]);
        dense::forward(self.isa, y, x, w, b, linear.sizes(rows));
    }
}

/// Adds the gradient of a dense layer's weights, and writes or adds that of its input to `d_x`.
fn linear_backward(
    isa: Isa,
    linear: &Linear,
    params: &[f32],
    grad: &mut [f32],
    (d_y, x): (&[f32], &[f32]),
    d_x: Option<(&mut [f32], bool)>,
    rows: usize,
) {
    dense::weight_gradient(isa, &mut grad[linear.weight.clone()], d_y, x, linear.sizes(rows));
    dense::bias_gradient(&mut grad[linear.bias.clone()], d_y, rows, linear.outputs);
    if let Some((d_x, add)) = d_x {
        dense::input_gradient(isa, d_x, d_y, &params[linear.weight.clone()], linear.sizes(rows), add);
    }
}

/// The gradients of scale and shift, which are adjacent.
fn affine_gradients<'a>(grad: &'a mut [f32], norm: &Affine) -> (&'a mut [f32], &'a mut [f32]) {
    grad[norm.gamma.start..norm.beta.end].split_at_mut(norm.gamma.len())
}

/// Grows a buffer to that many rows, if it is smaller.
fn fit(buffer: &mut Buffer, rows: usize, width: usize) {
    let len = rows * width;
    if buffer.len() < len {
        *buffer = Buffer::zeros(len);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    isa: Isa,
    frozen: Arc<[f32]>,
    packed: Packed,
    key: u64,
    embeddings: embeddings::EmbeddingTape,
    encoder: encoder::EncoderBuffers,
    lstm: lstm::LstmBuffers,
}

impl Sequence {
    pub(crate) fn new(isa: Isa, frozen: Arc<[f32]>) -> Self {
        Self {
            isa,
            frozen,
            packed: Packed::default(),
            key: 0,
            embeddings: embeddings::EmbeddingTape::default(),
            encoder: encoder::EncoderBuffers::default(),
            lstm: lstm::LstmBuffers::default(),
        }
    }

    /// Forward pass in training mode. Saves what the backward pass reads.
    pub(crate) fn train(&mut self, plan: &SequencePlan, params: &[f32], texts: Texts<'_>, key: u64, rows: &mut [f32]) {
        self.key = key;
        self.packed.load(texts.indices.iter().map(|&i| texts.sample(i)));
        self.forward(plan, params, Some(key), rows);
    }

    /// Forward pass in evaluation mode.
    pub(crate) fn evaluate(&mut self, plan: &SequencePlan, params: &[f32], texts: Texts<'_>, rows: &mut [f32]) {
        let mut first = 0;
        while first < texts.indices.len() {
            let (mut last, mut tokens) = (first, 0);
            while last < texts.indices.len() && last - first < EVALUATION_SAMPLES {
                tokens += texts.sample(texts.indices[last]).len();
                if last > first && tokens > EVALUATION_TOKENS {
                    break;
                }
                last += 1;
            }
            self.packed.load(texts.indices[first..last].iter().map(|&i| texts.sample(i)));
            self.forward(plan, params, None, &mut rows[first * plan.width..last * plan.width]);
            first = last;
        }
    }

    fn forward(&mut self, plan: &SequencePlan, params: &[f32], key: Option<u64>, rows: &mut [f32]) {
        let pass = TokenPass { isa: self.isa, packed: &self.packed, key };
        let frozen = Arc::clone(&self.frozen);
        let weights = SequenceWeights { params, frozen: &frozen };
        match &plan.body {
            Body::Encoder(blocks) => {
                let x = self.encoder.start(blocks, pass);
                self.embeddings.forward(&plan.embeddings, weights, pass, x);
                self.encoder.forward(blocks, weights, pass, rows);
            }
            Body::Lstm(lstm) => self.lstm.forward(lstm, &plan.embeddings, weights, pass, rows),
        }
    }

    /// After [`Sequence::train`]: adds the gradient, given that of the rows.
    pub(crate) fn backward(&mut self, plan: &SequencePlan, params: &[f32], d_rows: &[f32], grad: &mut [f32]) {
        let pass = TokenPass { isa: self.isa, packed: &self.packed, key: Some(self.key) };
        match &plan.body {
            Body::Encoder(blocks) => {
                let below = !plan.embeddings.frozen;
                if let Some(d) = self.encoder.backward(blocks, params, pass, d_rows, grad, below) {
                    self.embeddings.backward(&plan.embeddings, params, pass, d, grad);
                }
            }
            Body::Lstm(lstm) => self.lstm.backward(lstm, &plan.embeddings, params, pass, d_rows, grad),
        }
    }
}
