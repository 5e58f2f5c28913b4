//! Parameters: a flat buffer, and the layout that names its parts.

use std::ops::{Deref, DerefMut, Range};

use sha2::{Digest, Sha256};

/// All parameters of one model, flat. The model's [`Layout`] has their names and shapes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub Vec<f32>);

impl Params {
    /// SHA-256 of all bits, in hexadecimal: equal if and only if every weight is.
    #[must_use]
    pub fn hash(&self) -> String {
        sha256(&self.0)
    }
}

/// SHA-256 of all bits of some weights, in hexadecimal.
fn sha256(weights: &[f32]) -> String {
    let mut hasher = Sha256::new();
    for some in weights.chunks(1 << 12) {
        let bytes: Vec<u8> = some.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        hasher.update(&bytes);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Deref for Params {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Params {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

/// How a tensor is initialised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    /// Uniform in ±1/sqrt(fan in): PyTorch's default for the weights and biases of linear and convolution layers.
    Uniform { fan_in: usize },
    /// Normal with mean 0, for transformers and embeddings.
    Normal { std: f32 },
    /// A constant, for scales, shifts and running statistics of normalisation layers.
    Constant(f32),
}

/// A named tensor of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in PyTorch.
    pub name: String,
    /// Its shape in PyTorch.
    pub shape: Vec<usize>,
    /// Its start in the flat buffer.
    pub offset: usize,
    pub len: usize,
    /// Whether an optimiser updates it. Running statistics are not trainable.
    pub trainable: bool,
    pub(crate) init: Init,
}

impl Tensor {
    /// Its range in the flat buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// Whether it is a running variance, which is never negative.
    #[must_use]
    pub fn is_variance(&self) -> bool {
        !self.trainable && self.name.ends_with(".running_var")
    }
}

/// Names, shapes and offsets of a model's tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    trainable: Vec<Range<usize>>,
    len: usize,
}

impl Layout {
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of trainable parameters, as papers count them.
    #[must_use]
    pub fn trainable_len(&self) -> usize {
        self.trainable.iter().map(ExactSizeIterator::len).sum()
    }

    /// The trainable ranges of the buffer, ascending, with adjacent ones merged.
    #[must_use]
    pub fn trainable(&self) -> &[Range<usize>] {
        &self.trainable
    }

    /// The first eight digits of each tensor's SHA-256, in order: enough to tell which ones differ.
    #[must_use]
    pub fn short_hashes(&self, params: &Params) -> Vec<String> {
        let short = |tensor: &Tensor| {
            let mut hash = sha256(params.get(tensor.range()).unwrap_or_default());
            hash.truncate(8);
            hash
        };
        self.tensors.iter().map(short).collect()
    }

    pub(crate) fn push(&mut self, name: String, shape: &[usize], trainable: bool, init: Init) -> Range<usize> {
        let (offset, len) = (self.len, shape.iter().product());
        self.tensors.push(Tensor { name, shape: shape.to_vec(), offset, len, trainable, init });
        self.len += len;
        if trainable {
            match self.trainable.last_mut() {
                Some(last) if last.end == offset => last.end = self.len,
                _ => self.trainable.push(offset..self.len),
            }
        }
        offset..self.len
    }
}
