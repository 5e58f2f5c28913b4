//! A compiled model, shared by all workers.

use std::sync::Arc;

use fedelity_kernels::{Isa, affine};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

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
    frozen: Arc<[f32]>,
    start: Option<Arc<Start>>,
}

/// Where parameters start when they do not start at random.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub params: Params,
    /// For each tensor whether `params` has it.
    pub given: Vec<bool>,
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
        Ok(Self {
            name: arch.name.clone(),
            input: arch.input,
            classes: arch.classes,
            isa,
            frozen: vec![0.0; plan.frozen.len()].into(),
            start: None,
            plan,
        })
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

    /// Names, shapes and places of the frozen weights. They are not among the parameters: they neither train nor travel.
    #[must_use]
    pub fn frozen_layout(&self) -> &Layout {
        &self.plan.frozen
    }

    /// The frozen weights. They are zero until a [`Pretrained`](crate::Pretrained) model brings them.
    #[must_use]
    pub fn frozen(&self) -> &[f32] {
        &self.frozen
    }

    /// The same model with these frozen weights and these parameters to start from.
    pub(crate) fn with_weights(self, frozen: Params, start: Start) -> Self {
        assert_eq!(frozen.len(), self.plan.frozen.len(), "the frozen weights are read by their layout");
        Self { frozen: frozen.0.into(), start: Some(Arc::new(start)), ..self }
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
        Workspace::new(Arc::clone(&self.plan), self.isa, self.input, Arc::clone(&self.frozen))
    }

    /// The parameters to start from: those that were loaded; else PyTorch's default for each kind of layer, and BERT's for
    /// transformers.
    pub fn init(&self, rng: &mut impl Rng) -> Params {
        let mut params = Params(vec![0.0; self.layout().len()]);
        for (i, tensor) in self.layout().tensors().iter().enumerate() {
            let part = &mut params[tensor.range()];
            if let Some(start) = self.start.as_ref().filter(|start| start.given[i]) {
                part.copy_from_slice(&start.params[tensor.range()]);
                continue;
            }
            match tensor.init {
                Init::Constant(value) => part.fill(value),
                Init::Normal { std } => {
                    for value in part {
                        let drawn: f32 = StandardNormal.sample(rng);
                        *value = std * drawn;
                    }
                }
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
