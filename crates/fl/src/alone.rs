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
    /// The features of a teacher may be empty if the loss does not read them.
    pub teachers: &'a [Outputs<'a>],
    /// The weights of the model's head, `[class][feature]`, and then its bias; empty if the loss does not run it.
    pub head: &'a [f32],
    /// The same for each teacher; empty if the loss runs none of them.
    pub teacher_heads: &'a [Vec<f32>],
    /// What the method's randomness is drawn from.
    pub seed: u64,
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
    /// Beyond what comes through the logits, of the shape of [`GivenOutputs::head`].
    pub head: Vec<f32>,
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
        let params = if given.head.is_empty() { &self.params[..] } else { given.head };
        let heads = given.teacher_heads;
        if params.len() != self.params.len() || heads.iter().any(|head| head.len() != params.len()) {
            return Err(wrong("the heads are not those of a model with these features and classes".to_string()));
        }
        let (split, scaling) = (Split::default(), Scaling { scale: Vec::new(), shift: Vec::new() });
        let nothing = Samples { split: &split, indices: &[], scaling: &scaling };
        let mut down = given.down.clone();
        let training = Training { batch: n.max(1), ..self.training.clone() };
        let declared = loop {
            match self.method.teachers(&self.local(given, &training, &down, nothing)) {
                // Their outputs are known, so their weights do not matter.
                Err(FlError::Missing { name, .. }) if down.len() < MOST_TEACHERS => down.put(name, &self.params[..]),
                found => break found?,
            }
        };
        let (mut local, needs) = (self.local(given, &training, &down, nothing), self.method.needs());
        let (found, remembered) = (given.teachers.len(), if needs.client_memory { needs.extra_passes } else { 0 });
        if found != declared.len() && !(found == remembered && found > 0) {
            let expected = declared.len().max(remembered);
            return Err(wrong(format!("its loss has {expected} teachers, and the outputs of {found} were given")));
        }
        if !heads.is_empty() && heads.len() != found {
            let given = heads.len();
            return Err(wrong(format!("its loss has {found} teachers, and teacher_heads of {given} were given")));
        }
        let weights = |k: usize| heads.get(k).map_or(&self.params[..], Vec::as_slice);
        let frozen: Vec<Frozen<'_>> = (0..found).map(|k| Frozen { weights: weights(k), features: true }).collect();
        let none = vec![0.0; n * features];
        let known = given.teachers.iter().map(|one| match one.features {
            [] => Outputs { features: &none, ..*one },
            _ => *one,
        });
        let outputs = TeacherOutputs::given(&known.collect::<Vec<_>>());
        let (mut d_logits, mut d_features) = (vec![0.0; n * classes], vec![0.0; n * features]);
        let (mut grad, mut head) = (vec![0.0; params.len()], HeadScratch::default());
        let mut step = Step {
            epoch: 0,
            step: 0,
            labels: given.labels,
            classes,
            features,
            student: given.student,
            d_logits: &mut d_logits,
            rng: &mut stream(given.seed, Purpose::Method(u32::MAX), 0, 0, 0),
            model: &self.model,
            params,
            grad: &mut grad,
            frozen: &frozen,
            outputs: &outputs,
            d_features: &mut d_features,
            d_features_used: false,
            head: &mut head,
        };
        let terms = self.method.loss(&mut local, &mut step)?;
        let used = step.d_features_used;
        let of_memory = found != declared.len() && used;
        let reads_features = of_memory || declared.iter().any(|one| one.resolve(params).is_ok_and(|one| one.features));
        let absent = [
            (head.student && given.head.is_empty(), "the model's head, whose weights were not given: head"),
            (head.teacher && heads.is_empty(), "the teacher's head, whose weights were not given: teacher_heads"),
            (
                reads_features && given.teachers.iter().any(|one| one.features.is_empty()),
                "the teacher's features, which were not given: teacher_features",
            ),
        ];
        if let Some((_, what)) = absent.iter().find(|(absent, _)| *absent) {
            return Err(wrong(format!("with these settings its loss reads {what}")));
        }
        Ok((terms, AloneGradient { logits: d_logits, features: used.then_some(d_features), head: grad }))
    }

    /// A client without samples.
    fn local<'a>(
        &'a self,
        given: &GivenOutputs<'a>,
        training: &'a Training,
        down: &'a Payload,
        samples: Samples<'a>,
    ) -> Local<'a> {
        Local {
            model: &self.model,
            training,
            client: 0,
            // From the second round on, every teacher is there.
            round: 1,
            lr: training.lr,
            global: &self.params,
            down,
            memory: given.memory,
            samples,
            counts: given.counts,
            scratch: Scratch::default(),
        }
    }
}
