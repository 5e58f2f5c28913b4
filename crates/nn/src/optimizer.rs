//! SGD with momentum and Adam, with PyTorch's semantics, on the trainable parts of the flat buffer.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::{AdamStep, Engine, SgdStep};
use crate::layout::Layout;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptimizerKind {
    /// v = momentum * v + g; w -= lr * v.
    Sgd {
        /// Fraction of the previous step that is kept.
        momentum: f32,
    },
    /// Adam (Kingma and Ba 2015).
    Adam {
        /// Decay rate of the mean gradient.
        beta1: f32,
        /// Decay rate of the mean squared gradient.
        beta2: f32,
        /// Added to the denominator.
        eps: f32,
    },
}

/// An optimiser with its state. Weight decay is added to the gradient.
#[derive(Clone, Debug)]
pub struct Optimizer {
    kind: OptimizerKind,
    weight_decay: f32,
    engine: Arc<dyn Engine>,
    ranges: Vec<Range<usize>>,
    first: Vec<f32>,
    second: Vec<f32>,
    steps: i32,
}

impl Optimizer {
    pub(crate) fn new(engine: Arc<dyn Engine>, layout: &Layout, kind: OptimizerKind, weight_decay: f32) -> Self {
        let len = layout.trainable_len();
        let (first, second) = match kind {
            OptimizerKind::Sgd { .. } => (len, 0),
            OptimizerKind::Adam { .. } => (len, len),
        };
        Self {
            kind,
            weight_decay,
            engine,
            ranges: layout.trainable().to_vec(),
            first: vec![0.0; first],
            second: vec![0.0; second],
            steps: 0,
        }
    }

    /// Resets it to the state of a new optimiser.
    pub fn reset(&mut self) {
        self.steps = 0;
        if matches!(self.kind, OptimizerKind::Adam { .. }) {
            self.first.fill(0.0);
            self.second.fill(0.0);
        }
    }

    /// Updates the trainable parameters by one step. `params` and `grad` have the full length.
    pub fn step(&mut self, params: &mut [f32], grad: &[f32], lr: f32) {
        let (first, weight_decay) = (self.steps == 0, self.weight_decay);
        self.steps = self.steps.saturating_add(1);
        let mut at = 0;
        for range in &self.ranges {
            let part = at..at + range.len();
            at = part.end;
            let (w, g) = (&mut params[range.clone()], &grad[range.clone()]);
            match self.kind {
                OptimizerKind::Sgd { momentum } => {
                    let v = &mut self.first[part];
                    self.engine.sgd(SgdStep { w, v, g, lr, momentum, weight_decay, first });
                }
                OptimizerKind::Adam { beta1, beta2, eps } => {
                    let (m, v) = (&mut self.first[part.clone()], &mut self.second[part]);
                    let (betas, t) = ((beta1, beta2), self.steps);
                    self.engine.adam(AdamStep { w, m, v, g, lr, betas, eps, weight_decay, t });
                }
            }
        }
    }
}
