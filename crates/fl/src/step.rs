//! A method's view of one mini-batch.

use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{Model, Outputs};
use rand_chacha::ChaCha8Rng;

use crate::teacher::TeacherOutputs;
use crate::{Frozen, Terms};

/// Scratch for heads that run separately from the model.
#[derive(Debug, Default)]
pub(crate) struct HeadScratch {
    logits: Vec<f32>,
    d_logits: Vec<f32>,
    /// Whether the student's head has run by itself.
    pub(crate) student: bool,
    /// Whether a teacher's has.
    pub(crate) teacher: bool,
}

/// One mini-batch: read outputs, add gradients. Matrices have one row per sample.
pub struct Step<'a> {
    /// The local epoch, counted from 0.
    pub epoch: usize,
    /// The client's step in this round, counted from 0.
    pub step: usize,
    pub labels: &'a [u16],
    pub classes: usize,
    pub features: usize,
    /// The outputs of the model in training.
    pub student: Outputs<'a>,
    /// The gradient of the loss with respect to the student's logits. Losses add to it.
    pub d_logits: &'a mut [f32],
    /// The method's own randomness, one stream per client, round and epoch.
    pub rng: &'a mut ChaCha8Rng,
    pub(crate) model: &'a Model,
    pub(crate) params: &'a [f32],
    pub(crate) grad: &'a mut [f32],
    pub(crate) frozen: &'a [Frozen<'a>],
    pub(crate) outputs: &'a TeacherOutputs,
    pub(crate) d_features: &'a mut [f32],
    pub(crate) d_features_used: bool,
    pub(crate) head: &'a mut HeadScratch,
}

impl<'a> Step<'a> {
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    pub fn teachers(&self) -> usize {
        self.frozen.len()
    }

    /// The outputs of teacher `k`. Its features are empty unless [requested](crate::Teacher::with_features).
    ///
    /// # Panics
    ///
    /// If there is no teacher `k`.
    pub fn teacher(&self, k: usize) -> Outputs<'a> {
        assert!(k < self.frozen.len(), "teacher {k} of {}", self.frozen.len());
        let all: &'a TeacherOutputs = self.outputs;
        all.outputs(k)
    }

    /// The student's mean cross-entropy against the labels, as the term `ce`; adds its gradient.
    pub fn cross_entropy(&mut self) -> Terms {
        let ce = loss::cross_entropy(self.student.logits, self.labels, self.classes, 1.0, self.d_logits);
        Terms::of("ce", ce)
    }

    /// The divergence of the student's logits from those of teacher `k`; adds its gradient.
    ///
    /// # Panics
    ///
    /// If there is no teacher `k`.
    pub fn distil(&mut self, k: usize, how: &Kl<'_>) -> f32 {
        loss::kl(self.student.logits, self.teacher(k).logits, self.classes, how, self.d_logits)
    }

    /// The gradient of the loss with respect to the student's features, beyond what comes through the logits. Losses
    /// add to it.
    ///
    /// Costs nothing if it is never called.
    pub fn d_features(&mut self) -> &mut [f32] {
        if !self.d_features_used {
            self.d_features.fill(0.0);
            self.d_features_used = true;
        }
        self.d_features
    }

    /// The student's head on given features; the gradient reaches only the head's weights.
    ///
    /// `loss` gets the logits and adds their gradient. The features may be generated (FedGen) or
    /// `step.teacher(k).features` (the head's part of FedDistill).
    pub fn student_head(&mut self, features: &[f32], loss: impl FnOnce(&[f32], &mut [f32]) -> f32) -> f32 {
        self.head.student = true;
        let value = self.head.run(self.model, self.params, features, loss);
        self.model.head_backward(self.params, features, &self.head.d_logits, None, Some(self.grad));
        value
    }

    /// The frozen head of teacher `k` on the student's features; the gradient reaches the student's features.
    ///
    /// `loss` gets the logits and adds their gradient (the extractor's part of FedDistill).
    pub fn teacher_head(&mut self, k: usize, loss: impl FnOnce(&[f32], &mut [f32]) -> f32) -> f32 {
        let (weights, features) = (self.frozen[k].weights, self.student.features);
        self.head.teacher = true;
        let value = self.head.run(self.model, weights, features, loss);
        self.d_features();
        self.model.head_backward(weights, features, &self.head.d_logits, Some(self.d_features), None);
        value
    }

    /// The student's head on given features, values only.
    pub fn student_head_values(&mut self, features: &[f32], logits: &mut [f32]) {
        self.head.student = true;
        self.model.head_forward(self.params, features, logits);
    }
}

impl HeadScratch {
    fn run(
        &mut self,
        model: &Model,
        weights: &[f32],
        features: &[f32],
        loss: impl FnOnce(&[f32], &mut [f32]) -> f32,
    ) -> f32 {
        let len = features.len() / model.features() * model.classes();
        self.logits.resize(len, 0.0);
        self.d_logits.clear();
        self.d_logits.resize(len, 0.0);
        model.head_forward(weights, features, &mut self.logits);
        loss(&self.logits, &mut self.d_logits)
    }
}
