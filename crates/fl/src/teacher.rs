//! Frozen weights that teach, and their outputs.

use std::sync::Arc;

use fedelity_nn::{Batch, Outputs, Workspace};

use crate::{CHUNK, Samples};

/// Which weights teach.
#[derive(Clone, Debug)]
pub enum Weights {
    /// The weights received this round.
    Global,
    /// Others: from the broadcast, from the client's memory, from an upload.
    Given(Arc<[f32]>),
}

/// A teacher that a method declares. The engine runs it in evaluation mode.
#[derive(Clone, Debug)]
pub struct Teacher {
    /// Its weights.
    pub weights: Weights,
    /// Whether the loss reads its features too. Logits are always there.
    pub features: bool,
}

impl Teacher {
    /// The weights received this round.
    pub fn global() -> Self {
        Self { weights: Weights::Global, features: false }
    }

    /// Given weights.
    pub fn given(weights: impl Into<Arc<[f32]>>) -> Self {
        Self { weights: Weights::Given(weights.into()), features: false }
    }

    /// The same teacher with its features.
    #[must_use]
    pub fn with_features(self) -> Self {
        Self { features: true, ..self }
    }

    /// The weights themselves, when these are the global ones.
    pub fn resolve<'a>(&'a self, global: &'a [f32]) -> Frozen<'a> {
        let weights = match &self.weights {
            Weights::Global => global,
            Weights::Given(weights) => weights,
        };
        Frozen { weights, features: self.features }
    }
}

/// A teacher as the training loop takes it.
#[derive(Clone, Copy, Debug)]
pub struct Frozen<'a> {
    /// Its weights.
    pub weights: &'a [f32],
    /// Whether its features are read.
    pub features: bool,
}

/// Rows of one teacher.
#[derive(Debug, Default)]
struct Rows {
    logits: Vec<f32>,
    features: Vec<f32>,
}

impl Rows {
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

/// The outputs of all teachers: of the current batch and, with the cache, of all samples.
#[derive(Debug, Default)]
pub(crate) struct TeacherOutputs {
    all: Vec<Rows>,
    batch: Vec<Rows>,
    samples: usize,
}

impl TeacherOutputs {
    /// Makes room for this many teachers.
    pub(crate) fn start(&mut self, teachers: usize) {
        self.all.resize_with(self.all.len().max(teachers), Rows::default);
        self.batch.resize_with(self.batch.len().max(teachers), Rows::default);
    }

    /// Runs every teacher over all samples.
    pub(crate) fn fill(&mut self, workspace: &mut Workspace, teachers: &[Frozen<'_>], samples: Samples<'_>) {
        for (teacher, rows) in teachers.iter().zip(&mut self.all) {
            rows.clear();
            for indices in samples.indices.chunks(CHUNK) {
                let outputs = workspace.evaluate(teacher.weights, &samples.at(indices).batch());
                rows.push(&outputs, teacher.features);
            }
        }
    }

    /// Takes the rows of a batch, by position among all samples, from what [`fill`](Self::fill) made.
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
    pub(crate) fn run(&mut self, workspace: &mut Workspace, teachers: &[Frozen<'_>], batch: &Batch<'_>) {
        for (teacher, rows) in teachers.iter().zip(&mut self.batch) {
            rows.clear();
            let outputs = workspace.evaluate(teacher.weights, batch);
            self.samples = outputs.samples;
            rows.push(&outputs, teacher.features);
        }
    }

    /// What teacher `k` says about the current batch.
    pub(crate) fn outputs(&self, k: usize) -> Outputs<'_> {
        let rows = &self.batch[k];
        Outputs { features: &rows.features, logits: &rows.logits, samples: self.samples }
    }
}
