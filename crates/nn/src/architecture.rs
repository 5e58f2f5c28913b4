//! A model as data: a tree of layers with a feature extractor and a head.

use fedelity_kernels::pool::Window;

/// What one input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputShape {
    /// An image, or a row of numbers as an image of one line.
    Image {
        /// Colour channels.
        channels: usize,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// A text as numbers of tokens.
    Tokens {
        /// Tokens there are.
        vocabulary: usize,
        /// Tokens a text has at most.
        max_length: usize,
    },
}

impl InputShape {
    /// Values in one input; of a text, the most there can be.
    #[must_use]
    pub fn len(self) -> usize {
        let (channels, height, width) = self.sides();
        channels * height * width
    }

    /// Channels, rows and columns. A text is one line of tokens.
    #[must_use]
    pub fn sides(self) -> (usize, usize, usize) {
        match self {
            Self::Image { channels, height, width } => (channels, height, width),
            Self::Tokens { max_length, .. } => (1, 1, max_length),
        }
    }

    /// Whether an input has no values.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What one layer computes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Layer {
    /// Convolution with a square kernel.
    Conv {
        /// Output channels.
        out: usize,
        /// Rows and columns of the kernel.
        kernel: usize,
        /// Pixels from one output to the next.
        stride: usize,
        /// Zeros around the input.
        pad: usize,
        /// Whether a bias is added.
        bias: bool,
    },
    /// Fully connected layer with a bias.
    Dense {
        /// Output features.
        out: usize,
    },
    /// max(x, 0).
    Relu,
    /// Largest value of each window.
    MaxPool(Window),
    /// Mean of each window.
    AveragePool(Window),
    /// Mean over all pixels of a channel.
    GlobalAveragePool,
    /// Group normalisation.
    GroupNorm {
        /// Channels that share a mean and a variance.
        channels_per_group: usize,
    },
    /// Batch normalisation with running statistics.
    BatchNorm,
    /// Zeroes features at random while training.
    Dropout {
        /// Probability of zero.
        p: f32,
    },
    /// Pixels of all channels to one row of features.
    Flatten,
    /// body(x) + shortcut(x); an empty shortcut is x itself.
    Residual {
        /// The layers of the long way.
        body: Vec<Node>,
        /// The layers of the short way.
        shortcut: Vec<Node>,
    },
}

/// A layer with the name its tensors have in PyTorch.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Prefix of the tensors' names; empty for layers without tensors.
    pub name: String,
    /// The layer.
    pub layer: Layer,
}

impl Node {
    /// A layer with tensors.
    #[must_use]
    pub fn named(name: impl Into<String>, layer: Layer) -> Self {
        Self { name: name.into(), layer }
    }

    /// A layer without tensors.
    #[must_use]
    pub fn plain(layer: Layer) -> Self {
        Self { name: String::new(), layer }
    }
}

/// A whole model: layers up to the features, then a linear head.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// Name in the zoo.
    pub name: String,
    /// What goes in.
    pub input: InputShape,
    /// Number of classes: what comes out.
    pub classes: usize,
    /// From the image to the features.
    pub extractor: Vec<Node>,
    /// Name of the linear layer from the features to the logits.
    pub head: String,
}
