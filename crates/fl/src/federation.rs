use std::sync::Arc;

use fedelity_nn::Model;

use crate::settings::at_least;
use crate::{Broadcast, FlError, Method, Payload, Result, Samples, ServerData, Task, Training, Weighting};

/// The settings that a federation agrees on before its first round.
#[derive(Clone, Debug)]
pub struct Federation {
    pub model: Arc<Model>,
    pub method: Arc<dyn Method>,
    pub training: Training,
    pub weighting: Weighting,
    pub clients: usize,
    pub seed: u64,
    pub server_data: ServerData,
}

impl Federation {
    /// Whether the settings are in range and the method has what it needs.
    pub fn check(&self) -> Result<()> {
        self.training.check()?;
        at_least("clients", self.clients, 1)?;
        let (needs, data) = (self.method.needs(), &self.server_data);
        let wants = [
            (needs.auxiliary, data.auxiliary.is_some(), "labelled auxiliary samples on the server"),
            (needs.validation, data.validation.is_some(), "labelled validation samples on the server"),
            (needs.unlabelled, data.unlabelled.is_some(), "unlabelled samples on the server"),
        ];
        for (needed, given, what) in wants {
            if needed && !given {
                return Err(FlError::Needs { method: self.method.name(), what });
            }
        }
        Ok(())
    }

    /// The task of one client.
    pub fn task<'a>(
        &'a self,
        client: usize,
        samples: Samples<'a>,
        broadcast: &'a Broadcast,
        memory: &'a Payload,
    ) -> Task<'a> {
        let (method, training, seed) = (&*self.method, &self.training, self.seed);
        Task { method, training, seed, client, samples, broadcast, memory, secret: None }
    }

    pub(crate) fn fits(&self, what: &str, found: usize) -> Result<()> {
        let expected = self.model.layout().len();
        if found != expected {
            return Err(FlError::Length { what: what.to_string(), expected, found });
        }
        Ok(())
    }
}
