//! Models as trees of layers, their parameters as one flat buffer, optimisers, loss kernels and model files.
//!
//! A model is data: an [`Architecture`] from the [`zoo`] is compiled once into a [`Model`], and each worker runs it in a
//! [`Workspace`] of its own. Nothing outside this crate knows how the arithmetic is done.

mod architecture;
mod batch;
mod card;
pub mod checkpoint;
mod compile;
mod encoder;
mod error;
mod layout;
pub mod loss;
mod memory;
mod model;
mod optimizer;
mod plan;
mod pretrained;
mod residual;
mod sequence;
mod units;
mod vgg;
mod workspace;
pub mod zoo;

pub use architecture::{Architecture, BlockNames, BlockParts, InputShape, Layer, Node};
pub use batch::Batch;
pub use card::{Card, Input, Reading};
pub use encoder::{EncoderShape, encoder};
pub use error::Error;
pub use fedelity_kernels::{Isa, elementwise, pool::Window};
pub use layout::{Layout, Params, Tensor};
pub use model::Model;
pub use optimizer::{Optimizer, OptimizerKind, clip_norm};
pub use pretrained::Pretrained;
pub use residual::{ResidualShape, Stem};
pub use vgg::vgg11;
pub use workspace::{Outputs, Workspace};
pub use zoo::ModelSpec;
