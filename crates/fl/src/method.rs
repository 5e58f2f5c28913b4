//! The central abstraction: what one federated method changes about a round.

use std::fmt::Debug;

use fedelity_nn::{Model, Params};

use crate::rng::ChaCha8Rng;
use crate::{Extra, Gather, Local, Outbox, Payload, Received, Result, Server, Step, Teacher, Terms, Trained, Upload};

/// What a method requires of the federation. Checked before the first round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Labelled auxiliary samples on the server.
    pub auxiliary: bool,
    /// Labelled validation samples on the server.
    pub validation: bool,
    /// Unlabelled samples on the server.
    pub unlabelled: bool,
    /// Clients remember something between rounds.
    pub client_memory: bool,
    /// The server needs every individual upload, so memory grows with the clients per round.
    pub each_upload: bool,
    /// The server looks at how long each update is.
    pub update_norms: bool,
    /// Clients reveal how many samples of each class they hold.
    pub label_counts_leave_client: bool,
    /// The method was published with a projection head before the classifier.
    pub projection: bool,
    /// It acts on the features before the classifier: with a model that trains no layer before it, it is FedAvg.
    pub trained_features: bool,
    /// The fewest classes with which it is not FedAvg; 0 if any number will do.
    pub classes: usize,
    /// Forward passes per training step beyond the student's own, without the teacher cache.
    pub extra_passes: usize,
}

/// A method's name in a configuration.
pub trait Named {
    fn name(&self) -> &'static str;
}

/// A federated method: its hyper-parameters and these hooks. The default hooks implement FedAvg.
///
/// A method holds no state. The server's is in `server.state`, a client's in `local.memory`, and the engine owns both,
/// so checkpoints, byte counts and deployment work for every method. Only [`conclude`](Self::conclude) changes the
/// server's state, so a round abandoned before it leaves no trace. Rounds are counted from 0.
pub trait Method: Named + Debug + Send + Sync {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// What clients send beyond the weights. Uploads are checked against it.
    fn sends(&self, _model: &Model) -> Vec<Extra> {
        Vec::new()
    }

    /// What clients receive beyond the weights. Broadcasts are checked against it.
    fn receives(&self, _model: &Model) -> Vec<Extra> {
        Vec::new()
    }

    // On the server, once and then before each round.

    /// The server's state before the first round.
    fn init(&self, _server: &mut Server<'_>) -> Result<Payload> {
        Ok(Payload::new())
    }

    /// What all clients of this round receive beyond the weights.
    fn prepare(&self, _server: &mut Server<'_>) -> Result<Payload> {
        Ok(Payload::new())
    }

    // On a client, around and inside the training loop.

    /// The frozen weights that act as teachers. The engine runs them.
    fn teachers(&self, _local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(Vec::new())
    }

    /// The loss of one batch. It adds gradients to `step.d_logits` and, if needed, `step.d_features()`.
    fn loss(&self, _local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        Ok(step.cross_entropy())
    }

    /// The terms of the loss that depend only on the weights. Adds their gradient to that of [`loss`](Self::loss),
    /// before clipping, weight decay and momentum. Entries that are not trainable are never used.
    fn adjust(&self, _local: &mut Local<'_>, _w: &[f32], _grad: &mut [f32]) -> Result<Terms> {
        Ok(Terms::default())
    }

    /// What the client sends beyond the weights, and what it remembers if the server accepts the upload.
    fn finish(&self, _local: &mut Local<'_>, _done: &mut Trained<'_>) -> Result<Outbox> {
        Ok(Outbox::default())
    }

    /// Changes what leaves the client, as the very last thing it does. `rng` is for this upload alone.
    fn release(&self, _local: &Local<'_>, _upload: &mut Upload, _rng: &mut ChaCha8Rng) -> Result<()> {
        Ok(())
    }

    // On the server, after each upload and after each round.

    /// Changes an upload before anything else sees it.
    fn admit(&self, _server: &Server<'_>, _gather: &mut Gather, _upload: &mut Received) -> Result<()> {
        Ok(())
    }

    /// Folds in one upload. Uploads come in a fixed order, regardless of which finished first.
    fn collect(&self, _server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        gather.mean.add(upload.weight, &upload.params)
    }

    /// The new global weights. `state` starts as `server.state` and becomes the next round's.
    fn conclude(&self, _server: &mut Server<'_>, gather: &mut Gather, _state: &mut Payload) -> Result<Params> {
        gather.mean.finish()
    }
}
