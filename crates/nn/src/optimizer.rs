//! SGD with momentum and Adam, with PyTorch's semantics, on the trainable parts of the flat buffer.

use std::ops::Range;

use fedelity_kernels::{Isa, elementwise};

use crate::layout::Layout;

/// Which optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptimizerKind {
    /// v = momentum * v + g; w -= lr * v.
    Sgd {
        /// Share of the last step that is kept.
        momentum: f32,
    },
    /// Adam (Kingma and Ba 2015).
    Adam {
        /// Decay of the mean of gradients.
        beta1: f32,
        /// Decay of the mean of squared gradients.
        beta2: f32,
        /// Added to the denominator.
        eps: f32,
    },
}

/// An optimiser with its memory. Weight decay is added to the gradient.
#[derive(Clone, Debug)]
pub struct Optimizer {
    kind: OptimizerKind,
    weight_decay: f32,
    isa: Isa,
    ranges: Vec<Range<usize>>,
    first: Vec<f32>,
    second: Vec<f32>,
    steps: i32,
}

impl Optimizer {
    /// An optimiser for the trainable parts of `layout`.
    #[must_use]
    pub fn new(kind: OptimizerKind, weight_decay: f32, isa: Isa, layout: &Layout) -> Self {
        let len = layout.trainable_len();
        let (first, second) = match kind {
            OptimizerKind::Sgd { .. } => (len, 0),
            OptimizerKind::Adam { .. } => (len, len),
        };
        Self {
            kind,
            weight_decay,
            isa,
            ranges: layout.trainable().to_vec(),
            first: vec![0.0; first],
            second: vec![0.0; second],
            steps: 0,
        }
    }

    /// Forgets all steps, as a fresh optimiser.
    pub fn reset(&mut self) {
        self.steps = 0;
        if matches!(self.kind, OptimizerKind::Adam { .. }) {
            self.first.fill(0.0);
            self.second.fill(0.0);
        }
    }

    /// Moves the trainable parameters one step. `params` and `grad` have the full length.
    pub fn step(&mut self, params: &mut [f32], grad: &[f32], lr: f32) {
        let is_first = self.steps == 0;
        self.steps = self.steps.saturating_add(1);
        let mut at = 0;
        for range in &self.ranges {
            let part = at..at + range.len();
            at = part.end;
            let (w, g) = (&mut params[range.clone()], &grad[range.clone()]);
            match self.kind {
                OptimizerKind::Sgd { momentum } => {
                    let v = &mut self.first[part];
                    elementwise::sgd_step(self.isa, w, v, g, lr, momentum, self.weight_decay, is_first);
                }
                OptimizerKind::Adam { beta1, beta2, eps } => {
                    let (m, v) = (&mut self.first[part.clone()], &mut self.second[part]);
                    let betas = (beta1, beta2);
                    elementwise::adam_step(self.isa, w, m, v, g, lr, betas, eps, self.weight_decay, self.steps);
                }
            }
        }
    }
}

/// Scales the gradient down to norm `max` if it is longer; returns the norm it had. Trainable parts only.
pub fn clip_norm(isa: Isa, layout: &Layout, grad: &mut [f32], max: f32) -> f64 {
    let norm = layout.trainable().iter().map(|r| elementwise::squared_norm(isa, &grad[r.clone()])).sum::<f64>().sqrt();
    // The small number is PyTorch's guard against a division by zero.
    let scale = (f64::from(max) / (norm + 1e-6)) as f32;
    if scale < 1.0 {
        for range in layout.trainable() {
            for g in &mut grad[range.clone()] {
                *g *= scale;
            }
        }
    }
    norm
}
