//! FedLSD, FedNTD, FedCAD, FedSSD, FedDistill and Fedelity: golden vectors through the real training step, and identities
//! over whole small federations.

use std::sync::Arc;

use crate::federation::{AUXILIARY, CLASSES, Holds, LACKING, TestRun, smooth_model, training};
use crate::golden::{SplitMix, assert_near, flat, floats, golden, method, wholes};
use crate::scene::{Scene, columns};
use fedelity_data::Split;
use fedelity_fl::{Method, Payload, Purpose, Result, Samples, Scaling, Server, Trainer, Training, stream};
use fedelity_methods::{Credibility, FedAvg, FedCad, FedDistill, FedLsd, FedNtd, FedSsd, Mass, NumberOr, Weight};
use fedelity_nn::Params;
use serde_json::Value;

/// The method ID of a golden case, if it is one of these.
fn id(case: &Value) -> Option<&str> {
    match case["method"].as_str().unwrap() {
        "feddistill-gd" => Some("feddistill"),
        name @ ("fedlsd" | "fedntd" | "fedcad" | "fedssd" | "fedelity") => Some(name),
        _ => None,
    }
}

// Golden vectors.

#[test]
fn golden_losses_through_the_training_step() {
    let mut seen = 0;
    for case in golden("losses.json")["cases"].as_array().unwrap() {
        let Some(id) = id(case) else { continue };
        let (name, inputs, expect) = (case["name"].as_str().unwrap(), &case["inputs"], &case["expect"]);
        let labels: Vec<u16> = wholes(&inputs["labels"]);
        let (student, teacher, scene, parts): (Vec<f32>, _, _, &[&str]) = if id == "feddistill" {
            let (classes, width) = (flat(&inputs["head_bias"]).len(), inputs["features"][0].as_array().unwrap().len());
            let mut scene = Scene::one_hot(Some(width), labels, classes);
            scene.counts = wholes(&inputs["label_counts"]);
            let weights = |features: &str, head: &str| {
                let extract = columns(&floats(&inputs[features]), width);
                let head = ["weight", "bias"].map(|part| floats(&inputs[format!("{head}_{part}")]));
                [extract, vec![0.0; width], head.concat()].concat()
            };
            let (student, teacher) = (weights("features", "head"), weights("global_features", "global_head"));
            (student, teacher, scene, &["grad_features", "", "grad_head_weight", "grad_head_bias"])
        } else {
            let classes = inputs["student_logits"][0].as_array().unwrap().len();
            let mut scene = Scene::one_hot(None, labels, classes);
            for (key, array) in [("class_alpha", "class-alpha"), ("credibility", "credibility")] {
                if let Some(values) = inputs.get(key) {
                    scene.down.put(array, floats(values));
                }
            }
            if let Some(counts) = inputs.get("label_counts") {
                scene.counts = wholes(counts);
            }
            let weights = |logits: &str| [columns(&floats(&inputs[logits]), classes), vec![0.0; classes]].concat();
            (weights("student_logits"), weights("teacher_logits"), scene, &["grad_student_logits", ""])
        };
        let scene = Scene { global: teacher, ..scene };
        let largest = student.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let tolerance = if largest > 20.0 { 1e-4 } else { 1e-5 };
        let (loss, grad) = scene.gradient(&*method(id, &case["params"], ""), &student);
        assert_near(&format!("{name}: loss"), &[loss], &[expect["loss"].as_f64().unwrap()], tolerance);
        for (tensor, part) in scene.model.layout().tensors().iter().zip(parts).filter(|(_, part)| !part.is_empty()) {
            let got = &grad[tensor.range()];
            // Rows of samples are columns of weights, except for the head's own gradient.
            let own = part.starts_with("grad_head");
            let got = if own { got.to_vec() } else { columns(got, scene.labels.len()) };
            assert_near(&format!("{name}: {part}"), &got, &flat(&expect[part]), tolerance);
        }
        seen += 1;
    }
    assert!(seen >= 105, "the file lacks some cases: {seen}");
}

