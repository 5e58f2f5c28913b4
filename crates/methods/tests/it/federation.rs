//! A whole small federation of skewed clients, round by round.

use std::sync::Arc;

use fedelity_data::{Dataset, ImageShape, Normalisation, Shape, Split};
use fedelity_fl::rng::below;
use fedelity_fl::{
    Broadcast, ClientObjective, Coordinator, Federation, Finished, Held, Local, Memories, Method, Purpose, Result,
    Samples, Scaling, Scratch, ServerData, Task, Terms, Trainer, Training, Weighting, client, round, stream,
};
use fedelity_nn::{Architecture, InputShape, Layer, Model, Node, OptimizerKind, Params, cpu};

pub(crate) const CLASSES: usize = 4;
pub(crate) const SEED: u64 = 5;
const SHAPE: InputShape = InputShape::Image { channels: 1, height: 5, width: 4 };

/// Client 2 holds one class, client 4 one sample, client 5 nothing; only client 1 holds class 3. The first three take
/// the same number of steps in batches of 8.
pub(crate) const CLIENTS: [&[u16]; 6] = [
    &[0, 0, 1, 2, 1, 0, 2, 1, 0, 1, 2, 0, 0],
    &[3, 1, 3, 1, 2, 3, 3, 1, 1, 3, 2],
    &[0; 9],
    &[2, 2, 1, 0, 2, 2, 1, 2, 2, 0, 1, 2, 0, 1, 2, 2, 2],
    &[1],
    &[],
];
pub(crate) const EVERYBODY: &[usize] = &[0, 1, 2, 3, 4, 5];

/// The labels of auxiliary samples.
pub(crate) const AUXILIARY: &[u16] = &[0, 1, 2, 3, 3, 2, 1, 0, 0, 2, 3, 1];
/// Class 3 is missing.
pub(crate) const LACKING: &[u16] = &[0, 1, 2, 1, 0];

/// A small network of these layers after its first convolution.
fn network(name: &str, middle: Vec<Node>, features: usize) -> Arc<Model> {
    let conv = Node::named("conv", Layer::Conv { out: 4, kernel: 3, stride: 1, pad: 1, bias: true });
    let end = [Node::plain(Layer::Flatten), Node::named("dense", Layer::Dense { out: features })];
    let extractor = std::iter::once(conv).chain(middle).chain(end).collect();
    let arch = Architecture { name: name.into(), input: SHAPE, classes: CLASSES, extractor, head: "fc".into() };
    Arc::new(Model::compile(&arch, cpu()).unwrap())
}

/// A network without kinks, so that finite differences of its loss are smooth.
pub(crate) fn smooth_model() -> Arc<Model> {
    network("smooth", vec![Node::named("norm", Layer::GroupNorm { channels_per_group: 2 })], 6)
}

/// A network with running statistics.
pub(crate) fn batch_norm_model() -> Arc<Model> {
    network("batch", vec![Node::named("norm", Layer::BatchNorm), Node::plain(Layer::Relu)], 6)
}

pub(crate) fn plain_model() -> Arc<Model> {
    network("plain", vec![Node::plain(Layer::Relu)], 6)
}

/// Momentum and two epochs in batches of 8.
pub(crate) fn training() -> Training {
    let optimizer = OptimizerKind::Sgd { momentum: 0.9 };
    Training { epochs: 2, batch: 8, optimizer, lr: 0.02, ..Training::default() }
}

/// What a server may hold: the labels of its auxiliary samples, and whether it has the others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    pub(crate) auxiliary: &'static [u16],
    pub(crate) validation: bool,
    pub(crate) unlabelled: bool,
}

impl Holds {
    pub(crate) const NOTHING: Self = Self { auxiliary: &[], validation: false, unlabelled: false };
    pub(crate) const ALL: Self = Self { auxiliary: AUXILIARY, validation: true, unlabelled: true };

    /// Exactly what a method requires.
    pub(crate) fn needed_by(method: &dyn Method) -> Self {
        let needs = method.needs();
        let auxiliary = if needs.auxiliary { AUXILIARY } else { &[] };
        Self { auxiliary, validation: needs.validation, unlabelled: needs.unlabelled }
    }
}

/// A federation and all its clients.
pub(crate) struct TestRun {
    pub(crate) coordinator: Coordinator,
    pub(crate) memories: Memories,
    pub(crate) trainer: Trainer,
    /// The weights that each round started from, and those after the last.
    pub(crate) globals: Vec<Arc<Params>>,
    /// By round: bytes to a client and from the first one.
    pub(crate) traffic: Vec<(u64, u64)>,
    pub(crate) losses: Vec<f64>,
    data: Arc<Dataset>,
    scaling: Scaling,
}

/// The comparable results of a run: weights, traffic, losses.
pub(crate) type Story<'a> = (&'a [Arc<Params>], &'a [(u64, u64)], &'a [f64]);

impl TestRun {
    pub(crate) fn new(method: Arc<dyn Method>, model: Arc<Model>, training: Training, holds: Holds) -> Result<Self> {
        Self::weighted(Weighting::Size, method, model, training, holds)
    }

    pub(crate) fn weighted(
        weighting: Weighting,
        method: Arc<dyn Method>,
        model: Arc<Model>,
        training: Training,
        holds: Holds,
    ) -> Result<Self> {
        let data = Arc::new(data(holds.auxiliary));
        let trainer = Trainer::new(model.clone());
        let (clients, server_data) = (CLIENTS.len(), server_data(&data, holds));
        let federation = Federation { model, method, training, weighting, clients, seed: SEED, server_data };
        let coordinator = Coordinator::new(federation)?;
        let globals = vec![coordinator.global().clone()];
        let (memories, scaling) = (Memories::new(), Scaling::from(&data.normalisation));
        Ok(Self { coordinator, memories, trainer, globals, traffic: vec![], losses: vec![], data, scaling })
    }

