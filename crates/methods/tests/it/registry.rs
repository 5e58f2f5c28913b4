//! Checks over every method of the registry: where it equals FedAvg bit for bit, that its gradient is the derivative of
//! its loss, that no number breaks it. A new method is tested here before it has tests of its own.

use std::sync::Arc;

use crate::federation::{
    AUXILIARY, CLIENTS, EVERYBODY, Holds, LACKING, TestRun, batch_norm_model, smooth_model, training,
};
use crate::golden::SplitMix;
use crate::tutorial::Mine;
use fedelity_fl::{Broadcast, Coordinator, Extra, Method, Payload, Presence, ServerState, Training};
use fedelity_keys::toml::{Table, Value};
use fedelity_keys::{AtZero, Key, KeyError, ValueType};
use fedelity_methods::{Adaptive, Built, Composed, FedAvg, Rule, ServerOptimizer, build, find};
pub(crate) use fedelity_methods::{Entry, Hyper, Identity};
use fedelity_nn::{InputShape, Model, ModelSpec, Params, zoo};

/// All methods, and the one that the documentation adds.
fn entries() -> Vec<Entry> {
    fedelity_methods::entries().iter().copied().chain([Mine::ENTRY]).collect()
}

fn built(entry: &Entry, settings: &Table) -> Result<Built, KeyError> {
    entry.build(settings, "method", &mut ())
}

fn method(entry: &Entry, settings: &Table) -> Arc<dyn Method> {
    built(entry, settings).unwrap().method
}

fn default(entry: &Entry) -> Arc<dyn Method> {
    method(entry, &Table::new())
}

/// A run with exactly what the method requires of the server.
fn run(method: Arc<dyn Method>, model: Arc<Model>) -> TestRun {
    let holds = Holds::needed_by(&*method);
    TestRun::new(method, model, training(), holds).unwrap()
}

fn fedavg(model: Arc<Model>) -> TestRun {
    run(Arc::new(FedAvg {}), model)
}

// Where a method is FedAvg.

/// All keys at 0 that make it FedAvg.
fn off(entry: &Entry) -> Table {
    entry.coefficients().iter().map(|key| (key.to_string(), Value::Integer(0))).collect()
}

