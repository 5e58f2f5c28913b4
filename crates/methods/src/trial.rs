//! Small federations and golden vectors for the tests of methods.

use std::path::PathBuf;
use std::sync::Arc;

use fedelity_data::Split;
use fedelity_fl::rng::below;
use fedelity_fl::{
    Coordinator, Federation, Local, Memories, Method, Payload, Purpose, Result, Samples, Scaling, Scratch, ServerData,
    ServerState, TermMeans, Trainer, Training, Upload, Weighting, client, round, sample_clients, stream,
};
use fedelity_nn::{Architecture, InputShape, Layer, Model, Node, OptimizerKind, Params, cpu};
use serde_json::Value;

const CLASSES: usize = 4;
const SHAPE: InputShape = InputShape::Image { channels: 1, height: 5, width: 4 };

/// A golden-vector file.
fn golden(name: &str) -> Value {
    let default = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden"));
    let path = std::env::var_os("FEDELITY_GOLDEN").map_or_else(default, PathBuf::from).join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The cases of this name in rules.json; at least one.
pub(crate) fn rules(name: &str) -> Vec<Value> {
    let all = golden("rules.json");
    let of_name = |case: &&Value| case["name"] == name;
    let cases: Vec<Value> = all["rules"].as_array().unwrap().iter().filter(of_name).cloned().collect();
    assert!(!cases.is_empty(), "no golden case '{name}'");
    cases
}

pub(crate) fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// Within `share` of the largest expected entry.
pub(crate) fn close(found: &[f32], expected: &Value, share: f64) {
    let expected: Vec<f64> = expected.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        assert!((f64::from(*found) - expected).abs() <= share * largest, "{found} instead of {expected}");
    }
}

/// A model of six trainable numbers, the length of the vectors in rules.json.
pub(crate) fn six() -> Arc<Model> {
    let input = InputShape::Image { channels: 1, height: 1, width: 2 };
    let extractor = vec![Node::plain(Layer::Flatten)];
    let arch = Architecture { name: "six".into(), input, classes: 2, extractor, head: "fc".into() };
    let model = Model::compile(&arch, cpu()).unwrap();
    assert_eq!((model.layout().len(), model.layout().trainable_len()), (6, 6));
    Arc::new(model)
}

/// A small network, with or without running statistics.
pub(crate) fn model(batch_norm: bool) -> Arc<Model> {
    let conv = Node::named("conv", Layer::Conv { out: 4, kernel: 3, stride: 1, pad: 1, bias: true });
    let norm = batch_norm.then(|| Node::named("norm", Layer::BatchNorm));
    let rest = [Node::plain(Layer::Relu), Node::plain(Layer::Flatten), Node::named("dense", Layer::Dense { out: 7 })];
    let extractor = std::iter::once(conv).chain(norm).chain(rest).collect();
    let arch = Architecture { name: "small".into(), input: SHAPE, classes: CLASSES, extractor, head: "fc".into() };
    Arc::new(Model::compile(&arch, cpu()).unwrap())
}

/// Images whose brightness follows the class, with noise.
fn split(samples: usize) -> Split {
    let mut rng = stream(99, Purpose::Method(0), 0, 0, 0);
    let labels: Vec<u16> = (0..samples).map(|_| below(&mut rng, CLASSES as u32) as u16).collect();
    let pixels = labels.iter().flat_map(|&label| vec![label; SHAPE.len()]);
    let pixels = pixels.map(|label| (40 * label) as u8 + below(&mut rng, 90) as u8).collect();
    Split::images(pixels, labels)
}

fn scaling() -> Scaling {
    Scaling { scale: vec![1.0 / 60.0], shift: vec![-1.5] }
}

fn federation(model: Arc<Model>, method: Arc<dyn Method>, training: Training, clients: usize) -> Federation {
    let (weighting, server_data) = (Weighting::Size, ServerData::default());
    Federation { model, method, training, weighting, clients, seed: 5, server_data }
}

