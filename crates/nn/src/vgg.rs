//! VGG-11 for small images.

use fedelity_kernels::pool::Window;

use crate::architecture::{Layer, Node};

/// Convolutions before each pooling, in multiples of the width.
const STAGES: [&[usize]; 5] = [&[1], &[2], &[4, 4], &[8, 8], &[8, 8]];

/// The layers up to the `8 * width` features. The published network has a width of 64.
///
/// Tensors are named as in NIID-Bench and FedNTD: `features.N` and `classifier.N`; `classifier.6` is the head.
#[must_use]
pub fn vgg11(width: usize) -> Vec<Node> {
    let (mut nodes, mut at) = (Vec::new(), 0);
    for stage in STAGES {
        for factor in stage {
            let layer = Layer::Conv { out: factor * width, kernel: 3, stride: 1, pad: 1, bias: true };
            nodes.extend([Node::named(format!("features.{at}"), layer), Node::plain(Layer::Relu)]);
            at += 2;
        }
        nodes.push(Node::plain(Layer::MaxPool(Window { kernel: 2, stride: 2, pad: 0 })));
        at += 1;
    }
    nodes.push(Node::plain(Layer::Flatten));
    for name in ["classifier.1", "classifier.4"] {
        nodes.push(Node::plain(Layer::Dropout { p: 0.5 }));
        nodes.push(Node::named(name, Layer::Dense { out: 8 * width }));
        nodes.push(Node::plain(Layer::Relu));
    }
    nodes
}
