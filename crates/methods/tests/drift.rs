//! FedProx, FedCurv, SCAFFOLD and MOON, which hold a client near others: golden vectors through the real training step,
//! derivatives through a whole small network, what a step is corrected by. Their rules are tested beside the code.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{CLASSES, Scene, SplitMix, assert_near, columns, flat, floats, golden, method, smooth_model, wholes};
use fedelity_fl::{Method, Payload, Training};
use fedelity_methods::{FedAvg, FedCurv, FedProx, Moon, Scaffold};
use fedelity_nn::{Batch, InputShape, Isa, Model, ModelSpec, Optimizer, OptimizerKind, zoo};
use serde_json::Value;

fn drawn(model: &Model, names: &Value, seed: u64) -> Vec<f32> {
    let mut params = vec![0.0; model.layout().len()];
    for (i, tensor) in model.layout().tensors().iter().enumerate() {
        assert_eq!(tensor.shape, wholes::<usize>(&names[i][1]), "{} is our {}", names[i][0], tensor.name);
        let fan_in = if tensor.shape.len() > 1 { tensor.shape[1..].iter().product() } else { 50 };
        let (bound, mut rng) = (1.0 / (fan_in as f64).sqrt(), SplitMix(seed + i as u64));
        params[tensor.range()].fill_with(|| (rng.symmetric() * bound) as f32);
    }
    params
}

#[test]
fn golden_losses_moon_through_the_training_step() {
    let file = golden("losses.json");
    let cases = file["cases"].as_array().unwrap().iter().filter(|case| case["method"] == "moon");
    let mut seen = 0;
    for case in cases {
        let (name, inputs, expect) = (case["name"].as_str().unwrap(), &case["inputs"], &case["expect"]);
        let samples = inputs["features"].as_array().unwrap().len();
        let width = inputs["features"][0].as_array().unwrap().len();
        // A head of zeros: the cross-entropy is ln 2 and does not reach the features.
        let mut scene = Scene::one_hot(Some(width), vec![0; samples], 2);
        let rest = scene.model.layout().len() - samples * width;
        let weights = |features: &str| [columns(&floats(&inputs[features]), width), vec![0.0; rest]].concat();
        scene.global = weights("global_features");
        scene.memory.put("previous", weights("previous_features"));
        let (loss, grad) = scene.gradient(&*method("moon", &case["params"], ""), &weights("features"));
        let expected = expect["loss"].as_f64().unwrap() + 2.0_f64.ln();
        assert_near(&format!("{name}: loss"), &[loss], &[expected], 1e-5);
        let features = columns(&grad[scene.model.layout().tensors()[0].range()], samples);
        assert_near(&format!("{name}: features"), &features, &flat(&expect["grad_features"]), 1e-5);
        seen += 1;
    }
    assert!(seen >= 5, "the file lost some cases: {seen}");
}

#[test]
fn golden_trajectories_through_the_training_step() {
    let file = golden("trajectories.json");
    let mut seen = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let id = case["method"].as_str().unwrap();
        if !["fedprox", "moon"].contains(&id) {
            continue;
        }
        let (name, setup, expect) = (case["name"].as_str().unwrap(), &case["setup"], &case["expect"]);
        let whole = |key: &str| setup[key].as_u64().unwrap();
        let number = |key: &str| setup[key].as_f64().unwrap() as f32;
        let (side, classes, batch) = (whole("side") as usize, whole("classes") as usize, whole("batch") as usize);
        let input = InputShape::Image { channels: whole("channels") as usize, height: side, width: side };
        let (plain, projection) = match case["model"].as_str().unwrap().strip_suffix("-projection") {
            Some(plain) => (plain, true),
            None => (case["model"].as_str().unwrap(), false),
        };
        let arch = zoo::build(&ModelSpec { name: plain.into(), projection }, input, classes).unwrap();
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
            memory: Payload::new().with("previous", drawn(&model, &case["tensors"], whole("seed_previous"))),
            training: Training::default(),
        };
        // The proximal term lives in parameter space: the loss of a step does not hold it.
        let proximal = (id == "fedprox").then(|| FedProx { mu: case["params"]["mu"].as_f64().unwrap() });
        let method = method(id, &case["params"], "");
        let mut params = drawn(&model, &case["tensors"], whole("seed_student"));
        let kind = OptimizerKind::Sgd { momentum: number("momentum") };
        let mut optimizer = Optimizer::new(kind, number("weight_decay"), model.isa(), model.layout());
        for (step, expected) in flat(&expect["losses"]).into_iter().enumerate() {
            let penalty = proximal.as_ref().map_or(0.0, |it| it.penalty(model.layout(), &params, &scene.global));
            let (loss, grad) = scene.gradient(&*method, &params);
            assert_near(&format!("{name}: loss {step}"), &[loss + penalty as f32], &[expected], 1e-4);
            optimizer.step(&mut params, &grad, number("lr"));
        }
        let mut workspace = model.workspace();
        let logits = &workspace.evaluate(&params, &Batch::Floats { rows: &scene.images }).logits[..2 * classes];
        assert_near(&format!("{name}: logits"), logits, &flat(&expect["logits_first_two"]), 1e-3);
        for (i, tensor) in model.layout().tensors().iter().enumerate() {
            let squares: f64 = params[tensor.range()].iter().map(|&w| f64::from(w).powi(2)).sum();
            let expected = expect["tensor_norms"][i].as_f64().unwrap();
            assert!((squares.sqrt() - expected).abs() < 1e-4 * expected, "{name}: {}", tensor.name);
        }
        seen.push(name);
    }
    assert_eq!(seen, ["simple-cnn-fedprox", "simple-cnn-projection-moon"]);
}

