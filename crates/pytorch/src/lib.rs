//! Models as PyTorch source files, for people who go on in Python.
//!
//! [`source`] writes an `nn.Module` whose tensors have the names of the model file, so that
//! `load_state_dict(load_file("model.safetensors"))` fills it. In evaluation mode its outputs are those of the engine up
//! to rounding; in training mode it drops and normalises as the engine does.

mod error;
mod forward;
mod helpers;
mod modules;

pub use error::PyTorchError;

use std::fmt::Write as _;

use fedelity_nn::{Architecture, ColumnCard, ColumnValues, InputShape, Layer, Node, check_tensor_name};

use forward::Forward;
use modules::Modules;

/// A model without its weights.
#[derive(Clone, Copy, Debug)]
pub struct PyTorchModel<'a> {
    pub architecture: &'a Architecture,
    /// Whether the input is a row of numbers rather than an image.
    pub numbers: bool,
    /// The class names, in the order of the outputs.
    pub classes: &'a [String],
    /// Subtracted from each channel or column of the input; empty for texts.
    pub mean: &'a [f32],
    /// Each channel or column is then divided by this.
    pub std: &'a [f32],
    /// The columns of a table whose rows are the input, if they are known.
    pub columns: &'a [ColumnCard],
}

/// The text of a Python file.
///
/// # Errors
/// When a layer does not fit its input, or a tensor has a name that a module cannot have.
pub fn source(model: &PyTorchModel<'_>) -> Result<String, PyTorchError> {
    let arch = model.architecture;
    let mut nodes = arch.extractor.clone();
    nodes.push(Node::named(arch.head.clone(), Layer::Dense { out: arch.classes }));
    check_names(&nodes)?;
    let mut modules = Modules::default();
    let mut forward = Forward::default();
    let mut x = arch.input.into();
    for node in &nodes {
        x = forward.layer(node, x, "x", &mut modules)?;
    }
    let mut out = heading(model);
    out.push_str("import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n");
    let _ = writeln!(out, "CLASSES = {}", json(model.classes));
    if !model.columns.is_empty() {
        let _ = writeln!(out, "COLUMNS = {}", columns(model.columns));
    }
    if !model.mean.is_empty() {
        let _ = writeln!(out, "MEAN = {:?}\nSTD = {:?}", model.mean, model.std);
    }
    out.push_str(&helpers::classes(&nodes));
    out.push_str("\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n");
    modules.write(&mut out, 2);
    match arch.input {
        InputShape::Image { channels, height, width } => {
            out.push_str("\n    def forward(self, x):\n");
            if model.numbers && forward.starts_on_image() {
                let _ = writeln!(out, "        x = x.reshape(-1, {channels}, {height}, {width})");
            }
        }
        InputShape::Tokens { .. } => {
            out.push_str("\n    def forward(self, input_ids, attention_mask=None):\n");
            out.push_str("        if attention_mask is None:\n");
            out.push_str("            attention_mask = torch.ones_like(input_ids)\n");
            if nodes.iter().any(|node| matches!(node.layer, Layer::Block { .. })) {
                out.push_str("        # Added to the attention's scores, so that padding gets none.\n");
                out.push_str("        padding = (1.0 - attention_mask[:, None, None, :].float()) * -1e9\n");
            }
        }
    }
    out.push_str(&forward.text);
    out.push_str("        return x\n");
    Ok(out)
}

/// The comment at the top of the file.
fn heading(model: &PyTorchModel<'_>) -> String {
    let arch = model.architecture;
    // A name from a file of unknown origin must not become code.
    let name: String = arch.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let input = match arch.input {
        InputShape::Image { width, .. } if model.numbers => {
            let which = if model.columns.is_empty() {
                ""
            } else {
                "\n# Their order is that of COLUMNS: a number, or for a list of categories one number each, 1 for the row's own \
                 and 0 for the others."
            };
            format!("# Input: rows of numbers, float32 [batch, {width}]; a number is (value - MEAN) / STD of its column.{which}")
        }
        InputShape::Image { channels, height, width } => format!(
            "# Input: images, float32 [batch, {channels}, {height}, {width}]; a pixel is (value / 255 - MEAN) / STD of its \
             channel."
        ),
        InputShape::Tokens { .. } => "# Input: token IDs, int64 [batch, sequence], and for padded texts a mask of 1 for \
                                      tokens and 0 for padding,\n# which comes after them. The safetensors file describes \
                                      its tokens."
            .to_owned(),
    };
    format!(
        "# {name}, written by Fedelity {}.\n#\n#     from safetensors.torch import load_file\n#     model = Net()\n\
         #     model.load_state_dict(load_file(\"model.safetensors\"))\n#     model.eval()\n#\n{input}\n# Output: logits, \
         [batch, {}], in the order of CLASSES.\n\n",
        env!("CARGO_PKG_VERSION"),
        arch.classes
    )
}

fn check_names(nodes: &[Node]) -> Result<(), PyTorchError> {
    for node in nodes {
        if let Layer::Residual { body, shortcut } = &node.layer {
            check_names(body)?;
            check_names(shortcut)?;
        }
        if node.layer.has_weights() {
            check_tensor_name(&node.name).map_err(|reason| PyTorchError::Name { name: node.name.clone(), reason })?;
        }
    }
    Ok(())
}

/// Pairs of a name and its categories, or `None` for numbers.
fn columns(columns: &[ColumnCard]) -> String {
    let pair = |column: &ColumnCard| {
        let values = match &column.values {
            ColumnValues::Number { .. } => "None".to_string(),
            ColumnValues::Categories(names) => json(names),
        };
        format!("({}, {values})", serde_json::Value::from(column.name.as_str()))
    };
    format!("[{}]", columns.iter().map(pair).collect::<Vec<_>>().join(", "))
}

/// A list of texts, which Python writes as JSON does.
fn json(texts: &[String]) -> String {
    let quoted = texts.iter().map(|text| serde_json::Value::from(text.as_str()).to_string());
    format!("[{}]", quoted.collect::<Vec<_>>().join(", "))
}
