//! `fedelity bench isa`.

use anyhow::{Result, bail};
use fedelity_nn::engines;
use serde_json::json;

use super::client::Client;
use crate::printer::Printer;
use crate::view::table::{Align, Table};

/// Compare the speed and the results of all instruction sets of this machine
///
/// Trains one client on random 3x32x32 images with every instruction set, and prints the speed and a hash of the trained
/// weights. The hashes must be equal: an instruction set changes how fast a run is, never its result.
#[derive(Debug, clap::Args)]
pub(crate) struct InstructionSets {
    /// The model.
    #[arg(long, default_value = "simple-cnn")]
    model: String,

    /// The method.
    #[arg(long, default_value = "fedavg")]
    method: String,

    /// Samples per client.
    #[arg(long, default_value_t = 128)]
    samples: usize,

    /// Samples per step.
    #[arg(long, default_value_t = 64)]
    batch: usize,

    /// Seconds to measure each for; at least one round is measured.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What one instruction set did.
struct Measured {
    isa: String,
    samples_per_second: f64,
    weights: String,
}

impl InstructionSets {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        let Self { model, method, samples, batch, seconds, json } = self;
        let bench = Client { model, method, samples, epochs: 1, batch, threads: 1, augmentation: None, seconds, json };
        let mut all = Vec::new();
        for engine in engines() {
            let isa = engine.name().to_owned();
            let work = bench.work(engine)?;
            let weights = bench.weights(&work)?.hash();
            let samples_per_second = bench.measure(&work)?.iter().sum();
            all.push(Measured { isa, samples_per_second, weights });
        }
        let same = all.windows(2).all(|pair| pair[0].weights == pair[1].weights);
        if json {
            let sets: Vec<_> = all
                .iter()
                .map(|m| json!({ "isa": m.isa, "samples_per_second": m.samples_per_second, "weights": m.weights }))
                .collect();
            printer
                .json(&json!({ "model": bench.model, "method": bench.method, "same_weights": same, "sets": sets }))?;
        } else {
            let slowest = all.iter().fold(f64::INFINITY, |least, m| least.min(m.samples_per_second));
            let mut table = Table::new(&[
                ("isa", Align::Left),
                ("samples/s", Align::Right),
                ("speed", Align::Right),
                ("weights", Align::Left),
            ]);
            for m in &all {
                let speed = format!("{:.1}x", m.samples_per_second / slowest);
                table.row([m.isa.clone(), format!("{:.0}", m.samples_per_second), speed, m.weights[..16].to_owned()]);
            }
            printer.drawn(table.lines(printer))?;
        }
        if !same {
            bail!("the instruction sets give different weights: please report this, with the table and your processor");
        }
        Ok(())
    }
}
