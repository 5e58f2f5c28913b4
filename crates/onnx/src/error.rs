//! What can go wrong with an export.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The weights lack a tensor of the layers.
    #[error("tensor {name:?} is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A layer stands where it cannot.
    #[error("layer {layer} cannot be exported: {reason}")]
    Layer {
        /// The layer.
        layer: String,
        /// Why.
        reason: &'static str,
    },
}
