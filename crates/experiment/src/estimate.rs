//! The estimated cost of a run, from a short measurement on this machine.

use std::sync::Arc;
use std::time::Instant;

use fedelity_fl::{Samples, Scaling, Task, Trainer, client, longest_first, sample_clients};
use fedelity_nn::Params;
use fedelity_sim::{observed_samples, waiting_bytes};

use crate::assemble::Study;
use crate::config::MethodChoice;
use crate::error::Result;
use crate::rehearsal::{Rehearsal, rehearse};

/// The estimated cost of one run of a method.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Bytes per round from the server to its clients.
    pub bytes_down: u64,
    /// Bytes per round from the clients to the server.
    pub bytes_up: u64,
    /// Bytes in both directions, relative to FedAvg's.
    pub traffic: f64,
    /// Seconds for all rounds.
    pub seconds: f64,
    /// Resident memory, if the system reports it.
    pub memory: Option<u64>,
}

/// Seconds that a measurement should take to be reliable.
const ENOUGH_SECS: f64 = 0.25;
/// Local epochs that are timed. More of them take in proportion, but for what a teacher computes once.
const MOST_EPOCHS: usize = 4;
/// Number of rounds whose clients are drawn to see how well threads share the work.
const ROUNDS: usize = 100;
/// Number of test samples that are timed.
const TEST_SAMPLES: usize = 512;

/// Rehearses a few rounds, trains one client of median size on as many of its samples as needed, and tests a few
/// samples; the rest is arithmetic. `None` if training diverges before anything can be measured.
pub fn estimate(study: &Study, method: &MethodChoice, threads: usize) -> Result<Option<Estimate>> {
    let (config, pool) = (&study.settings.config, &study.pool);
    let (clients, seed) = (&pool.partition.clients, config.seeds[0]);
    let mut federation = study.federation(method, seed);
    let epochs = federation.training.epochs;
    federation.training.epochs = epochs.min(MOST_EPOCHS);
    let training = federation.training.clone();
    let before = resident();
    let scaling = Scaling::from(&pool.dataset.normalisation);
    let middle = middle(clients);
    let own = Samples { split: &pool.dataset.train, indices: &clients[middle], scaling: &scaling };
    let rehearsal = match rehearse(federation, own, middle, study.per_round) {
        Err(error) if error.is_divergence() => return Ok(None),
        other => other?,
    };
    let Rehearsal { broadcast, memory, bytes_up, server_seconds, .. } = &rehearsal;
    let mut trainer = Trainer::new(Arc::clone(&study.model));
    let task = |n: usize| Task {
        method: method.method.as_ref(),
        training: &training,
        seed,
        client: middle,
        samples: own.at(&own.indices[..n]),
        broadcast,
        memory,
        secret: None,
    };
    // The first step allocates and warms the caches.
    let mut buffer = run(&mut trainer, &task(own.len().min(config.clients.batch)), Params::default())?;
    let mut samples = own.len().min(config.clients.batch);
    let per_sample = loop {
        let start = Instant::now();
        buffer = run(&mut trainer, &task(samples), buffer)?;
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed >= ENOUGH_SECS || samples == own.len() {
            break elapsed / samples as f64;
        }
        samples = (2 * samples).min(own.len());
    };
    let test: Vec<u32> = (0..pool.dataset.test.len().min(TEST_SAMPLES) as u32).collect();
    let test = Samples { split: &pool.dataset.test, indices: &test, scaling: &scaling };
    trainer.score(&broadcast.global, test);
    let start = Instant::now();
    trainer.score(&broadcast.global, test);
    let per_test = start.elapsed().as_secs_f64() / test.len().max(1) as f64;

    let evaluations = config.rounds.div_ceil(config.evaluation.every);
    let observed = observed_samples(&study.experiment(method, seed, threads));
    let tested = (evaluations * pool.dataset.test.len()) as f64 + observed;
    let train = longest_thread(study, threads) * per_sample * (epochs as f64 / training.epochs.max(1) as f64);
    let weights = 4 * study.model.layout().len() as u64;
    let waiting = waiting_bytes(threads, study.per_round, study.model.layout().len());
    let worker = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    let remembered = memory.bytes() * clients.len().min(config.rounds * study.per_round) as u64;
    Ok(Some(Estimate {
        bytes_down: broadcast.bytes() * study.per_round as u64,
        bytes_up: bytes_up * study.per_round as u64,
        traffic: (broadcast.bytes() + bytes_up) as f64 / (2 * weights) as f64,
        seconds: train + tested * per_test / threads as f64 + config.rounds as f64 * server_seconds,
        memory: before
            .zip(worker)
            .map(|(before, worker)| before + threads as u64 * worker + waiting + 4 * weights + remembered),
    }))
}

/// Runs one round of the client; returns the buffer of its weights. A diverging run costs the same.
fn run(trainer: &mut Trainer, task: &Task<'_>, buffer: Params) -> Result<Params> {
    match client(trainer, task, buffer) {
        Ok(done) => Ok(done.upload.params),
        Err(error) if error.is_divergence() => Ok(Params::default()),
        Err(error) => Err(error.into()),
    }
}

/// A client of median size.
fn middle(clients: &[Vec<u32>]) -> usize {
    let all: Vec<usize> = (0..clients.len()).collect();
    longest_first(&all, |client| clients[client].len())[clients.len() / 2]
}

/// Samples over all rounds on the busiest thread, if each client goes to the first free thread.
fn longest_thread(study: &Study, threads: usize) -> f64 {
    let (config, clients) = (&study.settings.config, &study.pool.partition.clients);
    let drawn = config.rounds.min(ROUNDS);
    let mut sum = 0;
    for round in 0..drawn {
        let chosen = sample_clients(config.seeds[0], round, clients.len(), study.per_round);
        let mut busy = vec![0; threads];
        for client in longest_first(&chosen, |client| clients[client].len()) {
            if let Some(free) = busy.iter_mut().min() {
                *free += clients[client].len();
            }
        }
        sum += busy.into_iter().max().unwrap_or(0);
    }
    sum as f64 / drawn as f64 * config.rounds as f64
}

/// Resident memory of this process in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}
