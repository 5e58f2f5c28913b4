//! FedGKD and its kin, FedDistill+, FedGen and FedDF over whole small federations.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Normalisation, Shape, Split};
use fedelity_fl::rng::below;
use fedelity_fl::{
    Broadcast, Coordinator, Error, Federation, Held, Job, Local, Method, Objective, Payload, Place, Purpose, Result,
    Samples, Scaling, Scratch, ServerData, Step, Task, Teacher, Terms, Trainer, Training, Weighting, client, stream,
};
use fedelity_methods::{
    Composed, Distance, FedAvg, FedDf, FedDistillPlus, FedGen, FedGkd, FedGkdPlus, FedGkdVote, Rule, ServerOptimizer,
};
use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{Architecture, InputShape, Isa, Layer, Model, Node, OptimizerKind, Params};

const CLASSES: usize = 4;
const SEED: u64 = 5;
const SHAPE: InputShape = InputShape::Image { channels: 1, height: 5, width: 4 };
/// Client 2 holds one class, client 4 one sample, client 5 nothing; class 3 is with client 1 alone.
const CLIENTS: [&[u16]; 6] = [
    &[0, 0, 1, 2, 1, 0, 2, 1, 0, 1, 2, 0, 0],
    &[3, 1, 3, 1, 2, 3, 3, 1, 1, 3, 2],
    &[0; 9],
    &[2, 2, 1, 0, 2, 2, 1, 2, 2, 0, 1, 2, 0, 1, 2, 2, 2],
    &[1],
    &[],
];

fn model() -> Arc<Model> {
    let conv = Node::named("conv", Layer::Conv { out: 3, kernel: 3, stride: 1, pad: 1, bias: true });
    let rest = [Node::plain(Layer::Relu), Node::plain(Layer::Flatten), Node::named("dense", Layer::Dense { out: 6 })];
    let extractor = std::iter::once(conv).chain(rest).collect();
    let arch = Architecture { name: "small".into(), input: SHAPE, classes: CLASSES, extractor, head: "fc".into() };
    Arc::new(Model::compile(&arch, Isa::detect()).unwrap())
}

/// The clients' samples, then 40 of all classes that the server may hold.
fn data() -> Dataset {
    let server = (0..40).map(|i| i % CLASSES as u16);
    let labels: Vec<u16> = CLIENTS.iter().flat_map(|labels| labels.iter().copied()).chain(server).collect();
    let mut rng = stream(99, Purpose::Method(0), 0, 0, 0);
    let pixels = labels.iter().flat_map(|&label| vec![label; SHAPE.len()]);
    let pixels = pixels.map(|label| (40 * label) as u8 + below(&mut rng, 90) as u8).collect();
    Dataset {
        name: "small".into(),
        classes: ["a", "b", "c", "d"].map(String::from).to_vec(),
        shape: Shape::Image(ImageShape { channels: 1, height: 5, width: 4 }),
        train: Split::images(pixels, labels),
        test: Split::default(),
        normalisation: Normalisation { mean: vec![0.4], std: vec![0.25] },
    }
}

/// A federation and all its clients.
struct Run {
    coordinator: Coordinator,
    memories: Vec<Payload>,
    data: Arc<Dataset>,
    trainer: Trainer,
    /// The weights that each round started from, and those after the last.
    globals: Vec<Arc<Params>>,
    /// By round: bytes to a client and from the first one.
    traffic: Vec<(u64, u64)>,
    losses: Vec<f64>,
}

fn training() -> Training {
    let optimizer = OptimizerKind::Sgd { momentum: 0.9 };
    Training { epochs: 2, batch: 8, optimizer, lr: 0.02, ..Training::default() }
}

fn server_data(data: &Arc<Dataset>) -> ServerData {
    let first: u32 = CLIENTS.iter().map(|labels| labels.len() as u32).sum();
    let held = |range: std::ops::Range<u32>| Some(Held::new(data.clone(), range.map(|i| first + i).collect()));
    ServerData { auxiliary: None, validation: held(0..16), unlabelled: held(16..40) }
}

impl Run {
    fn start(method: impl Method + 'static, training: Training) -> Self {
        Self::shared(Arc::new(method), training)
    }

    fn shared(method: Arc<dyn Method>, training: Training) -> Self {
        let data = Arc::new(data());
        let given = server_data(&data);
        Self::with(method, training, data, given).unwrap()
    }

