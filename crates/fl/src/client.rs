//! One client's work in one round.

use fedelity_nn::Params;

use crate::rng::{ChaCha8Rng, Purpose, SeedableRng, stream};
use crate::{
    Broadcast, Extra, Fit, FitReport, FlError, Frozen, Local, Method, Objective, Payload, Rejection, Result, Samples,
    Scratch, Site, Step, Terms, Trained, Trainer, Training, Upload,
};

/// The input of one client in one round.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    pub method: &'a dyn Method,
    pub training: &'a Training,
    pub seed: u64,
    pub client: usize,
    pub samples: Samples<'a>,
    /// What the server sent.
    pub broadcast: &'a Broadcast,
    /// What the client kept from its last round.
    pub memory: &'a Payload,
    /// What noise is drawn from, if not from the seed: a client that hides its update from the server must not use what the
    /// server knows.
    pub secret: Option<[u8; 32]>,
}

/// The result of one client's round.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// What it sends.
    pub upload: Upload,
    /// What it remembers if the server closes the round with the upload included.
    pub memory: Payload,
    /// Samples that went through teachers, counted once per teacher.
    pub teacher_passes: u64,
}

/// Runs one client for one round. A simulator calls it for many clients, a real client once per round.
///
/// `buffer` is memory for the upload's weights; its contents do not matter.
pub fn client(trainer: &mut Trainer, task: &Task<'_>, buffer: Params) -> Result<Finished> {
    let Task { method, training, seed, client, samples, broadcast, memory, secret } = *task;
    let (model, round) = (trainer.model().clone(), broadcast.round);
    let (expected, found) = (model.layout().len(), broadcast.global.len());
    let weights = if found == expected { Ok(()) } else { Err(Rejection::Weights { expected, found }) };
    weights
        .and_then(|()| Extra::check(&method.receives(&model), &broadcast.payload))
        .map_err(|reason| FlError::Broadcast { round: round + 1, reason })?;
    let mut params = buffer;
    params.0.clear();
    params.0.extend_from_slice(&broadcast.global);

    let counts = samples.label_counts(model.classes());
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
    let teachers = declared.iter().enumerate().map(|(k, teacher)| {
        let unfit = |reason| FlError::Teacher { round: round + 1, client, teacher: k, reason };
        teacher.resolve(&broadcast.global).map_err(unfit)
    });
    let teachers: Vec<Frozen<'_>> = teachers.collect::<Result<_>>()?;
    let fit = Fit { samples, training, teachers: &teachers, seed, round, site: Site::Client(client) };
    let fitted = trainer.fit(&fit, &mut params, &mut ClientObjective { method, local: &mut local })?;
    let rng = stream(seed, Purpose::Gradients, round as u64, client as u64, 0);
    let outbox =
        method.finish(&mut local, &mut Trained { params: &params, steps: fitted.steps, samples, trainer, rng })?;

    let FitReport { steps, terms, teacher_passes } = fitted;
    let mut upload = Upload { round, client, examples: samples.len(), steps, terms, params, extra: outbox.upload };
    let shared = || stream(seed, Purpose::Privacy, round as u64, client as u64, 0);
    method.release(&local, &mut upload, &mut secret.map_or_else(shared, ChaCha8Rng::from_seed))?;
    Ok(Finished { upload, memory: outbox.memory, teacher_passes })
}

/// A method's loss on one client.
#[derive(Debug)]
pub struct ClientObjective<'a, 'b> {
    pub method: &'a dyn Method,
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
