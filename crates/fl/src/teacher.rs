//! Frozen teacher weights and their outputs.

use std::sync::Arc;

use fedelity_nn::{Batch, Outputs, Session};

use crate::payload::all_finite;
use crate::{CHUNK, Rejection, Samples};

/// A teacher that a method declares. The engine runs it in evaluation mode.
#[derive(Clone, Debug)]
pub struct Teacher {
    /// Its weights, from the broadcast or the client's memory; `None` means those received this round.
    weights: Option<Arc<[f32]>>,
    /// Whether the loss reads its features too. Logits are always available.
    features: bool,
}

impl Teacher {
    /// The weights received this round.
    pub fn global() -> Self {
        Self { weights: None, features: false }
    }

    pub fn given(weights: impl Into<Arc<[f32]>>) -> Self {
        Self { weights: Some(weights.into()), features: false }
    }

    /// The same teacher, with features.
    #[must_use]
    pub fn with_features(self) -> Self {
        Self { features: true, ..self }
    }

    /// The weights, or the global ones if there are none. Given weights are checked: they came over the wire or from
    /// disk.
    pub fn resolve<'a>(&'a self, global: &'a [f32]) -> Result<Frozen<'a>, Rejection> {
        let weights = self.weights.as_deref().unwrap_or(global);
        let (expected, found) = (global.len(), weights.len());
        if found != expected {
            return Err(Rejection::Weights { expected, found });
        }
        if self.weights.is_some() && !all_finite(weights) {
            return Err(Rejection::NotFinite { what: "weights".to_string() });
        }
        Ok(Frozen { weights, features: self.features })
    }
}

/// A teacher as the training loop uses it.
#[derive(Clone, Copy, Debug)]
pub struct Frozen<'a> {
    pub weights: &'a [f32],
    /// Whether its features are read.
    pub features: bool,
}

/// Output rows of one teacher.
#[derive(Debug, Default)]
struct TeacherRows {
    logits: Vec<f32>,
    features: Vec<f32>,
}

impl TeacherRows {
    fn clear(&mut self) {
        self.logits.clear();
        self.features.clear();
    }

    fn push(&mut self, outputs: &Outputs<'_>, features: bool) {
        self.logits.extend_from_slice(outputs.logits);
        if features {
            self.features.extend_from_slice(outputs.features);
        }
    }
}

/// The outputs of all teachers: for the current batch and, with the cache, for all samples.
#[derive(Debug, Default)]
pub(crate) struct TeacherOutputs {
    all: Vec<TeacherRows>,
    batch: Vec<TeacherRows>,
    samples: usize,
}

impl TeacherOutputs {
    /// Outputs on one batch that were computed elsewhere.
    pub(crate) fn given(outputs: &[Outputs<'_>]) -> Self {
        let rows = |one: &Outputs<'_>| TeacherRows { logits: one.logits.to_vec(), features: one.features.to_vec() };
        let samples = outputs.first().map_or(0, |one| one.samples);
        Self { all: Vec::new(), batch: outputs.iter().map(rows).collect(), samples }
    }

    /// Makes room for this many teachers.
    pub(crate) fn start(&mut self, teachers: usize) {
        self.all.resize_with(self.all.len().max(teachers), TeacherRows::default);
        self.batch.resize_with(self.batch.len().max(teachers), TeacherRows::default);
    }

    /// Runs every teacher over all samples.
    pub(crate) fn fill(&mut self, session: &mut dyn Session, teachers: &[Frozen<'_>], samples: Samples<'_>) {
        for (teacher, rows) in teachers.iter().zip(&mut self.all) {
            rows.clear();
            for indices in samples.indices.chunks(CHUNK) {
                let outputs = session.evaluate(teacher.weights, &samples.at(indices).batch());
                rows.push(&outputs, teacher.features);
            }
        }
    }

    /// Copies the rows of a batch, by position among all samples, from the outputs of [`fill`](Self::fill).
    pub(crate) fn pick(&mut self, teachers: &[Frozen<'_>], positions: &[u32], classes: usize, features: usize) {
        self.samples = positions.len();
        for ((teacher, all), batch) in teachers.iter().zip(&self.all).zip(&mut self.batch) {
            batch.clear();
            for &position in positions {
                let row = |width: usize| position as usize * width..(position as usize + 1) * width;
                batch.logits.extend_from_slice(&all.logits[row(classes)]);
                if teacher.features {
                    batch.features.extend_from_slice(&all.features[row(features)]);
                }
            }
        }
    }

    /// Runs every teacher over one batch.
    pub(crate) fn run(&mut self, session: &mut dyn Session, teachers: &[Frozen<'_>], batch: &Batch<'_>) {
        for (teacher, rows) in teachers.iter().zip(&mut self.batch) {
            rows.clear();
            let outputs = session.evaluate(teacher.weights, batch);
            self.samples = outputs.samples;
            rows.push(&outputs, teacher.features);
        }
    }

    /// The outputs of teacher `k` on the current batch.
    pub(crate) fn outputs(&self, k: usize) -> Outputs<'_> {
        let rows = &self.batch[k];
        Outputs { features: &rows.features, logits: &rows.logits, samples: self.samples }
    }
}
