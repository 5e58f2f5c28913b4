//! One batch, seen by a client under a method.

use std::sync::Arc;

use fedelity_data::Split;
use fedelity_fl::{ClientObjective, Local, Method, Payload, Samples, Scaling, Scratch, Trainer, Training};
use fedelity_nn::{Architecture, Batch, InputShape, Layer, Model, Node, cpu};

/// One batch, seen by a client under a method.
pub(crate) struct Scene {
    pub(crate) model: Arc<Model>,
    /// The received weights.
    pub(crate) global: Vec<f32>,
    pub(crate) images: Vec<f32>,
    pub(crate) labels: Vec<u16>,
    /// The client's samples per class.
    pub(crate) counts: Vec<usize>,
    pub(crate) round: usize,
    pub(crate) down: Payload,
    pub(crate) memory: Payload,
    pub(crate) training: Training,
}

impl Scene {
    /// A scene whose sample i is the i-th unit vector, so that column i of a dense layer is its output for it.
    pub(crate) fn one_hot(features: Option<usize>, labels: Vec<u16>, classes: usize) -> Self {
        let n = labels.len();
        let input = InputShape::Image { channels: 1, height: 1, width: n };
        let extract = features.map(|out| Node::named("extract", Layer::Dense { out }));
        let extractor = std::iter::once(Node::plain(Layer::Flatten)).chain(extract).collect();
        let arch = Architecture { name: "unit".into(), input, classes, extractor, head: "head".into() };
        let model = Arc::new(Model::compile(&arch, cpu()).unwrap());
        let images = (0..n * n).map(|at| if at % (n + 1) == 0 { 1.0 } else { 0.0 }).collect();
        Self {
            global: vec![0.0; model.layout().len()],
            model,
            images,
            labels,
            counts: vec![1; classes],
            round: 1,
            down: Payload::new(),
            memory: Payload::new(),
            training: Training::default(),
        }
    }

    /// Loss and gradient at `params`, teachers and adjustment included.
    pub(crate) fn gradient(&self, method: &dyn Method, params: &[f32]) -> (f32, Vec<f32>) {
        let mut params = params.to_vec();
        let (split, scaling) = (Split::default(), Scaling { scale: vec![], shift: vec![] });
        let mut local = Local {
            model: &self.model,
            training: &self.training,
            client: 0,
            round: self.round,
            lr: self.training.lr,
            global: &self.global,
            down: &self.down,
            memory: &self.memory,
            samples: Samples { split: &split, indices: &[], scaling: &scaling },
            counts: &self.counts,
            scratch: Scratch::default(),
        };
        let declared = method.teachers(&local).unwrap();
        let teachers: Vec<_> = declared.iter().map(|teacher| teacher.resolve(&self.global).unwrap()).collect();
        let images = Batch::Floats { rows: &self.images };
        let mut trainer = Trainer::new(self.model.clone());
        let mut objective = ClientObjective { method, local: &mut local };
        let (terms, grad) = trainer.gradient(&images, &self.labels, &teachers, &mut params, &mut objective).unwrap();
        (terms.total(), grad[..params.len()].to_vec())
    }
}

/// `[sample][width]` as the weights `[width][sample]` of a dense layer on unit vectors.
pub(crate) fn columns(rows: &[f32], width: usize) -> Vec<f32> {
    let n = rows.len() / width;
    (0..width * n).map(|at| rows[at % n * width + at / n]).collect()
}
