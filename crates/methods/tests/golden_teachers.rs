//! FedGKD, FedGKD-VOTE and FedDistill+ against golden vectors, through the real training step.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{Scene, SplitMix, assert_near, columns, flat, floats, golden, method, wholes};
use fedelity_fl::{Method, Payload, Training};
use fedelity_methods::{Distance, FedDistillPlus, FedGkd, FedGkdVote};
use fedelity_nn::{Batch, InputShape, Isa, Model, ModelSpec, Optimizer, OptimizerKind, zoo};
use serde_json::Value;

/// The method of a case, and what it has received beyond the weights; `weights` makes a model that says given logits.
fn method_of(case: &Value, weights: &dyn Fn(&Value) -> Vec<f32>) -> Option<(Arc<dyn Method>, Payload)> {
    let (inputs, params) = (&case["inputs"], &case["params"]);
    let number = |key: &str| params[key].as_f64().unwrap();
    Some(match case["method"].as_str().unwrap() {
        "fedgkd" => (Arc::new(FedGkd { gamma: number("gamma"), ..FedGkd::default() }), Payload::new()),
        "fedgkd-mse" => {
            let method = FedGkd { gamma: 2.0 * number("alpha"), loss: Distance::Mse, ..FedGkd::default() };
            (Arc::new(method), Payload::new())
        }
        "fedgkd-vote" => {
            let mut down = Payload::new().with("half-gammas", floats(&params["half_gammas"]));
            for (m, teacher) in inputs["teachers_logits"].as_array().unwrap().iter().enumerate().skip(1) {
                down.put(format!("model-{m}"), weights(teacher));
            }
            (Arc::new(FedGkdVote::default()), down)
        }
        "feddistill-plus" => {
            // One other client has reported.
            let has = inputs["table_has_class"].as_array().unwrap().iter();
            let flags = has.map(|has| if has.as_bool().unwrap() { 1.0 } else { 0.0 });
            let sums = floats(&inputs["logit_table"]).into_iter().chain(flags).collect::<Vec<f32>>();
            let method = FedDistillPlus { coefficient: number("coefficient"), ..FedDistillPlus::default() };
            (Arc::new(method), Payload::new().with("logits", sums))
        }
        _ => return None,
    })
}

#[test]
fn golden_losses_through_the_training_step() {
    let mut seen = 0;
    for case in golden("losses.json")["cases"].as_array().unwrap() {
        let (name, inputs, expect) = (case["name"].as_str().unwrap(), &case["inputs"], &case["expect"]);
        let Some(first) = inputs["student_logits"].get(0) else { continue };
        let classes = first.as_array().unwrap().len();
        let weights = |logits: &Value| [columns(&floats(logits), classes), vec![0.0; classes]].concat();
        let Some((method, down)) = method_of(case, &weights) else { continue };
        let scene = Scene { down, ..Scene::one_hot(None, wholes(&inputs["labels"]), classes) };
        let student = weights(&inputs["student_logits"]);
        let teacher = inputs.get("teacher_logits").or_else(|| inputs["teachers_logits"].get(0));
        let scene = Scene { global: teacher.map_or_else(|| student.clone(), weights), ..scene };
        let largest = student.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let tolerance = if largest > 20.0 { 1e-4 } else { 1e-5 };
        let (loss, grad) = scene.gradient(&*method, &student);
        assert_near(&format!("{name}: loss"), &[loss], &[expect["loss"].as_f64().unwrap()], tolerance);
        let got = columns(&grad[scene.model.layout().tensors()[0].range()], scene.labels.len());
        assert_near(&format!("{name}: gradient"), &got, &flat(&expect["grad_student_logits"]), tolerance);
        seen += 1;
    }
    assert!(seen >= 20, "the file lost some cases: {seen}");
}

/// Weights as the vectors draw them: uniform, scales 1 and shifts 0.
fn drawn(model: &Model, names: &Value, seed: u64) -> Vec<f32> {
    let mut params = vec![0.0; model.layout().len()];
    for (i, tensor) in model.layout().tensors().iter().enumerate() {
        assert_eq!(tensor.shape, wholes::<usize>(&names[i][1]), "{} is our {}", names[i][0], tensor.name);
        let part = &mut params[tensor.range()];
        // Layers of normalisation are called n, n1, n2 or ns in the vectors.
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

#[test]
fn golden_trajectories_through_the_training_step() {
    let file = golden("trajectories.json");
    let mut seen = Vec::new();
    for case in file["cases"].as_array().unwrap().iter().filter(|case| case["method"] == "fedgkd") {
        let (name, setup, expect) = (case["name"].as_str().unwrap(), &case["setup"], &case["expect"]);
        let whole = |key: &str| setup[key].as_u64().unwrap();
        let number = |key: &str| setup[key].as_f64().unwrap() as f32;
        let (side, classes, batch) = (whole("side") as usize, whole("classes") as usize, whole("batch") as usize);
        let input = InputShape::Image { channels: whole("channels") as usize, height: side, width: side };
        let spec = ModelSpec { name: case["model"].as_str().unwrap().into(), projection: false };
        let arch = zoo::build(&spec, input, classes).unwrap();
        let model = Arc::new(Model::compile(&arch, Isa::detect()).unwrap());
        let mut rng = SplitMix(whole("seed_inputs"));
        let images: Vec<f32> = (0..batch * input.len()).map(|_| rng.symmetric() as f32).collect();
        let mut rng = SplitMix(whole("seed_labels"));
        let scene = Scene {
            global: drawn(&model, &case["tensors"], whole("seed_global")),
            model: model.clone(),
            images,
            labels: (0..batch).map(|_| (rng.next() % classes as u64) as u16).collect(),
            counts: wholes(&setup["label_counts"]),
            round: 1,
            down: Payload::new(),
            memory: Payload::new(),
            training: Training::default(),
        };
        let method = method("fedgkd", &case["params"], "");
        let mut params = drawn(&model, &case["tensors"], whole("seed_student"));
        let kind = OptimizerKind::Sgd { momentum: number("momentum") };
        let mut optimizer = Optimizer::new(kind, number("weight_decay"), model.isa(), model.layout());
        for (step, expected) in flat(&expect["losses"]).into_iter().enumerate() {
            let (loss, grad) = scene.gradient(&*method, &params);
            assert_near(&format!("{name}: loss {step}"), &[loss], &[expected], 1e-4);
            optimizer.step(&mut params, &grad, number("lr"));
        }
        let mut workspace = model.workspace();
        let logits = &workspace.evaluate(&params, &Batch::Floats { rows: &scene.images }).logits[..2 * classes];
        assert_near(&format!("{name}: logits"), logits, &flat(&expect["logits_first_two"]), 1e-3);
        for (i, tensor) in model.layout().tensors().iter().enumerate() {
            let norm = params[tensor.range()].iter().map(|&w| f64::from(w).powi(2)).sum::<f64>().sqrt();
            let expected = expect["tensor_norms"][i].as_f64().unwrap();
            assert!((norm - expected).abs() < 1e-3 * expected.max(1.0), "{name}: {}: {norm}", tensor.name);
        }
        seen.push(name);
    }
    assert_eq!(seen, ["simple-cnn-fedgkd", "resnet8-gn-fedgkd"]);
}
