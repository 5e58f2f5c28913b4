//! The models by name.
//!
//! Tensor names are those of the usual PyTorch modules (torchvision's for residual networks), so that a state dict can
//! be filled from a saved model.

use fedelity_kernels::pool::Window;

use crate::architecture::{Architecture, InputShape, Layer, Node};
use crate::encoder::{EncoderShape, encoder};
use crate::error::Error;

/// Width of the projection head's output (MOON, FedGKD+).
const PROJECTION: usize = 256;

/// Which model to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// A name of [`NAMES`].
    pub name: String,
    /// Whether a two-layer projection head stands between the features and the classifier.
    pub projection: bool,
}

/// Every model of the zoo.
pub const NAMES: &[&str] =
    &["logistic", "mlp", "simple-cnn", "ntd-cnn", "resnet8-gn", "lstm", "minilm", "distilbert", "bert"];

/// One line on each model, in the order of [`NAMES`].
pub const SUMMARIES: &[&str] = &[
    "multinomial logistic regression",
    "two hidden layers of 200 units (McMahan et al. 2017)",
    "LeNet-style network of MOON and NIID-Bench: 6 and 16 channels, 120 and 84 units",
    "network of FedNTD: 32 and 64 channels, 512 units",
    "ResNet-8 with GroupNorm, 16 channels a group (FedGKD)",
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
        "resnet8-gn" => (resnet(16, &[1, 1, 1], 16), "fc", 64),
        name => return Err(Error::UnknownModel { name: name.to_owned(), known: NAMES.join(", ") }),
    };
    if spec.projection {
        extractor.push(Node::named("proj1", Layer::Dense { out: width }));
        extractor.push(Node::plain(Layer::Relu));
        extractor.push(Node::named("proj2", Layer::Dense { out: PROJECTION }));
        head = "head";
    }
    Ok(Architecture { name: spec.name.clone(), input, classes, extractor, head: head.to_owned() })
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

/// A residual network of basic blocks with a 3x3 stem: `blocks[i]` blocks of width `width << i`.
fn resnet(width: usize, blocks: &[usize], channels_per_group: usize) -> Vec<Node> {
    let norm = |name: String| Node::named(name, Layer::GroupNorm { channels_per_group });
    let mut nodes = vec![conv("conv1", width, 3, 1, 1, false), norm("bn1".to_owned()), relu()];
    let mut channels = width;
    for (stage, &count) in blocks.iter().enumerate() {
        let out = width << stage;
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let name = |part: &str| format!("layer{}.{block}.{part}", stage + 1);
            let body = vec![
                conv(&name("conv1"), out, 3, stride, 1, false),
                norm(name("bn1")),
                relu(),
                conv(&name("conv2"), out, 3, 1, 1, false),
                norm(name("bn2")),
            ];
            let shortcut = if stride != 1 || channels != out {
                vec![conv(&name("downsample.0"), out, 1, stride, 0, false), norm(name("downsample.1"))]
            } else {
                Vec::new()
            };
            nodes.push(Node::plain(Layer::Residual { body, shortcut }));
            nodes.push(relu());
            channels = out;
        }
    }
    nodes.push(Node::plain(Layer::GlobalAveragePool));
    nodes.push(Node::plain(Layer::Flatten));
    nodes
}
