//! Whole rounds: threads, weights, memory, errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fedelity_data::{Dataset, ImageShape, Normalisation, Partition, Shape, Split};
use fedelity_fl::{
    Extra, Federation, FlError, Gather, Local, Method, Named, Needs, Outbox, Payload, Received, Result, Server,
    ServerData, Step, Teacher, Terms, Trained, Training, Weighting,
};
use fedelity_nn::{Architecture, InputShape, Layer, Model, Node, OptimizerKind, Params, cpu, loss};
use fedelity_record::{Measure, Notice};
use fedelity_sim::{Experiment, Faults, Metrics, Observation, Simulation};

const CLIENTS: usize = 12;

fn pixels(labels: &[u16]) -> Vec<u8> {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 26) as u8
    };
    labels.iter().flat_map(|&label| vec![label; 36]).map(|label| 50 * label as u8 + noise()).collect()
}

pub(crate) fn data() -> Dataset {
    let labels = |n: u16| -> Vec<u16> { (0..n).map(|i| i * 7 / 3 % 4).collect() };
    let split = |n| Split::images(pixels(&labels(n)), labels(n));
    Dataset {
        name: "tiny".into(),
        classes: ["a", "b", "c", "d"].map(String::from).to_vec(),
        shape: Shape::Image(ImageShape { channels: 1, height: 6, width: 6 }),
        train: split(500),
        test: split(300),
        normalisation: Normalisation { mean: vec![0.4], std: vec![0.3] },
        table: None,
    }
}

pub(crate) fn model(side: usize, classes: usize) -> Arc<Model> {
    let conv = Node::named("conv", Layer::Conv { out: 5, kernel: 3, stride: 1, pad: 0, bias: true });
    let norm = Node::named("norm", Layer::BatchNorm);
    let rest = [Layer::Relu, Layer::GlobalAveragePool, Layer::Flatten].map(Node::plain);
    let input = InputShape::Image { channels: 1, height: side, width: side };
    let extractor = [conv, norm].into_iter().chain(rest).collect();
    let arch = Architecture { name: "tiny".into(), input, classes, extractor, head: "fc".into() };
    Arc::new(Model::compile(&arch, cpu()).unwrap())
}

/// Client `k` holds `10 + 5 k` samples; there are 12 clients.
pub(crate) fn partition() -> Partition {
    let mut next = 0;
    let clients = (0..CLIENTS as u32)
        .map(|client| {
            let first = next;
            next += 10 + 5 * client;
            (first..next).collect()
        })
        .collect();
    Partition::of(clients)
}

pub(crate) fn experiment(method: impl Method + 'static) -> Experiment {
    Experiment {
        federation: Federation {
            model: model(6, 4),
            method: Arc::new(method),
            training: Training {
                epochs: 2,
                batch: 8,
                optimizer: OptimizerKind::Sgd { momentum: 0.9 },
                lr: 0.05,
                ..Training::default()
            },
            weighting: Weighting::Size,
            clients: CLIENTS,
            seed: 11,
            server_data: ServerData::default(),
        },
        data: Arc::new(data()),
        partition: Arc::new(partition()),
        per_round: 5,
        rounds: 4,
        evaluate_every: 1,
        threads: 1,
        observation: Observation::default(),
        faults: Faults::default(),
        needed: 1,
    }
}

#[derive(Debug)]
pub(crate) struct PlainAverage;

impl Named for PlainAverage {
    fn name(&self) -> &'static str {
        "plain"
    }
}

impl Method for PlainAverage {}

/// Remembers its last weights, sends a number, keeps a running state, and uses two teachers.
#[derive(Debug)]
struct Busy;

impl Named for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }
}

impl Method for Busy {
    fn needs(&self) -> Needs {
        Needs { client_memory: true, each_upload: true, ..Needs::default() }
    }

    fn sends(&self, _: &Model) -> Vec<Extra> {
        vec![Extra::always("steps", 1)]
    }

