//! The only training loop, for clients and for methods that train on the server.

use std::sync::Arc;

use fedelity_data::Inputs;
use fedelity_nn::{Batch, Model, Optimizer, OptimizerKind, Outputs, Session};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use crate::augmented::Augmented;
use crate::payload::all_finite;
use crate::rng::{Purpose, SERVER, shuffle, stream};
use crate::step::{HeadScratch, Step};
use crate::teacher::{Frozen, TeacherOutputs};
use crate::{CHUNK, Evaluation, FlError, Result, Samples, TermMeans, Terms, Training};

/// What is minimised: on a client, its method's loss; a server that trains brings its own.
pub trait Objective {
    /// The loss of one batch; adds gradients to the step.
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms>;

    /// The part of the loss that depends only on the weights; adds its gradient, before clipping, weight decay and
    /// momentum.
    fn adjust(&mut self, _params: &[f32], _grad: &mut [f32]) -> Result<Terms> {
        Ok(Terms::default())
    }

    /// The learning rate of a step, counted from 0, given the one from the settings.
    fn lr(&self, base: f32, _step: usize) -> f32 {
        base
    }

    /// Whether to stop after this many steps. The judge can run the model between steps.
    fn stop(&mut self, _params: &[f32], _steps: usize, _judge: &mut Judge<'_>) -> Result<bool> {
        Ok(false)
    }
}

/// Runs the model in evaluation mode during training, in the training's memory.
#[derive(Debug)]
pub struct Judge<'a>(&'a mut Trainer);

impl Judge<'_> {
    /// Evaluates these weights on labelled samples; `found` is overwritten, and nothing is allocated.
    pub fn score(&mut self, params: &[f32], samples: Samples<'_>, found: &mut Evaluation) {
        self.0.score_into(params, samples, found);
    }
}

/// Where training runs. Determines the random streams and is named if training diverges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    Client(usize),
    Server,
}

/// What to train on and how.
#[derive(Clone, Copy, Debug)]
pub struct Fit<'a> {
    pub samples: Samples<'a>,
    /// Epochs, batch, optimiser and the rest.
    pub training: &'a Training,
    /// Frozen weights whose outputs the objective reads.
    pub teachers: &'a [Frozen<'a>],
    pub seed: u64,
    /// The round, counted from 0.
    pub round: usize,
    pub site: Site,
}

/// The result of training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitReport {
    pub steps: usize,
    /// The terms of the loss, averaged over all samples of all epochs.
    pub terms: TermMeans,
    /// Samples that went through teachers, counted once per teacher.
    pub teacher_passes: u64,
}

/// One worker's memory for training and evaluation. Reuse it across clients and rounds: once it has seen the largest
/// client, it allocates nothing.
pub struct Trainer {
    pub(crate) model: Arc<Model>,
    pub(crate) session: Box<dyn Session>,
    optimizer: Option<(OptimizerKind, f32, Optimizer)>,
    grad: Vec<f32>,
    d_logits: Vec<f32>,
    d_features: Vec<f32>,
    head: HeadScratch,
    teachers: TeacherOutputs,
    augmented: Augmented,
    order: Vec<u32>,
    indices: Vec<u32>,
    pub(crate) labels: Vec<u16>,
}

impl std::fmt::Debug for Trainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer").field("model", &self.model.name()).finish_non_exhaustive()
    }
}

/// The position of a batch in the run.
#[derive(Clone, Copy, Default)]
struct Moment {
    epoch: usize,
    step: usize,
    dropout: u64,
}

