//! What runs models: the seam between models and arithmetic. `cpu` is the only engine so far.
//!
//! Weights, gradients and outputs cross it as flat slices of f32 in the order of the [`Outline`], because methods read and
//! change them between steps. How an engine keeps activations, and on which device, is up to it.

use std::fmt::Debug;
use std::sync::Arc;

pub use fedelity_kernels::{AdamStep, SgdStep};

use crate::architecture::Architecture;
use crate::batch::Batch;
use crate::cpu::engines;
use crate::error::NnError;
use crate::outline::Outline;

/// Something that runs models.
pub trait Engine: Debug + Send + Sync {
    /// The name that runs are recorded with, such as "avx2".
    fn name(&self) -> &str;

    /// Prepares a model whose layers fit each other and the input.
    ///
    /// # Errors
    /// When the engine lacks a layer.
    fn compile(&self, arch: &Architecture, outline: &Outline) -> Result<Arc<dyn Program>, NnError>;

    /// One step of SGD with momentum.
    fn sgd(&self, step: SgdStep<'_>);

    fn adam(&self, step: AdamStep<'_>);

    /// The sum of squares, in f64.
    fn squared_norm(&self, values: &[f32]) -> f64;
}

/// A model that an engine has prepared. Shared by all workers.
pub trait Program: Debug + Send + Sync {
    /// Memory for one worker to run the model in. It grows to the largest batch seen and is then reused.
    fn session(&self, frozen: Arc<[f32]>) -> Box<dyn Session>;

    /// The head's logits for given features, as rows.
    fn head_forward(&self, params: &[f32], features: &[f32], logits: &mut [f32]);

    /// Gradients of the head alone: adds to the features' gradient and to the parameters', where they are wanted.
    fn head_backward(
        &self,
        params: &[f32],
        features: &[f32],
        d_logits: &[f32],
        d_features: Option<&mut [f32]>,
        grad: Option<&mut [f32]>,
    );
}

/// One worker's runs of a model. Once it has seen the largest batch, training allocates nothing.
pub trait Session: Debug + Send {
    /// Forward in training mode. The running statistics inside `params` move; `key` decides what dropout drops.
    fn train(&mut self, params: &mut [f32], batch: &Batch<'_>, key: u64) -> Outputs<'_>;

    /// Forward in evaluation mode: every sample for itself.
    fn evaluate(&mut self, params: &[f32], batch: &Batch<'_>) -> Outputs<'_>;

    /// Forward in evaluation mode, with the name and activations, `[sample][unit]`, of every layer. A unit of a convolution
    /// is an output channel, whose activation is the mean over all pixels after its normalisation and ReLU.
    fn evaluate_layers(&mut self, params: &[f32], batch: &Batch<'_>) -> (Outputs<'_>, Vec<(&str, &[f32])>);

    /// What the last forward pass gave.
    fn outputs(&self) -> Outputs<'_>;

    /// After [`Session::train`]: adds the gradient of the loss to `grad`, which has the full length. `d_features` is
    /// what the loss asks of the features beyond what comes through the head.
    fn backward(&mut self, params: &[f32], d_logits: &[f32], d_features: Option<&[f32]>, grad: &mut [f32]);
}

/// What a model says about a batch, as rows.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// What the head reads, `[sample][feature]`.
    pub features: &'a [f32],
    /// `[sample][class]`.
    pub logits: &'a [f32],
    pub samples: usize,
}

/// The engine of that name.
///
/// # Errors
/// When this machine has no such engine; the error lists those it has.
pub fn engine_named(name: &str) -> Result<Arc<dyn Engine>, NnError> {
    let all = engines();
    all.iter().find(|engine| engine.name() == name).cloned().ok_or_else(|| {
        let known = all.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
        NnError::UnknownEngine { name: name.to_owned(), known }
    })
}
