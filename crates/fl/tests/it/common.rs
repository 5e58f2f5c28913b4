//! Tiny data and models.

use std::sync::Arc;

use fedelity_data::Split;
use fedelity_fl::rng::below;
use fedelity_fl::{
    Broadcast, Finished, Method, Payload, Purpose, Samples, Scaling, Task, Trainer, Training, client, stream,
};
use fedelity_nn::{Architecture, InputShape, Layer, Model, Node, Params, cpu};

pub(crate) const CLASSES: usize = 4;
pub(crate) const SHAPE: InputShape = InputShape::Image { channels: 2, height: 6, width: 5 };

/// Images whose brightness follows the class, with noise.
pub(crate) fn split(samples: usize) -> Split {
    let mut rng = stream(99, Purpose::Method(0), 0, 0, 0);
    let labels: Vec<u16> = (0..samples).map(|_| below(&mut rng, CLASSES as u32) as u16).collect();
    let pixels = labels.iter().flat_map(|&label| vec![label; SHAPE.len()]);
    let pixels = pixels.map(|label| (40 * label) as u8 + below(&mut rng, 90) as u8).collect();
    Split::images(pixels, labels)
}

pub(crate) fn scaling() -> Scaling {
    Scaling { scale: vec![1.0 / 60.0; 2], shift: vec![-1.5, -1.7] }
}

/// `plain`: convolution and dense layers; `group`, `batch`: with that normalisation; `smooth`: without the kinks of
/// ReLU; `dropout`; `linear`.
pub(crate) fn model(kind: &str) -> Arc<Model> {
    let conv = || Node::named("conv", Layer::Conv { out: 6, kernel: 3, stride: 1, pad: 1, bias: true });
    let flat = || Node::plain(Layer::Flatten);
    let dense = || Node::named("dense", Layer::Dense { out: 9 });
    let relu = || Node::plain(Layer::Relu);
    let extractor = match kind {
        "plain" => vec![conv(), relu(), flat(), dense(), relu()],
        "group" => {
            let norm = Node::named("norm", Layer::GroupNorm { channels_per_group: 3 });
            vec![conv(), norm, relu(), flat(), dense(), relu()]
        }
        "batch" => vec![conv(), Node::named("norm", Layer::BatchNorm), relu(), flat(), dense(), relu()],
        "smooth" => {
            let norm = Node::named("norm", Layer::GroupNorm { channels_per_group: 3 });
            vec![conv(), norm, flat(), dense()]
        }
        "dropout" => vec![flat(), dense(), relu(), Node::plain(Layer::Dropout { p: 0.5 })],
        _ => vec![flat()],
    };
    let arch = Architecture { name: kind.into(), input: SHAPE, classes: CLASSES, extractor, head: "head".into() };
    Arc::new(Model::compile(&arch, cpu()).unwrap())
}

pub(crate) fn params(model: &Model, seed: u64) -> Params {
    model.init(&mut stream(seed, Purpose::Init, 0, 0, 0))
}

pub(crate) fn broadcast(global: Params) -> Broadcast {
    Broadcast { round: 0, global: Arc::new(global), payload: Payload::new() }
}

/// One client with the first `samples` images.
pub(crate) fn run(
    model: &Arc<Model>,
    method: &dyn Method,
    training: &Training,
    broadcast: &Broadcast,
    samples: usize,
) -> fedelity_fl::Result<Finished> {
    let (split, scaling) = (split(samples), scaling());
    let indices: Vec<u32> = (0..samples as u32).collect();
    let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
    let memory = Payload::new();
    let task = Task { method, training, seed: 3, client: 7, samples, broadcast, memory: &memory, secret: None };
    client(&mut Trainer::new(model.clone()), &task, Params::default())
}
