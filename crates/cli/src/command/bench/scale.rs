//! `fedelity bench scale`.

use anyhow::{Result, bail};
use fedelity_data::{Split, catalogue};
use fedelity_fl::Training;
use serde::Serialize;

use super::round::BenchRun;
use crate::printer::Printer;
use crate::threads::threads;
use crate::view::units::{bytes, thousands};

/// Measure rounds with many clients from a large pool
///
/// Every client holds four images of the embedded data and trains for one epoch. The last rounds should take the same
/// time and memory as the first.
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// The model.
    #[arg(long, default_value = "logistic")]
    model: String,

    /// Clients in the pool.
    #[arg(long, default_value_t = 100_000)]
    pool: usize,

    /// Clients per round.
    #[arg(long, default_value_t = 1_000)]
    clients: usize,

    /// Number of rounds.
    #[arg(long, default_value_t = 50)]
    rounds: usize,

    /// Number of threads [default: all cores].
    #[arg(long)]
    threads: Option<usize>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const SAMPLES: usize = 4;
const MOST_CLIENTS: usize = 1_000_000;

/// Times per client and resident memory, over the first and the last fifth of the rounds.
#[derive(Debug, Serialize)]
struct ScaleFigures {
    model: String,
    parameters: usize,
    pool: usize,
    clients: usize,
    rounds: usize,
    threads: usize,
    first_client_seconds: f64,
    last_client_seconds: f64,
    /// Absent where the system does not tell.
    first_resident_bytes: Option<u64>,
    last_resident_bytes: Option<u64>,
}

impl Scale {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        let Self { pool, clients, rounds, .. } = self;
        if !(1..=MOST_CLIENTS).contains(&pool) {
            bail!("--pool {pool}: expected 1 to {MOST_CLIENTS}");
        }
        if !(1..=pool).contains(&clients) {
            bail!("--clients {clients}: expected 1 to the pool's {pool}");
        }
        if rounds < 2 {
            bail!("--rounds {rounds}: expected 2 or more, to compare the first with the last");
        }
        let threads = threads("--threads", self.threads, printer)?;
        let mut data = catalogue::load("fashion-mnist-mini", None)?;
        let (images, image) = (data.train.len(), data.train.pixels().len() / data.train.len());
        let times = (pool * SAMPLES).div_ceil(images);
        let (mut pixels, mut labels) = (data.train.pixels().repeat(times), data.train.labels.repeat(times));
        pixels.truncate(pool * SAMPLES * image);
        labels.truncate(pool * SAMPLES);
        data.train = Split::images(pixels, labels);
        let training = Training { epochs: 1, batch: SAMPLES, ..Training::default() };
        let run = BenchRun { model: &self.model, data, clients: pool, per_round: clients, training, rounds, threads };
        let (mut simulation, parameters) = run.simulation()?;
        let mut seen = Vec::new();
        while !simulation.done() {
            let round = simulation.step()?;
            seen.push(((round.seconds.train + round.seconds.aggregate) / clients as f64, resident()));
        }
        let fifth = (rounds / 5).max(1);
        let mean = |part: &[(f64, Option<u64>)]| part.iter().map(|(time, _)| time).sum::<f64>() / part.len() as f64;
        let most = |part: &[(f64, Option<u64>)]| part.iter().filter_map(|(_, bytes)| *bytes).max();
        let (first, last) = (&seen[..fifth], &seen[seen.len() - fifth..]);
        let figures = ScaleFigures {
            model: self.model,
            parameters,
            pool,
            clients,
            rounds,
            threads,
            first_client_seconds: mean(first),
            last_client_seconds: mean(last),
            first_resident_bytes: most(first),
            last_resident_bytes: most(last),
        };
        if self.json {
            return printer.json(&figures);
        }
        printer.line(format!(
            "{}: {} clients per round from a pool of {}, {} parameters, {rounds} rounds, threads: {threads}",
            figures.model,
            thousands(clients),
            thousands(pool),
            thousands(parameters)
        ))?;
        for (name, time, memory) in [
            ("First", figures.first_client_seconds, figures.first_resident_bytes),
            ("Last", figures.last_client_seconds, figures.last_resident_bytes),
        ] {
            let memory = memory.map_or_else(|| "unknown".to_string(), bytes);
            printer.line(format!("{name:<5} {fifth} rounds   {:.0} µs per client, memory {memory}", 1e6 * time))?;
        }
        Ok(())
    }
}

/// The memory this process holds now, where Linux's `/proc` tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
