//! A method's loss by itself, on outputs that were computed elsewhere.

use std::sync::Arc;

use fedelity_data::Split;
use fedelity_nn::{Architecture, Engine, InputShape, Layer, Model, Node, Outputs};

use crate::rng::{Purpose, stream};
use crate::step::{HeadScratch, Step};
use crate::teacher::TeacherOutputs;
use crate::{Extra, FlError, Frozen, Local, Method, Payload, Result, Samples, Scaling, Scratch, Terms, Training};

/// Most teachers whose weights a method looks for.
const MOST_TEACHERS: usize = 64;

/// The loss of a method for logits of a width, and features of a width if it reads them.
#[derive(Debug)]
pub struct AloneLoss {
    method: Arc<dyn Method>,
    /// A head without a network.
    model: Model,
    params: Vec<f32>,
    training: Training,
}

/// Outputs of a model and its teachers on one batch, with one row per sample, and what else the loss may read.
#[derive(Clone, Copy, Debug)]
pub struct GivenOutputs<'a> {
    pub labels: &'a [u16],
    pub student: Outputs<'a>,
    pub teachers: &'a [Outputs<'a>],
    /// What the server sent.
    pub down: &'a Payload,
    /// What the client remembers.
    pub memory: &'a Payload,
    /// The client's samples per class.
    pub counts: &'a [usize],
}

/// Gradients of a loss, of the shape of what they are of.
#[derive(Clone, Debug, PartialEq)]
pub struct AloneGradient {
    pub logits: Vec<f32>,
    /// None if the loss does not depend on the features by themselves.
    pub features: Option<Vec<f32>>,
}

impl AloneLoss {
    pub fn new(method: Arc<dyn Method>, classes: usize, features: usize, engine: Arc<dyn Engine>) -> Result<Self> {
        let input = InputShape::Image { channels: 1, height: 1, width: features };
        let extractor = vec![Node::plain(Layer::Flatten)];
        let arch = Architecture { name: "head".to_string(), input, classes, extractor, head: "fc".to_string() };
        let (name, wrong) = (method.name(), |error: fedelity_nn::NnError| error.to_string());
        let model = Model::compile(&arch, engine).map_err(wrong);
        let model = model.map_err(|reason| FlError::Method { method: name, reason })?;
        let params = vec![0.0; model.layout().len()];
        Ok(Self { method, model, params, training: Training::default() })
    }

    /// The terms of the loss, and its gradient. Lengths must fit each other.
    pub fn compute(&self, given: &GivenOutputs<'_>) -> Result<(Terms, AloneGradient)> {
        let (classes, features, n) = (self.model.classes(), self.model.features(), given.labels.len());
        let wrong = |reason: String| FlError::Method { method: self.method.name(), reason };
        Extra::check(&self.method.receives(&self.model), given.down)
            .map_err(|reason| wrong(format!("what is received does not fit: {reason}")))?;
        let (split, scaling) = (Split::default(), Scaling { scale: Vec::new(), shift: Vec::new() });
        let nothing = Samples { split: &split, indices: &[], scaling: &scaling };
        let mut down = given.down.clone();
        let declared = loop {
            match self.method.teachers(&self.local(given, &down, nothing)) {
                // Their outputs are known, so their weights do not matter.
                Err(FlError::Missing { name, .. }) if down.len() < MOST_TEACHERS => down.put(name, &self.params[..]),
                found => break found?.len(),
            }
        };
        let (mut local, needs) = (self.local(given, &down, nothing), self.method.needs());
        let (found, remembered) = (given.teachers.len(), if needs.client_memory { needs.extra_passes } else { 0 });
        if found != declared && !(found == remembered && found > 0) {
            let expected = declared.max(remembered);
            return Err(wrong(format!("its loss has {expected} teachers, and the outputs of {found} were given")));
        }
        let frozen = vec![Frozen { weights: &self.params, features: true }; found];
        let outputs = TeacherOutputs::given(given.teachers);
        let (mut d_logits, mut d_features) = (vec![0.0; n * classes], vec![0.0; n * features]);
        let (mut grad, mut head) = (vec![0.0; self.params.len()], HeadScratch::default());
        let mut step = Step {
            epoch: 0,
            step: 0,
            labels: given.labels,
            classes,
            features,
            student: given.student,
            d_logits: &mut d_logits,
            rng: &mut stream(0, Purpose::Method(u32::MAX), 0, 0, 0),
            model: &self.model,
            params: &self.params,
            grad: &mut grad,
            frozen: &frozen,
            outputs: &outputs,
            d_features: &mut d_features,
            d_features_used: false,
            head: &mut head,
        };
        let terms = self.method.loss(&mut local, &mut step)?;
        let used = step.d_features_used;
        if head.was_used() {
            let reason = "these settings make its loss run the model's head, which outputs do not have";
            return Err(wrong(reason.to_string()));
        }
        Ok((terms, AloneGradient { logits: d_logits, features: used.then_some(d_features) }))
    }

    /// A client without samples.
    fn local<'a>(&'a self, given: &GivenOutputs<'a>, down: &'a Payload, samples: Samples<'a>) -> Local<'a> {
        Local {
            model: &self.model,
            training: &self.training,
            client: 0,
            // From the second round on, every teacher is there.
            round: 1,
            lr: self.training.lr,
            global: &self.params,
            down,
            memory: given.memory,
            samples,
            counts: given.counts,
            scratch: Scratch::default(),
        }
    }
}
