//! What a method sees of one client in one round.

use std::any::Any;

use fedelity_nn::Model;
use rand_chacha::ChaCha8Rng;

use crate::rng::shuffle;
use crate::{Objective, Payload, Result, Samples, Trainer, Training};

/// Everything a method may look at on one client in one round.
#[derive(Debug)]
pub struct Local<'a> {
    pub model: &'a Model,
    pub training: &'a Training,
    pub client: usize,
    /// The round, counted from 0.
    pub round: usize,
    /// The learning rate of this round.
    pub lr: f32,
    /// The weights that training starts from.
    pub global: &'a [f32],
    /// What the server sent beyond the weights.
    pub down: &'a Payload,
    /// What this client kept from the last round it took part in. Empty the first time.
    pub memory: &'a Payload,
    pub samples: Samples<'a>,
    /// How many samples of each class it holds.
    pub counts: &'a [usize],
    /// Free space that lives for this client and round.
    pub scratch: Scratch,
}

/// Free space of a method on one client in one round.
#[derive(Debug, Default)]
pub struct Scratch(Option<Box<dyn Any>>);

impl Scratch {
    /// One value of the method's own type, made at first use.
    pub fn typed<T: Any>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        if !self.0.as_ref().is_some_and(|value| value.is::<T>()) {
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
    /// Draws at most `most` samples, runs over them in batches and hands each batch's gradient to `each`, with the
    /// number of its samples (the Fisher information of FedCurv). Which samples depends on seed, round and client alone.
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

/// What a method has a client send and remember.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outbox {
    /// Sent with the weights.
    pub upload: Payload,
    /// Kept for the client's next round, once the round is [closed](crate::Coordinator::close) with the upload in it.
    /// It replaces what was kept before.
    pub memory: Payload,
}

impl Outbox {
    /// Sends nothing beyond the weights and remembers what the client remembered before.
    pub fn unchanged(local: &Local<'_>) -> Self {
        Self { upload: Payload::new(), memory: local.memory.clone() }
    }
}
