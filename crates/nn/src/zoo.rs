//! The models by name.
//!
//! Tensor names are those of the usual PyTorch modules (torchvision's for residual networks), so that a state dict can
//! be filled from a saved model.

use fedelity_kernels::pool::Window;

use crate::architecture::{Architecture, InputShape, Layer, Node};
use crate::encoder::{EncoderShape, encoder};
use crate::error::Error;
use crate::residual::{ResidualShape, Stem};
use crate::vgg::vgg11;

/// Width of the projection head's output (MOON, FedGKD+).
const PROJECTION: usize = 256;

/// Which model to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// A name of [`NAMES`].
    pub name: String,
    /// Whether a two-layer projection head stands between the features and the classifier.
    pub projection: bool,
    /// How a residual network starts; `None` for what is usual for the size of the images.
    pub stem: Option<Stem>,
}

impl ModelSpec {
    /// The model of this name, with or without a projection head.
    #[must_use]
    pub fn new(name: impl Into<String>, projection: bool) -> Self {
        Self { name: name.into(), projection, stem: None }
    }
}

/// Every model of the zoo.
pub const NAMES: &[&str] = &[
    "logistic",
    "mlp",
    "simple-cnn",
    "ntd-cnn",
    "resnet8-gn",
    "resnet18-gn",
    "resnet18-bn",
    "resnet50-gn",
    "resnet50-bn",
    "vgg11",
    "lstm",
    "minilm",
    "distilbert",
    "bert",
];

/// One line on each model, in the order of [`NAMES`].
pub const SUMMARIES: &[&str] = &[
    "multinomial logistic regression",
    "two hidden layers of 200 units (McMahan et al. 2017)",
    "LeNet-style network of MOON and NIID-Bench: 6 and 16 channels, 120 and 84 units",
    "network of FedNTD: 32 and 64 channels, 512 units",
    "ResNet-8 with GroupNorm, 16 channels a group (FedGKD)",
    "ResNet-18 with GroupNorm, 16 channels a group",
    "ResNet-18 with BatchNorm",
    "ResNet-50 with GroupNorm, 16 channels a group (FedGKD)",
    "ResNet-50 with BatchNorm (MOON)",
    "VGG-11 for small images: 8 convolutions, two dense layers of 512 with dropout (NIID-Bench, FedNTD)",
    "text: word embeddings of 100, LSTM of 128",
    "text: MiniLM encoder, 6 layers of 384, first token to two dense layers",
    "text: DistilBERT encoder, 6 layers of 768, first token to two dense layers (FedGKD)",
    "text: BERT encoder, 12 layers of 768, first token to two dense layers",
];

/// Builds a model for inputs of this shape.
///
/// # Errors
/// When the name is unknown or the shape is too small for the layers.
pub fn build(spec: &ModelSpec, input: InputShape, classes: usize) -> Result<Architecture, Error> {
    if let Some(shape) = EncoderShape::named(&spec.name) {
        return Ok(encoder(&spec.name, &shape, spec.projection, None, input, classes));
    }
    let (mut extractor, mut head, width) = match spec.name.as_str() {
        "logistic" => (vec![Node::plain(Layer::Flatten)], "fc", input.len()),
        "mlp" => (mlp(), "fc3", 200),
        "simple-cnn" => (simple_cnn(), "fc3", 84),
        "ntd-cnn" => (ntd_cnn(), "fc2", 512),
        "lstm" => (lstm(), "fc", 128),
        "vgg11" => (vgg11(64), "classifier.6", 512),
        name => match ResidualShape::named(name) {
            Some(shape) => (shape.layers(stem(spec, input)), "fc", shape.features()),
            None => return Err(Error::UnknownModel { name: name.to_owned(), known: NAMES.join(", ") }),
        },
    };
    if spec.projection {
        extractor.push(Node::named("proj1", Layer::Dense { out: width }));
        extractor.push(Node::plain(Layer::Relu));
        extractor.push(Node::named("proj2", Layer::Dense { out: PROJECTION }));
        head = "head";
    }
    Ok(Architecture { name: spec.name.clone(), input, classes, extractor, head: head.to_owned() })
}

/// Whether the stem of a model can be chosen.
#[must_use]
pub fn has_stem(name: &str) -> bool {
    name != SMALLEST && ResidualShape::named(name).is_some()
}

/// The one residual network that is for small images only.
const SMALLEST: &str = "resnet8-gn";

fn stem(spec: &ModelSpec, input: InputShape) -> Stem {
    if has_stem(&spec.name) { spec.stem.unwrap_or_else(|| Stem::usual(input)) } else { Stem::Cifar }
}

fn conv(name: &str, out: usize, kernel: usize, stride: usize, pad: usize, bias: bool) -> Node {
    Node::named(name, Layer::Conv { out, kernel, stride, pad, bias })
}

fn pool2() -> Node {
    Node::plain(Layer::MaxPool(Window { kernel: 2, stride: 2, pad: 0 }))
}

fn relu() -> Node {
    Node::plain(Layer::Relu)
}

fn dense(name: &str, out: usize) -> Node {
    Node::named(name, Layer::Dense { out })
}

fn lstm() -> Vec<Node> {
    vec![Node::named("embedding", Layer::Embedding { width: 100 }), Node::named("lstm", Layer::Lstm { hidden: 128 })]
}

fn mlp() -> Vec<Node> {
    vec![Node::plain(Layer::Flatten), dense("fc1", 200), relu(), dense("fc2", 200), relu()]
}

fn simple_cnn() -> Vec<Node> {
    let mut nodes =
        vec![conv("conv1", 6, 5, 1, 0, true), relu(), pool2(), conv("conv2", 16, 5, 1, 0, true), relu(), pool2()];
    nodes.extend([Node::plain(Layer::Flatten), dense("fc1", 120), relu(), dense("fc2", 84), relu()]);
    nodes
}

fn ntd_cnn() -> Vec<Node> {
    let mut nodes =
        vec![conv("conv1", 32, 5, 1, 2, true), relu(), pool2(), conv("conv2", 64, 5, 1, 2, true), relu(), pool2()];
    nodes.extend([Node::plain(Layer::Flatten), dense("fc1", 512), relu()]);
    nodes
}
