//! Training speed of MiniLM on one thread: forward, backward and an Adam step.
//!
//! `cargo bench -p fedelity-nn --bench encoder [-- FREEZE]` prints samples per second by text length. With `lengths 7,23,...`
//! it trains on one batch of texts of these lengths for a few seconds and prints one number, for `benches/minilm.py`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints and may fail")]

use std::time::Instant;

use fedelity_nn::{Batch, EncoderShape, InputShape, Model, OptimizerKind, cpu, encoder, loss};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BATCH: usize = 16;
const STEPS: usize = 4;
const CLASSES: usize = 5;
const SECONDS: f64 = 3.0;
const VOCABULARY: u32 = 30_522;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().position(|argument| argument == "lengths") {
        Some(at) => {
            let lengths: Vec<usize> = arguments[at + 1].split(',').map(|length| length.parse().unwrap()).collect();
            let seconds = measure(None, &lengths, |steps, elapsed| steps > 1 && elapsed > SECONDS).0;
            println!("{:.3}", lengths.len() as f64 / seconds);
        }
        None => {
            let freeze = arguments.iter().find_map(|argument| argument.parse().ok());
            for length in [32, 128] {
                let (_, best, forward) = measure(freeze, &[length; BATCH], |steps, _| steps > STEPS);
                let n = BATCH as f64;
                println!("length {length}: {:.1} samples/s training, {:.1} evaluating", n / best, n / forward);
            }
        }
    }
}

/// Seconds of a step, on average and at best, and of an evaluation. `done` gets the steps and seconds so far; the first
/// step does not count.
fn measure(freeze: Option<usize>, lengths: &[usize], done: impl Fn(usize, f64) -> bool) -> (f64, f64, f64) {
    let shape = EncoderShape::named("minilm").unwrap();
    let input = InputShape::Tokens { vocabulary: VOCABULARY as usize, max_length: 128 };
    let model = Model::compile(&encoder("minilm", &shape, false, freeze, input, CLASSES), cpu()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut params = model.init(&mut rng);
    let mut grad = vec![0.0; params.len()];
    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 };
    let (mut optimizer, mut workspace) = (model.optimizer(adam, 0.0), model.session());
    let n = lengths.len();
    let labels: Vec<u16> = (0..n).map(|i| (i % CLASSES) as u16).collect();
    let indices: Vec<u32> = (0..n as u32).collect();
    let mut starts = vec![0];
    lengths.iter().for_each(|&length| starts.push(starts[starts.len() - 1] + length as u32));
    let ids: Vec<u32> = (0..starts[n]).map(|_| rng.random_range(0..VOCABULARY)).collect();
    let batch = Batch::Tokens { ids: &ids, starts: &starts, indices: &indices };
    let (mut best, mut steps, mut begin) = (f64::INFINITY, 0, Instant::now());
    while !done(steps, begin.elapsed().as_secs_f64()) {
        let start = Instant::now();
        grad.fill(0.0);
        let mut d_logits = vec![0.0; n * CLASSES];
        let out = workspace.train(&mut params, &batch, steps as u64);
        loss::cross_entropy(out.logits, &labels, CLASSES, 1.0, &mut d_logits);
        workspace.backward(&params, &d_logits, None, &mut grad);
        optimizer.step(&mut params, &grad, 1e-5);
        if steps == 0 {
            begin = Instant::now();
        } else {
            best = best.min(start.elapsed().as_secs_f64());
        }
        steps += 1;
    }
    let average = begin.elapsed().as_secs_f64() / (steps - 1) as f64;
    let start = Instant::now();
    workspace.evaluate(&params, &batch);
    (average, best, start.elapsed().as_secs_f64())
}
