//! Golden vectors, one batch under a method, and whole small federations.

#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Normalisation, Shape, Split};
use fedelity_fl::rng::below;
use fedelity_fl::{
    Coordinator, Federation, Held, Local, Method, Objective, Payload, Purpose, Result, Samples, Scaling, Scratch,
    ServerData, Step, Task, Terms, Trainer, Training, Weighting, client, stream,
};
use fedelity_methods::build;
use fedelity_nn::{Architecture, Batch, InputShape, Isa, Layer, Model, Node, OptimizerKind, Params};
use serde_json::Value;
use toml::Table;

// Golden vectors.

/// A file of the folder that `FEDELITY_GOLDEN` names, or of the workspace's own.
pub(crate) fn golden(file: &str) -> Value {
    let folder = std::env::var_os("FEDELITY_GOLDEN")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden"), PathBuf::from);
    serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
}

/// All numbers of nested arrays, in order.
pub(crate) fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    flat(value).into_iter().map(|number| number as f32).collect()
}

pub(crate) fn wholes<T: TryFrom<u64>>(value: &Value) -> Vec<T> {
    let whole = |value: &Value| T::try_from(value.as_u64().unwrap()).ok().unwrap();
    value.as_array().unwrap().iter().map(whole).collect()
}

/// The method of this id with the parameters of a case and further keys.
pub(crate) fn method(id: &str, params: &Value, more: &str) -> Arc<dyn Method> {
    let mut settings: Table = more.parse().unwrap();
    for (key, value) in params.as_object().unwrap() {
        let value = match value {
            Value::Bool(flag) => toml::Value::from(*flag),
            Value::String(word) => toml::Value::from(word.as_str()),
            number => toml::Value::from(number.as_f64().unwrap()),
        };
        settings.insert(key.replace('_', "-"), value);
    }
    build(id, &settings).unwrap().method
}

/// Within `tolerance` of the largest expected entry.
pub(crate) fn assert_near(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    for (i, (&got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            (f64::from(got) - expected).abs() <= tolerance * scale,
            "{what}[{i}]: {got} for {expected}, of {scale}"
        );
    }
}

/// splitmix64, as the vectors say.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn symmetric(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }
}

// One batch.

/// One batch, seen by a client under a method.
pub(crate) struct Scene {
    pub(crate) model: Arc<Model>,
    /// The weights that were received.
    pub(crate) global: Vec<f32>,
    pub(crate) images: Vec<f32>,
    pub(crate) labels: Vec<u16>,
    /// The samples of each class that the client holds.
    pub(crate) counts: Vec<usize>,
    pub(crate) round: usize,
    pub(crate) down: Payload,
    pub(crate) memory: Payload,
    pub(crate) training: Training,
}

struct Bound<'a, 'b> {
    method: &'a dyn Method,
    local: &'a mut Local<'b>,
}

impl Objective for Bound<'_, '_> {
    fn loss(&mut self, step: &mut Step<'_>) -> Result<Terms> {
        self.method.loss(self.local, step)
    }
}

impl Scene {
    /// A scene whose sample i is the i-th unit vector, so that a dense layer's column i is what it says about it.
    pub(crate) fn one_hot(features: Option<usize>, labels: Vec<u16>, classes: usize) -> Self {
        let n = labels.len();
        let input = InputShape::Image { channels: 1, height: 1, width: n };
        let extract = features.map(|out| Node::named("extract", Layer::Dense { out }));
        let extractor = std::iter::once(Node::plain(Layer::Flatten)).chain(extract).collect();
        let arch = Architecture { name: "unit".into(), input, classes, extractor, head: "head".into() };
        let model = Arc::new(Model::compile(&arch, Isa::detect()).unwrap());
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
        let teachers: Vec<_> = declared.iter().map(|teacher| teacher.resolve(&self.global)).collect();
        let images = Batch::Floats { rows: &self.images };
        let mut trainer = Trainer::new(self.model.clone());
        let mut bound = Bound { method, local: &mut local };
        let (terms, grad) = trainer.gradient(&images, &self.labels, &teachers, &mut params, &mut bound).unwrap();
        let mut grad = grad[..params.len()].to_vec();
        method.adjust(&mut local, &params, &mut grad).unwrap();
        (terms.total(), grad)
    }
}

/// `[sample][width]` as the weights `[width][sample]` of a dense layer on unit vectors.
pub(crate) fn columns(rows: &[f32], width: usize) -> Vec<f32> {
    let n = rows.len() / width;
    (0..width * n).map(|at| rows[at % n * width + at / n]).collect()
}

// Whole federations.

pub(crate) const CLASSES: usize = 4;
const SEED: u64 = 5;
const SHAPE: InputShape = InputShape::Image { channels: 1, height: 5, width: 4 };

