//! `fedelity bench client`.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fedelity_data::augment::Recipe;
use fedelity_data::{Augmentation, SetName};
use fedelity_experiment::{Rehearsal, Synthetic, rehearse};
use fedelity_fl::{Federation, Samples, Scaling, Task, Trainer, Training, Weighting, client};
use fedelity_kernels::measure;
use fedelity_nn::{Architecture, Engine, InputShape, Layer, Model, ModelSpec, OptimizerKind, Params, zoo};
use serde_json::json;
use toml::Table;

use super::check_seconds;
use crate::engine::resources;
use crate::printer::Printer;
use crate::threads::startable;

/// Measure the local training of a client
///
/// Trains on random 3x32x32 images in 10 classes. T threads train T clients in parallel; samples per second are the
/// total over all threads and epochs. A teacher's own pass, once per client and round, is timed. Set-up and the first
/// rounds are not: what the server sends and what clients remember exists before the clock starts. A method that was
/// published with a projection head gets one. The operations of direct convolutions are counted; most convolutions need
/// fewer, so the share of the peak may exceed 100 %.
#[derive(Debug, clap::Args)]
pub(crate) struct Client {
    /// The model.
    #[arg(long, default_value = "simple-cnn")]
    pub(super) model: String,

    /// The method.
    #[arg(long, default_value = "fedavg")]
    pub(super) method: String,

    /// Samples per client.
    #[arg(long, default_value_t = 320)]
    pub(super) samples: usize,

    /// Local epochs per round.
    #[arg(long, default_value_t = 5)]
    pub(super) epochs: usize,

    /// Samples per step.
    #[arg(long, default_value_t = 64)]
    pub(super) batch: usize,

    /// Number of threads, one client each.
    #[arg(long, default_value_t = 1)]
    pub(super) threads: usize,

    /// Augment images as this recipe does for CIFAR-100, and measure what that costs.
    #[arg(long, value_name = "RECIPE", value_parser = Recipe::NAMES)]
    pub(super) augmentation: Option<String>,

    /// Seconds to measure for; at least one round is measured.
    #[arg(long, default_value_t = 1.0)]
    pub(super) seconds: f64,

    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

const INPUT: InputShape = InputShape::Image { channels: 3, height: 32, width: 32 };
const CLASSES: usize = 10;

/// State shared by all threads.
pub(super) struct Work {
    architecture: Architecture,
    model: Arc<Model>,
    federation: Federation,
    rehearsal: Rehearsal,
    data: Synthetic,
    indices: Vec<u32>,
    scaling: Scaling,
}

impl Client {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        let work = self.work(resources()?.engine)?;
        let speeds = self.measure(&work)?;
        let extra = self.augmentation.as_ref().map(|_| self.extra(&work)).transpose()?;

        let isa = work.model.engine().name();
        let top = measure::peak(isa, 0.3).with_context(|| format!("{isa} cannot be measured"))?.gflops;
        let samples_per_second: f64 = speeds.iter().sum();
        let gflops = samples_per_second * operations(&work.model, &work.architecture) * 1e-9;
        let fraction = gflops / (top * self.threads as f64);
        if self.json {
            return printer.json(&json!({
                "samples_per_second": samples_per_second,
                "gflops": gflops,
                "fraction_of_peak": fraction,
                "peak_gflops": top,
                "threads": self.threads,
                "model": self.model,
                "projection": work.federation.method.needs().projection,
                "method": self.method,
                "batch": self.batch,
                "samples": self.samples,
                "epochs": self.epochs,
                "isa": isa,
                "augmentation": self.augmentation,
                "augmentation_extra": extra,
            }));
        }
        printer.line(format!(
            "{samples_per_second:.0} samples/s, {gflops:.1} GFLOP/s, {:.0} % of the peak of {} core{} ({top:.1} GFLOP/s each, {})",
            100.0 * fraction,
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            isa
        ))?;
        if let Some(extra) = extra {
            printer.line(format!(
                "{:+.1} % time for augmentation (median of interleaved rounds with and without it)",
                100.0 * extra
            ))?;
        }
        Ok(())
    }

    /// The share by which augmentation lengthens a round: the median over pairs of rounds, one with and one without.
    fn extra(&self, work: &Work) -> Result<f64> {
        let with = work.federation.training.clone();
        let without = Training { augmentation: Augmentation::default(), ..with.clone() };
        let mut trainer = Trainer::new(Arc::clone(&work.model));
        let mut buffer = Params::default();
        let mut ratios = Vec::new();
        let (start, length) = (Instant::now(), Duration::from_secs_f64(self.seconds));
        while ratios.len() < 5 || start.elapsed() < length {
            let mut seconds = [0.0; 2];
            for (training, seconds) in [&with, &without].into_iter().zip(&mut seconds) {
                let task = Task { training, ..self.task(work, 0) };
                let start = Instant::now();
                buffer = client(&mut trainer, &task, buffer)?.upload.params;
                *seconds = start.elapsed().as_secs_f64();
            }
            ratios.push(seconds[0] / seconds[1] - 1.0);
        }
        ratios.sort_by(f64::total_cmp);
        Ok(ratios[ratios.len() / 2])
    }