/// A client's view, with nothing received or remembered.
pub(crate) fn with_local(model: &Model, global: &[f32], run: impl FnOnce(&mut Local<'_>)) {
    let (training, split, scaling, nothing) = (Training::default(), split(1), scaling(), Payload::new());
    let samples = Samples { split: &split, indices: &[0], scaling: &scaling };
    let mut local = Local {
        model,
        training: &training,
        client: 0,
        round: 1,
        lr: training.lr,
        global,
        down: &nothing,
        memory: &nothing,
        samples,
        counts: &[1, 0],
        scratch: Scratch::default(),
    };
    run(&mut local);
}

pub(crate) fn upload(examples: usize, params: Vec<f32>, extra: Payload) -> Upload {
    Upload { round: 1, client: 0, examples, steps: 1, terms: TermMeans::default(), params: Params(params), extra }
}

/// The server after one round of these uploads, on the model of six numbers with ten clients.
pub(crate) fn serve(
    method: impl Method + 'static,
    global: &[f32],
    state: Payload,
    uploads: impl Iterator<Item = Upload>,
) -> Coordinator {
    serve_among(10, method, global, state, uploads)
}

pub(crate) fn serve_among(
    clients: usize,
    method: impl Method + 'static,
    global: &[f32],
    state: Payload,
    uploads: impl Iterator<Item = Upload>,
) -> Coordinator {
    close_round(clients, Arc::new(method), global, state, uploads).unwrap()
}

pub(crate) fn serve_shared(
    method: Arc<dyn Method>,
    global: &[f32],
    state: Payload,
    uploads: impl Iterator<Item = Upload>,
) -> Coordinator {
    close_round(10, method, global, state, uploads).unwrap()
}

pub(crate) fn try_serve(
    method: Arc<dyn Method>,
    global: &[f32],
    state: Payload,
    uploads: impl Iterator<Item = Upload>,
) -> Result<Coordinator> {
    close_round(10, method, global, state, uploads)
}

fn close_round(
    clients: usize,
    method: Arc<dyn Method>,
    global: &[f32],
    state: Payload,
    uploads: impl Iterator<Item = Upload>,
) -> Result<Coordinator> {
    let federation = federation(six(), method, Training::default(), clients);
    let kept = ServerState { round: 1, global: Arc::new(Params(global.to_vec())), state };
    let mut coordinator = Coordinator::resume(federation, kept)?;
    coordinator.open(&(0..clients).collect::<Vec<_>>())?;
    for (client, upload) in uploads.enumerate() {
        // A rejected upload is left out of the round, nothing more.
        drop(coordinator.accept(Upload { client, ..upload })?);
    }
    coordinator.close()?;
    Ok(coordinator)
}

/// A whole small run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialRun {
    /// Samples per client. The batch size is 8.
    pub(crate) sizes: &'static [usize],
    pub(crate) per_round: usize,
    pub(crate) rounds: usize,
    pub(crate) epochs: usize,
    pub(crate) momentum: f32,
    pub(crate) batch_norm: bool,
    pub(crate) adam: bool,
}

impl Default for TrialRun {
    fn default() -> Self {
        Self {
            sizes: &[20, 33, 8, 41, 17, 9],
            per_round: 4,
            rounds: 4,
            epochs: 2,
            momentum: 0.9,
            batch_norm: false,
            adam: false,
        }
    }
}

impl TrialRun {
    /// The server before the first round.
    pub(crate) fn start(&self, method: impl Method + 'static) -> Result<Coordinator> {
        self.start_shared(Arc::new(method))
    }

    fn start_shared(&self, method: Arc<dyn Method>) -> Result<Coordinator> {
        let optimizer = match self.adam {
            true => OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
            false => OptimizerKind::Sgd { momentum: self.momentum },
        };
        let training = Training { epochs: self.epochs, batch: 8, optimizer, lr: 0.02, ..Training::default() };
        Coordinator::new(federation(model(self.batch_norm), method, training, self.sizes.len()))
    }

    /// The last global weights.
    pub(crate) fn global(&self, method: impl Method + 'static) -> Params {
        self.shared(Arc::new(method))
    }

    pub(crate) fn shared(&self, method: Arc<dyn Method>) -> Params {
        let coordinator = self.rounds(method, &mut |_, _| {}).unwrap().0;
        Params::clone(coordinator.global())
    }

    /// The server after the last round, and what each client remembers.
    pub(crate) fn finish(&self, method: impl Method + 'static) -> (Coordinator, Memories) {
        self.rounds(Arc::new(method), &mut |_, _| {}).unwrap()
    }

    /// Bytes down and up for the first client, per round. Every client takes part in all rounds.
    pub(crate) fn traffic(&self, method: impl Method + 'static) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let everyone = Self { per_round: self.sizes.len(), ..*self };
        everyone.rounds(Arc::new(method), &mut |down, up| found.push((down as usize, up as usize))).unwrap();
        found.into_iter().step_by(self.sizes.len()).collect()
    }

    fn rounds(&self, method: Arc<dyn Method>, each: &mut dyn FnMut(u64, u64)) -> Result<(Coordinator, Memories)> {
        let mut coordinator = self.start_shared(method)?;
        let (split, scaling) = (split(self.sizes.iter().sum()), scaling());
        let mut next = 0;
        let mut own = |size: &usize| {
            next += *size as u32;
            (next - *size as u32..next).collect::<Vec<u32>>()
        };
        let indices: Vec<Vec<u32>> = self.sizes.iter().map(&mut own).collect();
        let mut memories = Memories::new();
        let mut trainer = Trainer::new(coordinator.federation().model.clone());
        for number in 0..self.rounds {
            let clients = sample_clients(5, number, self.sizes.len(), self.per_round.min(self.sizes.len()));
            round(&mut coordinator, &mut memories, &clients, |federation, broadcast, k, memory| {
                let samples = Samples { split: &split, indices: &indices[k], scaling: &scaling };
                let task = federation.task(k, samples, broadcast, memory);
                let done = client(&mut trainer, &task, Params::default())?;
                each(broadcast.bytes(), done.upload.bytes());
                Ok(done)
            })?;
        }
        Ok((coordinator, memories))
    }
}
