//! A few rounds with one client, to see a federation in the middle of its life.
//!
//! In its first rounds a method may send less than later: buffers of models fill, clients have nothing to remember.

use std::time::Instant;

use anyhow::Result;
use fedelity_fl::{Broadcast, Coordinator, Federation, Payload, Samples, Task, Trainer, Training, client};
use fedelity_nn::Params;

/// What there is once the rounds have become alike.
pub(crate) struct Rehearsal {
    /// What the server sends.
    pub(crate) broadcast: Broadcast,
    /// What the client sent beside its weights.
    pub(crate) extra: Payload,
    /// What the client remembers.
    pub(crate) memory: Payload,
    /// Bytes that the client sent.
    pub(crate) bytes_up: u64,
    /// Seconds of the server's own work in a round.
    pub(crate) server_seconds: f64,
}

/// Rounds in a row with the same traffic that are enough.
const ALIKE: usize = 3;
/// Rounds at most.
const MOST: usize = 30;
/// Seconds after which no other round begins.
const MOST_SECS: f64 = 3.0;

/// Runs rounds in which one client trains on one batch, and `uploads` copies of what it sends arrive at the server,
/// until the traffic of a round no longer changes.
pub(crate) fn rehearse(federation: Federation, samples: Samples<'_>, id: usize, uploads: usize) -> Result<Rehearsal> {
    let batch = federation.training.batch.min(samples.len());
    let training = Training { epochs: 1, ..federation.training.clone() };
    let (method, seed) = (federation.method.clone(), federation.seed);
    let mut trainer = Trainer::new(federation.model.clone());
    let mut coordinator = Coordinator::new(federation)?;
    let mut traffic = Vec::new();
    let (start, mut memory) = (Instant::now(), Payload::new());
    loop {
        let opening = Instant::now();
        let broadcast = coordinator.open()?;
        let opened = opening.elapsed();
        let task = Task {
            method: method.as_ref(),
            training: &training,
            seed,
            client: id,
            samples: samples.at(&samples.indices[..batch]),
            broadcast: &broadcast,
            memory: &memory,
        };
        let done = client(&mut trainer, &task, Params::default())?;
        memory = done.memory;
        let (extra, bytes_up) = (done.upload.extra.clone(), done.upload.bytes());
        traffic.push((broadcast.bytes(), bytes_up, memory.bytes()));
        let closing = Instant::now();
        for _ in 0..uploads {
            coordinator.accept(done.upload.clone())?;
        }
        coordinator.close()?;
        let server_seconds = (opened + closing.elapsed()).as_secs_f64();
        let alike = traffic.iter().rev().take_while(|found| Some(*found) == traffic.last()).count();
        if alike >= ALIKE || traffic.len() >= MOST || start.elapsed().as_secs_f64() > MOST_SECS {
            return Ok(Rehearsal { broadcast, extra, memory, bytes_up, server_seconds });
        }
    }
}
