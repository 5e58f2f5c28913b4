//! The token part of a compiled model: from tokens to one row per sample.

use std::ops::Range;

use fedelity_kernels::dense::DenseSizes;
use fedelity_kernels::layer_norm::LayerNorm;

use crate::architecture::{Architecture, BlockNames, InputShape, Layer, Node};
use crate::error::NnError;
use crate::layout::{Init, Layout};

/// Initialisation of new weights, as in BERT.
const NORMAL: Init = Init::Normal { std: 0.02 };

/// The layers from tokens to rows.
#[derive(Clone, Debug)]
pub(crate) struct SequencePlan {
    pub embeddings: EmbeddingPlan,
    pub body: Body,
    /// Width of the output rows.
    pub width: usize,
}

/// The layers above the embeddings.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Transformer blocks; the last one computes only the first token of each sample.
    Encoder(Vec<Block>),
    /// An LSTM; its last hidden state is the output.
    Lstm(Lstm),
}

/// A lookup table, with or without BERT's positions, token types and normalisation.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddingPlan {
    pub width: usize,
    pub word: Range<usize>,
    pub rest: Option<Positions>,
    pub frozen: bool,
}

/// What BERT adds to the word embeddings.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    pub position: Range<usize>,
    /// Token types; only type 0 is used.
    pub kind: Option<Range<usize>>,
    pub norm: Affine,
    pub dropout: f32,
}

/// Scale and shift of a normalisation.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub gamma: Range<usize>,
    pub beta: Range<usize>,
    pub eps: f32,
}

impl Affine {
    pub(crate) fn of<'a>(&self, weights: &'a [f32]) -> LayerNorm<'a> {
        LayerNorm { gamma: &weights[self.gamma.clone()], beta: &weights[self.beta.clone()], eps: self.eps }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub inputs: usize,
    pub outputs: usize,
    pub weight: Range<usize>,
    pub bias: Range<usize>,
}

impl Linear {
    pub(crate) fn sizes(&self, samples: usize) -> DenseSizes {
        DenseSizes { samples, inputs: self.inputs, outputs: self.outputs }
    }
}

/// One transformer block: the ranges of its weights in the parameters or in the frozen weights.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub heads: usize,
    pub width: usize,
    pub hidden: usize,
    pub query: Linear,
    /// Keys and values, computed by one product.
    pub key_value: Linear,
    pub out: Linear,
    pub norm1: Affine,
    pub up: Linear,
    pub down: Linear,
    pub norm2: Affine,
    pub dropout: f32,
    pub attention_dropout: f32,
    pub frozen: bool,
    /// Whether to output only the first token of each sample.
    pub first_token: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Lstm {
    pub width: usize,
    pub hidden: usize,
    pub input: Linear,
    pub recurrent: Linear,
}

impl SequencePlan {
    /// Multiply-adds of one sample with this many tokens.
    pub(crate) fn multiply_adds(&self, tokens: usize) -> usize {
        match &self.body {
            Body::Lstm(lstm) => tokens * 4 * lstm.hidden * (lstm.width + lstm.hidden),
            Body::Encoder(blocks) => blocks
                .iter()
                .map(|b| {
                    let queries = if b.first_token { 1 } else { tokens };
                    let (w, h) = (b.width, b.hidden);
                    tokens * 2 * w * w + queries * (2 * w * w + 2 * w * h) + 2 * queries * tokens * w
                })
                .sum(),
        }
    }
}

