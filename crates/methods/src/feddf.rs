//! FedDF: Lin, Kong, Stich, Jaggi, "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020,
//! arXiv:2006.07242, Algorithm 1.
//!
//!   clients train as in FedAvg; the server starts from x_0 = the mean of their weights x_k and takes the steps
//!   x_j = x_{j-1} - eta * d/dx KL( softmax(1/|S| * sum_{k in S} f(x_k, d)) || softmax(f(x_{j-1}, d)) )
//!   on batches d of unlabelled samples, f the logits
//!
//! The mean of weights can be worse than every model it is made of; the mean of answers rarely is. Distillation puts the
//! second into one model, and the server needs samples for that but no labels.
//!
//! The steps are Adam with a cosine schedule and a gradient norm of at most 5, as in the authors' code. They run in the
//! engine's one training loop with the uploads as teachers.
//!
//! Deviations:
//! - 200 steps a round by default where the paper takes 10,000: with batches of 128 that is 25,600 samples, about what a
//!   few clients train on, so that a CPU can afford it in every round. The cosine ends with the steps.
//! - Early stopping follows: a look at the validation samples every 20 steps and a patience of 100 where the paper has
//!   100 and 1000. The mean of weights itself is the first candidate, so the validation accuracy never falls below it.
//!   Without validation samples all steps are taken and the last model counts.

use fedelity_fl::{
    Error, Evaluation, Frozen, Gather, Job, Judge, Method, Needs, Objective, Payload, Place, Result, Samples, Server,
    Step, Terms, Trainer, Training,
};
use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{OptimizerKind, Params};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// The largest gradient norm in the authors' code.
const CLIP: f32 = 5.0;

/// FedDF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedDf {
    /// J, 0 or more: distillation steps a round at most. The paper takes 10,000. 0 is FedAvg.
    pub steps: usize,
    /// Samples a step, 1 or more. The paper takes 128.
    pub batch: usize,
    /// eta, 0 or more: the first learning rate of Adam; it falls to 0 as half a cosine. The paper takes 0.001.
    pub lr: f64,
    /// The temperature of both softmaxes, above 0, without a factor. The paper takes 1.
    pub temperature: f64,
    /// Steps between looks at the validation samples, 1 or more. The paper takes 100.
    pub evaluate_every: usize,
    /// Steps without a better validation accuracy after which to stop, 1 or more. The paper takes 1000.
    pub patience: usize,
}

impl Default for FedDf {
    fn default() -> Self {
        Self { steps: 200, batch: 128, lr: 1e-3, temperature: 1.0, evaluate_every: 20, patience: 100 }
    }
}

impl FedDf {
    /// softmax of the teachers' mean logits against the student's; adds the gradient.
    fn distance(&self, z: &[f32], mean: &[f32], classes: usize, d_z: &mut [f32]) -> f32 {
        loss::kl(z, mean, classes, &Kl { tau: self.temperature as f32, ..Kl::default() }, d_z)
    }

    /// How the server trains on this many samples.
    fn training(&self, samples: usize, teacher_cache: bool) -> Training {
        let epochs = self.steps.div_ceil(samples.div_ceil(self.batch).max(1));
        Training {
            epochs,
            batch: self.batch,
            optimizer: OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
            lr: self.lr as f32,
            weight_decay: 0.0,
            lr_decay: 1.0,
            clip: Some(CLIP),
            // Within one pass every sample comes up once at most: running all of them beforehand saves nothing.
            teacher_cache: teacher_cache && epochs > 1,
            ..Training::default()
        }
    }
}

impl Method for FedDf {
    fn name(&self) -> &'static str {
        "feddf"
    }

    fn needs(&self) -> Needs {
        let on = self.steps > 0;
        Needs { unlabelled: on, each_upload: on, ..Needs::default() }
    }

    fn conclude(&self, server: &mut Server<'_>, _: &mut Payload, _: &Params, gather: &mut Gather) -> Result<Params> {
        let mut student = gather.mean.finish()?;
        if self.steps == 0 {
            return Ok(student);
        }
        let missing = Error::Needs { method: self.name(), what: "unlabelled samples on the server" };
        let samples = server.unlabelled.ok_or(missing)?;
        let frozen = |params| Frozen { weights: params, features: false };
        let teachers: Vec<Frozen<'_>> = gather.uploads.iter().map(|upload| frozen(&upload.params[..])).collect();
        let training = self.training(samples.len(), server.training.teacher_cache);
        let validation = server.validation.filter(|samples| !samples.is_empty());
        let watch = validation.map(|samples| Watch::new(server.trainer, samples, &student));
        let mut distillation = Distillation { method: self, mean: Vec::new(), watch };
        let (seed, round) = (server.seed, server.round);
        let job = Job { samples, training: &training, teachers: &teachers, seed, round, place: Place::Server };
        server.trainer.fit(&job, &mut student, &mut distillation)?;
        Ok(distillation.watch.map_or(student, |watch| watch.best))
    }
}