    fn task<'a>(&self, work: &'a Work, client: usize) -> Task<'a> {
        Task {
            method: work.federation.method.as_ref(),
            training: &work.federation.training,
            seed: 1,
            client,
            samples: Samples { split: &work.data.dataset.train, indices: &work.indices, scaling: &work.scaling },
            broadcast: &work.rehearsal.broadcast,
            memory: &work.rehearsal.memory,
            secret: None,
        }
    }

    /// Checks the options and prepares what a client needs.
    pub(super) fn work(&self, engine: Arc<dyn Engine>) -> Result<Work> {
        check_seconds(self.seconds)?;
        let counts =
            [("samples", self.samples), ("epochs", self.epochs), ("batch", self.batch), ("threads", self.threads)];
        for (name, value) in counts {
            if value == 0 || value > 1_000_000 {
                bail!("--{name} {value}: expected a whole number of at least 1 and at most 1000000");
            }
        }
        let method = fedelity_methods::build(&self.method, &Table::new())
            .with_context(|| format!("--method {}", self.method))?
            .method;
        let spec = ModelSpec::new(self.model.clone(), method.needs().projection);
        let architecture = zoo::build(&spec, INPUT, CLASSES).with_context(|| format!("--model {}", self.model))?;
        let model = Arc::new(Model::compile(&architecture, engine)?);
        let training = Training {
            epochs: self.epochs,
            batch: self.batch,
            optimizer: OptimizerKind::Sgd { momentum: 0.9 },
            lr: 0.01,
            weight_decay: 1e-5,
            augmentation: self
                .augmentation
                .as_deref()
                .and_then(|name| Recipe::from_name(name)?.of(Some(SetName::Cifar100)))
                .map_or_else(Augmentation::default, |recipe| recipe.augmentation),
            ..Training::default()
        };
        let data = Synthetic::new(INPUT, CLASSES, self.samples);
        let federation = Federation {
            model: Arc::clone(&model),
            method,
            training,
            weighting: Weighting::Size,
            clients: self.threads,
            seed: 1,
            server_data: data.server_data(),
        };
        let scaling = data.scaling();
        let indices = data.client();
        let samples = Samples { split: &data.dataset.train, indices: &indices, scaling: &scaling };
        let rehearsal = rehearse(federation.clone(), samples, 0, 1)?;
        Ok(Work { architecture, model, federation, rehearsal, data, indices, scaling })
    }

    /// The weights of a client after one round.
    pub(super) fn weights(&self, work: &Work) -> Result<Params> {
        let mut trainer = Trainer::new(Arc::clone(&work.model));
        Ok(client(&mut trainer, &self.task(work, 0), Params::default())?.upload.params)
    }

    /// Samples per second of each thread; all measure at the same time.
    pub(super) fn measure(&self, work: &Work) -> Result<Vec<f64>> {
        let (wanted, found) = (self.threads, startable(self.threads + 1) - 1);
        if found < wanted {
            bail!("--threads {wanted}: only {found} can be started");
        }
        let barrier = Barrier::new(wanted);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|i| {
                    scope.spawn({
                        let barrier = &barrier;
                        move || self.one(work, i, barrier)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread stopped"))).collect()
        })
    }

    fn one(&self, work: &Work, number: usize, barrier: &Barrier) -> Result<f64> {
        let mut trainer = Trainer::new(Arc::clone(&work.model));
        let task = self.task(work, number);
        let warm = client(&mut trainer, &task, Params::default());
        barrier.wait();
        let mut buffer = warm?.upload.params;
        let (start, length) = (Instant::now(), Duration::from_secs_f64(self.seconds));
        let mut rounds = 0;
        while rounds == 0 || start.elapsed() < length {
            buffer = client(&mut trainer, &task, buffer)?.upload.params;
            rounds += 1;
        }
        Ok((rounds * self.samples * self.epochs) as f64 / start.elapsed().as_secs_f64())
    }
}

/// Floating-point operations to train on one sample: the forward pass, and as much again for the gradient of the
/// weights and for that of the inputs, which the first layer does not need. Teachers are not counted.
fn operations(model: &Model, architecture: &Architecture) -> f64 {
    let first = architecture.extractor.iter().find_map(|node| match node.layer {
        Layer::Conv { out, kernel, stride, pad, .. } => {
            let side = |n: usize| (n + 2 * pad).checked_sub(kernel).map_or(0, |n| n / stride + 1);
            let (channels, height, width) = INPUT.sides();
            Some(out * kernel * kernel * channels * side(height) * side(width))
        }
        Layer::Dense { out } => Some(out * INPUT.len()),
        _ => None,
    });
    // Without any layers before the head, the head is the first one.
    let first = first.unwrap_or(model.multiply_adds());
    2.0 * (3 * model.multiply_adds() - first) as f64
}