/// A batch for the smooth model, and weights to train from it.
fn scene(labels: &[u16]) -> (Scene, Vec<f32>) {
    let model = smooth_model();
    let draw = |seed: u64, len: usize| -> Vec<f32> {
        let mut rng = SplitMix(seed);
        (0..len).map(|_| rng.symmetric() as f32 * 0.4).collect()
    };
    let len = model.layout().len();
    let scene = Scene {
        global: draw(1, len),
        images: draw(2, labels.len() * model.input().len()).iter().map(|pixel| 3.0 * pixel).collect(),
        labels: labels.to_vec(),
        counts: vec![3; CLASSES],
        round: 1,
        down: Payload::new(),
        memory: Payload::new().with("previous", draw(3, len)),
        training: Training::default(),
        model,
    };
    (scene, draw(4, len))
}

/// Whether the gradient is the derivative of `loss`, along some directions.
fn check_gradient(what: &str, params: &[f32], grad: &[f32], loss: impl Fn(&[f32]) -> f64) {
    for seed in 0..6 {
        let mut rng = SplitMix(100 + seed);
        let direction: Vec<f32> = params.iter().map(|_| rng.symmetric() as f32).collect();
        let at = |step: f32| {
            let moved: Vec<f32> = params.iter().zip(&direction).map(|(w, d)| w + step * d).collect();
            loss(&moved)
        };
        let step = 2e-3;
        let measured = (at(step) - at(-step)) / f64::from(2.0 * step);
        let along: f64 = grad.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
        assert!((measured - along).abs() <= 4e-3 * along.abs().max(1.0), "{what}: {along} for {measured}");
    }
}

#[test]
fn gradients_by_finite_differences() {
    let batches: [&[u16]; 4] = [&[0, 1, 2, 3, 1, 0], &[2], &[1, 1, 1], &[0, 3]];
    for labels in batches {
        let (scene, params) = scene(labels);
        for tau in [0.5, 1.0, 3.0] {
            let moon = Moon { mu: 2.0, tau };
            let (_, grad) = scene.gradient(&moon, &params);
            let loss = |w: &[f32]| f64::from(scene.gradient(&moon, w).0);
            check_gradient(&format!("moon {tau} {labels:?}"), &params, &grad, loss);
        }
        let prox = FedProx { mu: 0.7 };
        let (_, grad) = scene.gradient(&prox, &params);
        let loss =
            |w: &[f32]| f64::from(scene.gradient(&prox, w).0) + prox.penalty(scene.model.layout(), w, &scene.global);
        check_gradient(&format!("fedprox {labels:?}"), &params, &grad, loss);
    }
}

#[test]
fn what_is_absent_changes_no_bit() {
    let (mut scene, params) = scene(&[0, 1, 2, 3]);
    scene.memory = Payload::new();
    let plain = scene.gradient(&FedAvg {}, &params);
    let methods: [&dyn Method; 4] =
        [&Moon::default(), &Scaffold {}, &FedCurv { lambda: 3.0, ..FedCurv::default() }, &FedProx { mu: 0.0 }];
    for method in methods {
        assert_eq!(scene.gradient(method, &params), plain, "{}", method.name());
    }
}

#[test]
fn a_step_is_corrected_by_c_minus_own_c() {
    let (mut scene, params) = scene(&[0, 1, 2, 3]);
    let len = params.len();
    let plain = scene.gradient(&FedAvg {}, &params).1;
    let (c, c_i): (Vec<f32>, Vec<f32>) = (0..len).map(|k| (0.01 * k as f32, 0.5 - 0.002 * k as f32)).unzip();
    scene.down = Payload::new().with("control", c.clone());
    let first = scene.gradient(&Scaffold {}, &params).1;
    scene.memory = Payload::new().with("control", c_i.clone());
    let later = scene.gradient(&Scaffold {}, &params).1;
    for k in 0..len {
        assert_eq!(first[k], plain[k] + c[k]);
        assert_eq!(later[k], plain[k] + (c[k] - c_i[k]));
    }
}
