//! Models as trees of layers, their parameters as one flat buffer, optimisers, loss kernels and model files.
//!
//! A model is data: an [`Architecture`] from the [`zoo`] is compiled once into a [`Model`], and each worker runs it in
//! its own [`Session`]. An [`Engine`] does the arithmetic; nothing outside this crate knows how.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod activation;
mod architecture;
mod batch;
mod card;
pub mod checkpoint;
mod cpu;
mod encoder;
mod engine;
mod error;
mod layer_keys;
mod layer_list;
mod layout;
pub mod loss;
mod model;
mod model_file;
mod optimizer;
mod outline;
mod place;
mod pretrained;
mod residual;
mod tensor_name;
mod vgg;
pub mod zoo;

pub use activation::ActivationShape;
pub use architecture::{Architecture, BlockNames, BlockParts, InputShape, Layer, Node};
pub use batch::Batch;
pub use card::{Card, ColumnCard, ColumnValues, Input, Reading, TableCard};
pub use cpu::{cpu, engines};
pub use encoder::{EncoderShape, encoder};
pub use engine::{AdamStep, Engine, Outputs, Program, Session, SgdStep, engine_named};
pub use error::NnError;
pub use fedelity_kernels::pool::Window;
pub use layer_keys::{LayerKeys, LayerKind};
pub use layer_list::ListedLayer;
pub use layout::{Layout, Params, Tensor};
pub use model::{Model, normal_pair};
pub use model_file::{MOST_BYTES, ModelFile, ModelFileKeys};
pub use optimizer::{Optimizer, OptimizerKind};
pub use outline::Outline;
pub use place::{LayerList, LayerPlace, Misfit};
pub use pretrained::Pretrained;
pub use residual::{ResidualShape, Stem};
pub use tensor_name::check as check_tensor_name;
pub use vgg::vgg11;
pub use zoo::ModelSpec;