/// Client 2 holds one class, client 4 one sample, client 5 nothing; class 3 is with client 1 alone.
const CLIENTS: [&[u16]; 6] = [
    &[0, 0, 1, 2, 1, 0, 2, 1, 0, 1, 2, 0, 0],
    &[3, 1, 3, 1, 2, 3, 3, 1, 1, 3, 2],
    &[0; 9],
    &[2, 2, 1, 0, 2, 2, 1, 2, 2, 0, 1, 2, 0, 1, 2, 2, 2],
    &[1],
    &[],
];

/// A network without kinks, so that differences of its loss are smooth.
pub(crate) fn smooth_model() -> Arc<Model> {
    let conv = Node::named("conv", Layer::Conv { out: 4, kernel: 3, stride: 1, pad: 1, bias: true });
    let norm = Node::named("norm", Layer::GroupNorm { channels_per_group: 2 });
    let dense = Node::named("dense", Layer::Dense { out: 6 });
    let extractor = vec![conv, norm, Node::plain(Layer::Flatten), dense];
    let arch = Architecture { name: "smooth".into(), input: SHAPE, classes: CLASSES, extractor, head: "fc".into() };
    Arc::new(Model::compile(&arch, Isa::detect()).unwrap())
}

/// What a federation did.
#[derive(Debug, PartialEq)]
pub(crate) struct Story {
    /// The weights after each round.
    pub(crate) globals: Vec<Params>,
    /// By round, bytes to a client and from one.
    pub(crate) traffic: Vec<(u64, u64)>,
    pub(crate) losses: Vec<f64>,
}

/// Some rounds in which all clients take part, with auxiliary samples of these classes on the server.
pub(crate) fn rounds(method: Arc<dyn Method>, auxiliary: Option<&[u16]>, teacher_cache: bool) -> Result<Story> {
    let labels: Vec<u16> =
        CLIENTS.iter().chain([&auxiliary.unwrap_or(&[])]).flat_map(|of| of.iter().copied()).collect();
    let mut rng = stream(99, Purpose::Method(0), 0, 0, 0);
    let pixels = labels.iter().flat_map(|&label| vec![label; SHAPE.len()]);
    let pixels = pixels.map(|label| (40 * label) as u8 + below(&mut rng, 90) as u8).collect();
    let data = Arc::new(Dataset {
        name: "small".into(),
        classes: ["a", "b", "c", "d"].map(String::from).to_vec(),
        shape: Shape::Image(ImageShape { channels: 1, height: 5, width: 4 }),
        train: Split::images(pixels, labels),
        test: Split::default(),
        normalisation: Normalisation { mean: vec![0.4], std: vec![0.25] },
    });
    let ends: Vec<u32> = CLIENTS
        .iter()
        .scan(0, |end, labels| {
            *end += labels.len() as u32;
            Some(*end)
        })
        .collect();
    let first = ends[CLIENTS.len() - 1];
    let held = auxiliary.map(|labels| Held::new(data.clone(), (first..first + labels.len() as u32).collect()));
    let optimizer = OptimizerKind::Sgd { momentum: 0.9 };
    let training = Training { epochs: 2, batch: 8, optimizer, lr: 0.02, teacher_cache, ..Training::default() };
    let mut coordinator = Coordinator::new(Federation {
        model: smooth_model(),
        method: method.clone(),
        training: training.clone(),
        weighting: Weighting::Size,
        clients: CLIENTS.len(),
        seed: SEED,
        server_data: ServerData { auxiliary: held, ..ServerData::default() },
    })?;
    let mut trainer = Trainer::new(coordinator.federation().model.clone());
    let scaling = Scaling::from(&data.normalisation);
    let mut memories = vec![Payload::new(); CLIENTS.len()];
    let mut story = Story { globals: vec![], traffic: vec![], losses: vec![] };
    for _ in 0..4 {
        let broadcast = coordinator.open()?;
        for (k, labels) in CLIENTS.iter().enumerate() {
            let indices: Vec<u32> = (ends[k] - labels.len() as u32..ends[k]).collect();
            let samples = Samples { split: &data.train, indices: &indices, scaling: &scaling };
            let (method, memory) = (&*method, &memories[k]);
            let task =
                Task { method, training: &training, seed: SEED, client: k, samples, broadcast: &broadcast, memory };
            let done = client(&mut trainer, &task, Params::default())?;
            if k == 0 {
                story.traffic.push((broadcast.bytes(), done.upload.bytes()));
            }
            story.losses.extend(done.fitted.terms.total());
            memories[k] = done.memory;
            coordinator.accept(done.upload)?;
        }
        coordinator.close()?;
        story.globals.push(Params::clone(coordinator.global()));
    }
    Ok(story)
}
