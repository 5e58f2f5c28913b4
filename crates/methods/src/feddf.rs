//! FedDF: Lin, Kong, Stich, Jaggi, "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020,
//! arXiv:2006.07242, Algorithm 1.
//!
//!   clients train as in FedAvg; the server starts from x_0 = the mean of their weights x_k and takes the steps
//!   x_j = x_{j-1} - eta * d/dx KL( softmax(1/|S| * sum_{k in S} f(x_k, d)) || softmax(f(x_{j-1}, d)) )
//!   on batches d of unlabelled samples, f the logits
//!
//! The mean of weights can be worse than every model that goes into it; the mean of outputs rarely is. Distillation
//! turns the latter into one model. The server needs samples for that, but no labels.
//!
//! The steps use Adam with a cosine schedule and a gradient norm of at most 5, as in the authors' code. They run in the
//! engine's only training loop, with the uploads as teachers.
//!
//! Deviations:
//! - 200 steps per round by default where the paper takes 10,000: with batches of 128 that is 25,600 samples, about
//!   what a few clients train on, so a CPU can afford it in every round. The cosine ends with the last step.
//! - Early stopping is scaled accordingly: validation every 20 steps and a patience of 100 where the paper has 100 and
//!   1000. The mean of weights itself is the first candidate, so the validation accuracy never falls below it. Without
//!   validation samples all steps are taken and the last model counts.

use fedelity_fl::{
    Evaluation, Fit, FlError, Frozen, Gather, Judge, Method, Named, Needs, Objective, Payload, Result, Samples, Server,
    Site, Step, Terms, Trainer, Training,
};
use fedelity_keys::method;
use fedelity_nn::loss::{self, Kl};
use fedelity_nn::{OptimizerKind, Params};

/// The largest gradient norm in the authors' code.
const CLIP: f32 = 5.0;

/// Average the weights, then distil the uploads' mean output on unlabelled samples.
#[method(
    id = "feddf",
    title = "FedDF",
    reference = "Lin et al., NeurIPS 2020, arXiv:2006.07242, Algorithm 1",
    equation = "w <- w - eta * grad KL(softmax(mean_k z_k(x)) || softmax(z(x))), from w = sum_k n_k / n * w_k",
    helps = "Where the server holds unlabelled samples like those of the clients: what the local models agree on \
             there corrects the mean of their weights. The papers quoted for the other methods do not measure it."
)]
pub struct FedDf {
    /// Maximum number of distillation steps on the server per round.
    #[key(symbol = "J", default = 200, min = 0, paper = "10000", zero = fedavg)]
    pub steps: usize,
    /// Unlabelled samples per step.
    #[key(default = 128, min = 1, paper = "128")]
    pub batch: usize,
    /// Initial learning rate of Adam. It falls to 0 along half a cosine.
    #[key(symbol = "eta", default = 0.001, min = 0, paper = "0.001", zero = "the weights do not move")]
    pub lr: f64,
    /// Temperature of both softmaxes, without a factor T^2.
    #[key(symbol = "T", default = 1.0, above = 0, paper = "1")]
    pub temperature: f64,
    /// Steps between validations, if the server holds validation samples.
    #[key(default = 20, min = 1, paper = "100")]
    pub evaluate_every: usize,
    /// Stop after this many steps without a better validation accuracy.
    #[key(default = 100, min = 1, paper = "1000")]
    pub patience: usize,
}

impl FedDf {
    /// The server's training settings for this many samples.
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
            // With a single pass every sample comes up at most once: caching the teachers' outputs saves nothing.
            teacher_cache: teacher_cache && epochs > 1,
            ..Training::default()
        }
    }
}

impl Method for FedDf {
    fn needs(&self) -> Needs {
        Needs { unlabelled: true, each_upload: true, ..Needs::default() }
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, _: &mut Payload) -> Result<Params> {
        let mut student = gather.mean.finish()?;
        let missing = FlError::Needs { method: self.name(), what: "unlabelled samples on the server" };
        let samples = server.unlabelled.ok_or(missing)?;
        let frozen = |params| Frozen { weights: params, features: false };
        let teachers: Vec<Frozen<'_>> = gather.uploads.iter().map(|upload| frozen(&upload.params[..])).collect();
        let training = self.training(samples.len(), server.training.teacher_cache);
        let validation = server.validation.filter(|samples| !samples.is_empty());
        let best = validation.map(|samples| BestSoFar::new(server.trainer, samples, &student));
        let mut distillation = Distillation { method: self, mean: Vec::new(), best };
        let (seed, round) = (server.seed, server.round);
        let fit = Fit { samples, training: &training, teachers: &teachers, seed, round, site: Site::Server };
        server.trainer.fit(&fit, &mut student, &mut distillation)?;
        Ok(distillation.best.map_or(student, |best| best.params))
    }
}

/// The server's loss.
struct Distillation<'a> {
    method: &'a FedDf,
    mean: Vec<f32>,
    best: Option<BestSoFar<'a>>,
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
        let how = Kl { tau: self.method.temperature as f32, ..Kl::default() };
        Ok(Terms::of("kd", loss::kl(step.student.logits, &self.mean, step.classes, &how, step.d_logits)))
    }

    fn lr(&self, base: f32, step: usize) -> f32 {
        let done = step as f64 / self.method.steps as f64;
        (f64::from(base) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done))) as f32
    }

    fn stop(&mut self, params: &[f32], steps: usize, judge: &mut Judge<'_>) -> Result<bool> {
        let last = steps >= self.method.steps;
        if let Some(best) = &mut self.best
            && (last || steps.is_multiple_of(self.method.evaluate_every))
        {
            best.look(params, steps, judge);
            return Ok(last || steps - best.at >= self.method.patience);
        }
        Ok(last)
    }
}

/// The best model on the validation samples.
struct BestSoFar<'a> {
    samples: Samples<'a>,
    params: Params,
    accuracy: f64,
    at: usize,
    /// The latest evaluation; kept to reuse its memory.
    found: Evaluation,
}

impl<'a> BestSoFar<'a> {
    fn new(trainer: &mut Trainer, samples: Samples<'a>, start: &Params) -> Self {
        let found = trainer.score(start, samples);
        Self { samples, params: start.clone(), accuracy: found.accuracy(), at: 0, found }
    }

    fn look(&mut self, params: &[f32], steps: usize, judge: &mut Judge<'_>) {
        judge.score(params, self.samples, &mut self.found);
        let accuracy = self.found.accuracy();
        if accuracy > self.accuracy {
            self.params.0.copy_from_slice(params);
            (self.accuracy, self.at) = (accuracy, steps);
        }
    }
}
