//! The training loop, as a client runs it.

use std::sync::Arc;

use crate::common::{CLASSES, broadcast, model, params, run, scaling, split};
use fedelity_data::augment::Padding;
use fedelity_data::{Augmentation, Inputs, Split};
use fedelity_fl::{
    Evaluation, Fit, FlError, Frozen, Judge, Local, Method, Named, Objective, Outbox, Payload, Result, Samples,
    Scaling, Scratch, Site, Step, Teacher, Terms, Trained, Trainer, Training,
};
use fedelity_nn::{Model, OptimizerKind, loss};

#[derive(Debug)]
struct PlainMethod;

impl Named for PlainMethod {
    fn name(&self) -> &'static str {
        "plain"
    }
}

impl Method for PlainMethod {}

/// Half squared distance of logits and features to those of two teachers.
#[derive(Debug)]
struct Taught;

impl Named for Taught {
    fn name(&self) -> &'static str {
        "taught"
    }
}

impl Method for Taught {
    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        let other: Vec<f32> = local.global.iter().map(|w| 0.5 * w).collect();
        Ok(vec![Teacher::global(), Teacher::given(other).with_features()])
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        assert_eq!((step.teachers(), step.teacher(0).features.len()), (2, 0));
        let near = pull(step.student.logits, step.teacher(0).logits, 0.1, step.d_logits);
        let (student, teacher) = (step.student.features, step.teacher(1).features);
        let far = pull(student, teacher, 0.05, step.d_features());
        let head = step.teacher_head(0, |logits, d| pull(logits, &vec![0.3; logits.len()], 0.2, d));
        let z = step.teacher(1).features;
        let own = step.student_head(z, |logits, d| pull(logits, &vec![0.1; logits.len()], 0.2, d));
        Ok(Terms::of("ce", ce).with("near", near).with("far", far).with("head", head).with("own", own))
    }
}

fn pull(a: &[f32], b: &[f32], weight: f32, d: &mut [f32]) -> f32 {
    assert!(a.len() == b.len() && a.len() == d.len());
    let mut sum = 0.0;
    for ((a, b), d) in a.iter().zip(b).zip(d) {
        sum += 0.5 * weight * (a - b) * (a - b);
        *d += weight * (a - b);
    }
    sum
}

fn training() -> Training {
    let optimizer = OptimizerKind::Sgd { momentum: 0.9 };
    Training { epochs: 3, batch: 10, optimizer, lr: 0.01, weight_decay: 1e-3, ..Training::default() }
}

#[test]
fn the_teacher_cache_changes_no_bit() {
    for kind in ["linear", "plain", "group", "batch", "dropout"] {
        let model = model(kind);
        let global = broadcast(params(&model, 1));
        for samples in [1, 7, 23, 150] {
            let done = |teacher_cache| {
                let training = Training { teacher_cache, ..training() };
                run(&model, &Taught, &training, &global, samples).unwrap()
            };
            let (mut with, without) = (done(true), done(false));
            assert_eq!(with.upload.steps, 3 * samples.div_ceil(10));
            // Three epochs; the teachers run in each of them, or only once.
            assert_eq!(3 * with.teacher_passes, without.teacher_passes);
            with.teacher_passes = without.teacher_passes;
            assert!(with == without, "{kind}, {samples} samples");
        }
    }
}

/// What one client saw: the student's logits at the first step of each epoch, and the teacher's.
#[derive(Debug, Default)]
struct Spy(std::sync::Mutex<Vec<(Vec<f32>, Vec<f32>)>>);

impl Named for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }
}

impl Method for Spy {
    fn teachers(&self, _: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(vec![Teacher::global()])
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        self.0.lock().unwrap().push((step.student.logits.to_vec(), step.teacher(0).logits.to_vec()));
        // No gradient, so the student stays equal to the teacher.
        Ok(Terms::of("none", 0.0))
    }
}

fn augmentations() -> [Augmentation; 4] {
    let none = Augmentation::default();
    [
        Augmentation { crop: 2, flip: true, ..none },
        Augmentation { crop: 2, padding: Padding::Reflect, ..none },
        Augmentation { rotation: 15.0, flip: true, ..none },
        Augmentation { crop: 1, flip: true, rotation: 30.0, cutout: 3, ..none },
    ]
}

