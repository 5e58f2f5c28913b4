//! What can go wrong with an export.

use fedelity_nn::Misfit;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PyTorchError {
    /// A layer does not fit its input.
    #[error("{layer}: {misfit}")]
    Layer { layer: String, misfit: Misfit },
    /// PyTorch has no module of this name.
    #[error("the tensors of {name:?} cannot be modules of PyTorch: {reason}")]
    Name { name: String, reason: String },
}
