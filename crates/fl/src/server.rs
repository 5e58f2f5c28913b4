//! The server's data, and a method's view of the server.

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
    /// Samples whose labels are never read.
    pub unlabelled: Option<Held>,
}

/// Everything a method may read on the server.
#[derive(Debug)]
pub struct Server<'a> {
    pub model: &'a Arc<Model>,
    pub training: &'a Training,
    /// The number of clients in the federation.
    pub clients: usize,
    /// Counted from 0.
    pub round: usize,
    pub seed: u64,
    /// The global weights at the start of the round.
    pub global: &'a Params,
    /// The method's state after the last closed round.
    pub state: &'a Payload,
    /// Scratch space for this round.
    pub scratch: &'a mut Payload,
    /// Labelled auxiliary samples, if any.
    pub auxiliary: Option<Samples<'a>>,
    /// Labelled validation samples, if any.
    pub validation: Option<Samples<'a>>,
    /// Unlabelled samples, if any.
    pub unlabelled: Option<Samples<'a>>,
    /// Runs and trains models on the server.
    pub trainer: &'a mut Trainer,
}
