//! The FedGKD family, FedDistill+, FedGen and FedDF over whole small federations.

use std::sync::Arc;

use crate::federation::{CLASSES, EVERYBODY, Holds, TestRun, plain_model, training};
use fedelity_fl::{Broadcast, FlError, Local, Method, Named, Payload, Result, Step, Teacher, Terms, Training};
use fedelity_methods::{Distance, FedAvg, FedDf, FedDistillPlus, FedGen, FedGkd, FedGkdPlus, FedGkdVote};
use fedelity_nn::Params;
use fedelity_nn::loss::{self, Kl};

fn start(method: impl Method + 'static, training: Training) -> TestRun {
    TestRun::new(Arc::new(method), plain_model(), training, Holds::ALL).unwrap()
}

fn run(method: impl Method + 'static) -> TestRun {
    start(method, training()).rounds(4)
}

fn vote() -> FedGkdVote {
    FedGkdVote { buffer: 3, ..FedGkdVote::default() }
}

fn gen_small() -> FedGen {
    FedGen { hidden: 12, noise: 5, batch: 8, iterations: 6, lr: 1e-2, alpha: 1.0, beta: 0.5, ..FedGen::default() }
}

fn df() -> FedDf {
    FedDf { steps: 12, batch: 9, lr: 1e-2, evaluate_every: 4, ..FedDf::default() }
}

#[test]
fn the_first_round_is_fedavg_and_the_second_is_not() {
    let plain = run(FedAvg {});
    let check = |name: &str, found: TestRun| {
        assert_eq!(found.globals[..2], plain.globals[..2], "{name}");
        assert_ne!(found.globals[2], plain.globals[2], "{name}");
        assert!(found.losses.iter().all(|loss| loss.is_finite()), "{name}");
    };
    check("fedgkd", run(FedGkd::default()));
    check("mse", run(FedGkd { loss: Distance::Mse, ..FedGkd::default() }));
    check("vote", run(vote()));
    check("plus", run(FedDistillPlus::default()));
    check("uniform", run(FedDistillPlus { uniform_teacher: true, ..FedDistillPlus::default() }));
    check("gen", run(gen_small()));
    check("alpha", run(FedGen { beta: 0.0, ..gen_small() }));
    check("beta", run(FedGen { alpha: 0.0, ..gen_small() }));
}

// FedGKD.

/// CE + gamma/2 KL to the received model, from round 2 on.
#[derive(Debug)]
struct GlobalTeacher(f32);

impl Named for GlobalTeacher {
    fn name(&self) -> &'static str {
        "plain"
    }
}

impl Method for GlobalTeacher {
    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok((local.round > 0).then(Teacher::global).into_iter().collect())
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let (z, classes) = (step.student.logits, step.classes);
        let ce = loss::cross_entropy(z, step.labels, classes, 1.0, step.d_logits);
        if local.round == 0 {
            return Ok(Terms::of("ce", ce));
        }
        let (teacher, how) = (step.teacher(0).logits, Kl { weight: self.0 / 2.0, ..Kl::default() });
        Ok(Terms::of("ce", ce).with("kd", loss::kl(z, teacher, classes, &how, step.d_logits)))
    }
}

#[test]
fn fedgkd_with_one_model_is_cross_entropy_and_half_gamma_kl() {
    let expected = run(GlobalTeacher(0.3));
    for found in
        [run(FedGkd { gamma: 0.3, ..FedGkd::default() }), run(FedGkdPlus(FedGkd { gamma: 0.3, ..FedGkd::default() }))]
    {
        assert_eq!(
            (&found.globals, &found.traffic, &found.losses),
            (&expected.globals, &expected.traffic, &expected.losses)
        );
        assert!(found.coordinator.state().is_empty());
    }
    let whole_lambda = run(FedGkdVote { lambda: 0.15, buffer: 1, ..FedGkdVote::default() });
    assert_eq!(whole_lambda.globals, expected.globals);
}

#[test]
fn the_buffer_never_holds_the_first_weights_and_at_most_m_models() {
    let mut run = start(FedGkd { buffer: 3, ..FedGkd::default() }, training());
    for round in 0..6 {
        let down = run.round();
        let state = run.coordinator.state();
        let held: Vec<&Arc<[f32]>> = state.iter().map(|(_, model)| model).collect();
        assert_eq!(held.len(), round.min(2), "the newest of the three is the global model itself");
        assert!(held.iter().all(|model| model[..] != run.globals[0][..]));
        let newest = &run.globals[round.saturating_sub(2).max(1).min(round)..=round];
        assert!(
            round == 0 || newest.iter().rev().take(2).all(|global| held.iter().any(|model| model[..] == global[..]))
        );
        match down.payload.opt("teacher") {
            None => assert!(round < 2),
            Some(teacher) => {
                let mean = |i: usize| newest.iter().map(|w| f64::from(w[i])).sum::<f64>() / newest.len() as f64;
                assert!(teacher.iter().enumerate().all(|(i, &w)| w == mean(i) as f32));
            }
        }
    }
}

