//! The central abstraction: what one federated method changes about a round.

use std::fmt::Debug;

use fedelity_nn::{Model, Params};

use crate::{Extra, Gather, Local, Outbox, Payload, Received, Result, Server, Step, Teacher, Terms, Trained};

/// What a method asks of the federation. It is checked before the first round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Labelled auxiliary samples on the server.
    pub auxiliary: bool,
    /// Labelled validation samples on the server.
    pub validation: bool,
    /// Unlabelled samples on the server.
    pub unlabelled: bool,
    /// Clients remember something from one round to the next.
    pub client_memory: bool,
    /// The server needs every upload by itself, so memory grows with the clients of a round.
    pub each_upload: bool,
    /// Clients tell how many samples of each class they hold.
    pub label_counts_leave_client: bool,
    /// The method was published with a projection head before the classifier.
    pub projection: bool,
    /// Forward passes per training step beyond the student's own, without the teacher cache.
    pub extra_passes: usize,
}

/// What a configuration calls a method.
pub trait Named {
    /// The id, as a configuration writes it.
    fn name(&self) -> &'static str;
}

/// A federated method: its hyper-parameters and these hooks. All hooks have defaults that make FedAvg.
///
/// A method holds no state. The server's is in `server.state`, a client's in `local.memory`, and the engine owns both,
/// so that checkpoints, byte counts and deployment work for every method. Only [`conclude`](Self::conclude) changes the
/// server's state, so a round that is given up before it leaves no trace. Rounds are counted from 0.
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

    // On a client, around and inside the one training loop.

    /// Which frozen weights teach. The engine runs them.
    fn teachers(&self, _local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(Vec::new())
    }

    /// The loss of one batch. It adds gradients to `step.d_logits` and, where it needs them, `step.d_features()`.
    fn loss(&self, _local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        Ok(step.cross_entropy())
    }

    /// The part of the loss that is a function of the weights alone: its terms, whose gradient it adds to the one of
    /// [`loss`](Self::loss), before clipping, weight decay and momentum. Entries that are not trainable are never used.
    fn adjust(&self, _local: &mut Local<'_>, _w: &[f32], _grad: &mut [f32]) -> Result<Terms> {
        Ok(Terms::default())
    }

    /// What the client sends beyond the weights, and what it remembers if the server accepts the upload.
    fn finish(&self, _local: &mut Local<'_>, _done: &mut Trained<'_>) -> Result<Outbox> {
        Ok(Outbox::default())
    }

    // On the server, after each upload and after each round.

    /// Folds one upload in. Uploads come in a fixed order, whatever finished first.
    fn collect(&self, _server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        gather.mean.add(upload.weight, &upload.params)
    }

    /// The new global weights. `state` starts as `server.state` and is what the next round finds there.
    fn conclude(&self, _server: &mut Server<'_>, gather: &mut Gather, _state: &mut Payload) -> Result<Params> {
        gather.mean.finish()
    }
}
