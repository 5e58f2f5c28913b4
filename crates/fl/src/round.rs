//! What runs on one client in one round, and the views that methods get of client and server.

use std::any::Any;
use std::sync::Arc;

use fedelity_nn::{Model, Params};
use rand_chacha::ChaCha8Rng;

use crate::rng::{Purpose, shuffle, stream};
use crate::{
    Broadcast, Fitted, Frozen, Job, Method, Objective, Payload, Place, Result, Samples, Step, Terms, Trainer, Training,
};

/// Everything a method may look at on the server.
#[derive(Debug)]
pub struct Server<'a> {
    /// The model.
    pub model: &'a Arc<Model>,
    /// How clients train.
    pub training: &'a Training,
    /// The clients of the federation.
    pub clients: usize,
    /// The round, counted from 0.
    pub round: usize,
    /// The seed of the run.
    pub seed: u64,
    /// Labelled auxiliary samples, if the server holds some.
    pub auxiliary: Option<Samples<'a>>,
    /// Labelled validation samples, if the server holds some.
    pub validation: Option<Samples<'a>>,
    /// Samples without labels, if the server holds some.
    pub unlabelled: Option<Samples<'a>>,
    /// Runs and trains models on the server.
    pub trainer: &'a mut Trainer,
}

/// Everything a method may look at on one client in one round.
#[derive(Debug)]
pub struct Local<'a> {
    /// The model.
    pub model: &'a Model,
    /// How the client trains.
    pub training: &'a Training,
    /// The client.
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
    /// The client's own samples.
    pub samples: Samples<'a>,
    /// How many samples of each class it holds.
    pub counts: &'a [usize],
    /// Free space that lives for this client and round.
    pub scratch: Scratch,
}

/// Free space of a method on one client in one round.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Arrays by name.
    pub arrays: Payload,
    typed: Option<Box<dyn Any>>,
}

impl Scratch {
    /// One value of the method's own type, made at first use.
    pub fn typed<T: Any>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        if !self.typed.as_ref().is_some_and(|value| value.is::<T>()) {
            self.typed = Some(Box::new(make()));
        }
        let value = self.typed.as_mut().and_then(|value| value.downcast_mut());
        value.expect("the value of this type was put in just above")
    }
}

/// A client after its training.
#[derive(Debug)]
pub struct Trained<'a> {
    /// The trained weights.
    pub params: &'a [f32],
    /// Steps and loss.
    pub fitted: Fitted,
    /// The client's own samples.
    pub samples: Samples<'a>,
    trainer: &'a mut Trainer,
    rng: ChaCha8Rng,
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

/// What a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Upload {
    /// The client.
    pub client: usize,
    /// Its samples.
    pub examples: usize,
    /// How much it counts in the mean. The server sets it.
    pub weight: f64,
    /// Its optimiser steps.
    pub steps: usize,
    /// Its weights.
    pub params: Params,
    /// What the method adds.
    pub extra: Payload,
}

impl Upload {
    /// Bytes on the wire: 4 a number.
    pub fn bytes(&self) -> u64 {
        4 * self.params.len() as u64 + self.extra.bytes()
    }
}

/// What one client is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The method.
    pub method: &'a dyn Method,
    /// How to train.
    pub training: &'a Training,
    /// The seed of the run.
    pub seed: u64,
    /// The client.
    pub client: usize,
    /// Its samples.
    pub samples: Samples<'a>,
    /// What the server sent.
    pub broadcast: &'a Broadcast,
    /// What the client kept from its last round.
    pub memory: &'a Payload,
}

/// What a client has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What it sends.
    pub upload: Upload,
    /// What it keeps if the server closes the round with the upload in it.
    pub memory: Payload,
    /// Steps and loss.
    pub fitted: Fitted,
}

/// What runs on one client in one round. A simulator calls it for many clients, a real client once a round.
///
/// `buffer` is memory for the upload's weights; its contents do not matter.
pub fn client(trainer: &mut Trainer, task: &Task<'_>, buffer: Params) -> Result<Done> {
    let Task { method, training, seed, client, samples, broadcast, memory } = *task;
    let (model, round) = (trainer.model().clone(), broadcast.round);
    let mut params = buffer;
    params.0.clear();
    params.0.extend_from_slice(&broadcast.global);

    let mut counts = std::mem::take(&mut trainer.counts);
    counts.clear();
    counts.resize(model.classes(), 0);
    samples.labels().for_each(|label| counts[usize::from(label)] += 1);
    let mut local = Local {
        model: &model,
        training,
        client,
        round,
        lr: training.lr_at(round),
        global: &broadcast.global,
        down: &broadcast.payload,
        memory,
        samples,
        counts: &counts,
        scratch: Scratch::default(),
    };

    let declared = method.teachers(&local)?;
    let teachers: Vec<Frozen<'_>> = declared.iter().map(|teacher| teacher.resolve(&broadcast.global)).collect();
    let job = Job { samples, training, teachers: &teachers, seed, round, place: Place::Client(client) };
    let fitted = trainer.fit(&job, &mut params, &mut ClientObjective { method, local: &mut local })?;
    let rng = stream(seed, Purpose::Gradients, round as u64, client as u64, 0);
    let outbox = method.finish(&mut local, &mut Trained { params: &params, fitted, samples, trainer, rng })?;
    trainer.counts = counts;

    let upload =
        Upload { client, examples: samples.len(), weight: 0.0, steps: fitted.steps, params, extra: outbox.upload };
    Ok(Done { upload, memory: outbox.memory, fitted })
}

/// A method's loss on one client.
#[derive(Debug)]
pub struct ClientObjective<'a, 'b> {
    /// The method.
    pub method: &'a dyn Method,
    /// The client.
    pub local: &'a mut Local<'b>,
}

impl Objective for ClientObjective<'_, '_> {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        self.method.loss(self.local, step)
    }

    fn adjust(&mut self, params: &[f32], grad: &mut [f32]) -> Result<Terms> {
        self.method.adjust(self.local, params, grad)
    }
}