impl Trainer {
    /// A trainer for this model. Memory is allocated on first use.
    pub fn new(model: Arc<Model>) -> Self {
        Self {
            session: model.session(),
            model,
            optimizer: None,
            grad: Vec::new(),
            d_logits: Vec::new(),
            d_features: Vec::new(),
            head: HeadScratch::default(),
            teachers: TeacherOutputs::default(),
            augmented: Augmented::default(),
            order: Vec::new(),
            indices: Vec::new(),
            labels: Vec::new(),
        }
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Trains `params` in place.
    pub fn fit(&mut self, fit: &Fit<'_>, params: &mut [f32], objective: &mut dyn Objective) -> Result<FitReport> {
        let (training, samples) = (fit.training, fit.samples);
        let mut fitted = FitReport::default();
        if training.epochs == 0 || samples.is_empty() {
            return Ok(fitted);
        }
        let base = training.lr_at(fit.round);
        let (who, round) = (fit.site.stream(), fit.round as u64);
        let mut optimizer = self.fresh_optimizer(training);
        self.start(fit.teachers);
        let augmented = fit.augmented();
        // Teachers must see what the student sees, which is new in every epoch.
        let cached = training.teacher_cache && !augmented;
        if cached && !fit.teachers.is_empty() {
            self.teachers.fill(&mut *self.session, fit.teachers, samples);
            fitted.teacher_passes = (fit.teachers.len() * samples.len()) as u64;
        }
        let mut order = std::mem::take(&mut self.order);
        let mut views = std::mem::take(&mut self.augmented);
        let mut last = (0, 0.0);
        'epochs: for epoch in 0..training.epochs {
            order.clear();
            order.extend(0..samples.len() as u32);
            let stream = |purpose| stream(fit.seed, purpose, round, who, epoch as u64);
            shuffle(&mut stream(Purpose::Batches), &mut order);
            let mut dropout = stream(Purpose::Dropout);
            let mut rng = stream(Purpose::Method(0));
            let mut looks = stream(Purpose::Augment);
            for positions in order.chunks(training.batch.max(1)) {
                let at = Moment { epoch, step: fitted.steps, dropout: dropout.next_u64() };
                let indices = self.choose(samples, positions);
                let chosen = samples.at(&indices);
                let batch = if augmented {
                    views.batch(&training.augmentation, &self.model, chosen, positions, &mut looks)
                } else {
                    chosen.batch()
                };
                if cached {
                    self.teachers.pick(fit.teachers, positions, self.model.classes(), self.model.features());
                } else {
                    self.teachers.run(&mut *self.session, fit.teachers, &batch);
                    fitted.teacher_passes += (fit.teachers.len() * positions.len()) as u64;
                }
                let terms = self.differentiate(at, &batch, fit.teachers, params, &mut rng, objective)?;
                self.indices = indices;
                last = (epoch, terms.total());
                if !last.1.is_finite() {
                    return Err(fit.diverged(epoch, fitted.steps + 1, last.1));
                }
                if let Some(max) = training.clip {
                    self.model.clip_norm(&mut self.grad, max);
                }
                optimizer.step(params, &self.grad, objective.lr(base, fitted.steps));
                fitted.steps += 1;
                fitted.terms.add(&terms, positions.len());
                if objective.stop(params, fitted.steps, &mut Judge(self))? {
                    break 'epochs;
                }
            }
        }
        self.order = order;
        self.augmented = views;
        self.optimizer = Some((training.optimizer, training.weight_decay, optimizer));
        if !all_finite(params) {
            return Err(fit.diverged(last.0, fitted.steps, last.1));
        }
        Ok(fitted)
    }

    /// The loss and its gradient on one batch, outside training, computed as in [`fit`](Self::fit). Teachers run on the
    /// batch. Running statistics inside `params` are updated.
    pub fn gradient(
        &mut self,
        batch: &Batch<'_>,
        labels: &[u16],
        teachers: &[Frozen<'_>],
        params: &mut [f32],
        objective: &mut dyn Objective,
    ) -> Result<(Terms, &[f32])> {
        self.start(teachers);
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.teachers.run(&mut *self.session, teachers, batch);
        let mut rng = stream(0, Purpose::Method(u32::MAX), 0, 0, 0);
        let terms = self.differentiate(Moment::default(), batch, teachers, params, &mut rng, objective)?;
        Ok((terms, &self.grad))
    }

    /// Runs the model in evaluation mode over samples in chunks of [`CHUNK`]; `each` gets outputs and labels.
    pub fn evaluate(&mut self, params: &[f32], samples: Samples<'_>, each: &mut dyn FnMut(&Outputs<'_>, &[u16])) {
        for indices in samples.indices.chunks(CHUNK) {
            let chunk = samples.at(indices);
            self.labels.clear();
            self.labels.extend(chunk.labels());
            each(&self.session.evaluate(params, &chunk.batch()), &self.labels);
        }
    }