#[test]
fn every_method_equals_fedavg_exactly_where_declared() {
    for model in [smooth_model(), batch_norm_model()] {
        let plain = fedavg(model.clone()).rounds(3);
        for entry in &entries() {
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
                Identity::Unknown => panic!("{id}: nobody says where it is FedAvg"),
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

/// With its coefficients at 0, a method's hooks move no weights even if called, up to rounding.
#[test]
fn hooks_vanish_with_their_coefficients() {
    for model in [smooth_model(), batch_norm_model()] {
        let plain = fedavg(model.clone()).rounds(3);
        for entry in entries().iter().filter(|entry| entry.identity == Identity::KeysAtZero) {
            let found = run(entry.hooks(&off(entry)).unwrap(), model.clone()).rounds(3);
            let pairs = || found.globals.iter().zip(&plain.globals).flat_map(|(a, b)| a.iter().zip(b.iter()));
            let apart = pairs().fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(apart < 1e-6 && pairs().count() > 100, "{}: {apart}", entry.id);
        }
    }
}

/// The same weights, losses and traffic; nothing is required, stored or remembered.
fn is_fedavg(id: &str, method: Arc<dyn Method>, plain: &TestRun) {
    let needs = method.needs();
    let asked = [needs.auxiliary, needs.validation, needs.unlabelled, needs.each_upload, needs.client_memory];
    assert!(asked == [false; 5] && !needs.label_counts_leave_client && needs.extra_passes == 0, "{id}: {needs:?}");
    let found = run(method, plain.coordinator.federation().model.clone()).rounds(3);
    assert!(found.story() == plain.story(), "{id}: with its coefficients at 0 it is not FedAvg");
    assert!(found.coordinator.state().is_empty() && found.memories.is_empty(), "{id}");
}

#[test]
fn the_teacher_cache_changes_no_bit_of_any_method() {
    for entry in &entries() {
        let run = |teacher_cache| {
            let method = default(entry);
            let (holds, training) = (Holds::needed_by(&*method), Training { teacher_cache, ..training() });
            TestRun::new(method, batch_norm_model(), training, holds).unwrap().rounds(3)
        };
        assert!(run(true).story() == run(false).story(), "{}", entry.id);
    }
}

// What is sent.

#[test]
fn what_travels_is_what_was_declared() {
    let model = batch_norm_model();
    for entry in &entries() {
        for settings in std::iter::once(Table::new()).chain(variants(entry)) {
            let method = method(entry, &settings);
            let (down, up) = (method.receives(&model), method.sends(&model));
            let mut run = run(method.clone(), model.clone());
            // Anything undeclared is refused; until buffers are full, less may be sent.
            for round in 0..9 {
                let broadcast = run.coordinator.open(EVERYBODY).unwrap();
                let done = run.client(&*method, &broadcast, 0).unwrap();
                for (declared, payload) in [(&down, &broadcast.payload), (&up, &done.upload.extra)] {
                    let missing = declared.iter().filter(|extra| payload.opt(&extra.name).is_none());
                    assert!(missing.clone().all(|extra| extra.presence != Presence::Always), "{}", entry.id);
                    let numbers: usize = payload.iter().map(|(_, values)| values.len()).sum();
                    let whole: usize = declared.iter().map(|extra| extra.len).sum();
                    assert!(numbers == whole || round < 8 && numbers < whole, "{} {settings}: {numbers}", entry.id);
                }
                run.coordinator.abandon();
                run.round();
            }
            assert_eq!(method.needs().label_counts_leave_client, up.iter().any(|extra| extra.name == "label-counts"));
        }
    }
}

/// Numbers sent in the later rounds according to the papers, with P weights and K classes.
#[test]
fn declarations_are_what_the_papers_say() {
    let input = InputShape::Image { channels: 1, height: 28, width: 28 };
    let model =
        Model::compile(&zoo::build(&ModelSpec::new("simple-cnn", false), input, 10).unwrap(), fedelity_nn::cpu());
    let model = model.unwrap();
    let (p, k, features) = (model.layout().len(), model.classes(), model.features());
    // Where the paper leaves it open: a model's vote (VOTE) and which labels exist (FedGen) are sent too. The generator
    // has one hidden layer of 256 with batch normalisation and 32 noise inputs.
    let generator = (k + 32) * 256 + 256 + 4 * 256 + 256 * features + features;
    let papers = [
        ("fedavg", 0, 0),
        ("fedprox", 0, 0),
        ("fedcurv", 2 * p, 2 * p),
        ("fednova", 0, 1),
        ("scaffold", p, p),
        ("moon", 0, 0),
        ("fedlsd", 0, 0),
        ("fedntd", 0, 0),
        ("fedcad", k, 0),
        ("fedssd", k * k, 0),
        ("feddistill", 0, 0),
        // With the default buffer of one model.
        ("fedgkd", 0, 0),
        ("fedgkd-vote", 4 * p + 5, 0),
        ("fedgkd-plus", 0, 0),
        ("feddistill-plus", k * k + k, k * k + k),
        ("fedgen", generator + k, k),
        ("feddf", 0, 0),
        ("fedelity", 0, 0),
    ];
    for (id, down, up) in papers {
        let method = build(id, &Table::new()).unwrap().method;
        let numbers = |declared: Vec<Extra>| declared.iter().map(|extra| extra.len).sum::<usize>();
        assert_eq!((numbers(method.receives(&model)), numbers(method.sends(&model))), (down, up), "{id}");
    }
}

// Abandoned rounds.

#[test]
fn an_abandoned_round_leaves_no_trace() {
    let median =
        |method| Composed::around(method, Rule::Median, ServerOptimizer::FedAvgM { lr: 0.5, momentum: 0.9 }, None);
    for entry in &entries() {
        for method in [default(entry), median(default(entry))] {
            let mut interrupted = run(method.clone(), batch_norm_model());
            for _ in 0..4 {
                let before = interrupted.coordinator.kept().clone();
                for uploads in 0..=CLIENTS.len() {
                    let broadcast = interrupted.coordinator.open(EVERYBODY).unwrap();
                    for k in 0..uploads {
                        let done = interrupted.client(&*method, &broadcast, k).unwrap();
                        interrupted.coordinator.accept(done.upload).unwrap().unwrap();
                    }
                    interrupted.coordinator.abandon();
                    assert!(*interrupted.coordinator.kept() == before, "{}", entry.id);
                }
                interrupted.round();
            }
            let plain = run(method, batch_norm_model()).rounds(4);
            assert!(interrupted.story() == plain.story(), "{}", entry.id);
            assert!(interrupted.coordinator.state() == plain.coordinator.state(), "{}", entry.id);
            assert!(interrupted.memories == plain.memories, "{}", entry.id);
        }
    }
}

// Gradients.

/// Keys whose term stops the gradient at the student's own head, so it is not the derivative there.
const STOPPED: &[(&str, &str)] = &[("fedgen", "beta")];

/// Further settings that combine switches and words.
const VARIANTS: &[(&str, &str)] = &[
    ("fedcad", "beta = 0.2\ngamma = 0.9\ntau-squared = true"),
    ("fedssd", "m-max = 0.9\nweight = \"squared\"\ncredibility = \"soft\""),
    ("feddistill", "alpha-true = 1.0\nalpha-rich = \"pnt\"\nalpha-few = \"pnt\""),
    ("feddistill", "alpha-true = 1.0\nalpha-rich = \"pnt\"\nalpha-few = \"pnt\"\nexact = true"),
    ("feddistill", "beta-logits = 0.0\nbeta-classifier = 0.0"),
    ("feddistill", "beta-logits = 0.0\nbeta-extractor = 0.0"),
    ("fedgkd", "loss = \"mse\"\nbuffer = 2"),
];

/// Each switch flipped and each non-default word, one at a time; then the method's variants.
fn variants(entry: &Entry) -> Vec<Table> {
    let mut all = Vec::new();
    for key in entry.schema.keys {
        let default = key.default.unwrap_or_default().trim_matches('"');
        let types = if let ValueType::Either(types) = key.value { types } else { &[key.value] };
        let mut set = |value: Value| all.push(Table::from_iter([(key.name.to_string(), value)]));
        for one in types {
            match one {
                ValueType::Flag => set(Value::from(default != "true")),
                ValueType::Word(words) => {
                    words.iter().filter(|word| **word != default).for_each(|word| set(Value::from(*word)));
                }
                _ => {}
            }
        }
    }
    let own = VARIANTS.iter().filter(|(id, _)| *id == entry.id);
    all.extend(own.map(|(_, text)| text.parse::<Table>().unwrap()));
    all
}

/// The defaults with every temperature away from 1, then with every coefficient much larger, then the variants; each
/// with whether all weights can be compared, or only the extractor's.
fn settings(entry: &Entry) -> Vec<(Table, bool)> {
    let defaults = built(entry, &Table::new()).unwrap().keys;
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
            built(entry, &tried).is_ok()
        });
        strong.extend(fits);
    }
    let variants = variants(entry).into_iter().map(|variant| strong.clone().into_iter().chain(variant).collect());
    let all: Vec<Table> = [warm, strong.clone()].into_iter().chain(variants).collect();
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

/// The loss of client `k` at `w` beyond FedAvg's cross-entropy, and its gradient.
///
/// A method's own term is compared separately: next to the cross-entropy, mistakes in a small term would be hidden.
fn own(run: &mut TestRun, method: &dyn Method, broadcast: &Broadcast, k: usize, w: &[f32]) -> (f64, Vec<f64>) {
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
    for entry in &entries() {
        let coefficients = entry.coefficients();
        let mut last: Option<(Table, TestRun, Broadcast)> = None;
        for (settings, whole) in settings(entry) {
            // Memories and buffers fill with the coefficients at their defaults, so that nothing diverges.
            let mut calm = settings.clone();
            calm.retain(|key, _| !coefficients.contains(&key));
            if last.as_ref().is_none_or(|(table, ..)| *table != calm) {
                let mut run = run(method(entry, &calm), model.clone()).rounds(3);
                let broadcast = run.coordinator.open(EVERYBODY).unwrap();
                last = Some((calm, run, broadcast));
            }
            let (_, run, broadcast) = last.as_mut().unwrap();
            compare(run, &*method(entry, &settings), broadcast, whole);
        }
    }
}

/// Compares every client's gradient with finite differences of its loss, tensor by tensor.
fn compare(run: &mut TestRun, method: &dyn Method, broadcast: &Broadcast, whole: bool) {
    let model = run.coordinator.federation().model.clone();
    let (mut rng, mut largest, mut trains) = (SplitMix(7), 0.0_f64, false);
    let plain = Broadcast { payload: Payload::new(), ..broadcast.clone() };
    // Clients that lack classes, hold one class, hold one sample.
    for k in (0..CLIENTS.len()).filter(|&k| !CLIENTS[k].is_empty()) {
        let upload = run.client(method, broadcast, k).unwrap().upload.params;
        trains |= upload != run.client(&FedAvg {}, &plain, k).unwrap().upload.params;
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
    // Every method that trains differently from FedAvg has been compared.
    assert_eq!(trains, largest > 1e-5, "{method:?}: {largest}");
}

// Numbers that break things.

/// The weights with a head so large that logits exceed +-80.
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
    for entry in &entries() {
        let methods: Vec<_> = settings(entry).into_iter().map(|(settings, _)| method(entry, &settings)).collect();
        for auxiliary in [AUXILIARY, LACKING] {
            let holds = Holds { auxiliary, ..Holds::ALL };
            let mut run = TestRun::new(default(entry), model.clone(), training(), holds).unwrap().rounds(2);
            for (teacher, student) in [(300.0, 300.0), (300.0, -300.0), (-3e4, 1.0), (1.0, 3e4)] {
                // The server works with such weights too, and clients receive the result.
                let global = extreme(&model, run.coordinator.global(), teacher);
                let federation = run.coordinator.federation().clone();
                let kept = ServerState { global: Arc::new(global), ..run.coordinator.kept().clone() };
                let broadcast = Coordinator::resume(federation, kept).unwrap().open(EVERYBODY).unwrap();
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

fn largest_logit(run: &mut TestRun, weights: &[f32]) -> f32 {
    let (held, mut top) = (run.held(), 0.0_f32);
    let samples = held.unlabelled.as_ref().unwrap().samples();
    run.trainer.evaluate(weights, samples, &mut |outputs, _| {
        top = outputs.logits.iter().fold(top, |top, z| top.max(z.abs()));
    });
    top
}

// With a rule and an optimiser of the server around them.

#[test]
fn every_method_works_with_every_rule_and_server_optimizer() {
    let rules = [
        (Rule::Mean, ServerOptimizer::FedAdam(Adaptive::default())),
        (Rule::Median, ServerOptimizer::FedAvgM { lr: 0.5, momentum: 0.9 }),
        (Rule::TrimmedMean { trim: 0.2 }, ServerOptimizer::None),
        (Rule::Krum { byzantine: 1, keep: 1 }, ServerOptimizer::None),
        (Rule::Krum { byzantine: 1, keep: 3 }, ServerOptimizer::FedYogi(Adaptive::default())),
    ];
    for entry in &entries() {
        let plain = run(default(entry), batch_norm_model()).rounds(3).coordinator.open(EVERYBODY).unwrap().payload;
        for (rule, optimizer) in rules {
            let mut found = run(Composed::around(default(entry), rule, optimizer, None), batch_norm_model());
            for _ in 0..3 {
                found.round_of(EVERYBODY);
            }
            let finite = found.globals.iter().all(|global| global.iter().all(|w| w.is_finite()));
            assert!(finite, "{} {rule:?} {optimizer:?}", entry.id);
            // The optimiser's moments in the state are not mistaken for the method's own.
            let payload = found.coordinator.open(EVERYBODY).unwrap().payload;
            assert_eq!(payload.bytes(), plain.bytes(), "{} {rule:?} {optimizer:?}", entry.id);
        }
    }
}

// Keys.

#[test]
fn every_entry_is_described() {
    for entry in &entries() {
        let found = find(entry.id).map(|found| found.id);
        assert_eq!(found, (entry.id != Mine::ENTRY.id).then_some(entry.id));
        assert_eq!(default(entry).name(), entry.id);
        assert_eq!(entry.needs(), default(entry).needs());
        for text in [entry.summary, entry.reference, entry.equation, entry.helps] {
            assert!(!text.is_empty() && !text.contains('\n'), "{}", entry.id);
        }
        let coefficients = !entry.coefficients().is_empty();
        assert_eq!(entry.identity == Identity::KeysAtZero, coefficients, "{}", entry.id);
        entry.schema.keys.iter().for_each(|key| at_zero(entry, key));
    }
}

/// Whether a key's statement about 0 holds for the value 0; its effect is tested elsewhere.
fn at_zero(entry: &Entry, key: &Key) {
    let zero = Table::from_iter([(key.name.to_string(), Value::Integer(0))]);
    // Other keys may have to be 0 as well.
    let given = if key.at_zero() == AtZero::FedAvg { off(entry) } else { zero };
    let allowed = matches!(key.at_zero(), AtZero::FedAvg | AtZero::Does(_));
    let found = built(entry, &given);
    assert_eq!(found.is_ok(), allowed, "{}.{}: {found:?}", entry.id, key.name);
    assert!(key.at_zero() != AtZero::Does(""), "{}.{}: what does it do at 0?", entry.id, key.name);
}

#[test]
fn errors_name_the_key() {
    for entry in &entries() {
        let error = built(entry, &"stray = 1".parse().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("unknown key 'method.stray'"), "{error}");
        for key in entry.schema.keys {
            let wrong = Table::from_iter([(key.name.to_string(), Value::Array(vec![]))]);
            let error = built(entry, &wrong).unwrap_err();
            assert_eq!(error.key, format!("method.{}", key.name), "{error}");
            if key.at_zero() != AtZero::None {
                let nan = Table::from_iter([(key.name.to_string(), Value::Float(f64::NAN))]);
                assert!(built(entry, &nan).is_err(), "{}.{}", entry.id, key.name);
            }
        }
    }
    let error = build("fedprocks", &Table::new()).unwrap_err().to_string();
    assert!(error.starts_with("method.name = \"fedprocks\": expected one of fedavg, fedprox"), "{error}");
    let message = |name, text: &str| build(name, &text.parse().unwrap()).unwrap_err().to_string();
    assert_eq!(
        message("feddistill", "alpha-few = \"all\""),
        "method.alpha-few = \"all\": expected a finite number of at least 0, or \"pnt\""
    );
    let allowed = "expected a finite number of at least 0, or \"pnt\"";
    assert_eq!(message("feddistill", "alpha-few = -0.5"), format!("method.alpha-few = -0.5: {allowed}"));
    assert_eq!(
        message("fedgkd-vote", "beta = \"1/n\""),
        "method.beta = \"1/n\": expected a finite number above 0, or \"1/m\""
    );
    let allowed = "expected a finite number above 0, or \"1/m\"";
    assert_eq!(message("fedgkd-vote", "beta = 0"), format!("method.beta = 0: {allowed}"));
    assert_eq!(message("fedcad", "beta = 0.6"), "method.gamma = 0.5: expected at least beta, which is 0.6");
    assert_eq!(message("fedgkd-plus", "gamma = -1"), "method.gamma = -1: expected a finite number of at least 0");
    assert_eq!(message("fedssd", "weight = \"cubed\""), "method.weight = \"cubed\": expected one of linear, squared");
}

#[test]
fn numbers_and_words_keep_their_defaults() {
    let found = build("feddistill", &"alpha-true = 1\nalpha-rich = \"pnt\"\nexact = true".parse().unwrap()).unwrap();
    let expected = "alpha-few = 1.0\nalpha-rich = \"pnt\"\nalpha-true = 1\nbeta-classifier = 0.3\n\
                    beta-extractor = 0.3\nbeta-logits = 1.0\nexact = true\n";
    assert_eq!(found.keys.to_string(), expected);
    let again = build("feddistill", &found.keys).unwrap();
    assert_eq!(format!("{:?}", again.method), format!("{:?}", found.method));
    assert_eq!(build("fedgkd-vote", &Table::new()).unwrap().keys["beta"].as_str(), Some("1/m"));
}

/// What papers write and what a configuration says are the same name.
#[test]
fn titles_are_the_names_in_papers() {
    for entry in entries() {
        let spelled = entry.title.to_lowercase().replace('+', "-plus");
        assert_eq!(spelled, entry.id);
        assert!(entry.title.chars().any(char::is_uppercase), "{}", entry.title);
    }
    let mut titles: Vec<&str> = entries().iter().map(|entry| entry.title).collect();
    titles.sort_unstable();
    titles.dedup();
    assert_eq!(titles.len(), entries().len());
}
