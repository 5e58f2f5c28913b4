//! What flows from one layer to the next.

use std::fmt;

use crate::architecture::{InputShape, Layer, Node};
use crate::layer_keys::LayerKind;
use crate::place::{LayerList, Misfit};

/// The shape of one sample between two layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationShape {
    /// An image, or a row of numbers that has not been flattened yet.
    Image { channels: usize, height: usize, width: usize },
    /// A text as token IDs.
    Ids { vocabulary: usize, max_length: usize },
    /// A row of numbers for each token.
    Tokens { width: usize, in_block: bool },
    /// One row of numbers.
    Row { width: usize },
}

impl From<InputShape> for ActivationShape {
    fn from(input: InputShape) -> Self {
        match input {
            InputShape::Image { channels, height, width } => Self::Image { channels, height, width },
            InputShape::Tokens { vocabulary, max_length } => Self::Ids { vocabulary, max_length },
        }
    }
}

impl fmt::Display for ActivationShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { channels, height, width } => write!(f, "an image of {channels}x{height}x{width}"),
            Self::Ids { .. } => write!(f, "token IDs"),
            Self::Tokens { width, .. } => write!(f, "tokens of width {width}"),
            Self::Row { width } => write!(f, "a row of {width} numbers"),
        }
    }
}

/// Most weights of a model: more than any that a CPU can train.
const MOST_WEIGHTS: usize = 1 << 29;
/// Most numbers that the layers of a model make from one sample.
const MOST_VALUES: usize = 1 << 28;

/// The sizes of the layers so far.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    weights: usize,
    values: usize,
}

impl Load {
    /// Adds a layer's weights: the product of each list of sizes.
    fn weigh(&mut self, tensors: &[&[usize]]) -> Result<(), String> {
        for sizes in tensors {
            let sum = product(sizes).and_then(|count| self.weights.checked_add(count));
            self.weights = sum.filter(|&sum| sum <= MOST_WEIGHTS).ok_or_else(|| {
                let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                format!("with its {} weights the model has more than {MOST_WEIGHTS}", sizes.join("x"))
            })?;
        }
        Ok(())
    }

    /// Adds the numbers that a layer keeps.
    fn hold(&mut self, sizes: &[usize]) -> Result<(), String> {
        let sum = product(sizes).and_then(|count| self.values.checked_add(count));
        self.values = sum.filter(|&sum| sum <= MOST_VALUES).ok_or_else(|| {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            format!("with {} numbers here, a sample takes more than {MOST_VALUES}", sizes.join("x"))
        })?;
        Ok(())
    }
}

fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

/// The number of features, if the layers fit each other and the input.
pub(crate) fn features(nodes: &[Node], input: InputShape, classes: usize) -> Result<usize, Misfit> {
    let mut load = Load::default();
    let end = through(nodes, LayerList::Layers, input.into(), &mut load)?;
    let at_end = |reason: String| match nodes.iter().enumerate().next_back() {
        Some((index, node)) => Misfit::from(reason).within(LayerList::Layers, index, LayerKind::word_of(&node.layer)),
        None => Misfit::from(reason),
    };
    let missing = match end {
        ActivationShape::Row { width } => {
            load.weigh(&[&[width, classes], &[classes]]).map_err(at_end)?;
            return Ok(width);
        }
        ActivationShape::Image { .. } => "a flatten layer",
        ActivationShape::Ids { .. } => "an embedding",
        ActivationShape::Tokens { .. } => "an lstm or a first-token layer",
    };
    Err(at_end(format!("the layers end with {end}, not with a row of features: add {missing}")))
}

/// The shape after some layers.
fn through(
    nodes: &[Node],
    list: LayerList,
    mut x: ActivationShape,
    load: &mut Load,
) -> Result<ActivationShape, Misfit> {
    for (index, node) in nodes.iter().enumerate() {
        x = node.layer.apply(x, load).map_err(|misfit| misfit.within(list, index, LayerKind::word_of(&node.layer)))?;
    }
    Ok(x)
}

fn needs_image(x: ActivationShape) -> String {
    let hint = if matches!(x, ActivationShape::Ids { .. }) { ": a text needs an embedding first" } else { "" };
    format!("it works on images, but its input is {x}{hint}")
}

