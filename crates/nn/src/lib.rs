//! Models as trees of layers, their parameters as one flat buffer, optimisers, loss kernels and model files.
//!
//! A model is data: an [`Architecture`] from the [`zoo`] is compiled once into a [`Model`], and each worker runs it in
//! its own [`Session`]. An [`Engine`] does the arithmetic; nothing outside this crate knows how.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod architecture;
mod batch;
mod card;
pub mod checkpoint;
mod cpu;
mod encoder;
mod engine;
mod error;
mod layer_list;
mod layout;
pub mod loss;
mod model;
mod optimizer;
mod outline;
mod pretrained;
mod residual;
mod vgg;
pub mod zoo;

pub use architecture::{Architecture, BlockNames, BlockParts, InputShape, Layer, Node};
pub use batch::Batch;
pub use card::{Card, Input, Reading};
pub use cpu::{cpu, engines};
pub use encoder::{EncoderShape, encoder};
pub use engine::{AdamStep, Engine, Outputs, Program, Session, SgdStep, engine_named};
pub use error::NnError;
pub use fedelity_kernels::pool::Window;
pub use layer_list::ListedLayer;
pub use layout::{Layout, Params, Tensor};
pub use model::Model;
pub use optimizer::{Optimizer, OptimizerKind};
pub use outline::Outline;
pub use pretrained::Pretrained;
pub use residual::{ResidualShape, Stem};
pub use vgg::vgg11;
pub use zoo::ModelSpec;