    fn receives(&self, _: &Model) -> Vec<Extra> {
        vec![Extra::always("rounds", 3)]
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        let rounds = server.state.opt("sum").map_or(0.0, |sum| sum[0]);
        Ok(Payload::new().with("rounds", vec![rounds, 0.0, 0.0]))
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        let previous = local.memory.opt("previous").map(|weights| Teacher::given(weights.clone()));
        Ok(std::iter::once(Teacher::global()).chain(previous).collect())
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        let mut pull = 0.0;
        for teacher in 0..step.teachers() {
            let teacher = step.teacher(teacher).logits;
            for ((z, t), d) in step.student.logits.iter().zip(teacher).zip(&mut *step.d_logits) {
                pull += 0.005 * (z - t) * (z - t);
                *d += 0.01 * (z - t);
            }
        }
        Ok(Terms::of("ce", ce).with("pull", pull))
    }

    fn finish(&self, _: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        let memory = Payload::new().with("previous", done.params.to_vec());
        Ok(Outbox { upload: Payload::new().with("steps", vec![done.steps as f32]), memory })
    }

    fn conclude(&self, _: &mut Server<'_>, gather: &mut Gather, state: &mut Payload) -> Result<Params> {
        assert_eq!(gather.uploads.len(), 5);
        for upload in &gather.uploads {
            state.slot("sum", 1)[0] += upload.extra.get("steps")?[0] * upload.params[0];
        }
        gather.mean.finish()
    }
}

/// All results of a run that must not depend on threads.
fn run(experiment: Experiment) -> (Vec<u32>, Vec<String>) {
    let mut simulation = Simulation::new(experiment).unwrap();
    let mut rounds = Vec::new();
    while !simulation.done() {
        let mut record = simulation.step().unwrap();
        record.seconds = Default::default();
        rounds.push(format!("{record:?}"));
    }
    rounds.push(format!("{:?}", simulation.state()));
    rounds.push(format!("{:?}", simulation.memories()));
    (simulation.global().iter().map(|w| w.to_bits()).collect(), rounds)
}

#[test]
fn threads_change_no_bit() {
    let one = run(experiment(PlainAverage));
    let busy = run(experiment(Busy));
    assert_ne!(one.0, busy.0);
    for threads in [2, 3, 8] {
        assert!(run(Experiment { threads, ..experiment(PlainAverage) }) == one, "{threads} threads");
        assert!(run(Experiment { threads, ..experiment(Busy) }) == busy, "{threads} threads");
    }
    let mut other = experiment(PlainAverage);
    other.federation.seed = 12;
    let other = run(other);
    assert_ne!(one.0, other.0);
}

/// In one round, the gradients of the first client that trains are far too large.
#[derive(Debug)]
struct Runaway {
    round: usize,
    client: AtomicUsize,
}

impl Named for Runaway {
    fn name(&self) -> &'static str {
        "runaway"
    }
}

impl Method for Runaway {
    fn adjust(&self, local: &mut Local<'_>, _: &[f32], grad: &mut [f32]) -> Result<Terms> {
        if local.round == self.round {
            let _ = self.client.compare_exchange(usize::MAX, local.client, Ordering::Relaxed, Ordering::Relaxed);
            if self.client.load(Ordering::Relaxed) == local.client {
                grad.iter_mut().for_each(|g| *g *= 300.0);
            }
        }
        Ok(Terms::default())
    }
}

