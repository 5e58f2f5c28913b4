//! Layers on texts, up to one row per sample.

use fedelity_nn::{Architecture, BlockNames, Layer, Node};

use crate::error::OnnxError;
use crate::graph::Graph;
use crate::proto::Attribute;
use crate::spatial::{self, RowsOutput};

const IDS: &str = "input_ids";
const MASK: &str = "attention_mask";
/// Added to the score of a padding token.
const HIDDEN: f32 = -1e9;

/// The layers from tokens to rows.
pub(crate) fn write(graph: &mut Graph<'_>, arch: &Architecture) -> Result<RowsOutput, OnnxError> {
    let misplaced = |node: &Node, reason| OnnxError::Layer { layer: format!("{:?}", node.name), reason };
    let mut nodes = arch.extractor.iter();
    let (mut x, mut width, mut mask) = (String::new(), 0, None);
    while let Some(node) = nodes.next() {
        let name = &node.name;
        match node.layer {
            Layer::Embedding { width: wide } => {
                let table = graph.weight(&format!("{name}.weight"))?;
                x = graph.node("Gather", &[&table, IDS], vec![]);
                width = wide;
            }
            Layer::Embeddings { width: wide, types, eps, .. } => {
                x = embeddings(graph, name, types > 0, eps)?;
                width = wide;
            }
            Layer::Block { heads, eps, names, .. } => {
                let mask = mask.get_or_insert_with(|| hide(graph)).clone();
                x = BlockWriter { node, names, heads, width, eps }.write(graph, &x, &mask)?;
            }
            Layer::FirstToken => {
                let first = graph.ints("first", &[], &[0]);
                let name = graph.node("Gather", &[&x, &first], vec![Attribute::int("axis", 1)]);
                return spatial::rows(graph, nodes.as_slice(), RowsOutput { name });
            }
            Layer::Lstm { hidden } => {
                let name = lstm(graph, name, &x, width, hidden)?;
                return spatial::rows(graph, nodes.as_slice(), RowsOutput { name });
            }
            _ => return Err(misplaced(node, "it does not work on tokens")),
        }
    }
    Err(OnnxError::Layer { layer: arch.name.clone(), reason: "no layer reduces the tokens to one row per sample" })
}

/// Word, position and token type 0, summed and normalised.
fn embeddings(graph: &mut Graph<'_>, name: &str, types: bool, eps: f32) -> Result<String, OnnxError> {
    let words = graph.weight(&format!("{name}.word_embeddings.weight"))?;
    let x = graph.node("Gather", &[&words, IDS], vec![]);
    let positions = graph.weight(&format!("{name}.position_embeddings.weight"))?;
    let (start, axis) = (graph.ints("start", &[1], &[0]), graph.ints("axis", &[1], &[1]));
    let shape = graph.node("Shape", &[IDS], vec![]);
    let length = graph.node("Gather", &[&shape, &axis], vec![]);
    // It starts at row 0 of axis 0.
    let positions = graph.node("Slice", &[&positions, &start, &length, &start], vec![]);
    let mut x = graph.node("Add", &[&x, &positions], vec![]);
    if types {
        let table = graph.weight(&format!("{name}.token_type_embeddings.weight"))?;
        let first = graph.ints("first", &[], &[0]);
        let kind = graph.node("Gather", &[&table, &first], vec![]);
        x = graph.node("Add", &[&x, &kind], vec![]);
    }
    normalise(graph, &format!("{name}.LayerNorm"), &x, eps)
}

fn normalise(graph: &mut Graph<'_>, name: &str, x: &str, eps: f32) -> Result<String, OnnxError> {
    let (weight, bias) = (graph.weight(&format!("{name}.weight"))?, graph.weight(&format!("{name}.bias"))?);
    let attributes = vec![Attribute::int("axis", -1), Attribute::float("epsilon", eps)];
    Ok(graph.node("LayerNormalization", &[x, &weight, &bias], attributes))
}

/// Added to the scores so that padding gets no attention: `[batch, 1, 1, sequence]`.
fn hide(graph: &mut Graph<'_>) -> String {
    let mask = graph.node("Cast", &[MASK], vec![Attribute::int("to", 1)]);
    let axes = graph.ints("axes", &[2], &[1, 2]);
    let mask = graph.node("Unsqueeze", &[&mask, &axes], vec![]);
    let (one, far) = (graph.floats("one", &[], &[1.0]), graph.floats("far", &[], &[HIDDEN]));
    let padding = graph.node("Sub", &[&one, &mask], vec![]);
    graph.node("Mul", &[&padding, &far], vec![])
}

/// A transformer block.
struct BlockWriter<'a> {
    node: &'a Node,
    names: BlockNames,
    heads: usize,
    width: usize,
    eps: f32,
}

