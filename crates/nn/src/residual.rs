//! Residual networks: a stem, stages of blocks, global average pooling.

use fedelity_kernels::pool::Window;
use fedelity_keys::Choice;

use crate::architecture::{InputShape, Layer, Node};

/// The first layers of a residual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum Stem {
    /// A 3x3 convolution, for small images.
    Cifar,
    /// A 7x7 convolution and a pooling, both with stride 2.
    #[choice("imagenet")]
    ImageNet,
}

/// Largest image side for which the small stem is the default.
const SMALL: usize = 64;

impl Stem {
    /// The default stem for inputs of this shape: [`Stem::Cifar`] up to 64 pixels per side.
    #[must_use]
    pub fn usual(input: InputShape) -> Self {
        let (_, height, width) = input.sides();
        if height.max(width) <= SMALL { Self::Cifar } else { Self::ImageNet }
    }
}

/// Sizes of a residual network.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidualShape {
    /// Channels of the first stage; each further stage has twice as many.
    pub width: usize,
    /// Blocks per stage.
    pub blocks: Vec<usize>,
    /// Whether blocks are bottlenecks of 1x1, 3x3 and 1x1 convolutions, with four times their width in output channels.
    pub bottleneck: bool,
    /// [`Layer::GroupNorm`] or [`Layer::BatchNorm`].
    pub norm: Layer,
}

/// Ratio of output channels to width of a bottleneck.
const EXPANSION: usize = 4;

impl ResidualShape {
    pub(crate) fn new(width: usize, blocks: &[usize], bottleneck: bool, norm: Layer) -> Self {
        Self { width, blocks: blocks.to_vec(), bottleneck, norm }
    }

    /// Number of features: the channels of the last stage.
    #[must_use]
    pub fn features(&self) -> usize {
        self.out(self.blocks.len().saturating_sub(1))
    }

    /// Output channels of a stage.
    fn out(&self, stage: usize) -> usize {
        (self.width << stage) * if self.bottleneck { EXPANSION } else { 1 }
    }

    /// The layers up to the features. Tensors are named as in torchvision.
    #[must_use]
    pub fn layers(&self, stem: Stem) -> Vec<Node> {
        let mut nodes = match stem {
            Stem::Cifar => vec![conv("conv1", self.width, 3, 1)],
            Stem::ImageNet => vec![conv("conv1", self.width, 7, 2)],
        };
        nodes.extend([self.norm("bn1"), relu()]);
        if stem == Stem::ImageNet {
            nodes.push(Node::plain(Layer::MaxPool(Window { kernel: 3, stride: 2, pad: 1 })));
        }
        let mut channels = self.width;
        for (stage, &count) in self.blocks.iter().enumerate() {
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let name = |part: &str| format!("layer{}.{block}.{part}", stage + 1);
                let shortcut = if stride != 1 || channels != self.out(stage) {
                    vec![conv(&name("downsample.0"), self.out(stage), 1, stride), self.norm(&name("downsample.1"))]
                } else {
                    Vec::new()
                };
                let body = self.body(stage, stride, name);
                nodes.push(Node::plain(Layer::Residual { body, shortcut }));
                nodes.push(relu());
                channels = self.out(stage);
            }
        }
        nodes.push(Node::plain(Layer::GlobalAveragePool));
        nodes.push(Node::plain(Layer::Flatten));
        nodes
    }

    /// The main path through a block. A bottleneck's stride is in its 3x3 convolution.
    fn body(&self, stage: usize, stride: usize, name: impl Fn(&str) -> String) -> Vec<Node> {
        let width = self.width << stage;
        let mut convolutions = vec![(width, 3, stride), (width, 3, 1)];
        if self.bottleneck {
            convolutions = vec![(width, 1, 1), (width, 3, stride), (self.out(stage), 1, 1)];
        }
        let mut nodes = Vec::new();
        for (i, (out, kernel, stride)) in (1..).zip(convolutions) {
            if i > 1 {
                nodes.push(relu());
            }
            nodes.push(conv(&name(&format!("conv{i}")), out, kernel, stride));
            nodes.push(self.norm(&name(&format!("bn{i}"))));
        }
        nodes
    }

    fn norm(&self, name: &str) -> Node {
        Node::named(name, self.norm.clone())
    }
}

/// A padded convolution: only its stride changes the image size.
fn conv(name: &str, out: usize, kernel: usize, stride: usize) -> Node {
    Node::named(name, Layer::Conv { out, kernel, stride, pad: kernel / 2, bias: false })
}

fn relu() -> Node {
    Node::plain(Layer::Relu)
}
