//! `fedelity bench round`.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use fedelity_data::partition::partition;
use fedelity_data::{Dataset, ImageShape, Kind, Normalisation, Shape, Split, catalogue};
use fedelity_experiment::{Document, Study};
use fedelity_fl::{Federation, ServerData, Training, Weighting};
use fedelity_nn::{InputShape, Model, ModelSpec, zoo};
use fedelity_sim::{Experiment, Faults, Metrics, Observation, Simulation};
use serde::Serialize;
use toml::Table;

use crate::engine::resources;
use crate::printer::Printer;
use crate::threads::threads;
use crate::view::units::{seconds, thousands};

/// Measure what a round costs beyond training
///
/// Measures three figures: an idle client, 100 rounds of logistic regression over 1,000 small clients, and the time
/// until the first round of the default run ends.
#[derive(Debug, clap::Args)]
pub(crate) struct RoundBench {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// All times are in seconds.
#[derive(Debug, Serialize)]
struct Figures {
    idle_parameters: usize,
    idle_client_seconds: f64,
    logistic_rounds: usize,
    logistic_train_seconds: f64,
    logistic_total_seconds: f64,
    first_round_seconds: f64,
    threads: usize,
}

/// Images for which logistic regression has about 600,000 weights.
const LARGE: ImageShape = ImageShape { channels: 3, height: 142, width: 142 };
const IDLE_ROUNDS: usize = 20;
const IDLE_CLIENTS: usize = 10;
const LOGISTIC_ROUNDS: usize = 100;

impl RoundBench {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        let start = Instant::now();
        let threads = threads("", None, printer)?;
        let first_round_seconds = first_round(start, threads)?;
        let (idle_parameters, idle_client_seconds) = idle()?;
        let (logistic_train_seconds, logistic_total_seconds) = logistic()?;
        let figures = Figures {
            idle_parameters,
            idle_client_seconds,
            logistic_rounds: LOGISTIC_ROUNDS,
            logistic_train_seconds,
            logistic_total_seconds,
            first_round_seconds,
            threads,
        };
        if self.json {
            return printer.json(&figures);
        }
        printer.line(format!(
            "Idle client      {} per round, {} parameters, 1 thread",
            seconds(figures.idle_client_seconds),
            thousands(figures.idle_parameters)
        ))?;
        printer.line(format!(
            "Small clients    {} of training in {} rounds of 10 clients with 60 samples each, 784 to 10, 1 thread",
            seconds(figures.logistic_train_seconds),
            figures.logistic_rounds
        ))?;
        printer.line(format!(
            "First round      {} after the start of the default run",
            seconds(figures.first_round_seconds)
        ))
    }
}

/// From the start to the end of the first round of the default run.
fn first_round(start: Instant, threads: usize) -> Result<f64> {
    let study = Study::load_with(&Document::default(), &resources()?)?;
    let method = &study.settings.methods[0];
    Simulation::new(study.experiment(method, study.settings.config.seeds[0], threads))?.step()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Parameters, and the seconds per round and client if clients send back what they received. The fastest round counts.
fn idle() -> Result<(usize, f64)> {
    let samples = 2 * IDLE_CLIENTS;
    let split = |n: usize| Split::images(vec![0; n * LARGE.pixels()], (0..n).map(|i| (i % 10) as u16).collect());
    let data = Dataset {
        name: "idle".to_string(),
        classes: (0..10).map(|class| class.to_string()).collect(),
        shape: Shape::Image(LARGE),
        train: split(samples),
        test: split(1),
        normalisation: Normalisation { mean: vec![0.5; 3], std: vec![0.5; 3] },
        table: None,
    };
    let training = Training { epochs: 0, ..Training::default() };
    let (mut simulation, parameters) = logistic_regression(data, 2 * IDLE_CLIENTS, training, IDLE_ROUNDS)?;
    let mut shortest = f64::MAX;
    while !simulation.done() {
        let round = simulation.step()?;
        shortest = shortest.min(round.seconds.train + round.seconds.aggregate);
    }
    Ok((parameters, shortest / IDLE_CLIENTS as f64))
}

/// Seconds of training, and of everything but the evaluation.
fn logistic() -> Result<(f64, f64)> {
    let mut data = catalogue::load("fashion-mnist-mini", None)?;
    // The same images ten times: 1,000 clients with 60 samples each.
    data.train = Split::images(data.train.pixels().repeat(10), data.train.labels.repeat(10));
    let training = Training { epochs: 1, batch: 10, ..Training::default() };
    let (mut simulation, _) = logistic_regression(data, 1_000, training, LOGISTIC_ROUNDS)?;
    let (mut train, mut total) = (0.0, 0.0);
    while !simulation.done() {
        let round = simulation.step()?;
        train += round.seconds.train;
        total += round.seconds.train + round.seconds.aggregate;
    }
    Ok((train, total))
}

/// Ten clients per round on one thread; and the number of parameters.
fn logistic_regression(
    data: Dataset,
    clients: usize,
    training: Training,
    rounds: usize,
) -> Result<(Simulation, usize)> {
    BenchRun { model: "logistic", data, clients, per_round: IDLE_CLIENTS, training, rounds, threads: 1 }.simulation()
}

/// FedAvg on an even split, evaluated only at the end.
pub(super) struct BenchRun<'a> {
    pub(super) model: &'a str,
    pub(super) data: Dataset,
    pub(super) clients: usize,
    pub(super) per_round: usize,
    pub(super) training: Training,
    pub(super) rounds: usize,
    pub(super) threads: usize,
}

impl BenchRun<'_> {
    /// The run, ready for its first round, and the number of parameters.
    pub(super) fn simulation(self) -> Result<(Simulation, usize)> {
        let Self { model, data, clients, per_round, training, rounds, threads } = self;
        let (channels, height, width) = data.shape.image().map_or((1, 1, 1), |s| (s.channels, s.height, s.width));
        let input = InputShape::Image { channels, height, width };
        let spec = ModelSpec::new(model, false);
        let model = Model::compile(&zoo::build(&spec, input, data.classes.len())?, resources()?.engine)?;
        let parameters = model.layout().trainable_len();
        let split = partition(&data, &vec![false; data.train.len()], &Kind::Iid, Some(clients), 1)?;
        let simulation = Simulation::new(Experiment {
            federation: Federation {
                model: Arc::new(model),
                method: fedelity_methods::build("fedavg", &Table::new())?.method,
                training,
                weighting: Weighting::Size,
                clients,
                seed: 1,
                server_data: ServerData::default(),
            },
            data: Arc::new(data),
            partition: Arc::new(split),
            per_round,
            rounds,
            evaluate_every: rounds,
            threads,
            observation: Observation { metrics: Metrics::Fast, ..Observation::default() },
            faults: Faults::default(),
            needed: 1,
        })?;
        Ok((simulation, parameters))
    }
}
