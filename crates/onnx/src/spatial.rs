//! Layers on images, and those on rows after them.

use fedelity_nn::{Layer, Node, Window};

use crate::error::OnnxError;
use crate::graph::Graph;
use crate::proto::Attribute;

const EPSILON: f32 = 1e-5;

/// A value and its shape: channels, rows and columns.
#[derive(Clone)]
struct Image {
    name: String,
    sides: (usize, usize, usize),
}

/// A value that is one row of features per sample.
#[derive(Clone)]
pub(crate) struct RowsOutput {
    pub name: String,
}

fn misplaced(node: &Node, reason: &'static str) -> OnnxError {
    OnnxError::Layer { layer: format!("{:?} ({:?})", node.name, node.layer), reason }
}

/// The layers from an image to rows.
pub(crate) fn write(
    graph: &mut Graph<'_>,
    nodes: &[Node],
    input: &str,
    sides: (usize, usize, usize),
) -> Result<RowsOutput, OnnxError> {
    let end = nodes.iter().position(|node| node.layer == Layer::Flatten).unwrap_or(nodes.len());
    let image = images(graph, &nodes[..end], Image { name: input.to_owned(), sides })?;
    let flat = graph.node("Flatten", &[&image.name], vec![Attribute::int("axis", 1)]);
    rows(graph, &nodes[end..], RowsOutput { name: flat })
}

/// Layers on rows.
pub(crate) fn rows(graph: &mut Graph<'_>, nodes: &[Node], mut x: RowsOutput) -> Result<RowsOutput, OnnxError> {
    for node in nodes {
        match node.layer {
            Layer::Dense { .. } => {
                let weight = graph.weight(&format!("{}.weight", node.name))?;
                let bias = graph.weight(&format!("{}.bias", node.name))?;
                x.name = graph.node("Gemm", &[&x.name, &weight, &bias], vec![Attribute::int("transB", 1)]);
            }
            Layer::Relu => x.name = graph.node("Relu", &[&x.name], vec![]),
            // A trained model drops nothing.
            Layer::Dropout { .. } | Layer::Flatten => {}
            _ => return Err(misplaced(node, "it does not work on rows")),
        }
    }
    Ok(x)
}

fn images(graph: &mut Graph<'_>, nodes: &[Node], mut x: Image) -> Result<Image, OnnxError> {
    for node in nodes {
        x = image(graph, node, x)?;
    }
    Ok(x)
}

fn image(graph: &mut Graph<'_>, node: &Node, x: Image) -> Result<Image, OnnxError> {
    let (channels, height, width) = x.sides;
    let pooled = |window: Window| {
        let side = |size: usize| Some((size + 2 * window.pad).checked_sub(window.kernel)? / window.stride.max(1) + 1);
        let sides = side(height).zip(side(width)).map(|(height, width)| (channels, height, width));
        sides.ok_or_else(|| misplaced(node, "it is larger than its image"))
    };
    match &node.layer {
        Layer::Conv { out, kernel, stride, pad, bias } => {
            let (_, height, width) = pooled(Window { kernel: *kernel, stride: *stride, pad: *pad })?;
            let weight = graph.weight(&format!("{}.weight", node.name))?;
            let bias = if *bias { Some(graph.weight(&format!("{}.bias", node.name))?) } else { None };
            let inputs: Vec<&str> = [&x.name, &weight].into_iter().chain(&bias).map(String::as_str).collect();
            let name = graph.node("Conv", &inputs, window(Window { kernel: *kernel, stride: *stride, pad: *pad }));
            Ok(Image { name, sides: (*out, height, width) })
        }
        Layer::MaxPool(w) => {
            let name = graph.node("MaxPool", &[&x.name], window(*w));
            Ok(Image { name, sides: pooled(*w)? })
        }
        Layer::AveragePool(w) => {
            let mut attributes = window(*w);
            attributes.push(Attribute::int("count_include_pad", 1));
            let name = graph.node("AveragePool", &[&x.name], attributes);
            Ok(Image { name, sides: pooled(*w)? })
        }
        Layer::GlobalAveragePool => {
            let name = graph.node("GlobalAveragePool", &[&x.name], vec![]);
            Ok(Image { name, sides: (channels, 1, 1) })
        }
        Layer::Relu => Ok(Image { name: graph.node("Relu", &[&x.name], vec![]), ..x }),
        Layer::BatchNorm => {
            let mut inputs = vec![x.name.clone()];
            for part in ["weight", "bias", "running_mean", "running_var"] {
                inputs.push(graph.weight(&format!("{}.{part}", node.name))?);
            }
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let name = graph.node("BatchNormalization", &inputs, vec![Attribute::float("epsilon", EPSILON)]);
            Ok(Image { name, ..x })
        }
        Layer::GroupNorm { channels_per_group } => group_norm(graph, node, x, *channels_per_group),
        Layer::Residual { body, shortcut } => {
            let long = images(graph, body, x.clone())?;
            let short = images(graph, shortcut, x)?;
            let name = graph.node("Add", &[&long.name, &short.name], vec![]);
            Ok(Image { name, sides: long.sides })
        }
        _ => Err(misplaced(node, "it does not work on images")),
    }
}

/// Its operator came later than this operator set, so it is composed: each group as one channel of an instance
/// normalisation, then scale and shift per channel.
fn group_norm(graph: &mut Graph<'_>, node: &Node, x: Image, size: usize) -> Result<Image, OnnxError> {
    let (channels, height, width) = x.sides;
    if size == 0 || channels % size != 0 {
        return Err(misplaced(node, "its groups do not divide the channels"));
    }
    let groups = channels / size;
    let split = graph.ints("groups", &[3], &[0, groups as i64, -1]);
    let joined = graph.ints("channels", &[4], &[0, channels as i64, height as i64, width as i64]);
    let (ones, zeros) = (vec![1.0; groups], vec![0.0; groups]);
    let (one, zero) = (graph.floats("one", &[groups], &ones), graph.floats("zero", &[groups], &zeros));
    let y = graph.node("Reshape", &[&x.name, &split], vec![]);
    let y = graph.node("InstanceNormalization", &[&y, &one, &zero], vec![Attribute::float("epsilon", EPSILON)]);
    let y = graph.node("Reshape", &[&y, &joined], vec![]);
    let by_channel = [channels, 1, 1];
    let weight = graph.weight_as(&format!("{}.weight", node.name), &by_channel, |i| i)?;
    let bias = graph.weight_as(&format!("{}.bias", node.name), &by_channel, |i| i)?;
    let y = graph.node("Mul", &[&y, &weight], vec![]);
    let name = graph.node("Add", &[&y, &bias], vec![]);
    Ok(Image { name, ..x })
}

fn window(window: Window) -> Vec<Attribute> {
    let Window { kernel, stride, pad } = window;
    vec![
        Attribute::ints("kernel_shape", &[kernel as i64; 2]),
        Attribute::ints("strides", &[stride as i64; 2]),
        Attribute::ints("pads", &[pad as i64; 4]),
    ]
}