#[test]
fn a_teacher_sees_the_same_view_as_the_student() {
    for kind in ["linear", "plain"] {
        let model = model(kind);
        let global = broadcast(params(&model, 1));
        let seen = |augmentation, teacher_cache| {
            // A multiple of the rows that evaluation computes together, so that both passes round alike.
            let training =
                Training { augmentation, teacher_cache, epochs: 3, batch: 64, weight_decay: 0.0, ..training() };
            let spy = Spy::default();
            run(&model, &spy, &training, &global, 128).unwrap();
            spy.0.into_inner().unwrap()
        };
        let plain = seen(Augmentation::default(), true);
        for augmentation in augmentations() {
            let seen = [seen(augmentation, true), seen(augmentation, false)];
            assert!(seen[0] == seen[1], "the cache is still on");
            assert_eq!(seen[0].len(), 6);
            for (student, teacher) in &seen[0] {
                assert!(student == teacher, "{kind}, {augmentation:?}");
            }
            // A different view in every epoch, and none of them the original.
            assert!(seen[0] != plain && seen[0][0] != seen[0][2] && seen[0][2] != seen[0][4]);
        }
    }
}

#[test]
fn a_view_depends_on_the_position_in_the_client_and_nothing_else() {
    let model = model("plain");
    let (shared, scaling) = (split(60), scaling());
    let indices: Vec<u32> = (0..40).map(|i| (i * 7 + 3) % 60).collect();
    let (global, memory) = (broadcast(params(&model, 1)), Payload::new());
    let rows = |split: &Split, indices: &[u32], batch: usize, client: usize, seed: u64| {
        let training = Training { augmentation: augmentations()[3], epochs: 1, batch, ..training() };
        let (spy, samples) = (Spy::default(), Samples { split, indices, scaling: &scaling });
        let task = fedelity_fl::Task {
            method: &spy,
            training: &training,
            seed,
            client,
            samples,
            broadcast: &global,
            memory: &memory,
            secret: None,
        };
        fedelity_fl::client(&mut Trainer::new(model.clone()), &task, fedelity_nn::Params::default()).unwrap();
        let seen = spy.0.into_inner().unwrap();
        let mut rows: Vec<Vec<u32>> = seen
            .iter()
            .flat_map(|(_, teacher)| teacher.chunks(CLASSES))
            .map(|row| row.iter().map(|value| value.to_bits()).collect())
            .collect();
        rows.sort();
        rows
    };
    let all = rows(&shared, &indices, 10, 2, 3);
    assert_eq!(all, rows(&shared, &indices, 7, 2, 3));
    assert!(rows(&shared, &indices[..9], 7, 2, 3).iter().all(|row| all.contains(row)));
    assert_ne!(all, rows(&shared, &indices, 10, 1, 3));
    assert_ne!(all, rows(&shared, &indices, 10, 2, 4));

    // A site that holds only its own images.
    let pixels = shared.pixels().len() / shared.len();
    let image = |&i: &u32| shared.pixels()[i as usize * pixels..][..pixels].to_vec();
    let labels = indices.iter().map(|&i| shared.labels[i as usize]).collect();
    let own = Split::images(indices.iter().flat_map(image).collect(), labels);
    assert_eq!(all, rows(&own, &(0..40).collect::<Vec<u32>>(), 10, 2, 3));
}

#[test]
fn a_hole_is_exactly_zero_after_normalisation() {
    // A hole that covers everything: only the biases are left, whatever the image.
    let model = model("linear");
    let global = broadcast(params(&model, 1));
    let augmentation = Augmentation { cutout: 10, ..Augmentation::default() };
    let bias = model.layout().tensors().iter().find(|tensor| tensor.name == "head.bias").unwrap().range();
    let spy = Spy::default();
    let training = Training { augmentation, epochs: 4, weight_decay: 0.0, ..training() };
    run(&model, &spy, &training, &global, 40).unwrap();
    let seen = spy.0.into_inner().unwrap();
    let rows: Vec<&[f32]> = seen.iter().flat_map(|(student, _)| student.chunks(CLASSES)).collect();
    let covered = rows.iter().filter(|row| **row == &global.global[bias.clone()]).count();
    // The image is 6x5: a side of 10 covers it from every row but the first, and from every column.
    let share = covered as f64 / rows.len() as f64;
    assert!((share - 5.0 / 6.0).abs() < 0.1, "{share}");
}

