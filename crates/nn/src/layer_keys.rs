//! The keys of a layer in a model file.

use fedelity_kernels::pool::Window;
use fedelity_keys::serde::Serialize;
use fedelity_keys::{keys, toml};

use crate::architecture::{BlockNames, Layer};

/// One layer.
#[keys]
#[derive(Serialize)]
pub struct LayerKeys {
    #[key(flatten)]
    pub kind: LayerKind,
    /// The name of the layer's weights, as in PyTorch: `conv1`, `features.0`. By default, the kind and a number. Layers
    /// without weights have no name.
    pub name: Option<String>,
}

/// What the layer does.
#[keys(tag = "kind")]
#[derive(Serialize)]
pub enum LayerKind {
    /// Convolution with a square kernel. Works on images.
    Conv {
        /// Output channels.
        #[key(min = 1, max = 65536)]
        out: usize,
        /// Rows and columns of the kernel.
        #[key(min = 1, max = 255)]
        kernel: usize,
        /// Pixels from one position to the next.
        #[key(default = 1, min = 1, max = 64)]
        stride: usize,
        /// Zeros on each side of the image.
        #[key(default = 0, max = 127)]
        pad: usize,
        /// Whether to add a number to each output channel. Useless if a normalisation follows the layer.
        #[key(default = true)]
        bias: bool,
    },
    /// Fully connected layer with a bias. Works on rows: put a flatten layer before the first one.
    Dense {
        /// Output units.
        #[key(min = 1, max = 1048576)]
        out: usize,
    },
    /// max(x, 0). Works on images and rows.
    Relu,
    /// Maximum of each window. Works on images.
    MaxPool {
        /// Rows and columns of the window.
        #[key(min = 1, max = 255)]
        kernel: usize,
        /// Pixels from one position to the next. By default, the size of the window, so that windows do not overlap.
        #[key(min = 1, max = 255)]
        stride: Option<usize>,
        /// Padding on each side of the image, at most half the window.
        #[key(default = 0, max = 127)]
        pad: usize,
    },
    /// Mean of each window. Works on images.
    AveragePool {
        /// Rows and columns of the window.
        #[key(min = 1, max = 255)]
        kernel: usize,
        /// Pixels from one position to the next. By default, the size of the window, so that windows do not overlap.
        #[key(min = 1, max = 255)]
        stride: Option<usize>,
        /// Padding on each side of the image, at most half the window.
        #[key(default = 0, max = 127)]
        pad: usize,
    },
    /// Mean over all pixels of each channel. The result is an image of one pixel: put a flatten layer after it.
    GlobalAveragePool,
    /// Group normalisation. Works on images.
    GroupNorm {
        /// Channels that share a mean and a variance; they must divide the channels of the image.
        #[key(min = 1, max = 65536)]
        channels_per_group: usize,
    },
    /// Batch normalisation with running statistics. Works on images.
    BatchNorm,
    /// Zeroes random features during training. Works on rows.
    Dropout {
        /// Share of the features to zero.
        #[key(default = 0.5, min = 0, below = 1)]
        p: f32,
    },
    /// Turns an image into a row.
    Flatten,
    /// A row of numbers for each token of a text. The first layer of a model that reads texts.
    Embedding {
        /// Numbers per token.
        #[key(min = 1, max = 65536)]
        width: usize,
    },
    /// BERT's embeddings: the sum of word, position and token type, then normalisation and dropout. The first layer of a
    /// model that reads texts.
    BertEmbeddings {
        /// Numbers per token.
        #[key(min = 1, max = 65536)]
        width: usize,
        /// Longest text, in tokens.
        #[key(default = 512, min = 1, max = 65536)]
        positions: usize,
        /// Number of token types; all texts here have type 0.
        #[key(default = 2, max = 65536)]
        types: usize,
        /// Added to the variance.
        #[key(default = 1e-12, above = 0, below = 1)]
        eps: f32,
        /// Share of the numbers to zero during training.
        #[key(default = 0.1, min = 0, below = 1)]
        dropout: f32,
    },
    /// A transformer block on tokens: attention, then two dense layers with GELU between them. Both parts end with a
    /// residual sum and a normalisation.
    Transformer {
        /// Attention heads; they must divide the width of the tokens.
        #[key(min = 1, max = 65536)]
        heads: usize,
        /// Width between the two dense layers.
        #[key(min = 1, max = 65536)]
        hidden: usize,
        /// Added to the variance.
        #[key(default = 1e-12, above = 0, below = 1)]
        eps: f32,
        /// Share of the numbers to zero during training, before each sum.
        #[key(default = 0.1, min = 0, below = 1)]
        dropout: f32,
        /// Share of the attention to zero during training.
        #[key(default = 0.1, min = 0, below = 1)]
        attention_dropout: f32,
        /// How its tensors are named.
        #[key(default = "bert")]
        names: BlockNames,
    },
    /// Takes the first token of a text as its features. Put it after transformer blocks.
    FirstToken,
    /// An LSTM over the tokens; its last hidden state is the row of features. Put it after an embedding.
    Lstm {
        /// Size of the hidden state.
        #[key(min = 1, max = 65536)]
        hidden: usize,
    },
    /// The sum of two paths. Works on images; both paths must give the same shape.
    Residual {
        /// The layers of the first path.
        #[key(what = "a list of layers")]
        body: toml::Value,
        /// The layers of the second path. By default, there are none, and the input itself is added.
        #[key(what = "a list of layers")]
        shortcut: Option<toml::Value>,
    },
}