fn needs_tokens(x: ActivationShape) -> String {
    let hint = if matches!(x, ActivationShape::Ids { .. }) { ": put an embedding before it" } else { "" };
    format!("it works on tokens, but its input is {x}{hint}")
}

impl Layer {
    /// The shape that this layer makes from `x`.
    ///
    /// # Errors
    /// When the layer does not fit `x`; the place is that of the layer inside this one, if any.
    pub fn output(&self, x: ActivationShape) -> Result<ActivationShape, Misfit> {
        self.apply(x, &mut Load::default())
    }

    fn apply(&self, x: ActivationShape, load: &mut Load) -> Result<ActivationShape, Misfit> {
        let y = self.output_of(x, load)?;
        match y {
            ActivationShape::Image { channels, height, width } => load.hold(&[channels, height, width])?,
            ActivationShape::Tokens { width, .. } | ActivationShape::Row { width } => load.hold(&[width])?,
            ActivationShape::Ids { .. } => {}
        }
        Ok(y)
    }

    fn output_of(&self, x: ActivationShape, load: &mut Load) -> Result<ActivationShape, Misfit> {
        use ActivationShape::{Ids, Image, Row, Tokens};
        match (self, x) {
            (Self::Conv { out, kernel, stride, pad, bias }, Image { channels, height, width }) => {
                let (out, kernel, pad) = (*out, *kernel, *pad);
                if out == 0 || channels == 0 {
                    return Err("it has no channels".into());
                }
                let (rows, columns) = windows((height, width), kernel, *stride, pad).ok_or_else(|| {
                    format!("a {kernel}x{kernel} kernel with stride {stride} and padding {pad} does not fit {x}",)
                })?;
                load.weigh(&[&[out, channels, kernel, kernel], &[usize::from(*bias), out]])?;
                load.hold(&[channels, height + 2 * pad, width + 2 * pad])?;
                Ok(Image { channels: out, height: rows, width: columns })
            }
            (Self::MaxPool(window) | Self::AveragePool(window), Image { channels, height, width }) => {
                let (kernel, stride, pad) = (window.kernel, window.stride, window.pad);
                if pad > kernel / 2 {
                    return Err(format!("a padding of {pad} is more than half of its window of {kernel}").into());
                }
                let (height, width) = windows((height, width), kernel, stride, pad).ok_or_else(|| {
                    format!("a {kernel}x{kernel} window with stride {stride} and padding {pad} does not fit {x}")
                })?;
                Ok(Image { channels, height, width })
            }
            (Self::GlobalAveragePool, Image { channels, .. }) => Ok(Image { channels, height: 1, width: 1 }),
            (Self::GroupNorm { channels_per_group: size }, Image { channels, .. }) => {
                if *size == 0 || channels % size != 0 {
                    return Err(format!("{channels} channels do not divide into groups of {size}").into());
                }
                load.weigh(&[&[2, channels]])?;
                Ok(x)
            }
            (Self::BatchNorm, Image { channels, .. }) => {
                load.weigh(&[&[4, channels]])?;
                Ok(x)
            }
            (Self::Relu, Image { .. } | Row { .. }) | (Self::Flatten, Row { .. }) => Ok(x),
            (Self::Relu, Ids { .. } | Tokens { .. }) => Err(format!("it works on images and rows, not on {x}").into()),
            (Self::Flatten, Image { channels, height, width }) => {
                let width = product(&[channels, height, width]).ok_or_else(|| format!("{x} is too large"))?;
                Ok(Row { width })
            }
            (Self::Flatten, Ids { .. } | Tokens { .. }) => {
                Err(format!("it works on images, but its input is {x}: add an lstm or a first-token layer").into())
            }
            (Self::Dense { out }, Row { width }) => {
                if *out == 0 || width == 0 {
                    return Err("it has no units".into());
                }
                load.weigh(&[&[*out, width], &[*out]])?;
                Ok(Row { width: *out })
            }
            (Self::Dropout { p }, Row { .. }) => {
                if (0.0..1.0).contains(p) {
                    Ok(x)
                } else {
                    Err(format!("it drops a share of {p}").into())
                }
            }
            (Self::Dense { .. } | Self::Dropout { .. }, Image { .. }) => {
                Err(format!("it works on rows, but its input is {x}: put a flatten layer before it").into())
            }
            (Self::Dense { .. } | Self::Dropout { .. }, Ids { .. } | Tokens { .. }) => {
                Err(format!("it works on rows, but its input is {x}: put an lstm or a first-token layer before it")
                    .into())
            }
            (Self::Embedding { width }, Ids { vocabulary, .. }) => {
                if *width == 0 {
                    return Err("it has no width".into());
                }
                load.weigh(&[&[vocabulary, *width]])?;
                Ok(Tokens { width: *width, in_block: false })
            }
            (Self::Embeddings { width, positions, types, .. }, Ids { vocabulary, max_length }) => {
                if *width == 0 {
                    return Err("it has no width".into());
                }
                if max_length > *positions {
                    return Err(
                        format!("it has {positions} positions, but texts have up to {max_length} tokens").into()
                    );
                }
                load.weigh(&[&[vocabulary, *width], &[*positions, *width], &[*types, *width], &[2, *width]])?;
                Ok(Tokens { width: *width, in_block: false })
            }
            (Self::Embedding { .. } | Self::Embeddings { .. }, Image { .. } | Row { .. } | Tokens { .. }) => {
                Err(format!("it reads texts, but its input is {x}").into())
            }
            (Self::Block { heads, hidden, .. }, Tokens { width, .. }) => {
                if *heads == 0 || width % heads != 0 {
                    return Err(format!("{heads} heads do not divide a width of {width}").into());
                }
                if *hidden == 0 {
                    return Err("it has no hidden units".into());
                }
                load.weigh(&[&[4, width, width], &[9, width], &[2, width, *hidden], &[*hidden]])?;
                Ok(Tokens { width, in_block: true })
            }
            (Self::FirstToken, Tokens { width, in_block: true }) => Ok(Row { width }),
            (Self::FirstToken, Tokens { in_block: false, .. }) => {
                Err("there is no transformer block before it, so the first token says nothing of the others".into())
            }
            (Self::Lstm { hidden }, Tokens { width, in_block: false }) => {
                if *hidden == 0 {
                    return Err("it has no hidden units".into());
                }
                load.weigh(&[&[4, *hidden, width], &[4, *hidden, *hidden], &[8, *hidden]])?;
                Ok(Row { width: *hidden })
            }
            (Self::Lstm { .. }, Tokens { in_block: true, .. }) => {
                Err("it reads embeddings, not the output of a transformer block".into())
            }
            (Self::Block { .. } | Self::FirstToken | Self::Lstm { .. }, Ids { .. } | Image { .. } | Row { .. }) => {
                Err(needs_tokens(x).into())
            }
            (
                Self::Conv { .. }
                | Self::MaxPool(_)
                | Self::AveragePool(_)
                | Self::GlobalAveragePool
                | Self::GroupNorm { .. }
                | Self::BatchNorm
                | Self::Residual { .. },
                Ids { .. } | Tokens { .. } | Row { .. },
            ) => Err(needs_image(x).into()),
            (Self::Residual { body, shortcut }, Image { .. }) => {
                let (long, short) =
                    (through(body, LayerList::Body, x, load)?, through(shortcut, LayerList::Shortcut, x, load)?);
                if long != short {
                    return Err(format!("its body makes {long}, but its shortcut {short}; they must be equal").into());
                }
                if !matches!(long, Image { .. }) {
                    return Err(format!("both sides make {long}; a residual layer stays on images").into());
                }
                Ok(long)
            }
        }
    }
}

/// Rows and columns of windows that slide over an image, if there are any.
fn windows((height, width): (usize, usize), kernel: usize, stride: usize, pad: usize) -> Option<(usize, usize)> {
    if kernel == 0 || stride == 0 || height == 0 || width == 0 {
        return None;
    }
    let side = |size: usize| {
        let padded = size.checked_add(pad.checked_mul(2)?)?;
        Some(padded.checked_sub(kernel)? / stride + 1)
    };
    Some((side(height)?, side(width)?))
}
