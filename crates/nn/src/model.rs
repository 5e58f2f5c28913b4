//! A compiled model, shared by all workers.

use std::ops::Range;
use std::sync::Arc;

use rand::{Rng, RngExt};

use crate::activation;
use crate::architecture::{Architecture, InputShape};
use crate::engine::{Engine, Program, Session};
use crate::error::NnError;
use crate::layout::{Init, Layout, Params};
use crate::optimizer::{Optimizer, OptimizerKind};
use crate::outline::Outline;

/// A model ready to run. Immutable; each worker runs it in its own [`Session`].
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    input: InputShape,
    classes: usize,
    engine: Arc<dyn Engine>,
    outline: Arc<Outline>,
    program: Arc<dyn Program>,
    frozen: Arc<[f32]>,
    start: Option<Arc<InitialWeights>>,
}

/// Loaded parameters to start from instead of random ones.
#[derive(Clone, Debug)]
pub(crate) struct InitialWeights {
    pub params: Params,
    /// Whether `params` has each tensor.
    pub given: Vec<bool>,
}

impl Model {
    /// Prepares an architecture to run on an engine.
    ///
    /// # Errors
    /// When the layers do not fit the input's shape.
    pub fn compile(arch: &Architecture, engine: Arc<dyn Engine>) -> Result<Self, NnError> {
        if arch.input.is_empty() || arch.classes == 0 {
            let reason = format!("{:?} with {} classes is empty", arch.input, arch.classes);
            return Err(NnError::DoesNotFit { model: arch.name.clone(), reason });
        }
        activation::features(&arch.extractor, arch.input, arch.classes)
            .map_err(|misfit| NnError::DoesNotFit { model: arch.name.clone(), reason: misfit.to_string() })?;
        let outline = Outline::of(arch)?;
        let program = engine.compile(arch, &outline)?;
        Ok(Self {
            name: arch.name.clone(),
            input: arch.input,
            classes: arch.classes,
            frozen: vec![0.0; outline.frozen.len()].into(),
            start: None,
            engine,
            outline: Arc::new(outline),
            program,
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names, shapes and offsets of the parameters.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.outline.layout
    }

    /// Names, shapes and offsets of the frozen weights. They are not parameters: they are neither trained nor sent.
    #[must_use]
    pub fn frozen_layout(&self) -> &Layout {
        &self.outline.frozen
    }

    /// The frozen weights. They are zero until loaded from a [`Pretrained`](crate::Pretrained) model.
    #[must_use]
    pub fn frozen(&self) -> &[f32] {
        &self.frozen
    }

    /// The same model with these frozen weights and initial parameters.
    pub(crate) fn with_weights(self, frozen: Params, start: InitialWeights) -> Self {
        assert_eq!(frozen.len(), self.frozen_layout().len(), "the frozen weights are read by their layout");
        Self { frozen: frozen.0.into(), start: Some(Arc::new(start)), ..self }
    }

    #[must_use]
    pub fn input(&self) -> InputShape {
        self.input
    }

    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of features, the inputs of the head.
    #[must_use]
    pub fn features(&self) -> usize {
        self.outline.features
    }

    /// The place of the head's weight and bias, the last two parameters.
    #[must_use]
    pub fn head(&self) -> Range<usize> {
        let tensors = self.layout().tensors();
        tensors[tensors.len() - 2].offset..self.layout().len()
    }

    /// Whether any layer before the head is trained.
    #[must_use]
    pub fn trains_features(&self) -> bool {
        let head = self.head().start;
        self.layout().trainable().first().is_some_and(|range| range.start < head)
    }

    /// The engine that runs it.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Multiply-adds of the forward pass for one sample.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        self.outline.multiply_adds
    }

    /// Creates the memory in which one worker runs the model. It grows to the largest batch seen and is then reused.
    #[must_use]
    pub fn session(&self) -> Box<dyn Session> {
        self.program.session(Arc::clone(&self.frozen))
    }

    /// An optimiser for the trainable parameters.
    #[must_use]
    pub fn optimizer(&self, kind: OptimizerKind, weight_decay: f32) -> Optimizer {
        Optimizer::new(Arc::clone(&self.engine), self.layout(), kind, weight_decay)
    }

    /// Scales the gradient down to norm `max` if it is larger; returns the original norm. Trainable parts only.
    pub fn clip_norm(&self, grad: &mut [f32], max: f32) -> f64 {
        let trainable = self.layout().trainable();
        let norm = trainable.iter().map(|r| self.engine.squared_norm(&grad[r.clone()])).sum::<f64>().sqrt();
        // PyTorch adds 1e-6 to avoid a division by zero.
        let scale = (f64::from(max) / (norm + 1e-6)) as f32;
        if scale < 1.0 {
            for range in trainable {
                grad[range.clone()].iter_mut().for_each(|g| *g *= scale);
            }
        }
        norm
    }

    /// The initial parameters: loaded ones if there are any, else PyTorch's default for each kind of layer, and BERT's
    /// for transformers.
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
                    for pair in part.chunks_mut(2) {
                        let drawn = normal_pair(rng);
                        pair.iter_mut().zip(drawn).for_each(|(value, drawn)| *value = std * drawn);
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

    /// The head's logits for the given features, as rows.
    pub fn head_forward(&self, params: &[f32], features: &[f32], logits: &mut [f32]) {
        self.program.head_forward(params, features, logits);
    }

    /// Backward pass of the head alone: adds to the gradients of the features and of the parameters, if wanted.
    pub fn head_backward(
        &self,
        params: &[f32],
        features: &[f32],
        d_logits: &[f32],
        d_features: Option<&mut [f32]>,
        grad: Option<&mut [f32]>,
    ) {
        self.program.head_backward(params, features, d_logits, d_features, grad);
    }
}

/// Two independent standard normal numbers, by Marsaglia's polar method.
pub fn normal_pair(rng: &mut impl Rng) -> [f32; 2] {
    loop {
        let [x, y] = [0; 2].map(|_| 2.0 * rng.random::<f64>() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            let factor = (-2.0 * libm::log(square) / square).sqrt();
            return [x, y].map(|side| (side * factor) as f32);
        }
    }
}
