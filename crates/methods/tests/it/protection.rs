//! Limits on updates, and noise, around every method.

use std::sync::Arc;

use crate::federation::{CLIENTS, EVERYBODY, Holds, SEED, TestRun, batch_norm_model, plain_model, training};
use fedelity_fl::observe::drift;
use fedelity_fl::{Method, Purpose, TermMeans, Weighting, stream};
use fedelity_keys::toml::Table;
use fedelity_methods::{Clip, Composed, FedAvg, Moon, Noise, NoiseAt, Rule, ServerOptimizer, entries, refusal};
use fedelity_nn::{Model, normal_pair};

const RULES: [Rule; 4] =
    [Rule::Mean, Rule::Median, Rule::TrimmedMean { trim: 0.2 }, Rule::Krum { byzantine: 1, keep: 2 }];

fn around(method: Arc<dyn Method>, rule: Rule, norm: f64, noise: Option<Noise>) -> Arc<dyn Method> {
    Composed::around(method, rule, ServerOptimizer::None, Some(Clip { norm, noise }))
}

fn run(method: Arc<dyn Method>, model: Arc<Model>) -> TestRun {
    let holds = Holds::needed_by(&*method);
    TestRun::weighted(Weighting::Uniform, method, model, training(), holds).unwrap()
}

#[test]
fn a_limit_that_no_update_reaches_changes_no_bit() {
    for entry in entries() {
        let method = || entry.build(&Table::new(), "method", &mut ()).unwrap().method;
        for rule in RULES {
            let plain = Composed::around(method(), rule, ServerOptimizer::None, None);
            let plain = run(plain, batch_norm_model()).rounds(2);
            let limited = run(around(method(), rule, 1e9, None), batch_norm_model()).rounds(2);
            assert!(plain.story() == limited.story(), "{} {rule:?}", entry.id);
        }
    }
}

#[test]
fn every_rule_sees_updates_within_the_limit() {
    let norm = 0.01;
    for rule in RULES {
        let mut found = run(around(Arc::new(FedAvg {}), rule, norm, None), batch_norm_model());
        let broadcast = found.coordinator.open(EVERYBODY).unwrap();
        let method = found.coordinator.federation().method.clone();
        let trainable = found.coordinator.federation().model.layout().trainable().to_vec();
        let mut larger = 0;
        for k in 0..CLIENTS.len() {
            let done = found.client(&*method, &broadcast, k).unwrap();
            larger += usize::from(drift(&broadcast.global, &done.upload.params, &trainable) > norm);
            found.coordinator.fold(done.upload).unwrap();
        }
        // The client without samples does not move.
        assert_eq!((larger, found.coordinator.clipped()), (CLIENTS.len() - 1, Some(CLIENTS.len() - 1)));
        found.coordinator.close().unwrap();
        assert_eq!(found.coordinator.clipped(), None);
        let moved = drift(&broadcast.global, found.coordinator.global(), &trainable);
        // No combination of updates of this norm is longer, except a coordinate-wise one.
        let most = if matches!(rule, Rule::Mean | Rule::Krum { .. }) { norm } else { 6.0 * norm };
        assert!(moved > 0.0 && moved <= 1.0001 * most, "{rule:?} {moved}");
    }
}

#[test]
fn noise_at_the_client_is_the_last_thing_before_the_upload() {
    let (norm, multiplier) = (0.05, 0.3);
    let noise = Some(Noise { multiplier, at: NoiseAt::Client });
    let method = around(Arc::new(Moon::default()), Rule::Mean, norm, noise);
    let clipped = around(Arc::new(Moon::default()), Rule::Mean, norm, None);
    let mut found = run(method.clone(), plain_model());
    let broadcast = found.coordinator.open(EVERYBODY).unwrap();
    let layout = found.coordinator.federation().model.layout().clone();
    for k in 0..CLIENTS.len() {
        let done = found.client(&*method, &broadcast, k).unwrap();
        let plain = found.client(&*clipped, &broadcast, k).unwrap();
        assert_eq!(done.memory, plain.memory, "what a client remembers has no noise: it does not leave");
        let (upload, before) = (&done.upload, &plain.upload.params);
        assert_eq!((upload.examples, upload.steps, &upload.terms), (0, 0, &TermMeans::default()));
        let scale = (norm / drift(&broadcast.global, before, layout.trainable())).min(1.0);
        let mut rng = stream(SEED, Purpose::Privacy, 0, k as u64, 0);
        let drawn = std::iter::repeat_with(|| normal_pair(&mut rng)).flatten();
        for (i, drawn) in layout.trainable()[0].clone().zip(drawn) {
            let (from, to, noisy) = (f64::from(broadcast.global[i]), f64::from(before[i]), upload.params[i]);
            let expected = from + scale * (to - from) + multiplier * norm * f64::from(drawn);
            assert!((f64::from(noisy) - expected).abs() < 1e-6, "client {k}: {noisy} {expected}");
        }
        // As in every repetition.
        assert_eq!(found.client(&*method, &broadcast, k).unwrap(), done);
        found.coordinator.fold(done.upload.clone()).unwrap();
    }
    assert_eq!(found.coordinator.clipped(), None, "the server clips nothing that has noise");
}

#[test]
fn every_method_that_can_be_private_is() {
    let model = plain_model();
    let mut refused = Vec::new();
    for entry in entries() {
        for at in [NoiseAt::Server, NoiseAt::Client] {
            let method = entry.build(&Table::new(), "method", &mut ()).unwrap().method;
            if refusal(&*method, &model, at).is_some() {
                refused.push((entry.id, at));
                continue;
            }
            let noise = Some(Noise { multiplier: 0.01, at });
            let [found, again] = [0; 2].map(|_| run(around(method.clone(), Rule::Mean, 0.1, noise), model.clone()));
            let (found, again) = (found.rounds(3), again.rounds(3));
            let plain = run(method, model.clone()).rounds(3);
            assert!(found.globals == again.globals && found.globals != plain.globals, "{} {at:?}", entry.id);
            assert!(found.globals.iter().all(|global| global.iter().all(|w| w.is_finite())), "{} {at:?}", entry.id);
        }
    }
    let both = ["fedcurv", "fednova", "scaffold", "feddistill-plus", "fedgen"];
    let both = both.into_iter().flat_map(|id| [(id, NoiseAt::Server), (id, NoiseAt::Client)]);
    assert_eq!(refused, both.chain([("feddf", NoiseAt::Server), ("fedelity", NoiseAt::Server)]).collect::<Vec<_>>());
}
