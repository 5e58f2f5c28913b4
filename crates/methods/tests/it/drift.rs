//! FedCurv, SCAFFOLD and MOON, which limit client drift: golden vectors through the real training step, corrections of
//! steps, and client memory. Their rules are tested beside the code.

use std::sync::Arc;

use crate::federation::{CLASSES, CLIENTS, Holds, TestRun, smooth_model, training};
use crate::golden::{SplitMix, assert_near, flat, floats, golden, method};
use crate::scene::{Scene, columns};
use fedelity_fl::{Method, Payload, Training};
use fedelity_methods::{Composed, FedAvg, FedCurv, Moon, Rule, Scaffold, ServerOptimizer};

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
    assert!(seen >= 5, "the file lacks some cases: {seen}");
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

#[test]
fn what_is_absent_changes_no_bit() {
    let (mut scene, params) = scene(&[0, 1, 2, 3]);
    scene.memory = Payload::new();
    let plain = scene.gradient(&FedAvg {}, &params);
    let methods: [&dyn Method; 3] = [&Moon::default(), &Scaffold {}, &FedCurv { lambda: 3.0, ..FedCurv::default() }];
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

/// Client 2 holds one class and lies far from the others: Krum leaves it out. Client 5 has no samples.
#[test]
fn who_is_left_out_remembers_what_it_did() {
    let rule = Rule::Krum { byzantine: 1, keep: 3 };
    let run = |inner: Arc<dyn Method>| {
        let method = Composed::around(inner, rule, ServerOptimizer::None, None);
        TestRun::new(method, smooth_model(), training(), Holds::NOTHING).unwrap()
    };
    for (inner, sums, share) in [
        (Arc::new(Scaffold {}) as Arc<dyn Method>, vec!["control"], CLIENTS.len()),
        (Arc::new(FedCurv::default()), vec!["fisher", "fisher-weights"], 1),
    ] {
        let mut run = run(inner);
        for round in 0..4 {
            let before = run.memories.clone();
            run.round();
            let changed = (0..CLIENTS.len()).filter(|&k| run.memories.get(&k) != before.get(&k)).count();
            assert_eq!(changed, 3, "round {round}");
            // What the server sums is what the clients remember sending.
            for name in &sums {
                let counted = run.coordinator.state().get(name).unwrap();
                let largest = counted.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                for (i, counted) in counted.iter().enumerate() {
                    let parts = run.memories.values().filter_map(|memory| memory.opt(name));
                    let sum = parts.map(|part| part[i]).sum::<f32>() / share as f32;
                    assert!((counted - sum).abs() <= 1e-5 * largest, "{name} {i}: {counted} for {sum}");
                }
            }
        }
    }
    // MOON's previous model is the one the client sent, even if the server left it out.
    let mut run = run(Arc::new(Moon::default()));
    run.round();
    let kept = run.memories.values().filter(|memory| memory.opt("previous").is_some()).count();
    assert_eq!(kept, 3);
}
