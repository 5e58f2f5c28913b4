//! A few rounds with one client, to bring a federation into its steady state.
//!
//! In its first rounds a method may send less than later: model buffers are filling, clients remember nothing yet.

use std::time::{Duration, Instant};

use fedelity_fl::{
    Broadcast, Coordinator, Federation, Finished, Memories, Payload, Samples, Trainer, Training, Upload, client, round,
};
use fedelity_nn::Params;

use crate::error::Result;

/// The state once rounds have become alike.
pub struct Rehearsal {
    /// The server's broadcast.
    pub broadcast: Broadcast,
    /// What the client sent besides its weights.
    pub extra: Payload,
    /// What the client remembers.
    pub memory: Payload,
    /// Bytes that the client sent.
    pub bytes_up: u64,
    /// Seconds of the server's own work per round.
    pub server_seconds: f64,
}

/// Consecutive rounds with the same traffic that are enough.
const ALIKE: usize = 3;
/// Maximum number of rounds.
const MOST: usize = 30;
/// Seconds after which no further round starts.
const MOST_SECS: f64 = 20.0;

/// Runs rounds in which one client trains on one batch, and the server receives `uploads` copies of its upload, until
/// the traffic per round no longer changes.
pub fn rehearse(federation: Federation, samples: Samples<'_>, id: usize, uploads: usize) -> Result<Rehearsal> {
    let batch = federation.training.batch.min(samples.len());
    let samples = samples.at(&samples.indices[..batch]);
    let others = (0..federation.clients).filter(|&other| other != id).take(uploads.saturating_sub(1));
    let clients: Vec<usize> = std::iter::once(id).chain(others).collect();
    let training = Training { epochs: 1, ..federation.training.clone() };
    let mut trainer = Trainer::new(federation.model.clone());
    let mut coordinator = Coordinator::new(Federation { training, ..federation })?;
    let (start, mut traffic, mut memories) = (Instant::now(), Vec::new(), Memories::new());
    loop {
        let (opened, mut trained, mut first) = (Instant::now(), Duration::ZERO, None);
        let broadcast = round(&mut coordinator, &mut memories, &clients, |federation, broadcast, other, memory| {
            let start = Instant::now();
            let done: &Finished = match &first {
                Some(done) => done,
                None => first.insert(client(
                    &mut trainer,
                    &federation.task(id, samples, broadcast, memory),
                    Params::default(),
                )?),
            };
            let done = Finished { upload: Upload { client: other, ..done.upload.clone() }, ..done.clone() };
            trained += start.elapsed();
            Ok(done)
        })?;
        let server_seconds = (opened.elapsed() - trained).as_secs_f64();
        let Some(Finished { upload, memory, .. }) = first else { unreachable!("one client took part") };
        let (extra, bytes_up) = (upload.extra.clone(), upload.bytes());
        traffic.push((broadcast.bytes(), bytes_up, memory.bytes()));
        let alike = traffic.iter().rev().take_while(|found| Some(*found) == traffic.last()).count();
        if alike >= ALIKE || traffic.len() >= MOST || start.elapsed().as_secs_f64() > MOST_SECS {
            return Ok(Rehearsal { broadcast, extra, memory, bytes_up, server_seconds });
        }
    }
}
