//! Every method of the registry, in one loop each: where it is FedAvg bit for bit, that its gradient is the derivative of
//! its loss, that no number breaks it. A new method is tested here before it has a test of its own.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::SplitMix;
use common::federation::{
    AUXILIARY, CLIENTS, EVERYBODY, Holds, LACKING, Run, batch_norm_model, smooth_model, training,
};
use fedelity_fl::{Broadcast, Coordinator, Method, Payload, Training};
use fedelity_methods::{AtZero, Composed, Entry, FedAvg, Identity, Rule, ServerOptimizer, build, entries};
use fedelity_nn::{Model, Params};
use toml::{Table, Value};

fn method(entry: &Entry, settings: &Table) -> Arc<dyn Method> {
    entry.build(settings).unwrap().method
}

fn default(entry: &Entry) -> Arc<dyn Method> {
    method(entry, &Table::new())
}

/// A run with what the method asks the server for, and nothing else.
fn run(method: Arc<dyn Method>, model: Arc<Model>) -> Run {
    let holds = Holds::needed_by(&*method);
    Run::new(method, model, training(), holds).unwrap()
}

fn fedavg(model: Arc<Model>) -> Run {
    run(Arc::new(FedAvg {}), model)
}

// Where a method is FedAvg.

/// All keys at 0 that make it FedAvg.
fn off(entry: &Entry) -> Table {
    let defaults = entry.defaults().unwrap();
    let zero = |key: &&str| match defaults[*key] {
        Value::Integer(_) => Value::Integer(0),
        _ => Value::Float(0.0),
    };
    entry.coefficients().iter().map(|key| (key.to_string(), zero(key))).collect()
}

#[test]
fn every_method_is_fedavg_where_it_says_so_and_nowhere_else() {
    for model in [smooth_model(), batch_norm_model()] {
        let plain = fedavg(model.clone()).rounds(3);
        for entry in entries() {
            let id = entry.id;
            let on = run(default(entry), model.clone()).rounds(3);
            assert!(on.losses.iter().all(|loss| loss.is_finite()), "{id}");
            assert_eq!(on.globals == plain.globals, entry.identity == Identity::Always, "{id}: at its defaults");
            match entry.identity {
                Identity::Always | Identity::KeysAtZero => is_fedavg(id, method(entry, &off(entry)), &plain),
                Identity::FirstRound => {
                    assert!(on.globals[..2] == plain.globals[..2], "{id}: its first round is not FedAvg's");
                    assert_eq!(on.traffic[0].0, plain.traffic[0].0, "{id}");
                }
                Identity::EqualSteps => {
                    let (mut equal, mut plain) = (run(default(entry), model.clone()), fedavg(model.clone()));
                    for _ in 0..3 {
                        equal.round_of(&[0, 1, 2]);
                        plain.round_of(&[0, 1, 2]);
                    }
                    assert!(equal.globals == plain.globals, "{id}: with equal steps it is not FedAvg");
                }
            }
        }
    }
}

/// The same weights, losses and traffic; nothing is asked for, kept or remembered.
fn is_fedavg(id: &str, method: Arc<dyn Method>, plain: &Run) {
    let needs = method.needs();
    let asked = [needs.auxiliary, needs.validation, needs.unlabelled, needs.each_upload, needs.client_memory];
    assert!(asked == [false; 5] && !needs.label_counts_leave_client && needs.extra_passes == 0, "{id}: {needs:?}");
    let found = run(method, plain.coordinator.federation().model.clone()).rounds(3);
    assert!(found.story() == plain.story(), "{id}: with its coefficients at 0 it is not FedAvg");
    assert!(found.coordinator.state().is_empty() && found.memories.iter().all(Payload::is_empty), "{id}");
}

#[test]
fn the_teacher_cache_changes_no_bit_of_any_method() {
    for entry in entries() {
        let run = |teacher_cache| {
            let method = default(entry);
            let (holds, training) = (Holds::needed_by(&*method), Training { teacher_cache, ..training() });
            Run::new(method, batch_norm_model(), training, holds).unwrap().rounds(3)
        };
        assert!(run(true).story() == run(false).story(), "{}", entry.id);
    }
}

// Gradients.

/// Keys whose term holds the student's own head still: it is no derivative by the head, and none is wanted.
const STOPPED: &[(&str, &str)] = &[("fedgen", "beta")];

/// Further settings, where a method has words and switches.
const VARIANTS: &[(&str, &str)] = &[
    ("fedlsd", "tau-squared = true"),
    ("fedcad", "beta = 0.2\ngamma = 0.9\ntau-squared = true"),
    ("fedssd", "m-max = 0.9\nweight = \"squared\"\ncredibility = \"soft\""),
    ("feddistill", "alpha-true = 1.0\nalpha-rich = \"pnt\"\nalpha-few = \"pnt\""),
    ("feddistill", "alpha-true = 1.0\nalpha-rich = \"pnt\"\nalpha-few = \"pnt\"\nexact = true"),
    ("feddistill", "beta-logits = 0.0\nbeta-classifier = 0.0"),
    ("feddistill", "beta-logits = 0.0\nbeta-extractor = 0.0"),
    ("fedgkd", "loss = \"mse\"\nbuffer = 2"),
    ("feddistill-plus", "uniform-teacher = true"),
];

