//! What a method sends and stores: measured in a short federation on random images, not calculated.

use std::sync::Arc;

use fedelity_fl::{Federation, Method, Samples, Training, Weighting};
use fedelity_nn::{Engine, InputShape, Model, ModelSpec, zoo};

use crate::error::Result;
use crate::rehearsal::rehearse;
use crate::synthetic::Synthetic;

/// Numbers (of 4 bytes each) for one client in one round, once the first rounds are over.
pub struct Travel {
    /// The weights of the model.
    pub weights: u64,
    /// From the server to the client, including the weights.
    pub down: u64,
    /// From the client to the server, including the weights.
    pub up: u64,
    /// What the client remembers until its next round.
    pub memory: u64,
    /// The names of the arrays that leave the client besides the weights.
    pub leaves: Vec<String>,
}

impl Travel {
    /// Bytes in both directions, relative to FedAvg's.
    pub fn relative(&self) -> f64 {
        (self.down + self.up) as f64 / (2 * self.weights) as f64
    }
}

/// A test bench for methods: a model, the same with a projection head, and images that fit them.
pub struct Trial {
    plain: Arc<Model>,
    projection: Arc<Model>,
    data: Synthetic,
}

/// Number of clients in the federation.
const CLIENTS: usize = 10;
const SAMPLES: usize = 10;

impl Trial {
    /// The model of this name for inputs of this shape.
    pub fn new(name: &str, input: InputShape, classes: usize, engine: &Arc<dyn Engine>) -> Result<Self> {
        let model = |projection| -> Result<Arc<Model>> {
            let spec = ModelSpec::new(name, projection);
            Ok(Arc::new(Model::compile(&zoo::build(&spec, input, classes)?, engine.clone())?))
        };
        Ok(Self { plain: model(false)?, projection: model(true)?, data: Synthetic::new(input, classes, SAMPLES) })
    }

    /// Counts what a method sends and stores. A method published with a projection head gets one.
    pub fn count(&self, method: Arc<dyn Method>) -> Result<Travel> {
        let model = if method.needs().projection { &self.projection } else { &self.plain };
        let federation = Federation {
            model: Arc::clone(model),
            method,
            training: Training { batch: SAMPLES, ..Training::default() },
            weighting: Weighting::Size,
            clients: CLIENTS,
            seed: 1,
            server_data: self.data.server_data(),
        };
        let (indices, scaling) = (self.data.client(), self.data.scaling());
        let samples = Samples { split: &self.data.dataset.train, indices: &indices, scaling: &scaling };
        let found = rehearse(federation, samples, 0, 1)?;
        Ok(Travel {
            weights: model.layout().len() as u64,
            down: found.broadcast.bytes() / 4,
            up: found.bytes_up / 4,
            memory: found.memory.bytes() / 4,
            leaves: found.extra.keys().map(String::from).collect(),
        })
    }
}
