//! Models as ONNX files, for other programs and devices.
//!
//! [`encode`] writes the layers of an [`Architecture`] with their weights. The first axis of inputs and outputs, the
//! batch, may have any length. Images are normalised and passed as `input`; texts as `input_ids` and `attention_mask`,
//! padded to any common length. The output is `logits`. Weights keep their PyTorch names.

mod error;
mod graph;
mod proto;
mod spatial;
mod tokens;

pub use error::OnnxError;

use fedelity_nn::{Architecture, InputShape, Layer, Layout};
use prost::Message;

use graph::Graph;
use proto::{ModelProto, OperatorSet, Property, ValueInfo};

/// The operator set version: the one that introduced LayerNormalization.
const OPSET: i64 = 17;
/// The matching version of the file format.
const FORMAT: i64 = 8;

/// A model with its weights.
#[derive(Clone, Copy, Debug)]
pub struct OnnxModel<'a> {
    pub architecture: &'a Architecture,
    pub layout: &'a Layout,
    pub params: &'a [f32],
    /// Whether the input is a row of numbers rather than an image.
    pub numbers: bool,
    /// The file's metadata, as keys and values.
    pub metadata: &'a [(String, String)],
}

/// The bytes of an ONNX file.
///
/// # Errors
/// When a weight is missing or a layer is in an unsupported position.
pub fn encode(source: &OnnxModel<'_>) -> Result<Vec<u8>, OnnxError> {
    let arch = source.architecture;
    let mut graph = Graph::new(source.layout, source.params);
    let (inputs, at) = match arch.input {
        InputShape::Tokens { .. } => {
            let inputs = ["input_ids", "attention_mask"].map(|name| ValueInfo::ids(name, &["batch", "sequence"]));
            (inputs.to_vec(), tokens::write(&mut graph, arch)?)
        }
        InputShape::Image { channels, height, width } => {
            let sides = if source.numbers { vec![width] } else { vec![channels, height, width] };
            let input = ValueInfo::floats("input", &sides);
            let flat = arch.extractor.first().is_some_and(|node| node.layer == Layer::Flatten);
            let image = if source.numbers && !flat {
                let shape = graph.ints("image", &[4], &[-1, channels as i64, height as i64, width as i64]);
                graph.node("Reshape", &["input", &shape], vec![])
            } else {
                "input".to_owned()
            };
            (vec![input], spatial::write(&mut graph, &arch.extractor, &image, (channels, height, width))?)
        }
    };
    let head = fedelity_nn::Node::named(arch.head.clone(), Layer::Dense { out: arch.classes });
    let logits = spatial::rows(&mut graph, &[head], at)?;
    graph.name_output(&logits.name, "logits");
    let model = ModelProto {
        ir_version: Some(FORMAT),
        producer_name: Some("fedelity".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        graph: Some(graph.finish(&arch.name, inputs, vec![ValueInfo::floats("logits", &[arch.classes])])),
        opset_import: vec![OperatorSet { domain: Some(String::new()), version: Some(OPSET) }],
        metadata_props: source
            .metadata
            .iter()
            .map(|(key, value)| Property { key: Some(key.clone()), value: Some(value.clone()) })
            .collect(),
    };
    Ok(model.encode_to_vec())
}