    fn with(method: Arc<dyn Method>, training: Training, data: Arc<Dataset>, given: ServerData) -> Result<Self> {
        let (model, weighting) = (model(), Weighting::Size);
        let trainer = Trainer::new(model.clone());
        let clients = CLIENTS.len();
        let federation = Federation { model, method, training, weighting, clients, seed: SEED, server_data: given };
        let coordinator = Coordinator::new(federation)?;
        let globals = vec![coordinator.global().clone()];
        let memories = vec![Payload::new(); clients];
        Ok(Self { coordinator, memories, data, trainer, globals, traffic: vec![], losses: vec![] })
    }

    fn indices(&self, k: usize) -> Vec<u32> {
        let first: u32 = CLIENTS[..k].iter().map(|labels| labels.len() as u32).sum();
        (first..first + CLIENTS[k].len() as u32).collect()
    }

    /// Everybody takes part.
    fn round(&mut self) -> Broadcast {
        self.round_of(&[0, 1, 2, 3, 4, 5])
    }

    fn round_of(&mut self, clients: &[usize]) -> Broadcast {
        let broadcast = self.coordinator.open().unwrap();
        let scaling = Scaling::from(&self.data.normalisation);
        let mut up = None;
        for &k in clients {
            let indices = self.indices(k);
            let samples = Samples { split: &self.data.train, indices: &indices, scaling: &scaling };
            let federation = self.coordinator.federation();
            let (method, memory) = (federation.method.clone(), &self.memories[k]);
            let training = &federation.training.clone();
            let task =
                Task { method: &*method, training, seed: SEED, client: k, samples, broadcast: &broadcast, memory };
            let done = client(&mut self.trainer, &task, Params::default()).unwrap();
            up.get_or_insert(done.upload.bytes());
            self.losses.extend(done.fitted.terms.total());
            self.coordinator.accept(done.upload).unwrap();
            self.memories[k] = done.memory;
        }
        self.coordinator.close().unwrap();
        self.globals.push(self.coordinator.global().clone());
        self.traffic.push((broadcast.bytes(), up.unwrap()));
        broadcast
    }

    fn rounds(mut self, rounds: usize) -> Self {
        (0..rounds).for_each(|_| drop(self.round()));
        self
    }
}

