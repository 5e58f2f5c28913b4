//! The layers of a model as a list, for people.

use fedelity_kernels::Plane;

use crate::architecture::{Architecture, InputShape, Layer, Node};
use crate::layout::Layout;
use crate::model::Model;

/// A layer in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLayer {
    /// The start of its tensors' names; empty if it has none.
    pub name: String,
    /// What it computes.
    pub what: String,
    /// The shape of its output for one input.
    pub output: String,
    /// Its numbers: weights, and running statistics if it has any.
    pub numbers: usize,
    /// How many residual sums it is inside of.
    pub depth: usize,
}

/// The shape between two layers.
#[derive(Clone, Copy)]
enum Between {
    Pixels(usize, Plane),
    Row(usize),
    Tokens { longest: usize, width: usize },
}

impl std::fmt::Display for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pixels(channels, plane) => write!(f, "{channels}x{}x{}", plane.height, plane.width),
            Self::Row(width) => write!(f, "{width}"),
            Self::Tokens { longest, width } => write!(f, "{longest} tokens x {width}"),
        }
    }
}

impl Model {
    /// All layers in order, from the input to the classes. `arch` is what the model was compiled from.
    #[must_use]
    pub fn layers(&self, arch: &Architecture) -> Vec<ListedLayer> {
        let (channels, height, width) = arch.input.sides();
        let start = match arch.input {
            InputShape::Image { .. } => Between::Pixels(channels, Plane::bare(height, width)),
            InputShape::Tokens { max_length, .. } => Between::Tokens { longest: max_length, width: 1 },
        };
        let mut list = LayerCollector { layouts: [self.layout(), self.frozen_layout()], layers: Vec::new() };
        let end = list.add(&arch.extractor, start, 0);
        let head = Node::named(arch.head.clone(), Layer::Dense { out: arch.classes });
        list.add(&[head], end, 0);
        list.layers
    }
}

struct LayerCollector<'a> {
    layouts: [&'a Layout; 2],
    layers: Vec<ListedLayer>,
}

impl LayerCollector<'_> {
    /// Adds layers and returns the shape after them.
    fn add(&mut self, nodes: &[Node], mut at: Between, depth: usize) -> Between {
        for node in nodes {
            if let Layer::Residual { body, shortcut } = &node.layer {
                let before = at;
                at = self.add(body, before, depth + 1);
                if !shortcut.is_empty() {
                    self.layers.push(ListedLayer {
                        name: String::new(),
                        what: "shortcut, from the input of the block:".to_string(),
                        output: before.to_string(),
                        numbers: 0,
                        depth,
                    });
                    self.add(shortcut, before, depth + 1);
                }
            } else {
                at = after(&node.layer, at);
            }
            let what = if node.frozen { format!("{}, frozen", what(&node.layer)) } else { what(&node.layer) };
            let (name, numbers) = (node.name.clone(), self.numbers(&node.name));
            self.layers.push(ListedLayer { name, what, output: at.to_string(), numbers, depth });
        }
        at
    }

    /// The numbers in all tensors below a name.
    fn numbers(&self, name: &str) -> usize {
        let below = format!("{name}.");
        let tensors = self.layouts.iter().flat_map(|layout| layout.tensors());
        tensors.filter(|tensor| !name.is_empty() && tensor.name.starts_with(&below)).map(|tensor| tensor.len).sum()
    }
}

/// The shape after a layer that fits.
fn after(layer: &Layer, at: Between) -> Between {
    let pixels =
        |channels: usize, (height, width): (usize, usize)| Between::Pixels(channels, Plane::bare(height, width));
    match (layer, at) {
        (Layer::Conv { out, kernel, stride, pad, .. }, Between::Pixels(_, plane)) => {
            let window = crate::Window { kernel: *kernel, stride: *stride, pad: *pad };
            pixels(*out, window.output(plane).unwrap_or_default())
        }
        (Layer::MaxPool(window) | Layer::AveragePool(window), Between::Pixels(channels, plane)) => {
            pixels(channels, window.output(plane).unwrap_or_default())
        }
        (Layer::GlobalAveragePool, Between::Pixels(channels, _)) => pixels(channels, (1, 1)),
        (Layer::Flatten, Between::Pixels(channels, plane)) => Between::Row(channels * plane.pixels()),
        (Layer::Dense { out }, _) => Between::Row(*out),
        (Layer::Embedding { width } | Layer::Embeddings { width, .. }, Between::Tokens { longest, .. }) => {
            Between::Tokens { longest, width: *width }
        }
        (Layer::FirstToken, Between::Tokens { width, .. }) => Between::Row(width),
        (Layer::Lstm { hidden }, _) => Between::Row(*hidden),
        (
            Layer::Conv { .. }
            | Layer::MaxPool(_)
            | Layer::AveragePool(_)
            | Layer::GlobalAveragePool
            | Layer::Flatten
            | Layer::Embedding { .. }
            | Layer::Embeddings { .. }
            | Layer::FirstToken
            | Layer::Relu
            | Layer::GroupNorm { .. }
            | Layer::BatchNorm
            | Layer::Dropout { .. }
            | Layer::Block { .. }
            | Layer::Residual { .. },
            at,
        ) => at,
    }
}