#[test]
fn rows_of_numbers_train_like_single_line_images() {
    let arch = |width| fedelity_nn::Architecture {
        name: "rows".into(),
        input: fedelity_nn::InputShape::Image { channels: 1, height: 1, width },
        classes: CLASSES,
        extractor: vec![fedelity_nn::Node::plain(fedelity_nn::Layer::Flatten)],
        head: "head".into(),
    };
    let model = Arc::new(Model::compile(&arch(5), fedelity_nn::cpu()).unwrap());
    let labels: Vec<u16> = (0..30).map(|i| i % 4).collect();
    let bytes: Vec<u8> = (0..150u32).map(|i| (i * 71 % 256) as u8).collect();
    let values = bytes.iter().map(|&byte| f32::from(byte) / 64.0 - 2.0).collect();
    let scaling = Scaling { scale: vec![1.0 / 64.0], shift: vec![-2.0] };
    let images = Split::images(bytes, labels.clone());
    let numbers = Split { inputs: Inputs::Floats(values), labels, keys: None };
    let indices: Vec<u32> = (0..30).rev().collect();
    let (global, memory, training) = (broadcast(params(&model, 1)), Payload::new(), training());
    let run = |split: &Split| {
        let samples = Samples { split, indices: &indices, scaling: &scaling };
        let task = fedelity_fl::Task {
            method: &Taught,
            training: &training,
            seed: 3,
            client: 0,
            samples,
            broadcast: &global,
            memory: &memory,
            secret: None,
        };
        fedelity_fl::client(&mut Trainer::new(model.clone()), &task, fedelity_nn::Params::default()).unwrap()
    };
    assert!(run(&images) == run(&numbers));
}

#[test]
fn a_trainer_carries_nothing_over() {
    let model = model("batch");
    let (split, scaling) = (split(40), scaling());
    let indices: Vec<u32> = (0..40).collect();
    let global = broadcast(params(&model, 1));
    let memory = Payload::new();
    let task = |client: usize, method, training| fedelity_fl::Task {
        method,
        training,
        seed: 3,
        client,
        samples: Samples { split: &split, indices: &indices[..40 - 9 * client], scaling: &scaling },
        broadcast: &global,
        memory: &memory,
        secret: None,
    };
    let (sgd, adam) =
        (training(), Training { optimizer: OptimizerKind::Adam { beta1: 0.9, beta2: 0.99, eps: 1e-8 }, ..training() });
    let mut kept = Trainer::new(model.clone());
    for (client, method, training) in [
        (0, &Taught as &dyn Method, &sgd),
        (1, &PlainMethod, &adam),
        (2, &Taught, &sgd),
        (3, &PlainMethod, &sgd),
        (0, &PlainMethod, &adam),
    ] {
        let buffer = fedelity_nn::Params(vec![7.0; 3]);
        let warm = fedelity_fl::client(&mut kept, &task(client, method, training), buffer).unwrap();
        let cold =
            fedelity_fl::client(&mut Trainer::new(model.clone()), &task(client, method, training), Default::default());
        assert!(warm == cold.unwrap(), "client {client}");
    }
}

#[test]
fn training_learns_and_adam_and_clipping_run() {
    let model = model("plain");
    let (split, scaling) = (split(200), scaling());
    let indices: Vec<u32> = (0..200).collect();
    let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
    let start = params(&model, 2);
    let mut trainer = Trainer::new(model.clone());
    let before = trainer.score(&start, samples);
    assert_eq!(before.samples(), 200);
    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 };
    for (optimizer, clip) in [(training().optimizer, None), (adam, Some(1.0))] {
        let training = Training { epochs: 12, lr: 0.01, optimizer, clip, ..training() };
        let done = run(&model, &PlainMethod, &training, &broadcast(start.clone()), 200).unwrap();
        let after = trainer.score(&done.upload.params, samples);
        assert!(after.loss().unwrap() < 0.7 * before.loss().unwrap(), "{before:?} {after:?}");
        assert_eq!((done.upload.steps, done.upload.examples), (240, 200));
        assert_eq!(done.upload.terms.samples(), 2400);
        assert_eq!(done.upload.bytes(), 4 * model.layout().len() as u64);
    }
}