#[test]
fn a_client_that_runs_away_and_the_collapse_after_it_are_noticed() {
    let rounds = 8;
    let records = |method: Runaway| {
        let mut simulation = Simulation::new(Experiment { rounds, ..experiment(method) }).unwrap();
        let mut records = Vec::new();
        while !simulation.done() {
            records.push(simulation.step().unwrap());
        }
        records
    };
    let healthy = records(Runaway { round: usize::MAX, client: AtomicUsize::new(usize::MAX) });
    assert!(healthy.iter().all(|record| record.notices.is_empty()), "{healthy:?}");
    assert!(healthy[rounds - 1].accuracy.unwrap() > 0.5, "it learns: {:?}", healthy[rounds - 1].accuracy);
    let found = records(Runaway { round: rounds - 1, client: AtomicUsize::new(usize::MAX) });
    assert!(found[..rounds - 1].iter().all(|record| record.notices.is_empty()));
    let last = &found[rounds - 1];
    // Of a round's clients, the one with the most samples trains first.
    let first = *last.clients.last().unwrap();
    let drift = |notice: &Notice| match notice {
        Notice::Outlier { client, measure: Measure::Drift, value, median } => {
            *client == first && *value == last.drift.unwrap().max && value > &(10.0 * median)
        }
        _ => false,
    };
    assert!(drift(&last.notices[0]), "{:?}", last.notices);
    assert!(last.notices.iter().any(Notice::is_collapse), "{:?} {:?}", last.accuracy, last.notices);
}

#[test]
fn all_methods_see_the_same_clients_and_start() {
    let clients = |experiment| {
        let mut simulation = Simulation::new(experiment).unwrap();
        let start = simulation.global().clone();
        let clients: Vec<_> = (0..4).map(|_| simulation.step().unwrap().clients).collect();
        (start, clients)
    };
    assert_eq!(clients(experiment(PlainAverage)), clients(experiment(Busy)));
}

#[test]
fn it_learns_and_counts_bytes() {
    let mut simulation = Simulation::new(Experiment { rounds: 12, evaluate_every: 5, ..experiment(Busy) }).unwrap();
    let start = simulation.evaluate();
    assert_eq!(start.samples(), 300);
    let mut evaluated = Vec::new();
    let floats = simulation.global().len() as u64;
    let mut last = None;
    while !simulation.done() {
        let round = simulation.step().unwrap();
        assert_eq!(round.bytes_down, 5 * 4 * (floats + 3));
        assert_eq!(round.bytes_up, 5 * 4 * (floats + 1));
        assert_eq!(round.clients.len(), 5);
        assert!(round.seconds.train > 0.0 && round.seconds.aggregate > 0.0);
        if round.accuracy.is_some() {
            evaluated.push(round.round);
            last = round.loss;
        }
        assert_eq!(round.forgetting.is_some(), round.accuracy.is_some() && evaluated.len() > 1);
    }
    assert_eq!(evaluated, [5, 10, 12]);
    assert!(last.unwrap() < 0.8 * start.loss().unwrap(), "{last:?} {:?}", start.loss());
}

#[test]
fn weights_by_size_or_uniform() {
    /// Sends its own client number as every weight.
    #[derive(Debug)]
    struct Number;
    impl Named for Number {
        fn name(&self) -> &'static str {
            "number"
        }
    }

    impl Method for Number {
        fn collect(&self, server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
            gather.mean.add(upload.weight, &vec![upload.client as f32; server.global.len()])
        }
    }
    let mean = |weighting| {
        let mut all = Experiment { per_round: CLIENTS, rounds: 1, ..experiment(Number) };
        all.federation.weighting = weighting;
        all.federation.training.epochs = 0;
        let mut simulation = Simulation::new(all).unwrap();
        let round = simulation.step().unwrap();
        assert_eq!((round.clients.len(), round.trained_samples, round.train_loss), (CLIENTS, 0, None));
        simulation.global()[0]
    };
    let sizes = || (0..CLIENTS).map(|client| (client, 10 + 5 * client));
    let expected = sizes().map(|(k, n)| k * n).sum::<usize>() as f32 / sizes().map(|(_, n)| n).sum::<usize>() as f32;
    assert!((mean(Weighting::Size) - expected).abs() < 1e-5);
    assert_eq!(mean(Weighting::Uniform), 5.5);
}

/// The server fails at one client in round 2, where all others would be fine, and leaves client 3 out of every round.
#[derive(Debug)]
struct Refusing(usize);