/// What a layer computes, in a few words.
fn what(layer: &Layer) -> String {
    let window = |name: &str, kernel: usize, stride: usize, pad: usize| {
        let stride = if stride == 1 { String::new() } else { format!(", stride {stride}") };
        let pad = if pad == 0 { String::new() } else { format!(", padding {pad}") };
        format!("{name} {kernel}x{kernel}{stride}{pad}")
    };
    match layer {
        Layer::Conv { kernel, stride, pad, bias, .. } => {
            let bias = if *bias { "" } else { ", no bias" };
            format!("{}{bias}", window("convolution", *kernel, *stride, *pad))
        }
        Layer::Dense { .. } => "dense".to_string(),
        Layer::Relu => "ReLU".to_string(),
        Layer::MaxPool(w) => window("maximum of", w.kernel, w.stride, w.pad),
        Layer::AveragePool(w) => window("mean of", w.kernel, w.stride, w.pad),
        Layer::GlobalAveragePool => "mean of all pixels".to_string(),
        Layer::GroupNorm { channels_per_group } => format!("group norm, {channels_per_group} channels per group"),
        Layer::BatchNorm => "batch norm".to_string(),
        Layer::Dropout { p } => format!("dropout {p}"),
        Layer::Flatten => "flatten".to_string(),
        Layer::Embedding { .. } => "embedding".to_string(),
        Layer::Embeddings { .. } => "embeddings of words and positions".to_string(),
        Layer::Block { heads, hidden, .. } => format!("transformer block, {heads} heads, {hidden} inside"),
        Layer::FirstToken => "first token".to_string(),
        Layer::Lstm { .. } => "LSTM, last state".to_string(),
        Layer::Residual { .. } => "sum with the input of the block".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelSpec, cpu, zoo};

    /// Every number of a model belongs to exactly one layer, and the last layer gives the classes.
    #[test]
    fn layers_add_up_to_the_model() {
        for name in zoo::NAMES {
            let input = match zoo::reads_text(name) {
                true => InputShape::Tokens { vocabulary: 30, max_length: 9 },
                false => InputShape::Image { channels: 3, height: 32, width: 32 },
            };
            for projection in [false, true] {
                let arch = zoo::build(&ModelSpec::new(*name, projection), input, 7).unwrap();
                let model = Model::compile(&arch, cpu()).unwrap();
                let layers = model.layers(&arch);
                let numbers: usize = layers.iter().map(|layer| layer.numbers).sum();
                assert_eq!(numbers, model.layout().len() + model.frozen_layout().len(), "{name}");
                assert_eq!(layers.last().map(|last| &*last.output), Some("7"), "{name}");
                let head = &layers[layers.len() - 1];
                assert_eq!(head.numbers, 7 * (model.features() + 1), "{name}");
            }
        }
    }

    #[test]
    fn shapes_of_a_small_network() {
        let input = InputShape::Image { channels: 1, height: 28, width: 28 };
        let arch = zoo::build(&ModelSpec::new("simple-cnn", false), input, 10).unwrap();
        let layers = Model::compile(&arch, cpu()).unwrap().layers(&arch);
        let shown: Vec<String> =
            layers.iter().map(|l| format!("{} {} {} {}", l.name, l.what, l.output, l.numbers)).collect();
        assert_eq!(shown[0], "conv1 convolution 5x5 6x24x24 156");
        assert_eq!(shown[2], " maximum of 2x2, stride 2 6x12x12 0");
        assert_eq!(shown[6], " flatten 256 0");
        assert_eq!(shown.last().unwrap(), "fc3 dense 10 850");
    }
}