impl BlockWriter<'_> {
    fn write(&self, graph: &mut Graph<'_>, x: &str, mask: &str) -> Result<String, OnnxError> {
        let parts = self.names.parts();
        let (heads, size) = (self.heads, self.width / self.heads.max(1));
        let split = graph.ints("heads", &[4], &[0, 0, heads as i64, size as i64]);
        let joined = graph.ints("width", &[3], &[0, 0, self.width as i64]);
        let mut side = |part: &str, order: &[i64]| {
            let y = self.linear(graph, part, x)?;
            let y = graph.node("Reshape", &[&y, &split], vec![]);
            Ok::<_, OnnxError>(graph.node("Transpose", &[&y], vec![Attribute::ints("perm", order)]))
        };
        let query = side(parts.query, &[0, 2, 1, 3])?;
        let key = side(parts.key, &[0, 2, 3, 1])?;
        let value = side(parts.value, &[0, 2, 1, 3])?;
        let scores = graph.node("MatMul", &[&query, &key], vec![]);
        let scale = graph.floats("scale", &[], &[1.0 / (size as f32).sqrt()]);
        let scores = graph.node("Mul", &[&scores, &scale], vec![]);
        let scores = graph.node("Add", &[&scores, mask], vec![]);
        let shares = graph.node("Softmax", &[&scores], vec![Attribute::int("axis", -1)]);
        let seen = graph.node("MatMul", &[&shares, &value], vec![]);
        let seen = graph.node("Transpose", &[&seen], vec![Attribute::ints("perm", &[0, 2, 1, 3])]);
        let seen = graph.node("Reshape", &[&seen, &joined], vec![]);
        let y = self.linear(graph, parts.out, &seen)?;
        let y = graph.node("Add", &[&y, x], vec![]);
        let x = normalise(graph, &self.part(parts.norm1), &y, self.eps)?;
        let y = self.linear(graph, parts.up, &x)?;
        let y = gelu(graph, &y);
        let y = self.linear(graph, parts.down, &y)?;
        let y = graph.node("Add", &[&y, &x], vec![]);
        normalise(graph, &self.part(parts.norm2), &y, self.eps)
    }

    fn part(&self, part: &str) -> String {
        format!("{}.{part}", self.node.name)
    }

    /// A dense layer on every token. The operator takes the weights transposed.
    fn linear(&self, graph: &mut Graph<'_>, part: &str, x: &str) -> Result<String, OnnxError> {
        let name = self.part(part);
        let outputs = graph.values(&format!("{name}.bias"))?.len();
        let weight = format!("{name}.weight");
        let inputs = graph.values(&weight)?.len() / outputs.max(1);
        let weight = graph.weight_as(&weight, &[inputs, outputs], |i| (i % outputs) * inputs + i / outputs)?;
        let bias = graph.weight(&format!("{name}.bias"))?;
        let y = graph.node("MatMul", &[x, &weight], vec![]);
        Ok(graph.node("Add", &[&y, &bias], vec![]))
    }
}

/// x times the standard normal distribution function of x.
fn gelu(graph: &mut Graph<'_>, x: &str) -> String {
    let root = graph.floats("root", &[], &[std::f32::consts::FRAC_1_SQRT_2]);
    let (one, half) = (graph.floats("one", &[], &[1.0]), graph.floats("half", &[], &[0.5]));
    let y = graph.node("Mul", &[x, &root], vec![]);
    let y = graph.node("Erf", &[&y], vec![]);
    let y = graph.node("Add", &[&y, &one], vec![]);
    let y = graph.node("Mul", &[&y, x], vec![]);
    graph.node("Mul", &[&y, &half], vec![])
}

/// The last hidden state of each text. ONNX orders the gates differently from PyTorch.
fn lstm(graph: &mut Graph<'_>, name: &str, x: &str, width: usize, hidden: usize) -> Result<String, OnnxError> {
    // The positions of the input, output, forget and cell gates in PyTorch's order of input, forget, cell and output.
    const ORDER: [usize; 4] = [0, 3, 1, 2];
    let place = |row: usize| ORDER[row / hidden] * hidden + row % hidden;
    let mut weight = |part: &str, inputs: usize| {
        let name = format!("{name}.weight_{part}_l0");
        graph.weight_as(&name, &[1, 4 * hidden, inputs], |i| place(i / inputs) * inputs + i % inputs)
    };
    let (input, recurrent) = (weight("ih", width)?, weight("hh", hidden)?);
    let mut biases = Vec::with_capacity(8 * hidden);
    for part in ["ih", "hh"] {
        let values = graph.values(&format!("{name}.bias_{part}_l0"))?;
        biases.extend((0..4 * hidden).map(|row| values[place(row)]));
    }
    let bias = graph.floats(&format!("{name}.bias"), &[1, 8 * hidden], &biases);
    let steps = graph.node("Transpose", &[x], vec![Attribute::ints("perm", &[1, 0, 2])]);
    let all = format!("{name}.all");
    let attributes = vec![Attribute::int("hidden_size", hidden as i64)];
    graph.node_to("LSTM", &[&steps, &input, &recurrent, &bias], &[&all], attributes);
    // [sequence, direction, batch, hidden] to [batch, sequence, hidden], then each text's state at its last token: not
    // every runtime respects the operator's own lengths.
    let (direction, sequence) = (graph.ints("direction", &[1], &[1]), graph.ints("sequence", &[1], &[1]));
    let states = graph.node("Squeeze", &[&all, &direction], vec![]);
    let states = graph.node("Transpose", &[&states], vec![Attribute::ints("perm", &[1, 0, 2])]);
    let lengths = graph.node("ReduceSum", &[MASK, &sequence], vec![Attribute::int("keepdims", 1)]);
    let one = graph.ints("one", &[], &[1]);
    let last = graph.node("Sub", &[&lengths, &one], vec![]);
    Ok(graph.node("GatherND", &[&states, &last], vec![Attribute::int("batch_dims", 1)]))
}