/// The method's broadcast, given the labels of the auxiliary samples and the global model's `logits` for them.
fn prepared(method: &dyn Method, logits: &[f32], labels: &[u16], classes: usize) -> Payload {
    let n = labels.len();
    let scene = Scene::one_hot(None, labels.to_vec(), classes);
    let pixels = (0..n * n).map(|at| u8::from(at % (n + 1) == 0)).collect();
    let split = Split::images(pixels, labels.to_vec());
    let (indices, scaling) = ((0..n as u32).collect::<Vec<_>>(), Scaling { scale: vec![1.0], shift: vec![0.0] });
    let mut server = Server {
        model: &scene.model,
        training: &scene.training,
        clients: 1,
        round: 0,
        seed: 0,
        global: &Params([columns(logits, classes), vec![0.0; classes]].concat()),
        state: &Payload::new(),
        scratch: &mut Payload::new(),
        auxiliary: Some(Samples { split: &split, indices: &indices, scaling: &scaling }),
        validation: None,
        unlabelled: None,
        trainer: &mut Trainer::new(scene.model.clone()),
    };
    method.prepare(&mut server).unwrap()
}

fn rule(name: &str) -> Value {
    let file = golden("rules.json");
    file["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == name).unwrap().clone()
}

#[test]
fn golden_rule_fedcad_class_alpha() {
    let rule = rule("fedcad-class-alpha");
    let (inputs, labels) = (&rule["inputs"], wholes(&rule["inputs"]["labels"]));
    let logits: Vec<f32> = flat(&inputs["probabilities"]).iter().map(|p| p.ln() as f32).collect();
    let [beta, gamma] = ["beta", "gamma"].map(|key| inputs[key].as_f64().unwrap() as f32);
    let method = FedCad { beta, gamma, ..FedCad::default() };
    let down = prepared(&method, &logits, &labels, inputs["classes"].as_u64().unwrap() as usize);
    assert_near("alpha", down.get("class-alpha").unwrap(), &flat(&rule["expect"]["alpha"]), 1e-6);
}

#[test]
fn golden_rule_fedssd_credibility() {
    let rule = rule("fedssd-credibility");
    let (inputs, labels) = (&rule["inputs"], wholes(&rule["inputs"]["labels"]));
    let classes = inputs["classes"].as_u64().unwrap() as usize;
    let predictions: Vec<usize> = wholes(&inputs["predictions"]);
    let logits = predictions.iter().flat_map(|&best| (0..classes).map(move |k| if k == best { 1.0 } else { 0.0 }));
    let down = prepared(&FedSsd::default(), &logits.collect::<Vec<_>>(), &labels, classes);
    assert_near("A", down.get("credibility").unwrap(), &flat(&rule["expect"]["credibility"]), 1e-6);

    // M_class can be read off the loss: the teacher is certain, so M_sample is 1 and only the threshold is subtracted.
    let mut scene = Scene::one_hot(None, vec![0], classes);
    scene.down = down;
    scene.global[0] = 200.0;
    let mut student = scene.global.clone();
    let probe = |student: &[f32]| {
        let with = scene.gradient(&FedSsd { m_max: 10.0, ..FedSsd::default() }, student).1;
        let without = scene.gradient(&FedAvg {}, student).1;
        with.iter().zip(without).map(|(a, b)| (a - b) / 20.0 + 0.1).collect::<Vec<f32>>()
    };
    student[..classes].iter_mut().for_each(|z| *z += 1.0);
    let found = probe(&student);
    for (k, expected) in flat(&rule["expect"]["class_weight"]).into_iter().enumerate() {
        assert!((f64::from(found[k]) - expected.max(0.1)).abs() < 1e-5, "{} for {expected}", found[k]);
    }
}

// Identities.

/// Four rounds of a small federation, with these auxiliary samples on the server.
fn rounds(method: Arc<dyn Method>, auxiliary: &'static [u16]) -> Result<TestRun> {
    let run = TestRun::new(method, smooth_model(), training(), Holds { auxiliary, ..Holds::NOTHING })?;
    Ok(run.rounds(4))
}

fn distill(beta_logits: f32, beta_extractor: f32, beta_classifier: f32) -> FedDistill {
    FedDistill { beta_logits, beta_extractor, beta_classifier, ..FedDistill::default() }
}

#[test]
fn with_all_group_weights_at_0_only_the_extractor_is_taught() {
    let none = NumberOr::Number(0.0);
    let off = FedDistill {
        alpha_true: none,
        alpha_rich: none,
        alpha_few: none,
        beta_extractor: 0.0,
        ..FedDistill::default()
    };
    assert_eq!(off.needs().extra_passes, 0);
    let (off, plain) = (rounds(Arc::new(off), &[]).unwrap(), rounds(Arc::new(FedAvg {}), &[]).unwrap());
    assert_eq!(off.story(), plain.story());
}

#[test]
fn fedcad_with_equal_weights_is_fedlsd_bit_for_bit() {
    for (c, tau, tau_squared) in [(0.3, 2.0, false), (0.7, 1.5, true), (1.0, 1.0, false)] {
        let lsd = rounds(Arc::new(FedLsd { alpha: c, tau, tau_squared }), &[]).unwrap();
        let cad = FedCad { beta: c, gamma: c, tau, tau_squared };
        assert!(!cad.needs().auxiliary);
        for auxiliary in [&[], AUXILIARY] {
            let cad = rounds(Arc::new(cad.clone()), auxiliary).unwrap();
            assert_eq!((&cad.globals, &cad.losses), (&lsd.globals, &lsd.losses));
        }
    }
}

fn on() -> Vec<Arc<dyn Method>> {
    let not_true = NumberOr::Word(Mass::NotTrue);
    let published = FedDistill {
        alpha_true: NumberOr::Number(1.0),
        alpha_rich: not_true,
        alpha_few: not_true,
        ..FedDistill::default()
    };
    vec![
        Arc::new(FedLsd::default()),
        Arc::new(FedLsd { tau_squared: true, ..FedLsd::default() }),
        Arc::new(FedNtd::default()),
        Arc::new(FedNtd { beta: 0.5, tau: 2.5 }),
        Arc::new(FedCad::default()),
        Arc::new(FedCad { beta: 0.2, gamma: 0.9, ..FedCad::default() }),
        Arc::new(FedSsd { m_max: 0.3, ..FedSsd::default() }),
        Arc::new(FedSsd { m_max: 0.9, weight: Weight::Squared, credibility: Credibility::Soft }),
        Arc::new(FedDistill::default()),
        Arc::new(FedDistill { exact: true, ..published.clone() }),
        Arc::new(published),
        Arc::new(distill(0.7, 0.0, 0.0)),
        Arc::new(distill(0.0, 0.4, 0.0)),
        Arc::new(distill(0.0, 0.0, 0.6)),
    ]
}

#[test]
fn auxiliary_samples_that_lack_a_class() {
    for method in on() {
        let run = rounds(method.clone(), LACKING).unwrap();
        assert!(run.losses.iter().all(|loss| loss.is_finite()), "{method:?}");
    }
    let (logits, classes) = ([3.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 3.0, 0.0], 3);
    let cad = FedCad { beta: 0.2, gamma: 0.8, ..FedCad::default() };
    let alpha = prepared(&cad, &logits, &[0, 1, 0], classes);
    assert_eq!(alpha.get("class-alpha").unwrap()[2], 0.2);
    for credibility in [Credibility::Hard, Credibility::Soft] {
        let matrix = prepared(&FedSsd { credibility, ..FedSsd::default() }, &logits, &[0, 1, 0], classes);
        assert_eq!(matrix.get("credibility").unwrap()[6..], [0.0; 3]);
        let row: f32 = matrix.get("credibility").unwrap()[..3].iter().sum();
        assert!((row - 1.0).abs() < 1e-6);
    }
}

#[test]
fn missing_auxiliary_samples_fail_before_the_first_round() {
    for method in [Arc::new(FedCad::default()) as Arc<dyn Method>, Arc::new(FedSsd::default())] {
        let name = method.name();
        let error = rounds(method, &[]).err().unwrap().to_string();
        let expected =
            format!("the method '{name}' needs labelled auxiliary samples on the server, but there are none");
        assert_eq!(error, expected);
    }
}

#[test]
fn the_true_logit_gets_only_the_cross_entropy_of_fedntd() {
    let (n, k) = (5, 4);
    let mut rng = SplitMix(8);
    let mut scene = Scene::one_hot(None, vec![0, 3, 1, 1, 2], k);
    scene.global.fill_with(|| 4.0 * rng.symmetric() as f32);
    let student: Vec<f32> = scene.global.iter().map(|w| w + rng.symmetric() as f32).collect();
    let ntd = scene.gradient(&FedNtd { beta: 1.0, tau: 2.0 }, &student).1;
    let plain = scene.gradient(&FedAvg {}, &student).1;
    for (i, &label) in scene.labels.iter().enumerate() {
        for class in 0..k {
            let (ntd, plain) = (ntd[class * n + i], plain[class * n + i]);
            assert_eq!(class == usize::from(label), ntd.to_bits() == plain.to_bits());
        }
    }
}

#[test]
fn a_class_with_exactly_an_even_share_is_few() {
    let (mut scene, student) = scene(&[0, 1, 3], [2, 2, 2, 2]);
    let of = |rich: f32, few: f32| FedDistill {
        alpha_rich: NumberOr::Number(rich),
        alpha_few: NumberOr::Number(few),
        ..distill(1.0, 0.0, 0.0)
    };
    let loss = |scene: &Scene, method: &dyn Method| scene.gradient(method, &student).0;
    let (plain, ntd) = (loss(&scene, &FedAvg {}), loss(&scene, &FedNtd::default()));
    assert!((loss(&scene, &of(1.0, 0.0)) - plain).abs() < 1e-6 && (loss(&scene, &of(0.0, 1.0)) - ntd).abs() < 1e-5);
    scene.counts = vec![3, 3, 3, 2];
    assert!(loss(&scene, &of(1.0, 0.0)) > plain + 1e-3);
}

/// A batch with these labels on the smooth network, for a client with these counts.
fn scene(labels: &[u16], counts: [usize; CLASSES]) -> (Scene, Vec<f32>) {
    let model = smooth_model();
    let init = |seed| model.init(&mut stream(seed, Purpose::Init, 0, 0, 0)).0;
    let mut rng = SplitMix(21);
    let images = (0..labels.len() * model.input().len()).map(|_| rng.symmetric() as f32).collect();
    let credibility: Vec<f32> = (0..16).map(|at| if at % 5 == 0 { 0.97 } else { 0.01 }).collect();
    let down = Payload::new().with("class-alpha", vec![0.1, 0.0, 0.6, 1.0]).with("credibility", credibility);
    // A confident teacher, so that FedSSD has something to keep.
    let global = init(2).iter().map(|w| 2.5 * w).collect();
    let student = init(3);
    let scene = Scene {
        model,
        global,
        images,
        labels: labels.to_vec(),
        counts: counts.to_vec(),
        round: 1,
        down,
        memory: Payload::new(),
        training: Training::default(),
    };
    (scene, student)
}

#[test]
fn logits_of_80_give_finite_losses_and_gradients() {
    for k in [2, 3, 7] {
        let labels: Vec<u16> = (0..4).map(|i| (i * i) as u16 % k as u16).collect();
        let mut scene = Scene::one_hot(None, labels, k);
        let sign = |at: usize, by: usize| if at * by % 5 < 3 { 80.0 } else { -80.0 };
        scene.global = (0..scene.global.len()).map(|at| sign(at, 3)).collect();
        let student: Vec<f32> = (0..scene.global.len()).map(|at| sign(at, 7)).collect();
        let matrix: Vec<f32> = (0..k * k).map(|at| if at % (k + 1) == 0 { 1.0 } else { 0.0 }).collect();
        scene.down = Payload::new().with("class-alpha", vec![0.4; k]).with("credibility", matrix);
        for counts in [vec![0; k], vec![3; k], (0..k).collect()] {
            scene.counts = counts;
            for method in on() {
                let (loss, grad) = scene.gradient(&*method, &student);
                assert!(loss.is_finite() && grad.iter().all(|d| d.is_finite()), "{method:?}: {loss} {grad:?}");
            }
        }
    }
}
