//! The overhead of a round beyond the arithmetic: `cargo bench -p fedelity-sim`.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Normalisation, Partition, Shape, Split};
use fedelity_fl::{Federation, Method, Named, ServerData, Training, Weighting};
use fedelity_nn::{Architecture, InputShape, Layer, Model, ModelSpec, Node, cpu, zoo};
use fedelity_sim::{Experiment, Faults, Metrics, Observation, Simulation};

#[derive(Debug)]
struct BenchMethod;

impl Named for BenchMethod {
    fn name(&self) -> &'static str {
        "plain"
    }
}

impl Method for BenchMethod {}

fn experiment(model: &str, clients: usize, samples: usize, training: Training, rounds: usize) -> Experiment {
    let n = clients * samples;
    let train = Split::images((0..n * 784).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect(), labels(n));
    let data = Dataset {
        name: "noise".into(),
        classes: (0..10).map(|class| class.to_string()).collect(),
        shape: Shape::Image(ImageShape { channels: 1, height: 28, width: 28 }),
        test: Split::images(train.pixels()[..784].to_vec(), labels(1)),
        train,
        normalisation: Normalisation { mean: vec![0.5], std: vec![0.25] },
        table: None,
    };
    let input = InputShape::Image { channels: 1, height: 28, width: 28 };
    let spec = ModelSpec::new(model, false);
    let model = Model::compile(&zoo::build(&spec, input, 10).unwrap(), cpu()).unwrap();
    let mine = |client: usize| (client * samples..(client + 1) * samples).map(|i| i as u32).collect();
    let partition = Partition::of((0..clients).map(mine).collect());
    Experiment {
        federation: Federation {
            model: Arc::new(model),
            method: Arc::new(BenchMethod),
            training,
            weighting: Weighting::Size,
            clients,
            seed: 1,
            server_data: ServerData::default(),
        },
        data: Arc::new(data),
        partition: Arc::new(partition),
        per_round: 10,
        rounds,
        evaluate_every: rounds,
        threads: 1,
        observation: Observation { metrics: Metrics::Fast, ..Observation::default() },
        faults: Faults::default(),
        needed: 1,
    }
}

/// 784 to 610 to 200 to 10: 603,060 parameters.
fn wide() -> Arc<Model> {
    let dense = |name: &str, out| Node::named(name, Layer::Dense { out });
    let arch = Architecture {
        name: "wide".into(),
        input: InputShape::Image { channels: 1, height: 28, width: 28 },
        classes: 10,
        extractor: vec![Node::plain(Layer::Flatten), dense("fc1", 610), dense("fc2", 200)],
        head: "fc3".into(),
    };
    Arc::new(Model::compile(&arch, cpu()).unwrap())
}

fn labels(n: usize) -> Vec<u16> {
    (0..n).map(|i| (i % 10) as u16).collect()
}

/// The median seconds that `rounds` rounds take over several repetitions, in training and in total.
fn seconds(experiment: &Experiment) -> (f64, f64) {
    let mut runs: Vec<(f64, f64)> = (0..5)
        .map(|_| {
            let mut simulation = Simulation::new(experiment.clone()).unwrap();
            let (mut train, mut all) = (0.0, 0.0);
            while !simulation.done() {
                let seconds = simulation.step().unwrap().seconds;
                train += seconds.train;
                all += seconds.total();
            }
            (train, all)
        })
        .collect();
    runs.sort_by(|a, b| a.1.total_cmp(&b.1));
    runs[runs.len() / 2]
}

fn main() {
    let idle = Training { epochs: 0, ..Training::default() };
    let mut idle = experiment("mlp", 10, 10, idle, 100);
    idle.federation.model = wide();
    let (_, all) = seconds(&idle);
    println!(
        "{} parameters, clients that do nothing: {:.3} ms a client",
        idle.federation.model.layout().len(),
        all / 1000.0 * 1e3
    );

    let small = Training { batch: 10, ..Training::default() };
    let (train, all) = seconds(&experiment("logistic", 1000, 60, small, 100));
    println!("logistic regression, 100 rounds of 10 clients of 60 samples: {train:.3} s training, {all:.3} s in all");
}
