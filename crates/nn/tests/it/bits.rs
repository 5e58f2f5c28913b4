//! Every model of the zoo, trained for a few steps: the same bits with every instruction set, and the bits that are
//! committed here, so with every processor.
//!
//! A change that moves results on purpose replaces the lines of [`EXPECTED`] by those that the failure prints.

use std::sync::Arc;

use fedelity_nn::{Batch, Engine, InputShape, Model, ModelSpec, OptimizerKind, Params, engines, loss, zoo};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CLASSES: usize = 10;
const STEPS: usize = 2;

/// The model, and the hash of its weights and outputs.
const EXPECTED: &[(&str, &str)] = &[
    ("logistic", "f0d493dad71eab6299c1dce358eaef1b5290d3c47fa22f5960d0b2b0f6611b37"),
    ("mlp", "ede718a69e2f31314c5b599b683bb0213028ce32027404681e51ade5a76c8df4"),
    ("simple-cnn", "d0954e29c5eb2cbab0c0dcc4b65cd8488e8c10f75bce27faea961470c939eaf6"),
    ("ntd-cnn", "936866b95c9edd67005d451158edebd0e957219b758c81ce4fe96ad8524a647d"),
    ("resnet8-gn", "1da18c79e1333efb5fa8ac029502b4a30890eeb7247f99f9610fe9ad183713fb"),
    ("resnet18-gn", "6ac5de1d663f7c676c81e2dbb973e23c7ea40b0f52a2249044c3b26ed733d723"),
    ("resnet18-bn", "c78a0eb0d69af527f925fc7df0c24c9d56bc9eb80ac7304df28ea0e2a040f324"),
    ("resnet50-gn", "c008be288d5565a5314e21fb515c24d1252b38433f0a39cf2a319e5afbe003fe"),
    ("resnet50-bn", "a422e714b99ebca6f07ef53c9f0659f0dca0da5174dfe4967578fe76469e9cfa"),
    ("vgg11", "ab1161042cab6dd7049548bb384071f489eea068b2a801abf478a096d8eb3782"),
    ("lstm", "4bb300eb28fed49c9c3192811063815d133b76a6bce0bec840582222f4a0441b"),
    ("minilm", "1c66495067f72b7e97b553e3c86ac171bbf402076407f4f0b80d1fd82a493d2a"),
    ("distilbert", "5d3abb2e74fe751e366e486c6fa4318b1d21de3ac74cbfe3196aef79d0e55b5b"),
    ("bert", "4ce107c92189c721b7194b6333302ed1ae71367d58d83d748038ac7253b967fd"),
];

/// More than one group of lanes, the second one not full; less work for models that have much.
fn samples(name: &str) -> usize {
    match (is_large(name), zoo::reads_text(name)) {
        (true, true) => 2,
        (true, false) => 7,
        (false, _) => 11,
    }
}

fn is_large(name: &str) -> bool {
    ["resnet18", "resnet50", "bert", "minilm"].iter().any(|large| name.contains(large))
}

fn hash(name: &str, engine: &Arc<dyn Engine>) -> String {
    let (n, mut rng) = (samples(name), ChaCha8Rng::seed_from_u64(7));
    let text = zoo::reads_text(name);
    let side = if is_large(name) { 8 } else { 32 };
    let input = if text {
        InputShape::Tokens { vocabulary: 40, max_length: 12 }
    } else {
        InputShape::Image { channels: 3, height: side, width: side }
    };
    let arch = zoo::build(&ModelSpec::new(name, false), input, CLASSES).unwrap();
    let model = Model::compile(&arch, Arc::clone(engine)).unwrap();
    let mut params = model.init(&mut rng);
    let labels: Vec<u16> = (0..n).map(|_| rng.random_range(0..CLASSES as u16)).collect();
    let rows: Vec<f32> = if text { Vec::new() } else { (0..n * input.len()).map(|_| rng.random::<f32>()).collect() };
    let mut starts = vec![0];
    (0..n).for_each(|i| starts.push(starts[i] + rng.random_range(1..=if is_large(name) { 4 } else { 12 })));
    let ids: Vec<u32> = (0..starts[n]).map(|_| rng.random_range(0..40)).collect();
    let indices: Vec<u32> = (0..n as u32).collect();
    let batch = if text {
        Batch::Tokens { ids: &ids, starts: &starts, indices: &indices }
    } else {
        Batch::Floats { rows: &rows }
    };
    let kind = if text {
        OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    } else {
        OptimizerKind::Sgd { momentum: 0.9 }
    };
    let (mut optimizer, mut session) = (model.optimizer(kind, 1e-4), model.session());
    let mut grad = vec![0.0; model.layout().len()];
    for step in 0..STEPS {
        let mut d_logits = vec![0.0; n * CLASSES];
        let outputs = session.train(&mut params, &batch, step as u64);
        loss::cross_entropy(outputs.logits, &labels, CLASSES, 1.0, &mut d_logits);
        grad.fill(0.0);
        session.backward(&params, &d_logits, None, &mut grad);
        optimizer.step(&mut params, &grad, 1e-3);
    }
    let outputs = session.evaluate(&params, &batch);
    let all = [&params[..], outputs.features, outputs.logits].concat();
    assert!(all.iter().all(|v| v.is_finite()), "{name}: not finite");
    Params(all).hash()
}

/// Compares some models; all of them together would take one core for too long.
fn check(models: impl Fn(&str) -> bool) {
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for name in zoo::NAMES.iter().filter(|name| models(name)) {
        let hashes: Vec<(String, String)> =
            engines().iter().map(|engine| (engine.name().to_owned(), hash(name, engine))).collect();
        for (isa, hash) in &hashes {
            assert_eq!(*hash, hashes[0].1, "{name}: {isa} and {} differ", hashes[0].0);
        }
        found.push(format!("    (\"{name}\", \"{}\"),", hashes[0].1));
        let known = EXPECTED.iter().find(|(known, _)| known == name).map_or("", |(_, hash)| hash);
        expected.push(format!("    (\"{name}\", \"{known}\"),"));
    }
    assert!(found == expected, "other bits than those of EXPECTED:\n{}", found.join("\n"));
}

#[test]
fn small_models_give_the_committed_bits_with_every_instruction_set() {
    check(|name| !is_large(name));
}

#[test]
fn residual_networks_give_the_committed_bits_with_every_instruction_set() {
    check(|name| name.contains("resnet") && is_large(name));
}

#[test]
fn encoders_give_the_committed_bits_with_every_instruction_set() {
    check(|name| zoo::reads_text(name) && is_large(name));
}
