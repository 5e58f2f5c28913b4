//! Training speed of MiniLM on one thread (forward, backward and an Adam step) by text length.
//!
//! `cargo bench -p fedelity-nn --bench encoder [-- FREEZE]` prints samples per second.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints and may fail")]

use std::time::Instant;

use fedelity_nn::{Batch, EncoderShape, InputShape, Model, OptimizerKind, cpu, encoder, loss};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BATCH: usize = 16;
const STEPS: usize = 4;
const CLASSES: usize = 5;

fn main() {
    let freeze = std::env::args().skip(1).find_map(|a| a.parse().ok());
    let shape = EncoderShape::named("minilm").unwrap();
    let input = InputShape::Tokens { vocabulary: 30_522, max_length: 128 };
    let model = Model::compile(&encoder("minilm", &shape, false, freeze, input, CLASSES), cpu()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut params = model.init(&mut rng);
    let mut grad = vec![0.0; params.len()];
    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 };
    let mut optimizer = model.optimizer(adam, 0.0);
    let mut workspace = model.session();
    let labels: Vec<u16> = (0..BATCH).map(|i| (i % CLASSES) as u16).collect();
    let indices: Vec<u32> = (0..BATCH as u32).collect();
    for length in [32, 128] {
        let ids: Vec<u32> = (0..BATCH * length).map(|_| rng.random_range(0..30_522)).collect();
        let starts: Vec<u32> = (0..=BATCH).map(|i| (i * length) as u32).collect();
        let batch = Batch::Tokens { ids: &ids, starts: &starts, indices: &indices };
        let mut best = f64::INFINITY;
        for step in 0..=STEPS {
            let start = Instant::now();
            grad.fill(0.0);
            let mut d_logits = vec![0.0; BATCH * CLASSES];
            let out = workspace.train(&mut params, &batch, step as u64);
            loss::cross_entropy(out.logits, &labels, CLASSES, 1.0, &mut d_logits);
            workspace.backward(&params, &d_logits, None, &mut grad);
            optimizer.step(&mut params, &grad, 1e-5);
            if step > 0 {
                best = best.min(start.elapsed().as_secs_f64());
            }
        }
        let start = Instant::now();
        workspace.evaluate(&params, &batch);
        let forward = start.elapsed().as_secs_f64();
        println!(
            "length {length}: {:.1} samples/s training, {:.1} evaluating",
            BATCH as f64 / best,
            BATCH as f64 / forward
        );
    }
}