/// Compiles the token layers at the front of the model. Returns the plan and the remaining layers.
pub(crate) fn plan<'a>(
    arch: &'a Architecture,
    layout: &mut Layout,
    frozen: &mut Layout,
) -> Result<(SequencePlan, &'a [Node]), NnError> {
    let misfit = |reason: String| NnError::DoesNotFit { model: arch.name.clone(), reason };
    let InputShape::Tokens { vocabulary, max_length } = arch.input else {
        return Err(misfit("its input is not a text".to_owned()));
    };
    let mut parts = TensorMaker { layout, frozen };
    let mut nodes = arch.extractor.iter();
    let first = nodes.next().ok_or_else(|| misfit("it has no layers".to_owned()))?;
    let embeddings = match first.layer {
        Layer::Embedding { width } => {
            let word = parts.push(first, "weight", &[vocabulary, width], Init::Normal { std: 1.0 });
            EmbeddingPlan { width, word, rest: None, frozen: first.frozen }
        }
        Layer::Embeddings { width, positions, types, eps, dropout } => {
            if max_length > positions {
                return Err(misfit(format!("texts of {max_length} tokens, but it has {positions} positions")));
            }
            let word = parts.push(first, "word_embeddings.weight", &[vocabulary, width], NORMAL);
            let position = parts.push(first, "position_embeddings.weight", &[positions, width], NORMAL);
            let kind = (types > 0).then(|| parts.push(first, "token_type_embeddings.weight", &[types, width], NORMAL));
            let norm = parts.affine(first, "LayerNorm", width, eps);
            EmbeddingPlan { width, word, rest: Some(Positions { position, kind, norm, dropout }), frozen: first.frozen }
        }
        ref other => return Err(misfit(format!("a text needs an embedding first, not {other:?}"))),
    };
    let width = embeddings.width;
    let mut blocks: Vec<Block> = Vec::new();
    while let Some(node) = nodes.next() {
        let below = blocks.last().map_or(embeddings.frozen, |b| b.frozen);
        if node.frozen && !below {
            return Err(misfit(format!("{:?} is frozen, but a layer below it is not", node.name)));
        }
        match node.layer {
            Layer::Block { heads, hidden, eps, dropout, attention_dropout, names } => {
                if heads == 0 || !width.is_multiple_of(heads) {
                    return Err(misfit(format!("{heads} heads do not divide a width of {width}")));
                }
                let mut block = parts.block(node, names, (width, hidden), eps);
                (block.heads, block.dropout, block.attention_dropout) = (heads, dropout, attention_dropout);
                blocks.push(block);
            }
            Layer::FirstToken => {
                let last = blocks.last_mut().ok_or_else(|| misfit("it has no transformer block".to_owned()))?;
                last.first_token = true;
                return Ok((SequencePlan { embeddings, body: Body::Encoder(blocks), width }, nodes.as_slice()));
            }
            Layer::Lstm { hidden } if blocks.is_empty() => {
                let init = Init::Uniform { fan_in: hidden };
                let mut linear = |part: &str, inputs: usize| Linear {
                    inputs,
                    outputs: 4 * hidden,
                    weight: parts.push(node, &format!("weight_{part}_l0"), &[4 * hidden, inputs], init),
                    bias: parts.push(node, &format!("bias_{part}_l0"), &[4 * hidden], init),
                };
                let (input, recurrent) = (linear("ih", width), linear("hh", hidden));
                if node.frozen {
                    return Err(misfit("a recurrent layer cannot be frozen".to_owned()));
                }
                let body = Body::Lstm(Lstm { width, hidden, input, recurrent });
                return Ok((SequencePlan { embeddings, body, width: hidden }, nodes.as_slice()));
            }
            ref other => return Err(misfit(format!("{other:?} does not work on tokens"))),
        }
    }
    Err(misfit("nothing takes one row per sample out of the tokens".to_owned()))
}

/// Adds tensors to the layouts.
struct TensorMaker<'a> {
    layout: &'a mut Layout,
    frozen: &'a mut Layout,
}

impl TensorMaker<'_> {
    fn push(&mut self, node: &Node, part: &str, shape: &[usize], init: Init) -> Range<usize> {
        let layout = if node.frozen { &mut *self.frozen } else { &mut *self.layout };
        layout.push(format!("{}.{part}", node.name), shape, true, init)
    }

    fn affine(&mut self, node: &Node, part: &str, width: usize, eps: f32) -> Affine {
        let gamma = self.push(node, &format!("{part}.weight"), &[width], Init::Constant(1.0));
        let beta = self.push(node, &format!("{part}.bias"), &[width], Init::Constant(0.0));
        Affine { gamma, beta, eps }
    }

    /// Several dense layers with adjacent weights, followed by their biases, so that a single product computes them
    /// all.
    fn linear(&mut self, node: &Node, parts: &[&str], inputs: usize, outputs: usize) -> Linear {
        let mut join = |kind: &str, shape: &[usize], init: Init| {
            let ranges: Vec<Range<usize>> =
                parts.iter().map(|part| self.push(node, &format!("{part}.{kind}"), shape, init)).collect();
            ranges[0].start..ranges[ranges.len() - 1].end
        };
        let weight = join("weight", &[outputs, inputs], NORMAL);
        let bias = join("bias", &[outputs], Init::Constant(0.0));
        Linear { inputs, outputs: outputs * parts.len(), weight, bias }
    }

    fn block(&mut self, node: &Node, names: BlockNames, (width, hidden): (usize, usize), eps: f32) -> Block {
        let n = names.parts();
        Block {
            heads: 0,
            width,
            hidden,
            query: self.linear(node, &[n.query], width, width),
            key_value: self.linear(node, &[n.key, n.value], width, width),
            out: self.linear(node, &[n.out], width, width),
            norm1: self.affine(node, n.norm1, width, eps),
            up: self.linear(node, &[n.up], width, hidden),
            down: self.linear(node, &[n.down], hidden, width),
            norm2: self.affine(node, n.norm2, width, eps),
            dropout: 0.0,
            attention_dropout: 0.0,
            frozen: node.frozen,
            first_token: false,
        }
    }
}