    /// Runs rounds in which every client takes part.
    pub(crate) fn rounds(mut self, rounds: usize) -> Self {
        (0..rounds).for_each(|_| drop(self.round_of(EVERYBODY)));
        self
    }

    pub(crate) fn round(&mut self) -> Broadcast {
        self.round_of(EVERYBODY)
    }

    pub(crate) fn round_of(&mut self, clients: &[usize]) -> Broadcast {
        let mut up = None;
        let Self { coordinator, memories, trainer, losses, data, scaling, .. } = self;
        let broadcast = round(coordinator, memories, clients, |federation, broadcast, k, memory| {
            let indices = indices(k);
            let samples = Samples { split: &data.train, indices: &indices, scaling };
            let done = client(trainer, &federation.task(k, samples, broadcast, memory), Params::default())?;
            up.get_or_insert(done.upload.bytes());
            losses.extend(done.upload.terms.total());
            Ok(done)
        });
        let broadcast = broadcast.unwrap();
        self.globals.push(self.coordinator.global().clone());
        self.traffic.push((broadcast.bytes(), up.unwrap()));
        broadcast
    }

    /// One client's result for a broadcast under a method.
    pub(crate) fn client(&mut self, method: &dyn Method, broadcast: &Broadcast, k: usize) -> Result<Finished> {
        let indices = indices(k);
        let samples = Samples { split: &self.data.train, indices: &indices, scaling: &self.scaling };
        let memory = self.memories.get(&k).cloned().unwrap_or_default();
        let task = Task { method, ..self.coordinator.federation().task(k, samples, broadcast, &memory) };
        client(&mut self.trainer, &task, Params::default())
    }

    /// The loss of a client's whole set as one batch and its gradient, as in its training.
    pub(crate) fn gradient(
        &mut self,
        method: &dyn Method,
        broadcast: &Broadcast,
        k: usize,
        params: &[f32],
    ) -> (Terms, Vec<f32>) {
        let federation = self.coordinator.federation();
        let indices = indices(k);
        let samples = Samples { split: &self.data.train, indices: &indices, scaling: &self.scaling };
        let counts = samples.label_counts(CLASSES);
        let mut local = Local {
            model: &federation.model,
            training: &federation.training,
            client: k,
            round: broadcast.round,
            lr: federation.training.lr,
            global: &broadcast.global,
            down: &broadcast.payload,
            memory: &self.memories.get(&k).cloned().unwrap_or_default(),
            samples,
            counts: &counts,
            scratch: Scratch::default(),
        };
        let declared = method.teachers(&local).unwrap();
        let teachers: Vec<_> = declared.iter().map(|teacher| teacher.resolve(&broadcast.global).unwrap()).collect();
        let mut objective = ClientObjective { method, local: &mut local };
        let mut params = params.to_vec();
        let found = self.trainer.gradient(&samples.batch(), CLIENTS[k], &teachers, &mut params, &mut objective);
        let (terms, grad) = found.unwrap();
        (terms, grad[..params.len()].to_vec())
    }

    pub(crate) fn story(&self) -> Story<'_> {
        (&self.globals, &self.traffic, &self.losses)
    }

    /// The server's validation and unlabelled samples.
    pub(crate) fn held(&self) -> ServerData {
        server_data(&self.data, Holds { auxiliary: &[], ..Holds::ALL })
    }
}

fn indices(k: usize) -> Vec<u32> {
    let first: u32 = CLIENTS[..k].iter().map(|labels| labels.len() as u32).sum();
    (first..first + CLIENTS[k].len() as u32).collect()
}

/// The clients' samples, then 40 of all classes for the server, then auxiliary ones.
fn data(auxiliary: &[u16]) -> Dataset {
    let server = (0..40).map(|i| i % CLASSES as u16).chain(auxiliary.iter().copied());
    let labels: Vec<u16> = CLIENTS.iter().flat_map(|labels| labels.iter().copied()).chain(server).collect();
    let mut rng = stream(99, Purpose::Method(0), 0, 0, 0);
    let pixels = labels.iter().flat_map(|&label| vec![label; SHAPE.len()]);
    let pixels = pixels.map(|label| (40 * label) as u8 + below(&mut rng, 90) as u8).collect();
    Dataset {
        name: "small".into(),
        classes: ["a", "b", "c", "d"].map(String::from).to_vec(),
        shape: Shape::Image(ImageShape { channels: 1, height: 5, width: 4 }),
        train: Split::images(pixels, labels),
        test: Split::default(),
        normalisation: Normalisation { mean: vec![0.4], std: vec![0.25] },
        table: None,
    }
}

fn server_data(data: &Arc<Dataset>, holds: Holds) -> ServerData {
    let first: u32 = CLIENTS.iter().map(|labels| labels.len() as u32).sum();
    let held = |asked: bool, range: std::ops::Range<u32>| {
        asked.then(|| Held::new(data.clone(), range.map(|i| first + i).collect()))
    };
    ServerData {
        auxiliary: held(!holds.auxiliary.is_empty(), 40..40 + holds.auxiliary.len() as u32),
        validation: held(holds.validation, 0..16),
        unlabelled: held(holds.unlabelled, 16..40),
    }
}