    /// Evaluates these weights on labelled samples.
    pub fn score(&mut self, params: &[f32], samples: Samples<'_>) -> Evaluation {
        let mut found = Evaluation::new(self.model.classes());
        self.score_into(params, samples, &mut found);
        found
    }

    fn score_into(&mut self, params: &[f32], samples: Samples<'_>, found: &mut Evaluation) {
        found.clear(self.model.classes());
        self.evaluate(params, samples, &mut |outputs, labels| found.add(outputs, labels));
    }

    /// The indices of a batch, by position among the samples; stores its labels in `self.labels`.
    fn choose(&mut self, samples: Samples<'_>, positions: &[u32]) -> Vec<u32> {
        let mut indices = std::mem::take(&mut self.indices);
        indices.clear();
        indices.extend(positions.iter().map(|&position| samples.indices[position as usize]));
        self.labels.clear();
        self.labels.extend(samples.at(&indices).labels());
        indices
    }

    /// Forward, loss and backward on one batch whose labels and teacher outputs are in place. The gradient, including
    /// that of the weights-only terms, is left in `self.grad`.
    fn differentiate(
        &mut self,
        at: Moment,
        batch: &Batch<'_>,
        teachers: &[Frozen<'_>],
        params: &mut [f32],
        rng: &mut ChaCha8Rng,
        objective: &mut dyn Objective,
    ) -> Result<Terms> {
        let (classes, features, n) = (self.model.classes(), self.model.features(), self.labels.len());
        self.grad[self.model.head()].fill(0.0);
        grow(&mut self.d_logits, n * classes).fill(0.0);
        grow(&mut self.d_features, n * features);
        self.session.train(params, batch, at.dropout);
        let mut step = Step {
            epoch: at.epoch,
            step: at.step,
            labels: &self.labels,
            classes,
            features,
            student: self.session.outputs(),
            d_logits: &mut self.d_logits[..n * classes],
            rng,
            model: &self.model,
            params,
            grad: &mut self.grad,
            frozen: teachers,
            outputs: &self.teachers,
            d_features: &mut self.d_features[..n * features],
            d_features_used: false,
            head: &mut self.head,
        };
        let terms = objective.loss(&mut step)?;
        let used = step.d_features_used;
        let d_features = used.then(|| &self.d_features[..n * features]);
        self.session.backward(params, &self.d_logits[..n * classes], d_features, &mut self.grad);
        Ok(terms.and(&objective.adjust(params, &mut self.grad)?))
    }

    /// A reset optimiser.
    fn fresh_optimizer(&mut self, training: &Training) -> Optimizer {
        match self.optimizer.take() {
            Some((kind, decay, mut kept)) if kind == training.optimizer && decay == training.weight_decay => {
                kept.reset();
                kept
            }
            _ => self.model.optimizer(training.optimizer, training.weight_decay),
        }
    }

    fn start(&mut self, teachers: &[Frozen<'_>]) {
        grow(&mut self.grad, self.model.layout().len());
        self.teachers.start(teachers.len());
    }
}

impl Site {
    fn stream(self) -> u64 {
        match self {
            Self::Client(client) => client as u64,
            Self::Server => SERVER,
        }
    }
}

impl Fit<'_> {
    /// Whether images are augmented: on clients, if the settings say so; never on the server.
    fn augmented(&self) -> bool {
        let images = matches!(self.samples.split.inputs, Inputs::Bytes(_));
        images && matches!(self.site, Site::Client(_)) && !self.training.augmentation.is_none()
    }

    fn diverged(&self, epoch: usize, step: usize, loss: f32) -> FlError {
        let (round, epoch) = (self.round + 1, epoch + 1);
        match self.site {
            Site::Client(client) => FlError::Diverged { round, client, epoch, step, loss },
            Site::Server => FlError::ServerDiverged { round, epoch, step, loss },
        }
    }
}

/// The first `len` numbers of a buffer that only ever grows.
fn grow(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}
