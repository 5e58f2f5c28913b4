//! A model as data: a tree of layers with a feature extractor and a head.

use fedelity_kernels::pool::Window;
use fedelity_keys::Choice;

/// The shape of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputShape {
    /// An image, or a row of numbers as an image of height 1.
    Image { channels: usize, height: usize, width: usize },
    /// A text as token IDs.
    Tokens { vocabulary: usize, max_length: usize },
}

impl InputShape {
    /// Values in one input; for a text, the maximum.
    #[must_use]
    pub fn len(self) -> usize {
        let (channels, height, width) = self.sides();
        channels * height * width
    }

    /// Channels, rows and columns. A text is a single row of tokens.
    #[must_use]
    pub fn sides(self) -> (usize, usize, usize) {
        match self {
            Self::Image { channels, height, width } => (channels, height, width),
            Self::Tokens { max_length, .. } => (1, 1, max_length),
        }
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What one layer computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// Convolution with a square kernel.
    Conv { out: usize, kernel: usize, stride: usize, pad: usize, bias: bool },
    /// Fully connected layer with a bias.
    Dense { out: usize },
    /// max(x, 0).
    Relu,
    /// Maximum of each window.
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
    /// Zeroes random features during training.
    Dropout { p: f32 },
    /// Flattens the pixels of all channels into one row of features.
    Flatten,
    /// Maps each token to a row of a table.
    Embedding { width: usize },
    /// BERT's embeddings: the sum of word, position and token type 0, then normalisation and dropout.
    Embeddings {
        width: usize,
        positions: usize,
        /// Number of token types; 0 if the model has none.
        types: usize,
        eps: f32,
        dropout: f32,
    },
    /// A transformer block on tokens: attention, then two dense layers with GELU between them. Both parts end with a
    /// residual sum and a normalisation.
    Block {
        heads: usize,
        /// Width between the two dense layers.
        hidden: usize,
        eps: f32,
        /// Dropout probability during training, applied before each sum.
        dropout: f32,
        attention_dropout: f32,
        names: BlockNames,
    },
    /// Takes the first token's row as the features of the text.
    FirstToken,
    /// An LSTM over the tokens; its last hidden state is the output.
    Lstm { hidden: usize },
    /// body(x) + shortcut(x); an empty shortcut is x itself.
    Residual { body: Vec<Node>, shortcut: Vec<Node> },
}

/// Naming scheme of a transformer block's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum BlockNames {
    Bert,
    #[choice("distilbert")]
    DistilBert,
}

/// The names of a block's parts.
#[derive(Clone, Copy, Debug)]
pub struct BlockParts {
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    /// The dense layer after attention.
    pub out: &'static str,
    /// The normalisation after attention.
    pub norm1: &'static str,
    /// The dense layer before GELU.
    pub up: &'static str,
    /// The dense layer after GELU.
    pub down: &'static str,
    /// The normalisation at the end.
    pub norm2: &'static str,
}

impl BlockNames {
    #[must_use]
    pub fn parts(self) -> BlockParts {
        match self {
            Self::Bert => BlockParts {
                query: "attention.self.query",
                key: "attention.self.key",
                value: "attention.self.value",
                out: "attention.output.dense",
                norm1: "attention.output.LayerNorm",
                up: "intermediate.dense",
                down: "output.dense",
                norm2: "output.LayerNorm",
            },
            Self::DistilBert => BlockParts {
                query: "attention.q_lin",
                key: "attention.k_lin",
                value: "attention.v_lin",
                out: "attention.out_lin",
                norm1: "sa_layer_norm",
                up: "ffn.lin1",
                down: "ffn.lin2",
                norm2: "output_layer_norm",
            },
        }
    }
}

/// A layer with the name its tensors have in PyTorch.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Prefix of the tensors' names; empty for layers without tensors.
    pub name: String,
    pub layer: Layer,
    /// Whether its weights stay as loaded. Only token layers below all trained layers can be frozen.
    pub frozen: bool,
}

impl Node {
    /// A layer with tensors.
    #[must_use]
    pub fn named(name: impl Into<String>, layer: Layer) -> Self {
        Self { name: name.into(), layer, frozen: false }
    }

    /// A layer without tensors.
    #[must_use]
    pub fn plain(layer: Layer) -> Self {
        Self { name: String::new(), layer, frozen: false }
    }

    /// The same layer, frozen or not.
    #[must_use]
    pub fn with_frozen(self, frozen: bool) -> Self {
        Self { frozen, ..self }
    }
}

/// A whole model: layers up to the features, then a linear head.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    pub name: String,
    pub input: InputShape,
    pub classes: usize,
    /// From the input to the features.
    pub extractor: Vec<Node>,
    /// Name of the linear layer from the features to the logits.
    pub head: String,
}
