//! Models by name.
//!
//! Tensor names match the usual PyTorch modules (torchvision for residual networks), so that a state dict can be filled
//! from a saved model.

use fedelity_kernels::pool::Window;

use crate::architecture::{Architecture, BlockNames, InputShape, Layer, Node};
use crate::encoder::{EncoderShape, PROJECTION, encoder};
use crate::error::NnError;
use crate::residual::{ResidualShape, Stem};
use crate::vgg::vgg11;

/// The model to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    pub name: String,
    /// Whether to put a two-layer projection head between the features and the classifier.
    pub projection: bool,
    /// The stem of a residual network; `None` for the default for the image size.
    pub stem: Option<Stem>,
}

impl ModelSpec {
    /// The model with this name, with or without a projection head.
    #[must_use]
    pub fn new(name: impl Into<String>, projection: bool) -> Self {
        Self { name: name.into(), projection, stem: None }
    }
}

/// A model of the zoo.
#[derive(Debug)]
pub struct ZooModel {
    pub name: &'static str,
    pub summary: &'static str,
    kind: ZooKind,
}

#[derive(Debug)]
enum ZooKind {
    Layers { extractor: fn() -> Vec<Node>, head: &'static str, features: fn(InputShape) -> usize },
    Residual { shape: fn() -> ResidualShape, has_stem: bool },
    Encoder { names: BlockNames, width: usize, layers: usize },
}

const fn layers(
    name: &'static str,
    summary: &'static str,
    extractor: fn() -> Vec<Node>,
    head: &'static str,
    features: fn(InputShape) -> usize,
) -> ZooModel {
    ZooModel { name, summary, kind: ZooKind::Layers { extractor, head, features } }
}

const fn residual(name: &'static str, summary: &'static str, shape: fn() -> ResidualShape) -> ZooModel {
    ZooModel { name, summary, kind: ZooKind::Residual { shape, has_stem: true } }
}

const fn bert(name: &'static str, summary: &'static str, names: BlockNames, width: usize, layers: usize) -> ZooModel {
    ZooModel { name, summary, kind: ZooKind::Encoder { names, width, layers } }
}

const GROUPS: Layer = Layer::GroupNorm { channels_per_group: 16 };

/// Every model of the zoo.
pub const MODELS: &[ZooModel] = &[
    layers(
        "logistic",
        "multinomial logistic regression",
        || vec![Node::plain(Layer::Flatten)],
        "fc",
        |input| input.len(),
    ),
    layers("mlp", "two hidden layers of 200 units (McMahan et al. 2017)", mlp, "fc3", |_| 200),
    layers(
        "simple-cnn",
        "LeNet-style network of MOON and NIID-Bench: 6 and 16 channels, 120 and 84 units",
        simple_cnn,
        "fc3",
        |_| 84,
    ),
    layers("ntd-cnn", "network of FedNTD: 32 and 64 channels, 512 units", ntd_cnn, "fc2", |_| 512),
    // The only residual network that is just for small images.
    ZooModel {
        name: "resnet8-gn",
        summary: "ResNet-8 with GroupNorm, 16 channels per group (FedGKD)",
        kind: ZooKind::Residual { shape: || ResidualShape::new(16, &[1, 1, 1], false, GROUPS), has_stem: false },
    },
    residual("resnet18-gn", "ResNet-18 with GroupNorm, 16 channels per group", || {
        ResidualShape::new(64, &[2, 2, 2, 2], false, GROUPS)
    }),
    residual("resnet18-bn", "ResNet-18 with BatchNorm", || {
        ResidualShape::new(64, &[2, 2, 2, 2], false, Layer::BatchNorm)
    }),
    residual("resnet50-gn", "ResNet-50 with GroupNorm, 16 channels per group (FedGKD)", || {
        ResidualShape::new(64, &[3, 4, 6, 3], true, GROUPS)
    }),
    residual("resnet50-bn", "ResNet-50 with BatchNorm (MOON)", || {
        ResidualShape::new(64, &[3, 4, 6, 3], true, Layer::BatchNorm)
    }),
    layers(
        "vgg11",
        "VGG-11 for small images: 8 convolutions, two dense layers of 512 with dropout (NIID-Bench, FedNTD)",
        || vgg11(64),
        "classifier.6",
        |_| 512,
    ),
    layers("lstm", "text: word embeddings of 100, LSTM of 128", lstm, "fc", |_| 128),
    bert("minilm", "text: MiniLM encoder, 6 layers of 384, first token to two dense layers", BlockNames::Bert, 384, 6),
    bert(
        "distilbert",
        "text: DistilBERT encoder, 6 layers of 768, first token to two dense layers (FedGKD)",
        BlockNames::DistilBert,
        768,
        6,
    ),
    bert("bert", "text: BERT encoder, 12 layers of 768, first token to two dense layers", BlockNames::Bert, 768, 12),
];

/// The names of [`MODELS`].
pub const NAMES: &[&str] = &{
    let (mut names, mut i) = ([""; MODELS.len()], 0);
    while i < MODELS.len() {
        names[i] = MODELS[i].name;
        i += 1;
    }
    names
};

fn find(name: &str) -> Option<&'static ZooKind> {
    MODELS.iter().find(|model| model.name == name).map(|model| &model.kind)
}

/// Builds a model for inputs of this shape.
///
/// # Errors
/// When the name is unknown.
pub fn build(spec: &ModelSpec, input: InputShape, classes: usize) -> Result<Architecture, NnError> {
    let unknown = || NnError::UnknownModel { name: spec.name.clone(), known: NAMES.join(", ") };
    let (mut extractor, mut head, width) = match *find(&spec.name).ok_or_else(unknown)? {
        ZooKind::Layers { extractor, head, features } => (extractor(), head, features(input)),
        ZooKind::Residual { shape, has_stem } => {
            let stem = if has_stem { spec.stem.unwrap_or_else(|| Stem::usual(input)) } else { Stem::Cifar };
            (shape().layers(stem), "fc", shape().features())
        }
        ZooKind::Encoder { names, width, layers } => {
            let shape = EncoderShape::new(names, width, layers);
            return Ok(encoder(&spec.name, &shape, spec.projection, None, input, classes));
        }
    };
    if spec.projection {
        extractor.push(dense("proj1", width));
        extractor.push(relu());
        extractor.push(dense("proj2", PROJECTION));
        head = "head";
    }
    Ok(Architecture { name: spec.name.clone(), input, classes, extractor, head: head.to_owned() })
}

/// Whether a model's stem can be chosen.
#[must_use]
pub fn has_stem(name: &str) -> bool {
    find(name).is_some_and(|kind| matches!(kind, ZooKind::Residual { has_stem: true, .. }))
}

/// Whether a model is an encoder of the BERT family.
#[must_use]
pub fn is_encoder(name: &str) -> bool {
    matches!(find(name), Some(ZooKind::Encoder { .. }))
}

/// Whether a model reads texts.
#[must_use]
pub fn reads_text(name: &str) -> bool {
    find(name).is_some_and(|kind| match kind {
        ZooKind::Layers { extractor, .. } => {
            extractor().first().is_some_and(|node| matches!(node.layer, Layer::Embedding { .. }))
        }
        ZooKind::Residual { .. } => false,
        ZooKind::Encoder { .. } => true,
    })
}

impl EncoderShape {
    /// The sizes of the zoo encoder with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match *find(name)? {
            ZooKind::Encoder { names, width, layers } => Some(Self::new(names, width, layers)),
            ZooKind::Layers { .. } | ZooKind::Residual { .. } => None,
        }
    }
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
