//! A compiled model, shared by all workers.

use std::sync::Arc;

use fedelity_kernels::{Isa, affine};
use rand::{Rng, RngExt};

use crate::architecture::{Architecture, InputShape};
use crate::compile;
use crate::error::Error;
use crate::layout::{Init, Layout, Params};
use crate::plan::{Plan, RowOp};
use crate::workspace::Workspace;

/// A model ready to run. Immutable; each worker runs it in a [`Workspace`] of its own.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    input: InputShape,
    classes: usize,
    isa: Isa,
    plan: Arc<Plan>,
}

impl Model {
    /// Compiles an architecture for an instruction set.
    ///
    /// # Errors
    /// When the layers do not fit the input's shape.
    pub fn compile(arch: &Architecture, isa: Isa) -> Result<Self, Error> {
        if arch.input.is_empty() || arch.classes == 0 {
            let reason = format!("{:?} with {} classes is empty", arch.input, arch.classes);
            return Err(Error::DoesNotFit { model: arch.name.clone(), reason });
        }
        let plan = Arc::new(compile::plan(arch, isa)?);
        Ok(Self { name: arch.name.clone(), input: arch.input, classes: arch.classes, isa, plan })
    }

    /// Name in the zoo.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names, shapes and places of the parameters.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.plan.layout
    }

    /// Shape of the input.
    #[must_use]
    pub fn input(&self) -> InputShape {
        self.input
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of features: what the head reads.
    #[must_use]
    pub fn features(&self) -> usize {
        self.head().0
    }

    /// Instruction set it was compiled for.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Multiply-adds of the forward pass for one sample.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        self.plan.multiply_adds
    }

    /// Buffers to run the model in. They grow to the largest batch seen and are then reused.
    #[must_use]
    pub fn workspace(&self) -> Workspace {
        Workspace::new(Arc::clone(&self.plan), self.isa, self.input)
    }

    /// Fresh parameters: PyTorch's default for each kind of layer.
    pub fn init(&self, rng: &mut impl Rng) -> Params {
        let mut params = Params(vec![0.0; self.layout().len()]);
        for tensor in self.layout().tensors() {
            let part = &mut params[tensor.range()];
            match tensor.init {
                Init::Constant(value) => part.fill(value),
                Init::Uniform { fan_in } => {
                    let bound = 1.0 / (fan_in as f32).sqrt();
                    for value in part {
                        *value = (rng.random::<f32>() * 2.0 - 1.0) * bound;
                    }
                }
            }
        }
        params
    }

    /// The head's logits for given features, as rows.
    pub fn head_forward(&self, params: &[f32], features: &[f32], logits: &mut [f32]) {
        let (inputs, outputs, weight, bias) = self.head();
        let samples = features.len() / inputs;
        let sizes = (samples, inputs, outputs);
        affine::forward(self.isa(), logits, features, &params[weight], &params[bias], sizes, false);
    }

    /// Gradients of the head alone: adds to the features' gradient and to the parameters', where they are wanted.
    pub fn head_backward(
        &self,
        params: &[f32],
        features: &[f32],
        d_logits: &[f32],
        d_features: Option<&mut [f32]>,
        grad: Option<&mut [f32]>,
    ) {
        let (inputs, outputs, weight, bias) = self.head();
        let samples = features.len() / inputs;
        let sizes = (samples, inputs, outputs);
        if let Some(grad) = grad {
            affine::weight_gradient(self.isa(), &mut grad[weight.clone()], d_logits, features, sizes);
            affine::bias_gradient(&mut grad[bias], d_logits, samples, outputs);
        }
        if let Some(d_features) = d_features {
            affine::input_gradient(self.isa(), d_features, d_logits, &params[weight], sizes, true);
        }
    }

    fn head(&self) -> (usize, usize, std::ops::Range<usize>, std::ops::Range<usize>) {
        match self.plan.rows.last() {
            Some(RowOp::Dense { inputs, outputs, weight, bias, .. }) => {
                (*inputs, *outputs, weight.clone(), bias.clone())
            }
            _ => unreachable!("a plan ends with its head"),
        }
    }
}