/// What the server minimises.
struct Distillation<'a> {
    method: &'a FedDf,
    mean: Vec<f32>,
    watch: Option<Watch<'a>>,
}

impl Objective for Distillation<'_> {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        self.mean.clear();
        self.mean.resize(step.student.logits.len(), 0.0);
        let share = 1.0 / step.teachers().max(1) as f32;
        for k in 0..step.teachers() {
            let teacher = step.teacher(k).logits;
            self.mean.iter_mut().zip(teacher).for_each(|(mean, z)| *mean += share * z);
        }
        let kd = self.method.distance(step.student.logits, &self.mean, step.classes, step.d_logits);
        Ok(Terms::of("kd", kd))
    }

    fn lr(&self, base: f32, step: usize) -> f32 {
        let done = step as f64 / self.method.steps as f64;
        (f64::from(base) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())) as f32
    }

    fn stop(&mut self, params: &[f32], steps: usize, judge: &mut Judge<'_>) -> Result<bool> {
        let last = steps >= self.method.steps;
        if let Some(watch) = &mut self.watch
            && (last || steps.is_multiple_of(self.method.evaluate_every))
        {
            watch.look(params, steps, judge);
            return Ok(last || steps - watch.at >= self.method.patience);
        }
        Ok(last)
    }
}

/// The best model on the validation samples so far.
struct Watch<'a> {
    samples: Samples<'a>,
    best: Params,
    accuracy: f64,
    at: usize,
    /// What the last look found; kept for its memory.
    found: Evaluation,
}

impl<'a> Watch<'a> {
    fn new(trainer: &mut Trainer, samples: Samples<'a>, start: &Params) -> Self {
        let found = trainer.score(start, samples);
        Self { samples, best: start.clone(), accuracy: found.accuracy(), at: 0, found }
    }

    fn look(&mut self, params: &[f32], steps: usize, judge: &mut Judge<'_>) {
        judge.score(params, self.samples, &mut self.found);
        let accuracy = self.found.accuracy();
        if accuracy > self.accuracy {
            self.best.0.copy_from_slice(params);
            (self.accuracy, self.at) = (accuracy, steps);
        }
    }
}

impl Hyper for FedDf {
    const ENTRY: Entry = Entry::new::<Self>(
        "feddf",
        "Average the weights, then learn the mean answer of all uploads on unlabelled samples.",
        "Lin et al., NeurIPS 2020, arXiv:2006.07242, Algorithm 1",
        "w <- w - eta * grad KL(softmax(mean_k z_k(x)) || softmax(z(x))), from w = sum_k n_k / n * w_k",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "steps",
                symbol: "J",
                summary: "distillation steps of the server a round, at most",
                default: "200",
                range: "0 or more",
                paper: "10000",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "batch",
                symbol: "",
                summary: "unlabelled samples a step",
                default: "128",
                range: "1 or more",
                paper: "128",
                at_zero: AtZero::Refused,
            },
            Parameter {
                name: "lr",
                symbol: "eta",
                summary: "first learning rate of Adam; it falls to 0 as half a cosine",
                default: "0.001",
                range: "0 or more",
                paper: "0.001",
                at_zero: AtZero::Does("the weights do not move"),
            },
            Parameter {
                name: "temperature",
                symbol: "T",
                summary: "temperature of both softmaxes, without a factor",
                default: "1.0",
                range: "above 0",
                paper: "1",
                at_zero: AtZero::Refused,
            },
            Parameter {
                name: "evaluate-every",
                symbol: "",
                summary: "steps between looks at the validation samples, if the server holds some",
                default: "20",
                range: "1 or more",
                paper: "100",
                at_zero: AtZero::Refused,
            },
            Parameter {
                name: "patience",
                symbol: "",
                summary: "steps without a better validation accuracy after which to stop",
                default: "100",
                range: "1 or more",
                paper: "1000",
                at_zero: AtZero::Refused,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("batch", self.batch, self.batch >= 1, "1 or more")?;
        Range::check("lr", self.lr, self.lr.is_finite() && self.lr >= 0.0, "a finite number 0 or more")?;
        let tau = self.temperature;
        Range::check("temperature", tau, tau.is_finite() && tau > 0.0, "a finite number above 0")?;
        Range::check("evaluate-every", self.evaluate_every, self.evaluate_every >= 1, "1 or more")?;
        Range::check("patience", self.patience, self.patience >= 1, "1 or more")
    }
}