impl Named for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }
}

impl Method for Refusing {
    fn finish(&self, local: &mut Local<'_>, _: &mut Trained<'_>) -> Result<Outbox> {
        let round = vec![local.round as f32 + 1.0 + local.memory.opt("round").map_or(0.0, |last| last[0])];
        Ok(Outbox { memory: Payload::new().with("round", round), upload: Payload::new() })
    }

    fn collect(&self, server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        if upload.client == self.0 && server.round == 1 {
            return Err(FlError::Method { method: "refusing", reason: "not this one".into() });
        }
        gather.mean.add(upload.weight, &upload.params)
    }

    fn conclude(&self, _: &mut Server<'_>, gather: &mut Gather, _: &mut Payload) -> Result<Params> {
        gather.refused.push(3);
        gather.mean.finish()
    }
}

#[test]
fn memory_is_kept_only_when_a_round_closes_with_the_upload() {
    for threads in [1, 3] {
        // All take part, the longest first: 11, 10, ..., 0.
        let mut simulation =
            Simulation::new(Experiment { per_round: CLIENTS, threads, ..experiment(Refusing(6)) }).unwrap();
        simulation.step().unwrap();
        let error = simulation.step().unwrap_err();
        assert_eq!(error.to_string(), "the method 'refusing': not this one");
        for client in 0..CLIENTS {
            let kept = simulation.memories().get(&client).map(|memory| memory.get("round").unwrap()[0]);
            assert_eq!(kept, (client != 3).then_some(1.0), "client {client}");
        }
        assert!(matches!(simulation.step(), Err(FlError::Order { .. })));
    }
}

/// Some clients have a non-finite loss.
#[derive(Debug)]
struct Broken(Vec<usize>);

impl Named for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }
}

impl Method for Broken {
    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        let late = step.step == local.client / 2;
        Ok(Terms::of("ce", if self.0.contains(&local.client) && late { f32::INFINITY } else { ce }))
    }
}

#[test]
fn the_first_error_in_the_schedule_wins() {
    for threads in [1, 2, 3, 12] {
        for _ in 0..5 {
            let all = Experiment { per_round: CLIENTS, threads, ..experiment(Broken(vec![1, 4, 9])) };
            let error = Simulation::new(all).unwrap().step().unwrap_err();
            assert!(matches!(error, FlError::Diverged { round: 1, client: 9, epoch: 1, step: 5, .. }), "{error}");
        }
    }
}

#[test]
fn a_worker_panic_propagates() {
    #[derive(Debug)]
    struct Bug;
    impl Named for Bug {
        fn name(&self) -> &'static str {
            "bug"
        }
    }

    impl Method for Bug {
        fn finish(&self, local: &mut Local<'_>, _: &mut Trained<'_>) -> Result<Outbox> {
            assert!(local.client != 11, "as a bug would");
            Ok(Outbox::default())
        }
    }
    for threads in [1, 3] {
        let mut simulation = Simulation::new(Experiment { per_round: CLIENTS, threads, ..experiment(Bug) }).unwrap();
        let step = std::panic::AssertUnwindSafe(|| simulation.step().map(|_| ()));
        assert!(std::panic::catch_unwind(step).is_err(), "{threads} threads");
    }
}

/// Counts uploads that are finished but not folded; the first client in the schedule is slow.
#[derive(Debug, Default)]
struct Waiting {
    now: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Named for Waiting {
    fn name(&self) -> &'static str {
        "waiting"
    }
}

impl Method for Waiting {
    fn finish(&self, local: &mut Local<'_>, _: &mut Trained<'_>) -> Result<Outbox> {
        if local.client == 11 {
            std::thread::sleep(Duration::from_millis(300));
        }
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Ok(Outbox::default())
    }

    fn collect(&self, _: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        self.now.fetch_sub(1, Ordering::SeqCst);
        gather.mean.add(upload.weight * (1.0 + upload.client as f64), &upload.params)
    }
}

