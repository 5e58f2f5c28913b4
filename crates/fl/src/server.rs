//! What the server holds, and what a method sees of it.

use std::sync::Arc;

use fedelity_data::Dataset;
use fedelity_nn::{Model, Params};

use crate::{Payload, Samples, Scaling, Trainer, Training};

/// Samples that the server holds, from a training split.
#[derive(Clone, Debug)]
pub struct Held {
    data: Arc<Dataset>,
    indices: Vec<u32>,
    scaling: Scaling,
}

impl Held {
    /// These training samples of a data set.
    pub fn new(data: Arc<Dataset>, indices: Vec<u32>) -> Self {
        let scaling = Scaling::from(&data.normalisation);
        Self { data, indices, scaling }
    }

    pub fn samples(&self) -> Samples<'_> {
        Samples { split: &self.data.train, indices: &self.indices, scaling: &self.scaling }
    }
}

/// What the server holds besides the model.
#[derive(Clone, Debug, Default)]
pub struct ServerData {
    pub auxiliary: Option<Held>,
    pub validation: Option<Held>,
    /// Samples whose labels nobody reads.
    pub unlabelled: Option<Held>,
}

/// Everything a method may look at on the server.
#[derive(Debug)]
pub struct Server<'a> {
    pub model: &'a Arc<Model>,
    pub training: &'a Training,
    /// The clients of the federation.
    pub clients: usize,
    /// The round, counted from 0.
    pub round: usize,
    pub seed: u64,
    /// The global weights that the round starts from.
    pub global: &'a Params,
    /// What the method left in the state when the last round was closed.
    pub state: &'a Payload,
    /// Free space that lives for this round.
    pub scratch: &'a mut Payload,
    /// Labelled auxiliary samples, if the server holds some.
    pub auxiliary: Option<Samples<'a>>,
    /// Labelled validation samples, if the server holds some.
    pub validation: Option<Samples<'a>>,
    /// Samples without labels, if the server holds some.
    pub unlabelled: Option<Samples<'a>>,
    /// Runs and trains models on the server.
    pub trainer: &'a mut Trainer,
}
