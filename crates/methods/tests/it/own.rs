//! Fedelity's own method: what it is for balanced clients, that clients agree, and the guard on updates. Its loss is among the
//! golden vectors.

use std::sync::Arc;

use crate::federation::{CLASSES, CLIENTS, EVERYBODY, Holds, TestRun, plain_model, training};
use crate::golden::SplitMix;
use crate::scene::Scene;
use fedelity_fl::observe::drift;
use fedelity_fl::{Method, Payload};
use fedelity_methods::{FedAvg, Fedelity};

fn run(method: impl Method + 'static) -> TestRun {
    TestRun::new(Arc::new(method), plain_model(), training(), Holds::NOTHING).unwrap()
}

/// Loss and gradient of one batch at weights of its own.
fn gradient(method: &dyn Method, counts: &[usize], labels: &[u16]) -> (f32, Vec<f32>) {
    let mut scene = Scene::one_hot(None, labels.to_vec(), CLASSES);
    let mut rng = SplitMix(3);
    let mut draw = || (0..scene.model.layout().len()).map(|_| rng.symmetric() as f32).collect::<Vec<_>>();
    (scene.global, scene.counts) = (draw(), counts.to_vec());
    scene.gradient(method, &draw())
}

#[test]
fn a_client_with_as_many_samples_of_every_class_trains_as_in_fedavg() {
    let labels = [0, 1, 2, 3, 3, 1];
    let (loss, grad) = gradient(&Fedelity::default(), &[7; CLASSES], &labels);
    let (plain, plain_grad) = gradient(&FedAvg {}, &[7; CLASSES], &labels);
    assert!((loss - plain).abs() < 1e-6, "{loss} {plain}");
    assert!(grad.iter().zip(&plain_grad).all(|(a, b)| (a - b).abs() < 1e-6));
    let (skewed, _) = gradient(&Fedelity::default(), &[20, 7, 1, 0], &labels);
    assert!((skewed - plain).abs() > 0.1, "{skewed} {plain}");
}

/// Two clients whose labels follow pi_c p*_c with the same p*, but with other pi: at z = log p*, the labels push neither.
#[test]
fn clients_with_other_frequencies_agree_on_the_best_logits() {
    // One input, so a bias is all there is to learn. 1/K of a sample in pi is small against these counts.
    let truth = [0.4_f64, 0.3, 0.2, 0.1];
    let without_teacher = Fedelity { teacher: 0.0, ..Fedelity::default() };
    for shares in [[1.0, 1.0, 1.0, 1.0], [8.0, 1.0, 1.0, 2.0], [0.1, 3.0, 1.0, 5.0_f64]] {
        // The client sees class c as often as pi_c says, and among its samples the label is c with pi_c p*_c.
        let total: f64 = shares.iter().sum();
        let counts: Vec<usize> = shares.iter().map(|share| (share / total * 1e9) as usize).collect();
        let joint: Vec<f64> = shares.iter().zip(truth).map(|(pi, p)| pi * p).collect();
        let sum: f64 = joint.iter().sum();
        let mut push = [0.0; CLASSES];
        for (label, share) in joint.iter().enumerate() {
            let mut scene = Scene::one_hot(None, vec![label as u16], CLASSES);
            scene.counts = counts.clone();
            let weights: Vec<f32> = truth.iter().map(|p| p.ln() as f32).chain([0.0; CLASSES]).collect();
            let (_, grad) = scene.gradient(&without_teacher, &weights);
            (0..CLASSES).for_each(|c| push[c] += share / sum * f64::from(grad[c]));
        }
        assert!(push.iter().all(|push| push.abs() < 1e-6), "{shares:?}: {push:?}");
    }
}

#[test]
fn an_update_that_explodes_is_cut_to_what_was_usual() {
    let method = Fedelity::default();
    let mut found = run(Fedelity::default());
    found.round();
    let usual = found.coordinator.state().get("norms").unwrap()[0];
    let layout = found.coordinator.federation().model.layout().clone();
    let broadcast = found.coordinator.open(EVERYBODY).unwrap();
    for k in 0..CLIENTS.len() {
        let mut upload = found.client(&method, &broadcast, k).unwrap().upload;
        if k == 1 {
            for range in layout.trainable() {
                for (w, start) in upload.params[range.clone()].iter_mut().zip(&broadcast.global[range.clone()]) {
                    *w = start + 1e4 * (*w - start);
                }
            }
        }
        found.coordinator.fold(upload).unwrap();
    }
    assert_eq!(found.coordinator.clipped(), Some(1));
    found.coordinator.close().unwrap();
    let moved = drift(&broadcast.global, found.coordinator.global(), layout.trainable());
    assert!(moved < 10.0 * f64::from(usual), "{moved}, usually {usual}");
    assert!(found.coordinator.state().get("norms").unwrap()[0] < 10.0 * usual, "the next round has a limit as before");
}

#[test]
fn without_the_guard_the_server_keeps_nothing_and_cuts_nothing() {
    let found = run(Fedelity { guard: 0.0, ..Fedelity::default() }).rounds(3);
    assert_eq!(*found.coordinator.state(), Payload::new());
    assert_eq!(found.coordinator.clipped(), None);
}