#[test]
fn waiting_uploads_are_bounded() {
    let side = InputShape::Image { channels: 1, height: 6, width: 6 };
    let layers = [("a", 2900), ("b", 2900)].map(|(name, out)| Node::named(name, Layer::Dense { out }));
    let extractor = std::iter::once(Node::plain(Layer::Flatten)).chain(layers).collect();
    let arch = Architecture { name: "large".into(), input: side, classes: 4, extractor, head: "fc".into() };
    let model = Arc::new(Model::compile(&arch, cpu()).unwrap());
    let outcome = |threads| {
        let waiting = Waiting::default();
        let most = waiting.most.clone();
        let mut all = Experiment { rounds: 1, per_round: CLIENTS, threads, ..experiment(waiting) };
        all.federation.model = model.clone();
        all.federation.training.epochs = 0;
        let mut simulation = Simulation::new(all).unwrap();
        simulation.step().unwrap();
        (most.load(Ordering::SeqCst), simulation.global().clone())
    };
    let (one, global) = outcome(1);
    assert_eq!(one, 1);
    let (most, with_two) = outcome(2);
    // Two workers may have four uploads of this size in flight.
    assert!((2..=4).contains(&most), "{most}");
    assert!(global == with_two);
}

#[test]
fn invalid_experiments_are_refused() {
    let refused = |change: fn(&mut Experiment)| {
        let mut bad = experiment(PlainAverage);
        change(&mut bad);
        Simulation::new(bad).unwrap_err().to_string()
    };
    assert_eq!(refused(|e| e.per_round = 0), "per-round = 0: expected from 1 to 12");
    assert_eq!(refused(|e| e.per_round = 13), "per-round = 13: expected from 1 to 12");
    assert_eq!(refused(|e| e.rounds = 0), "rounds = 0: expected 1 or more");
    assert_eq!(refused(|e| e.threads = 0), "threads = 0: expected 1 or more");
    assert_eq!(refused(|e| e.federation.training.batch = 0), "batch = 0: expected 1 or more");
    assert!(refused(|e| e.federation.training.lr = f32::NAN).starts_with("lr = NaN"));
    assert_eq!(
        refused(|e| e.federation.model = model(8, 4)),
        "the model 'tiny' takes images of 1x8x8, but the data have 1x6x6"
    );
    assert_eq!(refused(|e| e.federation.model = model(6, 7)), "the model 'tiny' takes classes 7, but the data have 4");
    assert!(refused(|e| Arc::make_mut(&mut e.partition).clients[3][0] = 500).contains("sample 500"));
    assert!(refused(|e| Arc::make_mut(&mut e.partition).clients.clear()).starts_with("partition.clients = 0"));
    #[derive(Debug)]
    struct Needy;
    impl Named for Needy {
        fn name(&self) -> &'static str {
            "needy"
        }
    }

    impl Method for Needy {
        fn needs(&self) -> Needs {
            Needs { auxiliary: true, ..Needs::default() }
        }
    }
    assert_eq!(
        refused(|e| e.federation.method = Arc::new(Needy)),
        "the method 'needy' needs labelled auxiliary samples on the server, but there are none"
    );
}

fn observed(metrics: Metrics) -> Observation {
    Observation { metrics, confusion: vec![2], ..Observation::default() }
}