#[test]
fn zero_epochs_return_the_weights_unchanged() {
    let model = model("plain");
    let global = broadcast(params(&model, 1));
    let done = run(&model, &Taught, &Training { epochs: 0, ..training() }, &global, 20).unwrap();
    assert_eq!(done.upload.params, *global.global);
    assert_eq!((done.upload.steps, done.upload.terms.total()), (0, None));
}

#[test]
fn a_nan_learning_rate_diverges() {
    let model = model("plain");
    let global = broadcast(params(&model, 1));
    let bad = Training { lr: f32::NAN, epochs: 1, ..training() };
    let error = run(&model, &PlainMethod, &bad, &global, 25).unwrap_err();
    assert!(
        matches!(error, FlError::Diverged { round: 1, client: 7, epoch: 1, step: 2, loss } if loss.is_nan()),
        "{error}"
    );
    assert!(error.is_divergence());
    // After a single step there is no later loss to check, so the weights are checked.
    let error = run(&model, &PlainMethod, &bad, &global, 5).unwrap_err();
    assert!(matches!(error, FlError::Diverged { step: 1, loss, .. } if loss.is_finite()), "{error}");
    // A far too large learning rate overflows by itself.
    let bad = Training { lr: 1e30, epochs: 5, ..training() };
    assert!(run(&model, &PlainMethod, &bad, &global, 25).unwrap_err().is_divergence());
}

struct Whole<'a, 'b>(&'a mut Local<'b>);

impl Objective for Whole<'_, '_> {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        Taught.loss(self.0, step)
    }
}

/// The loss and its gradient on one batch.
fn step(model: &Arc<Model>, w: &[f32], teachers: &[Frozen<'_>], samples: Samples<'_>) -> (f64, Vec<f32>) {
    let (training, none) = (Training::default(), Payload::new());
    let mut local = Local {
        model,
        training: &training,
        client: 0,
        round: 0,
        lr: 1.0,
        global: w,
        down: &none,
        memory: &none,
        samples,
        counts: &[],
        scratch: Scratch::default(),
    };
    let labels: Vec<u16> = samples.labels().collect();
    let (mut trainer, mut params) = (Trainer::new(model.clone()), w.to_vec());
    let (terms, gradient) =
        trainer.gradient(&samples.batch(), &labels, teachers, &mut params, &mut Whole(&mut local)).unwrap();
    (f64::from(terms.total()), gradient.to_vec())
}

/// Finite differences through logits, features, the teacher's head and the student's head. The model has no kinks, so a
/// difference is a mistake and not a ReLU that switched.
#[test]
fn gradients_match_finite_differences() {
    let model = model("smooth");
    let (split, scaling) = (split(11), scaling());
    let indices: Vec<u32> = (0..11).collect();
    let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
    let w = params(&model, 1);
    let (a, b) = (params(&model, 5), params(&model, 6));
    let teachers = [Frozen { weights: &a, features: false }, Frozen { weights: &b, features: true }];
    let (_, gradient) = step(&model, &w, &teachers, samples);
    let (mut worst, h) = (0f64, 2e-3);
    let largest = gradient.iter().fold(0f32, |most, g| most.max(g.abs()));
    for at in (0..w.len()).step_by(3) {
        let at_offset = |offset: f32| {
            let mut moved = w.clone();
            moved[at] += offset;
            step(&model, &moved, &teachers, samples).0
        };
        let numeric = (at_offset(h) - at_offset(-h)) / f64::from(2.0 * h);
        worst = worst.max((numeric - f64::from(gradient[at])).abs());
    }
    assert!(worst < 3e-3 * f64::from(largest), "worst {worst}, largest gradient {largest}");
}

/// Records what hooks see.
#[derive(Debug)]
struct Hooks;

impl Named for Hooks {
    fn name(&self) -> &'static str {
        "hooks"
    }
}