#[test]
fn vote_uses_the_validation_samples() {
    let mut run = start(vote(), training());
    for round in 0..5 {
        let down = run.round().payload;
        let Some(half_gammas) = down.opt("half-gammas") else {
            assert_eq!((round, down.len()), (0, 0));
            continue;
        };
        assert_eq!(half_gammas.len(), round.min(3));
        assert!((half_gammas.iter().sum::<f32>() - 0.1).abs() < 1e-6);
        let given = run.held();
        let validation = given.validation.as_ref().unwrap().samples();
        let mut loss = |m: usize| {
            let global = &run.globals[round - m];
            run.trainer.score(global, validation).loss().unwrap()
        };
        for m in 1..half_gammas.len() {
            // gamma_m / gamma_0 = exp((L_0 - L_m) / beta), beta = 1/3.
            let expected = (3.0 * (loss(0) - loss(m))).exp();
            assert!((f64::from(half_gammas[m] / half_gammas[0]) - expected).abs() < 1e-4 * expected, "{round} {m}");
        }
        for m in 1..half_gammas.len() {
            assert_eq!(down.get(&format!("model-{m}")).unwrap()[..], run.globals[round - m][..]);
        }
    }
}

#[test]
fn missing_samples_are_named_before_the_first_round() {
    let refuse = |method: Arc<dyn Method>| match TestRun::new(method, plain_model(), training(), Holds::NOTHING).err() {
        Some(FlError::Needs { method, what }) => format!("{method}: {what}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(refuse(Arc::new(FedGkdVote::default())), "fedgkd-vote: labelled validation samples on the server");
    assert_eq!(refuse(Arc::new(FedDf::default())), "feddf: unlabelled samples on the server");
}

// What the papers say is sent, in 4-byte numbers.

#[test]
fn bytes_match_the_table() {
    let p = plain_model().layout().len() as u64;
    let k = CLASSES as u64;
    let check = |name: &str, found: &TestRun, later: (u64, u64)| {
        // From the third round on. In the first there is nothing to teach with yet.
        for &(down, up) in &found.traffic[3..] {
            assert_eq!((down / 4, up / 4), later, "{name}");
        }
        assert_eq!(found.traffic[0].0 / 4, p, "{name}");
    };
    check("fedgkd", &run(FedGkd::default()), (p, p));
    check("fedgkd M = 2", &run(FedGkd { buffer: 2, ..FedGkd::default() }), (2 * p, p));
    check("fedgkd M = 3", &run(FedGkd { buffer: 3, ..FedGkd::default() }), (2 * p, p));
    check("fedgkd+ M = 3", &run(FedGkdPlus(FedGkd { buffer: 3, ..FedGkd::default() })), (2 * p, p));
    // M models in all and their M coefficients.
    check("vote M = 3", &run(vote()), (3 * p + 3, p));
    check("vote M = 1", &run(FedGkdVote { buffer: 1, ..FedGkdVote::default() }), (p + 1, p));
    check("feddistill+", &run(FedDistillPlus::default()), (p + k * k + k, p + k * k + k));
    // The generator: two layers, scale and shift, two running statistics; then the classes it knows.
    let (hidden, noise, features) = (12, 5, 6);
    let g = (k + noise) * hidden + hidden + 4 * hidden + hidden * features + features;
    check("fedgen", &run(gen_small()), (p + g + k, p + k));
    check("feddf", &run(df()), (p, p));
}

// FedDistill+.

#[test]
fn feddistill_plus_sums_what_clients_last_sent() {
    let mut run = start(FedDistillPlus::default(), training());
    let arrays = [("logits", CLASSES * CLASSES), ("classes-held", CLASSES)];
    for clients in [&[0, 2][..], &[1, 2, 4], &[5, 3], &[0, 1]] {
        let expected = arrays.map(|(name, len)| {
            let mut sums = vec![0.0; len];
            for own in run.memories.values().filter_map(|memory| memory.opt(name)) {
                sums.iter_mut().zip(own.iter()).for_each(|(sum, own)| *sum += f64::from(*own));
            }
            sums.into_iter().map(|sum| sum as f32).collect::<Vec<_>>()
        });
        let down = run.round_of(clients).payload;
        assert_eq!(arrays.map(|(name, len)| down.opt(name).map_or(vec![0.0; len], |sums| sums.to_vec())), expected);
    }
    // Only client 1 holds class 3, and client 5 has nothing to report.
    let held = |k: usize| run.memories[&k].get("classes-held").unwrap().to_vec();
    assert_eq!(
        (held(0), held(1), held(2)),
        (vec![1.0, 1.0, 1.0, 0.0], vec![0.0, 1.0, 1.0, 1.0], vec![1.0, 0.0, 0.0, 0.0])
    );
    assert_eq!(held(5), [0.0; 4]);
}

#[test]
fn a_single_client_has_nobody_to_learn_from() {
    let (mut found, mut plain) = (start(FedDistillPlus::default(), training()), start(FedAvg {}, training()));
    for _ in 0..3 {
        found.round_of(&[3]);
        plain.round_of(&[3]);
    }
    assert_eq!(found.globals, plain.globals);
}

// FedGen.

#[test]
fn the_generator_learns_and_depends_on_the_seed_alone() {
    let method = FedGen { iterations: 60, diversity: 0.0, weight_decay: 0.0, ..gen_small() };
    let generator = |run: &TestRun| run.coordinator.state().get("generator").unwrap().clone();
    let first = start(method.clone(), training());
    let fresh = generator(&first);
    let (first, again) = (first.rounds(3), start(method, training()).rounds(3));
    assert_eq!(generator(&first), generator(&again));
    assert_eq!(first.globals, again.globals);
    assert_ne!(generator(&first), fresh);
    assert_eq!(first.coordinator.state().get("adam-steps").unwrap()[..], [180.0]);
    assert_eq!(first.coordinator.state().get("labels").unwrap()[..], [1.0; 4]);
    // A class that nobody has reported is never drawn.
    let mut narrow = start(gen_small(), training());
    narrow.round_of(&[2, 5]);
    assert_eq!(narrow.coordinator.state().get("labels").unwrap()[..], [1.0, 0.0, 0.0, 0.0]);
    narrow.round_of(&[4]);
    assert_eq!(narrow.coordinator.state().get("labels").unwrap()[..], [1.0, 1.0, 0.0, 0.0]);
}

// FedDF.

/// The mean KL from the uploads' mean output to the student, on the unlabelled samples.
fn distance(run: &mut TestRun, uploads: &[Params], student: &[f32]) -> f32 {
    let given = run.held();
    let samples = given.unlabelled.as_ref().unwrap().samples();
    let mut logits = |params: &[f32]| {
        let mut all = Vec::new();
        run.trainer.evaluate(params, samples, &mut |outputs, _| all.extend_from_slice(outputs.logits));
        all
    };
    let mut mean = vec![0.0; samples.len() * CLASSES];
    for upload in uploads {
        mean.iter_mut().zip(logits(upload)).for_each(|(mean, z)| *mean += z / uploads.len() as f32);
    }
    let z = logits(student);
    loss::kl(&z, &mean, CLASSES, &Kl::default(), &mut vec![0.0; z.len()])
}

/// FedDF without validation samples, and the uploads.
fn distilled(method: FedDf, training: Training) -> (TestRun, Vec<Params>) {
    let holds = Holds { validation: false, ..Holds::ALL };
    let mut run = TestRun::new(Arc::new(method), plain_model(), training, holds).unwrap();
    // The first round's uploads are the same for every method that trains like FedAvg.
    let broadcast = Broadcast { round: 0, global: run.globals[0].clone(), payload: Payload::new() };
    let upload = |&k: &usize| run.client(&FedAvg {}, &broadcast, k).unwrap().upload.params;
    let uploads = EVERYBODY.iter().map(upload).collect();
    run.round();
    (run, uploads)
}

#[test]
fn feddf_learns_the_mean_output() {
    let strong = Training { lr: 0.1, epochs: 4, ..training() };
    let (mut run, uploads) = distilled(FedDf { steps: 60, ..df() }, strong.clone());
    let start = start(FedAvg {}, strong).rounds(1).globals[1].clone();
    let end = run.globals[1].clone();
    let (before, after) = (distance(&mut run, &uploads, &start), distance(&mut run, &uploads, &end));
    assert!(after < 0.5 * before, "{before} to {after}");
}

#[test]
fn feddf_is_independent_of_the_cache_and_stops_early() {
    let uncached = Training { teacher_cache: false, ..training() };
    let (cached, uncached) = (distilled(df(), training()).0, distilled(df(), uncached).0);
    assert_eq!(cached.globals, uncached.globals);
    // A step with a learning rate of 0 leaves the mean unchanged.
    let (still, _) = distilled(FedDf { lr: 0.0, steps: 1, ..df() }, training());
    assert_eq!(still.globals[1], run(FedAvg {}).globals[1]);
}

#[test]
fn feddf_keeps_the_best_on_the_validation_samples() {
    let score = |mut run: TestRun| {
        let (given, global) = (run.held(), run.globals[1].clone());
        run.trainer.score(&global, given.validation.as_ref().unwrap().samples()).accuracy()
    };
    let plain = score(start(FedAvg {}, training()).rounds(1));
    for lr in [1e-3, 1e-2, 0.5, 50.0] {
        let found = score(start(FedDf { lr, steps: 40, patience: 8, ..df() }, training()).rounds(1));
        assert!(found >= plain, "{lr}: {found} for {plain}");
    }
}