#[test]
fn measuring_changes_no_bit_and_threads_change_no_measurement() {
    let run = |metrics, threads| {
        let mut simulation =
            Simulation::new(Experiment { observation: observed(metrics), threads, ..experiment(Busy) }).unwrap();
        let rounds: Vec<_> = (0..4)
            .map(|_| fedelity_record::RoundRecord { seconds: Default::default(), ..simulation.step().unwrap() })
            .collect();
        let features = simulation.features();
        (simulation.global().clone(), rounds, features)
    };
    let (weights, rounds, features) = run(Metrics::All, 1);
    for (metrics, threads) in [(Metrics::All, 3), (Metrics::Standard, 1), (Metrics::Fast, 2)] {
        let (other, others, also) = run(metrics, threads);
        assert_eq!(other, weights, "{metrics:?}");
        let accuracies =
            |rounds: &[fedelity_record::RoundRecord]| rounds.iter().map(|r| r.accuracy).collect::<Vec<_>>();
        assert_eq!(accuracies(&others), accuracies(&rounds));
        match metrics {
            Metrics::All => assert_eq!((others, also), (rounds.clone(), features.clone())),
            Metrics::Standard => assert!(others[0].local.as_ref().unwrap().samples == 200),
            Metrics::Fast => assert!(others.iter().all(|r| r.local.is_none() && r.drift.is_some()) && also.is_none()),
        }
    }
    let teachers: Vec<u64> = rounds.iter().map(|round| round.teacher_samples).collect();
    // In the first round only the global model teaches, once per sample; training sees each sample twice.
    assert_eq!(teachers[0] * 2, rounds[0].trained_samples);
    assert!(teachers[3] > teachers[0] / 2 && rounds[1].confusion.is_some() && rounds[3].confusion.is_some());
    assert!(rounds[0].confusion.is_none() && rounds[2].confusion.is_none());
}

/// With one client per round, the new global model is that client's model, so their measurements agree.
#[test]
fn with_one_client_per_round_its_model_is_the_next_global_model() {
    let all = Observation { metrics: Metrics::All, confusion: vec![1, 2, 3, 4], ..Observation::default() };
    let mut simulation =
        Simulation::new(Experiment { per_round: 1, observation: all, ..experiment(PlainAverage) }).unwrap();
    let mut before = simulation.evaluate().class_accuracy();
    for number in 1..=4 {
        let round = simulation.step().unwrap();
        let local = round.local.unwrap();
        let (accuracy, classes) = (round.accuracy.unwrap(), round.class_accuracy.unwrap());
        assert_eq!((local.accuracy.mean, local.accuracy.sd, local.samples), (accuracy, 0.0, 300));
        let client = &local.clients[0];
        let own: Vec<usize> = (0..4u16)
            .map(|class| {
                let mine = &simulation.experiment().partition.clients[client.client as usize];
                mine.iter().filter(|&&i| simulation.experiment().data.train.labels[i as usize] == class).count()
            })
            .collect();
        let plain = |classes: &[Option<f64>]| classes.iter().map(|class| class.unwrap()).collect::<Vec<f64>>();
        let start = fedelity_fl::metrics::in_out_local(&own, &plain(&before)).unwrap();
        let end = fedelity_fl::metrics::in_out_local(&own, &plain(&classes)).unwrap();
        let close = |found: Option<f64>, expected: f64| assert!((found.unwrap() - expected).abs() < 1e-12);
        close(local.in_before, start.in_accuracy);
        close(local.out_before, start.out_accuracy);
        close(local.in_after, end.in_accuracy);
        close(local.out_after, end.out_accuracy);
        for class in 0..4 {
            let (learnt, forgot) = (local.class_learnt[class].unwrap(), local.class_forgot[class].unwrap());
            close(Some(learnt - forgot), classes[class].unwrap() - before[class].unwrap());
        }
        assert_eq!(round.alignment, local.alignment);
        assert_eq!(round.alignment.keys().collect::<Vec<_>>(), ["conv", "fc"]);
        close(round.gradient_diversity, 1.0);
        assert!(round.drift.unwrap().mean == client.drift && client.drift > 0.0);
        if number == 4 {
            let focus = local.focus.unwrap();
            assert_eq!(Some(focus.after), round.confusion);
            let features = simulation.features().unwrap();
            assert_eq!((features.global.len(), &features.global), (300 * features.width, &features.local));
        } else {
            assert!(local.focus.is_none());
        }
        before = classes;
    }
}
