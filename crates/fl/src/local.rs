//! A method's view of one client in one round.

use std::any::Any;

use fedelity_nn::Model;
use rand_chacha::ChaCha8Rng;

use crate::rng::shuffle;
use crate::{Objective, Payload, Result, Samples, Trainer, Training};

/// Everything a method may read on one client in one round.
#[derive(Debug)]
pub struct Local<'a> {
    pub model: &'a Model,
    pub training: &'a Training,
    pub client: usize,
    /// Counted from 0.
    pub round: usize,
    /// The learning rate of this round.
    pub lr: f32,
    /// The weights at the start of training.
    pub global: &'a [f32],
    /// What the server sent beyond the weights.
    pub down: &'a Payload,
    /// What this client kept from the last round it took part in. Empty the first time.
    pub memory: &'a Payload,
    pub samples: Samples<'a>,
    /// Samples per class on this client.
    pub counts: &'a [usize],
    /// Scratch space for this client and round.
    pub scratch: Scratch,
}

/// A method's scratch space on one client in one round.
#[derive(Debug, Default)]
pub struct Scratch(Option<Box<dyn Any>>);

impl Scratch {
    /// Whether a value of this type has been created.
    pub fn has<T: Any>(&self) -> bool {
        self.0.as_ref().is_some_and(|value| value.is::<T>())
    }

    /// A value of the method's own type, created on first use.
    pub fn typed<T: Any>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        if !self.has::<T>() {
            self.0 = Some(Box::new(make()));
        }
        let value = self.0.as_mut().and_then(|value| value.downcast_mut());
        value.expect("the value of this type was put in just above")
    }
}

/// A client after its training.
#[derive(Debug)]
pub struct Trained<'a> {
    pub params: &'a [f32],
    pub steps: usize,
    pub samples: Samples<'a>,
    pub(crate) trainer: &'a mut Trainer,
    pub(crate) rng: ChaCha8Rng,
}

impl Trained<'_> {
    /// Draws at most `most` samples, runs over them in batches and passes each batch's gradient to `each`, with its
    /// number of samples (the Fisher information of FedCurv). The choice depends only on seed, round and client.
    pub fn gradients(
        &mut self,
        batch: usize,
        most: usize,
        objective: &mut dyn Objective,
        each: &mut dyn FnMut(&[f32], usize) -> Result<()>,
    ) -> Result<()> {
        let mut params = self.params.to_vec();
        let mut drawn = self.samples.indices.to_vec();
        shuffle(&mut self.rng.clone(), &mut drawn);
        drawn.truncate(most);
        for indices in drawn.chunks(batch.max(1)) {
            let chosen = self.samples.at(indices);
            let labels: Vec<u16> = chosen.labels().collect();
            let (_, grad) = self.trainer.gradient(&chosen.batch(), &labels, &[], &mut params, objective)?;
            each(grad, labels.len())?;
        }
        Ok(())
    }
}

/// What a client sends and remembers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outbox {
    /// Sent with the weights.
    pub upload: Payload,
    /// Kept for the client's next round, once the round is [closed](crate::Coordinator::close) with the upload
    /// included. It replaces what was kept before.
    pub memory: Payload,
}

impl Outbox {
    /// Sends nothing beyond the weights and leaves the client's memory unchanged.
    pub fn unchanged(local: &Local<'_>) -> Self {
        Self { upload: Payload::new(), memory: local.memory.clone() }
    }
}
