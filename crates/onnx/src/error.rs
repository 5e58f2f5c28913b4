//! What can go wrong with an export.

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The weights lack a tensor of the layers.
    #[error("tensor {name:?} is missing")]
    Missing { name: String },
    /// A layer is in an unsupported position.
    #[error("layer {layer} cannot be exported: {reason}")]
    Layer { layer: String, reason: &'static str },
}