impl LayerKind {
    /// The word for a kind of layer.
    #[must_use]
    pub fn word_of(layer: &Layer) -> &'static str {
        Self::of(layer).name()
    }

    /// The keys of a layer; a residual layer's paths are empty.
    pub(crate) fn of(layer: &Layer) -> Self {
        let stride = |window: &Window| Some(window.stride).filter(|&stride| stride != window.kernel);
        match *layer {
            Layer::Conv { out, kernel, stride, pad, bias } => Self::Conv { out, kernel, stride, pad, bias },
            Layer::Dense { out } => Self::Dense { out },
            Layer::Relu => Self::Relu,
            Layer::MaxPool(ref w) => Self::MaxPool { kernel: w.kernel, stride: stride(w), pad: w.pad },
            Layer::AveragePool(ref w) => Self::AveragePool { kernel: w.kernel, stride: stride(w), pad: w.pad },
            Layer::GlobalAveragePool => Self::GlobalAveragePool,
            Layer::GroupNorm { channels_per_group } => Self::GroupNorm { channels_per_group },
            Layer::BatchNorm => Self::BatchNorm,
            Layer::Dropout { p } => Self::Dropout { p },
            Layer::Flatten => Self::Flatten,
            Layer::Embedding { width } => Self::Embedding { width },
            Layer::Embeddings { width, positions, types, eps, dropout } => {
                Self::BertEmbeddings { width, positions, types, eps, dropout }
            }
            Layer::Block { heads, hidden, eps, dropout, attention_dropout, names } => {
                Self::Transformer { heads, hidden, eps, dropout, attention_dropout, names }
            }
            Layer::FirstToken => Self::FirstToken,
            Layer::Lstm { hidden } => Self::Lstm { hidden },
            Layer::Residual { .. } => Self::Residual { body: toml::Value::Array(Vec::new()), shortcut: None },
        }
    }

    /// The layer, or the two paths of a residual layer, which remain to be read.
    pub(crate) fn layer(self) -> Result<Layer, (toml::Value, Option<toml::Value>)> {
        let window =
            |kernel: usize, stride: Option<usize>, pad: usize| Window { kernel, stride: stride.unwrap_or(kernel), pad };
        Ok(match self {
            Self::Conv { out, kernel, stride, pad, bias } => Layer::Conv { out, kernel, stride, pad, bias },
            Self::Dense { out } => Layer::Dense { out },
            Self::Relu => Layer::Relu,
            Self::MaxPool { kernel, stride, pad } => Layer::MaxPool(window(kernel, stride, pad)),
            Self::AveragePool { kernel, stride, pad } => Layer::AveragePool(window(kernel, stride, pad)),
            Self::GlobalAveragePool => Layer::GlobalAveragePool,
            Self::GroupNorm { channels_per_group } => Layer::GroupNorm { channels_per_group },
            Self::BatchNorm => Layer::BatchNorm,
            Self::Dropout { p } => Layer::Dropout { p },
            Self::Flatten => Layer::Flatten,
            Self::Embedding { width } => Layer::Embedding { width },
            Self::BertEmbeddings { width, positions, types, eps, dropout } => {
                Layer::Embeddings { width, positions, types, eps, dropout }
            }
            Self::Transformer { heads, hidden, eps, dropout, attention_dropout, names } => {
                Layer::Block { heads, hidden, eps, dropout, attention_dropout, names }
            }
            Self::FirstToken => Layer::FirstToken,
            Self::Lstm { hidden } => Layer::Lstm { hidden },
            Self::Residual { body, shortcut } => return Err((body, shortcut)),
        })
    }
}

impl Layer {
    /// Whether it has tensors, and so a name.
    #[must_use]
    pub fn has_weights(&self) -> bool {
        match self {
            Self::Conv { .. }
            | Self::Dense { .. }
            | Self::GroupNorm { .. }
            | Self::BatchNorm
            | Self::Embedding { .. }
            | Self::Embeddings { .. }
            | Self::Block { .. }
            | Self::Lstm { .. } => true,
            Self::Relu
            | Self::MaxPool(_)
            | Self::AveragePool(_)
            | Self::GlobalAveragePool
            | Self::Dropout { .. }
            | Self::Flatten
            | Self::FirstToken
            | Self::Residual { .. } => false,
        }
    }
}