/// The defaults with every temperature away from 1, then with every coefficient much larger, then the variants; each
/// with whether all weights can be compared, or those of the extractor only.
fn settings(entry: &Entry) -> Vec<(Table, bool)> {
    let defaults = entry.defaults().unwrap();
    let mut warm = Table::new();
    for key in ["tau", "temperature"].into_iter().filter(|key| defaults.contains_key(*key)) {
        warm.insert(key.into(), Value::Float(1.7));
    }
    let mut strong = warm.clone();
    for key in entry.coefficients() {
        let Some(value) = defaults[key].as_float() else { continue };
        let larger = [30.0, 1.8].map(|factor| (key.to_string(), Value::Float(factor * value)));
        let fits = larger.into_iter().find(|set| {
            let tried: Table = strong.clone().into_iter().chain([set.clone()]).collect();
            entry.build(&tried).is_ok()
        });
        strong.extend(fits);
    }
    let mut all = vec![warm.clone(), strong];
    let variants = VARIANTS.iter().filter(|(id, _)| *id == entry.id);
    all.extend(variants.map(|(_, text)| warm.clone().into_iter().chain(text.parse::<Table>().unwrap()).collect()));
    match STOPPED.iter().find(|(id, _)| *id == entry.id) {
        None => all.into_iter().map(|settings| (settings, true)).collect(),
        Some((_, key)) => {
            let without = |mut settings: Table| {
                settings.insert(key.to_string(), Value::Float(0.0));
                (settings, true)
            };
            let whole: Vec<_> = all.iter().cloned().map(without).collect();
            all.into_iter().map(|settings| (settings, false)).chain(whole).collect()
        }
    }
}

