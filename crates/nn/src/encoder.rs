//! Text encoders of the BERT family, with the classifier of FedGKD on the first token.

use serde::{Deserialize, Serialize};

use crate::architecture::{Architecture, BlockNames, InputShape, Layer, Node};

/// Width of the projection before the classifier (FedGKD+, MOON).
pub(crate) const PROJECTION: usize = 256;
/// More layers than any encoder has; each takes memory before the sizes are checked.
pub(crate) const MOST_LAYERS: usize = 1_000;

/// Sizes of an encoder, as in its config.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EncoderShape {
    pub names: BlockNames,
    /// Prefix of all tensor names, including the dot; often empty.
    pub prefix: String,
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width between the two dense layers of a block.
    pub hidden: usize,
    /// Number of positions: the maximum text length.
    pub positions: usize,
    /// Number of token types; DistilBERT has none.
    pub types: usize,
    pub eps: f32,
    pub dropout: f32,
    pub attention_dropout: f32,
    /// Dropout probability in the classifier.
    pub head_dropout: f32,
}

impl EncoderShape {
    /// An encoder with the usual sizes for this width and number of layers.
    pub(crate) fn new(names: BlockNames, width: usize, layers: usize) -> Self {
        Self {
            names,
            prefix: String::new(),
            width,
            layers,
            heads: 12,
            hidden: 4 * width,
            positions: 512,
            types: if names == BlockNames::Bert { 2 } else { 0 },
            eps: 1e-12,
            dropout: 0.1,
            attention_dropout: 0.1,
            head_dropout: 0.2,
        }
    }

    /// The same sizes with one dropout probability for the whole encoder.
    #[must_use]
    pub fn with_dropout(self, p: f32) -> Self {
        Self { dropout: p, attention_dropout: p, ..self }
    }
}

/// An encoder with its classifier: first token, dense, ReLU, dropout, optional projection, dense.
///
/// `freeze` is the number of blocks to freeze in addition to the embeddings: `Some(0)` freezes only the embeddings,
/// `None` nothing.
#[must_use]
pub fn encoder(
    name: &str,
    shape: &EncoderShape,
    projection: bool,
    freeze: Option<usize>,
    input: InputShape,
    classes: usize,
) -> Architecture {
    let &EncoderShape { names, width, heads, hidden, positions, types, eps, dropout, attention_dropout, .. } = shape;
    let part = |rest: String| format!("{}{rest}", shape.prefix);
    let first = Layer::Embeddings { width, positions, types, eps, dropout };
    let mut extractor = vec![Node::named(part("embeddings".to_owned()), first).with_frozen(freeze.is_some())];
    for i in 0..shape.layers {
        let name = match names {
            BlockNames::Bert => format!("encoder.layer.{i}"),
            BlockNames::DistilBert => format!("transformer.layer.{i}"),
        };
        let layer = Layer::Block { heads, hidden, eps, dropout, attention_dropout, names };
        extractor.push(Node::named(part(name), layer).with_frozen(freeze.is_some_and(|n| i < n)));
    }
    extractor.extend([
        Node::plain(Layer::FirstToken),
        Node::named("pre_classifier", Layer::Dense { out: width }),
        Node::plain(Layer::Relu),
        Node::plain(Layer::Dropout { p: shape.head_dropout }),
    ]);
    if projection {
        extractor.push(Node::named("projection", Layer::Dense { out: PROJECTION }));
    }
    Architecture { name: name.to_owned(), input, classes, extractor, head: "classifier".to_owned() }
}