fn run(method: impl Method + 'static) -> Run {
    Run::start(method, training()).rounds(4)
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

// Off is FedAvg.

fn is_fedavg(method: impl Method + 'static) {
    let (name, needs) = (method.name(), method.needs());
    let (found, plain) = (run(method), run(FedAvg {}));
    assert_eq!(found.globals, plain.globals, "{name}");
    assert_eq!(found.traffic, plain.traffic, "{name}");
    assert!(found.coordinator.state().is_empty() && found.memories.iter().all(Payload::is_empty), "{name}");
    let asked = [needs.validation, needs.unlabelled, needs.each_upload, needs.label_counts_leave_client];
    assert!(asked == [false; 4] && !needs.client_memory && needs.extra_passes == 0, "{name}");
}

#[test]
fn a_coefficient_of_0_is_fedavg_bit_for_bit() {
    is_fedavg(FedGkd { gamma: 0.0, ..FedGkd::default() });
    is_fedavg(FedGkd { gamma: 0.0, buffer: 3, loss: Distance::Mse, ..FedGkd::default() });
    is_fedavg(FedGkdPlus(FedGkd { gamma: 0.0, buffer: 2, ..FedGkd::default() }));
    is_fedavg(FedGkdVote { lambda: 0.0, ..FedGkdVote::default() });
    is_fedavg(FedDistillPlus { coefficient: 0.0, ..FedDistillPlus::default() });
    is_fedavg(FedGen { alpha: 0.0, beta: 0.0, ..FedGen::default() });
    is_fedavg(FedDf { steps: 0, ..FedDf::default() });
}

#[test]
fn the_first_round_is_fedavgs_and_the_second_is_not() {
    let plain = run(FedAvg {});
    let check = |name: &str, found: Run| {
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
struct Plain(f32);

impl Method for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

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
    let expected = run(Plain(0.3));
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
    let mut run = Run::start(FedGkd { buffer: 3, ..FedGkd::default() }, training());
    for round in 0..6 {
        let down = run.round();
        let state = run.coordinator.state();
        let held: Vec<&Arc<[f32]>> = state.iter().map(|(_, model)| model).collect();
        assert_eq!(held.len(), round.min(3));
        assert!(held.iter().all(|model| model[..] != run.globals[0][..]));
        let newest = &run.globals[round.saturating_sub(2).max(1).min(round)..=round];
        assert!(round == 0 || newest.iter().all(|global| held.iter().any(|model| model[..] == global[..])));
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
fn vote_asks_the_validation_samples() {
    let mut run = Run::start(vote(), training());
    for round in 0..5 {
        let down = run.round().payload;
        let Some(half_gammas) = down.opt("half-gammas") else {
            assert_eq!((round, down.len()), (0, 0));
            continue;
        };
        assert_eq!(half_gammas.len(), round.min(3));
        assert!((half_gammas.iter().sum::<f32>() - 0.1).abs() < 1e-6);
        let given = server_data(&run.data);
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
fn what_is_missing_is_named_before_the_first_round() {
    let refuse = |method: Arc<dyn Method>| {
        let (model, training, weighting) = (model(), training(), Weighting::Size);
        let server_data = ServerData::default();
        let federation = Federation { model, method, training, weighting, clients: 6, seed: SEED, server_data };
        match Coordinator::new(federation) {
            Err(Error::Needs { method, what }) => format!("{method}: {what}"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refuse(Arc::new(FedGkdVote::default())), "fedgkd-vote: labelled validation samples on the server");
    assert_eq!(refuse(Arc::new(FedDf::default())), "feddf: unlabelled samples on the server");
}

// What the papers say is sent, in numbers of 4 bytes.

#[test]
fn bytes_are_those_of_the_table() {
    let p = model().layout().len() as u64;
    let k = CLASSES as u64;
    let check = |name: &str, found: &Run, later: (u64, u64)| {
        // What travels from the third round on. In the first there is nothing to teach with yet.
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
    // The generator: two layers, scale and shift, two running statistics; then which classes it knows.
    let (hidden, noise, features) = (12, 5, 6);
    let g = (k + noise) * hidden + hidden + 4 * hidden + hidden * features + features;
    check("fedgen", &run(gen_small()), (p + g + k, p + k));
    check("feddf", &run(df()), (p, p));
}

// FedDistill+.

#[test]
fn feddistill_plus_sums_what_clients_last_sent() {
    let mut run = Run::start(FedDistillPlus::default(), training());
    let len = CLASSES * CLASSES + CLASSES;
    for clients in [&[0, 2][..], &[1, 2, 4], &[5, 3], &[0, 1]] {
        let mut expected = vec![0.0; len];
        for memory in &run.memories {
            let own = memory.opt("logits").map_or(vec![0.0; len], |own| own.to_vec());
            expected.iter_mut().zip(own).for_each(|(sum, own)| *sum += f64::from(own));
        }
        let down = run.round_of(clients).payload;
        let expected: Vec<f32> = expected.into_iter().map(|sum| sum as f32).collect();
        assert_eq!(down.opt("logits").map_or(vec![0.0; len], |sums| sums.to_vec()), expected);
    }
    // Class 3 is with client 1, and client 5 has nothing to report.
    let flags = |k: usize| run.memories[k].get("logits").unwrap()[CLASSES * CLASSES..].to_vec();
    assert_eq!(
        (flags(0), flags(1), flags(2)),
        (vec![1.0, 1.0, 1.0, 0.0], vec![0.0, 1.0, 1.0, 1.0], vec![1.0, 0.0, 0.0, 0.0])
    );
    assert_eq!(flags(5), [0.0; 4]);
}

#[test]
fn alone_there_is_nobody_to_learn_from() {
    let (mut found, mut plain) = (Run::start(FedDistillPlus::default(), training()), Run::start(FedAvg {}, training()));
    for _ in 0..3 {
        found.round_of(&[3]);
        plain.round_of(&[3]);
    }
    assert_eq!(found.globals, plain.globals);
}

// With a rule and an optimiser of the server around them.

#[test]
fn they_go_with_server_settings() {
    let optimizer = ServerOptimizer::FedAdam { lr: 0.01, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
    let methods: [Arc<dyn Method>; 5] = [
        Arc::new(FedGkd { buffer: 2, ..FedGkd::default() }),
        Arc::new(vote()),
        Arc::new(FedDistillPlus::default()),
        Arc::new(gen_small()),
        Arc::new(df()),
    ];
    for inner in methods {
        let name = inner.name();
        for rule in [Rule::Mean, Rule::Median] {
            let mut found = Run::shared(Composed::around(inner.clone(), rule, optimizer), training()).rounds(4);
            assert!(found.globals[4].iter().chain(found.globals[1].iter()).all(|w| w.is_finite()), "{name} {rule:?}");
            // The optimiser's memory in the state is not taken for a part of the method's.
            let extra = found.coordinator.open().unwrap().payload.bytes();
            let plain = Run::shared(inner.clone(), training()).rounds(4).coordinator.open().unwrap().payload.bytes();
            assert_eq!(extra, plain, "{name} {rule:?}");
        }
    }
}

// FedGen.

#[test]
fn the_generator_learns_and_depends_on_the_seed_alone() {
    let method = FedGen { iterations: 60, diversity: 0.0, weight_decay: 0.0, ..gen_small() };
    let generator = |run: &Run| run.coordinator.state().get("generator").unwrap().clone();
    let first = Run::start(method.clone(), training());
    let fresh = generator(&first);
    let (first, again) = (first.rounds(3), Run::start(method, training()).rounds(3));
    assert_eq!(generator(&first), generator(&again));
    assert_eq!(first.globals, again.globals);
    assert_ne!(generator(&first), fresh);
    assert_eq!(first.coordinator.state().get("adam-steps").unwrap()[..], [180.0]);
    assert_eq!(first.coordinator.state().get("labels").unwrap()[..], [1.0; 4]);
    // A class that nobody has shown is never drawn.
    let mut narrow = Run::start(gen_small(), training());
    narrow.round_of(&[2, 5]);
    assert_eq!(narrow.coordinator.state().get("labels").unwrap()[..], [1.0, 0.0, 0.0, 0.0]);
    narrow.round_of(&[4]);
    assert_eq!(narrow.coordinator.state().get("labels").unwrap()[..], [1.0, 1.0, 0.0, 0.0]);
}

// FedDF.

/// The mean KL of the mean answer of these uploads to the student, on the unlabelled samples.
fn distance(run: &mut Run, uploads: &[Params], student: &[f32]) -> f32 {
    let given = server_data(&run.data);
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

/// FedDF without validation samples; keeps what was uploaded.
fn distilled(method: FedDf, training: Training) -> (Run, Vec<Params>) {
    let data = Arc::new(data());
    let given = ServerData { validation: None, ..server_data(&data) };
    let mut run = Run::with(Arc::new(method), training, data, given).unwrap();
    // The uploads of the first round: the same for every method that trains as FedAvg.
    let broadcast = Broadcast { round: 0, global: run.globals[0].clone(), payload: Payload::new() };
    let scaling = Scaling::from(&run.data.normalisation);
    let mut uploads = Vec::new();
    for k in 0..CLIENTS.len() {
        let (indices, memory) = (run.indices(k), Payload::new());
        let samples = Samples { split: &run.data.train, indices: &indices, scaling: &scaling };
        let training = &run.coordinator.federation().training;
        let task = Task {
            method: &FedAvg {},
            training,
            seed: SEED,
            client: k,
            samples,
            broadcast: &broadcast,
            memory: &memory,
        };
        uploads.push(client(&mut run.trainer, &task, Params::default()).unwrap().upload.params);
    }
    run.round();
    (run, uploads)
}

#[test]
fn feddf_learns_the_mean_answer() {
    let strong = Training { lr: 0.1, epochs: 4, ..training() };
    let (mut run, uploads) = distilled(FedDf { steps: 60, ..df() }, strong.clone());
    let start = Run::start(FedAvg {}, strong).rounds(1).globals[1].clone();
    let end = run.globals[1].clone();
    let (before, after) = (distance(&mut run, &uploads, &start), distance(&mut run, &uploads, &end));
    assert!(after < 0.5 * before, "{before} to {after}");
}

#[test]
fn feddf_is_the_same_with_and_without_the_cache_and_stops_in_time() {
    let uncached = Training { teacher_cache: false, ..training() };
    let (cached, uncached) = (distilled(df(), training()).0, distilled(df(), uncached).0);
    assert_eq!(cached.globals, uncached.globals);
    // One step of rate 0 leaves the mean alone.
    let (still, _) = distilled(FedDf { lr: 0.0, steps: 1, ..df() }, training());
    assert_eq!(still.globals[1], run(FedAvg {}).globals[1]);
}

#[test]
fn feddf_keeps_the_best_on_the_validation_samples() {
    let plain = Run::start(FedAvg {}, training()).rounds(1);
    let score = |run: &mut Run| {
        let (given, global) = (server_data(&run.data), run.globals[1].clone());
        run.trainer.score(&global, given.validation.as_ref().unwrap().samples()).accuracy()
    };
    for lr in [1e-3, 1e-2, 0.5, 50.0] {
        let mut found = Run::start(FedDf { lr, steps: 40, patience: 8, ..df() }, training()).rounds(1);
        let mut plain = Run { globals: plain.globals.clone(), ..Run::start(FedAvg {}, training()) };
        assert!(score(&mut found) >= score(&mut plain), "{lr}");
    }
}

// Derivatives through the whole network.

struct Loss<'a, 'b> {
    method: &'a dyn Method,
    local: &'a mut Local<'b>,
}

impl Objective for Loss<'_, '_> {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        self.method.loss(self.local, step)
    }
}

/// The loss of client `k`'s whole set as one batch and its gradient, as its training would see them.
fn loss_and_gradient(run: &mut Run, broadcast: &Broadcast, k: usize, params: &Params) -> (f64, Vec<f64>) {
    let method = run.coordinator.federation().method.clone();
    let model = run.coordinator.federation().model.clone();
    let indices = run.indices(k);
    let scaling = Scaling::from(&run.data.normalisation);
    let samples = Samples { split: &run.data.train, indices: &indices, scaling: &scaling };
    let optimizer = OptimizerKind::Sgd { momentum: 0.0 };
    let training = Training { epochs: 1, batch: 64, optimizer, lr: 1.0, ..Training::default() };
    let mut counts = [0; CLASSES];
    samples.labels().for_each(|label| counts[usize::from(label)] += 1);
    let mut local = Local {
        model: &model,
        training: &training,
        client: k,
        round: broadcast.round,
        lr: 1.0,
        global: &broadcast.global,
        down: &broadcast.payload,
        memory: &run.memories[k],
        samples,
        counts: &counts,
        scratch: Scratch::default(),
    };
    let declared = method.teachers(&local).unwrap();
    let teachers: Vec<_> = declared.iter().map(|teacher| teacher.resolve(&broadcast.global)).collect();
    let place = Place::Client(k);
    let job = Job { samples, training: &training, teachers: &teachers, seed: SEED, round: broadcast.round, place };
    let mut moved = params.clone();
    let fitted = run.trainer.fit(&job, &mut moved, &mut Loss { method: &*method, local: &mut local }).unwrap();
    assert_eq!(fitted.steps, 1);
    let gradient = params.iter().zip(moved.iter()).map(|(before, after)| f64::from(before - after)).collect();
    (fitted.terms.total().unwrap(), gradient)
}

fn derivatives_agree(method: impl Method + 'static) {
    let name = method.name();
    let mut run = Run::start(method, training()).rounds(3);
    let broadcast = run.coordinator.open().unwrap();
    let mut rng = stream(3, Purpose::Method(1), 0, 0, 0);
    let mut uniform = || below(&mut rng, 1 << 20) as f32 / (1 << 19) as f32 - 1.0;
    // Away from the teacher.
    let start = Params(broadcast.global.iter().map(|w| w + 0.2 * uniform()).collect());
    for k in 0..5 {
        let (_, gradient) = loss_and_gradient(&mut run, &broadcast, k, &start);
        let size = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        for _ in 0..4 {
            // Along the gradient with noise: kinks of single units do not matter.
            let along: Vec<f64> = gradient.iter().map(|g| g / size + 0.3 * f64::from(uniform())).collect();
            let length = along.iter().map(|v| v * v).sum::<f64>().sqrt();
            let expected: f64 = gradient.iter().zip(&along).map(|(g, v)| g * v / length).sum();
            let h = 4e-3;
            let mut at = |by: f64| {
                let moved = start.iter().zip(&along).map(|(w, v)| (f64::from(*w) + by * v / length) as f32).collect();
                loss_and_gradient(&mut run, &broadcast, k, &Params(moved)).0
            };
            let slope = (at(h) - at(-h)) / (2.0 * h);
            assert!((slope - expected).abs() < 5e-3 * size, "{name}, client {k}: {slope} for {expected} of {size}");
        }
    }
}

#[test]
fn derivatives_are_right_through_the_network() {
    // Clients with absent classes, with one class, with one sample; temperatures other than 1.
    derivatives_agree(FedGkd { gamma: 3.0, buffer: 2, temperature: 2.5, ..FedGkd::default() });
    derivatives_agree(FedGkd { gamma: 1.0, loss: Distance::Mse, ..FedGkd::default() });
    derivatives_agree(FedGkdVote { lambda: 2.0, temperature: 0.7, ..vote() });
    derivatives_agree(FedDistillPlus { coefficient: 2.0, temperature: 1.7, ..FedDistillPlus::default() });
    derivatives_agree(FedGen { beta: 0.0, alpha: 30.0, ..gen_small() });
}
