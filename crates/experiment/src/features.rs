//! Writes features of test samples to a file.

use std::collections::HashMap;

use fedelity_sim::Features;
use safetensors::tensor::{Dtype, TensorView, serialize};

/// Labels, and the features under the global and a local model, as safetensors.
pub(crate) fn bytes(features: &Features) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let Features { labels, width, global, local, client, round } = features;
    let numbers = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let (global, local) = (numbers(global), numbers(local));
    let classes: Vec<u8> = labels.iter().flat_map(|&label| i64::from(label).to_le_bytes()).collect();
    let shape = vec![labels.len(), *width];
    let views = [
        ("global", TensorView::new(Dtype::F32, shape.clone(), &global)?),
        ("labels", TensorView::new(Dtype::I64, vec![labels.len()], &classes)?),
        ("local", TensorView::new(Dtype::F32, shape, &local)?),
    ];
    // A single entry, so that the order cannot vary.
    let about = serde_json::json!({ "client": client, "round": round }).to_string();
    serialize(views, Some(HashMap::from([("fedelity".to_string(), about)])))
}
