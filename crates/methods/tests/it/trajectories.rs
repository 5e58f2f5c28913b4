//! Six steps of whole models under every method that has a golden trajectory, through the real training step.

use std::sync::Arc;

use crate::golden::{SplitMix, assert_near, flat, floats, golden, method, wholes};
use crate::scene::Scene;
use fedelity_fl::{Payload, Training};
use fedelity_nn::{Batch, InputShape, Model, ModelSpec, OptimizerKind, cpu, zoo};
use serde_json::Value;

/// Weights drawn as in the golden vectors: uniform, scales 1 and shifts 0.
fn drawn(model: &Model, names: &Value, seed: u64) -> Vec<f32> {
    let mut params = vec![0.0; model.layout().len()];
    for (i, tensor) in model.layout().tensors().iter().enumerate() {
        assert_eq!(tensor.shape, wholes::<usize>(&names[i][1]), "{} is our {}", names[i][0], tensor.name);
        let part = &mut params[tensor.range()];
        // Normalisation layers are called n, n1, n2 or ns in the vectors.
        if names[i][0].as_str().unwrap().split('.').any(|name| name.starts_with('n')) {
            part.fill(if tensor.name.ends_with("weight") { 1.0 } else { 0.0 });
            continue;
        }
        let fan_in = if tensor.shape.len() > 1 { tensor.shape[1..].iter().product() } else { 50 };
        let (bound, mut rng) = (1.0 / (fan_in as f64).sqrt(), SplitMix(seed + i as u64));
        part.fill_with(|| (rng.symmetric() * bound) as f32);
    }
    params
}

fn follow(case: &Value) {
    let (name, setup, expect) = (case["name"].as_str().unwrap(), &case["setup"], &case["expect"]);
    let whole = |key: &str| setup[key].as_u64().unwrap();
    let number = |key: &str| setup[key].as_f64().unwrap() as f32;
    let (side, classes, batch) = (whole("side") as usize, whole("classes") as usize, whole("batch") as usize);
    let input = InputShape::Image { channels: whole("channels") as usize, height: side, width: side };
    let full = case["model"].as_str().unwrap().trim_end_matches("-28");
    let (plain, projection) = full.strip_suffix("-projection").map_or((full, false), |plain| (plain, true));
    let arch = zoo::build(&ModelSpec::new(plain, projection), input, classes).unwrap();
    let model = Arc::new(Model::compile(&arch, cpu()).unwrap());
    let weights = |seed: &str| drawn(&model, &case["tensors"], whole(seed));

    // Everything that any of the methods receives or remembers.
    let mut down = Payload::new();
    if let Some(alpha) = setup.get("class_alpha") {
        down.put("class-alpha", floats(alpha));
    }
    let diagonal = |at: usize| if at.is_multiple_of(classes + 1) { 0.8 } else { 0.0 };
    let credibility: Vec<f32> = (0..classes * classes).map(|at| diagonal(at) + 0.2 / classes as f32).collect();
    down.put("credibility", credibility);
    let memory = setup
        .get("seed_previous")
        .map_or_else(Payload::new, |_| Payload::new().with("previous", weights("seed_previous")));

    let mut rng = SplitMix(whole("seed_inputs"));
    let images: Vec<f32> = (0..batch * input.len()).map(|_| rng.symmetric() as f32).collect();
    let mut rng = SplitMix(whole("seed_labels"));
    let scene = Scene {
        global: weights("seed_global"),
        model: model.clone(),
        images,
        labels: (0..batch).map(|_| (rng.next() % classes as u64) as u16).collect(),
        counts: wholes(&setup["label_counts"]),
        round: 1,
        down,
        memory,
        training: Training::default(),
    };
    let id = case["method"].as_str().unwrap();
    let method = method(if id == "feddistill-gd" { "feddistill" } else { id }, &case["params"], "");
    let mut params = weights("seed_student");
    let kind = OptimizerKind::Sgd { momentum: number("momentum") };
    let mut optimizer = model.optimizer(kind, number("weight_decay"));
    for (step, expected) in flat(&expect["losses"]).into_iter().enumerate() {
        let (loss, grad) = scene.gradient(&*method, &params);
        assert_near(&format!("{name}: loss {step}"), &[loss], &[expected], 1e-4);
        optimizer.step(&mut params, &grad, number("lr"));
    }
    let mut workspace = model.session();
    let logits = &workspace.evaluate(&params, &Batch::Floats { rows: &scene.images }).logits[..2 * classes];
    assert_near(&format!("{name}: logits"), logits, &flat(&expect["logits_first_two"]), 1e-3);
    for (i, tensor) in model.layout().tensors().iter().enumerate() {
        let norm = params[tensor.range()].iter().map(|&w| f64::from(w).powi(2)).sum::<f64>().sqrt();
        let expected = expect["tensor_norms"][i].as_f64().unwrap();
        assert!((norm - expected).abs() < 1e-4 * expected.max(1.0), "{name}: {}: {norm}", tensor.name);
    }
}

#[test]
fn golden_trajectories_through_the_training_step() {
    let file = golden("trajectories.json");
    let cases = file["cases"].as_array().unwrap();
    cases.iter().for_each(follow);
    let mut seen: Vec<&str> = cases.iter().map(|case| case["method"].as_str().unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    let expected = ["fedavg", "fedcad", "feddistill-gd", "fedgkd", "fedlsd", "fedntd", "fedprox", "fedssd", "moon"];
    assert_eq!(seen, expected, "the file lacks some cases");
}