/// The loss of client `k` at `w` beyond the cross-entropy of FedAvg, and its gradient.
///
/// What a method adds is compared by itself: next to the cross-entropy a small term would hide its mistakes.
fn own(run: &mut Run, method: &dyn Method, broadcast: &Broadcast, k: usize, w: &[f32]) -> (f64, Vec<f64>) {
    let sum = |terms: fedelity_fl::Terms| terms.iter().map(|(_, value)| f64::from(value)).sum::<f64>();
    let (terms, grad) = run.gradient(method, broadcast, k, w);
    let (plain, plain_grad) = run.gradient(&FedAvg {}, broadcast, k, w);
    let grad = grad.iter().zip(plain_grad).map(|(g, plain)| f64::from(*g) - f64::from(plain)).collect();
    (sum(terms) - sum(plain), grad)
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn every_gradient_is_the_derivative_of_its_loss_through_a_whole_network() {
    let model = smooth_model();
    for entry in entries() {
        let coefficients = entry.coefficients();
        let mut last: Option<(Table, Run, Broadcast)> = None;
        for (settings, whole) in settings(entry) {
            // Memories and buffers fill under the defaults of the coefficients, so that nothing diverges.
            let mut calm = settings.clone();
            calm.retain(|key, _| !coefficients.contains(&key));
            if last.as_ref().is_none_or(|(table, ..)| *table != calm) {
                let mut run = run(method(entry, &calm), model.clone()).rounds(3);
                let broadcast = run.coordinator.open().unwrap();
                last = Some((calm, run, broadcast));
            }
            let (_, run, broadcast) = last.as_mut().unwrap();
            compare(run, &*method(entry, &settings), broadcast, whole);
        }
    }
}

/// Whether the gradient of every client is what differences of its loss say, tensor by tensor.
fn compare(run: &mut Run, method: &dyn Method, broadcast: &Broadcast, whole: bool) {
    let model = run.coordinator.federation().model.clone();
    let (mut rng, mut largest, mut trains) = (SplitMix(7), 0.0_f64, false);
    // Clients that lack classes, hold one class, hold one sample.
    for k in (0..CLIENTS.len()).filter(|&k| !CLIENTS[k].is_empty()) {
        let upload = run.client(method, broadcast, k).unwrap().upload.params;
        trains |= upload != run.client(&FedAvg {}, broadcast, k).unwrap().upload.params;
        // Away from the teacher.
        let w: Vec<f32> = broadcast.global.iter().map(|w| w + 0.3 * rng.symmetric() as f32).collect();
        let grad = own(run, method, broadcast, k, &w).1;
        let size = norm(&grad);
        largest = largest.max(size);
        for tensor in model.layout().tensors().iter().filter(|tensor| whole || !tensor.name.starts_with("fc")) {
            let mut along = vec![0.0; w.len()];
            along[tensor.range()].fill_with(|| rng.symmetric());
            let length = norm(&along);
            let mut at = |by: f64| {
                let moved = w.iter().zip(&along).map(|(w, d)| (f64::from(*w) + by * d / length) as f32);
                own(run, method, broadcast, k, &moved.collect::<Vec<_>>()).0
            };
            let h = 0.04;
            let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            let expected = grad.iter().zip(&along).map(|(g, d)| g * d).sum::<f64>() / length;
            let name = &tensor.name;
            assert!(
                (slope - expected).abs() < 1e-3 * size + 1e-6,
                "{method:?}, client {k}, {name}: {slope} for {expected} of {size}"
            );
        }
    }
    // Whoever trains otherwise than FedAvg has been compared.
    assert_eq!(trains, largest > 1e-5, "{method:?}: {largest}");
}

// Numbers that break things.

/// The weights with a head so large that logits lie beyond +-80.
fn extreme(model: &Model, params: &[f32], factor: f32) -> Params {
    let mut params = params.to_vec();
    for tensor in model.layout().tensors().iter().filter(|tensor| tensor.name.starts_with("fc")) {
        params[tensor.range()].iter_mut().for_each(|w| *w *= factor);
    }
    Params(params)
}

#[test]
fn logits_beyond_80_and_absent_classes_give_finite_losses_and_gradients() {
    let (model, finite) = (smooth_model(), |values: &[f32]| values.iter().all(|value| value.is_finite()));
    for entry in entries() {
        let methods: Vec<_> = settings(entry).into_iter().map(|(settings, _)| method(entry, &settings)).collect();
        for auxiliary in [AUXILIARY, LACKING] {
            let holds = Holds { auxiliary, ..Holds::ALL };
            let mut run = Run::new(default(entry), model.clone(), training(), holds).unwrap().rounds(2);
            for (teacher, student) in [(300.0, 300.0), (300.0, -300.0), (-3e4, 1.0), (1.0, 3e4)] {
                // The server works with such weights too, and clients receive what it makes of them.
                let global = extreme(&model, run.coordinator.global(), teacher);
                let (federation, state) = (run.coordinator.federation().clone(), run.coordinator.state().clone());
                let broadcast = Coordinator::resume(federation, 2, global, state).unwrap().open().unwrap();
                for (name, values) in broadcast.payload.iter() {
                    assert!(finite(values), "{}: {name}", entry.id);
                }
                let w = extreme(&model, &run.globals[1], student);
                assert!(largest_logit(&mut run, &w).max(largest_logit(&mut run, &broadcast.global)) > 80.0);
                for method in &methods {
                    for k in (0..CLIENTS.len()).filter(|&k| !CLIENTS[k].is_empty()) {
                        let (terms, grad) = run.gradient(&**method, &broadcast, k, &w);
                        assert!(terms.total().is_finite() && finite(&grad), "{method:?}, client {k}: {terms:?}");
                    }
                }
            }
        }
    }
}

fn largest_logit(run: &mut Run, weights: &[f32]) -> f32 {
    let (held, mut top) = (run.held(), 0.0_f32);
    let samples = held.unlabelled.as_ref().unwrap().samples();
    run.trainer.evaluate(weights, samples, &mut |outputs, _| {
        top = outputs.logits.iter().fold(top, |top, z| top.max(z.abs()));
    });
    top
}

// With a rule and an optimiser of the server around them.

#[test]
fn every_method_goes_with_every_rule_and_server_optimizer() {
    let (lr, beta1, beta2, tau) = (0.01, 0.9, 0.99, 1e-3);
    let rules = [
        (Rule::Mean, ServerOptimizer::FedAdam { lr, beta1, beta2, tau }),
        (Rule::Median, ServerOptimizer::FedAvgM { lr: 0.5, momentum: 0.9 }),
        (Rule::TrimmedMean { trim: 0.2 }, ServerOptimizer::None),
        (Rule::Krum { byzantine: 1, keep: 1 }, ServerOptimizer::None),
        (Rule::Krum { byzantine: 1, keep: 3 }, ServerOptimizer::FedYogi { lr, beta1, beta2, tau }),
    ];
    for entry in entries() {
        let plain = run(default(entry), batch_norm_model()).rounds(3).coordinator.open().unwrap().payload;
        for (rule, optimizer) in rules {
            let mut found = run(Composed::around(default(entry), rule, optimizer), batch_norm_model());
            for _ in 0..3 {
                found.round_of(EVERYBODY);
            }
            let finite = found.globals.iter().all(|global| global.iter().all(|w| w.is_finite()));
            assert!(finite, "{} {rule:?} {optimizer:?}", entry.id);
            // What the optimiser remembers in the state is not taken for a part of the method's.
            let payload = found.coordinator.open().unwrap().payload;
            assert_eq!(payload.bytes(), plain.bytes(), "{} {rule:?} {optimizer:?}", entry.id);
        }
    }
}

// Keys.

#[test]
fn every_key_is_closed_and_every_stray_one_refused() {
    for entry in entries() {
        let error = build(entry.id, &"stray = 1".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("has no key 'stray'"), "{error}");
        for parameter in entry.parameters {
            let wrong = Table::from_iter([(parameter.name.to_string(), Value::Array(vec![]))]);
            let error = entry.build(&wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("method.{} = ", parameter.name)), "{error}");
            if parameter.at_zero != AtZero::None {
                let nan = Table::from_iter([(parameter.name.to_string(), Value::Float(f64::NAN))]);
                assert!(entry.build(&nan).is_err(), "{}.{}", entry.id, parameter.name);
            }
        }
    }
}
