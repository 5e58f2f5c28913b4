//! The interface between models and the engines that run them. `cpu` is the only engine so far.
//!
//! Weights, gradients and outputs cross it as flat f32 slices in the order of the [`Outline`], because methods read and
//! change them between steps. How and on which device an engine keeps activations is up to it.
//!
//! An engine must keep what the rest relies on: the same bits in every run, a sample's evaluation independent of its batch,
//! no allocation per step. The gradient and golden tests of this crate run on every engine of the machine.

use std::fmt::Debug;
use std::sync::Arc;

pub use fedelity_kernels::{AdamStep, SgdStep};

use crate::architecture::Architecture;
use crate::batch::Batch;
use crate::cpu::engines;
use crate::error::NnError;
use crate::outline::Outline;

pub trait Engine: Debug + Send + Sync {
    /// The name recorded with a run, such as "avx2".
    fn name(&self) -> &str;

    /// Prepares a model whose layers fit each other and the input.
    ///
    /// # Errors
    /// When the engine does not support a layer.
    fn compile(&self, arch: &Architecture, outline: &Outline) -> Result<Arc<dyn Program>, NnError>;

    /// One step of SGD with momentum.
    fn sgd(&self, step: SgdStep<'_>);

    fn adam(&self, step: AdamStep<'_>);

    /// The sum of squares, in f64.
    fn squared_norm(&self, values: &[f32]) -> f64;
}

/// A model prepared by an engine. Shared by all workers.
pub trait Program: Debug + Send + Sync {
    /// Creates the memory in which one worker runs the model. It grows to the largest batch seen and is then reused.
    fn session(&self, frozen: Arc<[f32]>) -> Box<dyn Session>;

    /// The head's logits for the given features, as rows.
    fn head_forward(&self, params: &[f32], features: &[f32], logits: &mut [f32]);

    /// Backward pass of the head alone: adds to the gradients of the features and of the parameters, if wanted.
    fn head_backward(
        &self,
        params: &[f32],
        features: &[f32],
        d_logits: &[f32],
        d_features: Option<&mut [f32]>,
        grad: Option<&mut [f32]>,
    );
}

/// A worker's memory for running a model. Once it has seen the largest batch, training allocates nothing.
pub trait Session: Debug + Send {
    /// Forward pass in training mode. Updates the running statistics in `params`; `key` seeds dropout.
    fn train(&mut self, params: &mut [f32], batch: &Batch<'_>, key: u64) -> Outputs<'_>;

    /// Forward pass in evaluation mode: each sample is independent of the others.
    fn evaluate(&mut self, params: &[f32], batch: &Batch<'_>) -> Outputs<'_>;

    /// Forward pass in evaluation mode, with the name and activations, `[sample][unit]`, of every layer. A unit of a
    /// convolution is an output channel; its activation is the mean over all pixels after normalisation and ReLU.
    fn evaluate_layers(&mut self, params: &[f32], batch: &Batch<'_>) -> (Outputs<'_>, Vec<(&str, &[f32])>);

    /// The outputs of the last forward pass.
    fn outputs(&self) -> Outputs<'_>;

    /// After [`Session::train`]: writes the gradient of the loss to `grad`, which has the full length, and adds that of the
    /// head, the last two parameters, to what is there. `d_features` is the loss's direct gradient with respect to the
    /// features, in addition to what comes through the head.
    fn backward(&mut self, params: &[f32], d_logits: &[f32], d_features: Option<&[f32]>, grad: &mut [f32]);
}

/// A model's outputs for a batch, as rows.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// The head's input, `[sample][feature]`.
    pub features: &'a [f32],
    /// `[sample][class]`.
    pub logits: &'a [f32],
    pub samples: usize,
}

/// The engine with this name.
///
/// # Errors
/// When this machine has no such engine; the error lists those available.
pub fn engine_named(name: &str) -> Result<Arc<dyn Engine>, NnError> {
    let all = engines();
    all.iter().find(|engine| engine.name() == name).cloned().ok_or_else(|| {
        let known = all.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
        NnError::UnknownEngine { name: name.to_owned(), known }
    })
}