impl Method for Hooks {
    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let seen = local.scratch.typed(|| vec![0.0f32; CLASSES]);
        step.labels.iter().for_each(|&label| seen[usize::from(label)] += 1.0);
        let mut values = vec![0.0; step.samples() * step.classes];
        step.student_head_values(step.student.features, &mut values);
        assert!(values.iter().zip(step.student.logits).all(|(a, b)| (a - b).abs() < 1e-4));
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        Ok(Terms::of("ce", ce))
    }

    /// Pins every weight.
    fn adjust(&self, _: &mut Local<'_>, _: &[f32], grad: &mut [f32]) -> Result<Terms> {
        grad.fill(0.0);
        Ok(Terms::of("pinned", 1.5))
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        let labels = local.scratch.typed(Vec::<f32>::new).clone();
        assert_eq!(labels.iter().sum::<f32>(), 40.0);
        assert_eq!(local.counts.iter().sum::<usize>(), 20);
        let mut fisher = vec![0.0; done.params.len()];
        let mut seen = 0;
        done.gradients(6, 15, &mut CrossEntropy, &mut |grad, samples| {
            seen += samples;
            fisher.iter_mut().zip(grad).for_each(|(f, g)| *f += g * g);
            Ok(())
        })?;
        assert_eq!(seen, 15);
        let upload = Payload::new().with("fisher", fisher).with("labels", labels);
        Ok(Outbox { memory: upload.clone(), upload })
    }
}

struct CrossEntropy;

impl Objective for CrossEntropy {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        Ok(Terms::of("ce", ce))
    }
}

#[test]
fn hooks_see_what_they_should() {
    let model = model("plain");
    let global = broadcast(params(&model, 1));
    let training = Training { epochs: 2, weight_decay: 0.0, ..training() };
    let done = run(&model, &Hooks, &training, &global, 20).unwrap();
    assert_eq!(done.upload.params, *global.global);
    assert_eq!(done.memory, done.upload.extra);
    assert_eq!(done.memory.get("labels").unwrap().iter().sum::<f32>(), 40.0);
    let terms: Vec<(&str, f64)> = done.upload.terms.iter().collect();
    assert_eq!((terms.len(), terms[0].0, terms[1]), (2, "ce", ("pinned", 1.5)));
    assert_eq!(done.upload.terms.total(), Some(terms[0].1 + 1.5));
    assert!(done.memory.get("fisher").unwrap().iter().any(|&f| f > 0.0));
    assert_eq!(done.upload.bytes(), 4 * (2 * model.layout().len() + CLASSES) as u64);
}

/// A server that trains, with its own objective, learning rate and stopping.
struct Stops<'a> {
    after: usize,
    looks: Samples<'a>,
    seen: Vec<Evaluation>,
}

impl<'a> Stops<'a> {
    fn new(after: usize, looks: Samples<'a>) -> Self {
        Self { after, looks, seen: vec![Evaluation::default()] }
    }
}

impl Objective for Stops<'_> {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        CrossEntropy.loss(step)
    }

    fn lr(&self, base: f32, step: usize) -> f32 {
        if step < 2 { base } else { f32::NAN }
    }

    fn stop(&mut self, params: &[f32], steps: usize, judge: &mut Judge<'_>) -> Result<bool> {
        let mut found = self.seen.last().unwrap().clone();
        judge.score(params, self.looks, &mut found);
        self.seen.push(found);
        Ok(steps == self.after)
    }
}

#[test]
fn a_server_trains_through_the_same_loop() {
    let model = model("plain");
    let (split, scaling) = (split(30), scaling());
    let indices: Vec<u32> = (0..30).collect();
    let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
    let training = training();
    let fit = Fit { samples, training: &training, teachers: &[], seed: 1, round: 4, site: Site::Server };
    let mut trainer = Trainer::new(model.clone());
    // It evaluates more samples than a batch has, without disturbing the training.
    let (mut weights, mut objective) = (params(&model, 1), Stops::new(2, samples));
    let fitted = trainer.fit(&fit, &mut weights, &mut objective).unwrap();
    assert_eq!((fitted.steps, objective.seen.len()), (2, 3));
    assert_eq!(objective.seen[2], trainer.score(&weights, samples));
    assert_ne!(objective.seen[2], objective.seen[1]);
    let (mut blind, mut other) = (params(&model, 1), Trainer::new(model.clone()));
    assert_eq!(other.fit(&fit, &mut blind, &mut Stops::new(2, samples.at(&[]))).unwrap(), fitted);
    assert_eq!(blind, weights);
    let error = trainer.fit(&fit, &mut params(&model, 1), &mut Stops::new(9, samples.at(&[]))).unwrap_err();
    assert!(matches!(error, FlError::ServerDiverged { round: 5, epoch: 2, step: 4, .. }), "{error}");
}
