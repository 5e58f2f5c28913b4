//! Residual networks and VGG against PyTorch: logits, losses, gradients, running statistics.
//!
//! `data/vision_models.py` wrote the files in `data`.

use std::path::Path;
use std::sync::Arc;

use fedelity_nn::{
    Architecture, Batch, InputShape, Layer, Model, ModelSpec, Node, Params, ResidualShape, Stem, checkpoint, cpu,
    engines, loss, vgg11, zoo,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use safetensors::SafeTensors;

const CLASSES: usize = 3;

/// Compares up to rounding, relative to the largest value of a tensor.
fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-2f32, |a, b| a.max(b.abs()));
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= 1e-4 * scale, "{what}[{i}]: {f}, not {e}");
    }
}

fn check(name: &str, extractor: &[Node], head: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.safetensors"));
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        let view = file.tensor(name).unwrap_or_else(|_| panic!("{name} is missing"));
        view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let (shape, inputs) = (file.tensor("inputs").unwrap().shape().to_vec(), floats("inputs"));
    let labels: Vec<u16> = floats("labels").iter().map(|&l| l as u16).collect();
    let arch = Architecture {
        name: name.to_owned(),
        input: InputShape::Image { channels: shape[1], height: shape[2], width: shape[3] },
        classes: CLASSES,
        extractor: extractor.to_vec(),
        head: head.to_owned(),
    };
    for engine in engines() {
        let what = |part: &str| format!("{name}, {}: {part}", engine.name());
        let model = Model::compile(&arch, Arc::clone(&engine)).unwrap();
        let tensors = model.layout().tensors();
        let weights = file.names().iter().filter(|name| name.starts_with("weights/")).count();
        assert_eq!(tensors.len(), weights, "{}", what("tensors"));
        let mut params = Params(vec![0.0; model.layout().len()]);
        for tensor in tensors {
            let full = format!("weights/{}", tensor.name);
            assert_eq!(file.tensor(&full).unwrap().shape(), tensor.shape, "{full}");
            params[tensor.range()].copy_from_slice(&floats(&full));
        }
        let mut workspace = model.session();
        let batch = Batch::Floats { rows: &inputs };
        close(workspace.evaluate(&params, &batch).logits, &floats("evaluation"), &what("evaluation"));
        let mut d_logits = vec![0.0; labels.len() * CLASSES];
        let out = workspace.train(&mut params, &batch, 1);
        close(out.logits, &floats("training"), &what("training"));
        let found = loss::cross_entropy(out.logits, &labels, CLASSES, 1.0, &mut d_logits);
        close(&[found], &floats("loss"), &what("loss"));
        let mut grad = vec![0.0; params.len()];
        workspace.backward(&params, &d_logits, None, &mut grad);
        for tensor in tensors {
            if tensor.trainable {
                close(&grad[tensor.range()], &floats(&format!("gradient/{}", tensor.name)), &what(&tensor.name));
            } else {
                close(&params[tensor.range()], &floats(&format!("after/{}", tensor.name)), &what(&tensor.name));
                assert!(grad[tensor.range()].iter().all(|&g| g == 0.0), "{}", what(&tensor.name));
            }
        }
    }
}

fn residual(norm: Layer, bottleneck: bool) -> ResidualShape {
    let blocks = if bottleneck { vec![1, 2, 1] } else { vec![2, 2, 2, 2] };
    ResidualShape { width: 2, blocks, bottleneck, norm }
}

#[test]
fn residual_networks_of_pytorch() {
    let group = Layer::GroupNorm { channels_per_group: 2 };
    check("tiny-resnet18-bn", &residual(Layer::BatchNorm, false).layers(Stem::Cifar), "fc");
    check("tiny-bottleneck-bn", &residual(Layer::BatchNorm, true).layers(Stem::ImageNet), "fc");
    check("tiny-bottleneck-gn", &residual(group.clone(), true).layers(Stem::Cifar), "fc");
    let shape = residual(group, false);
    let mut layers = shape.layers(Stem::ImageNet);
    layers.push(Node::named("proj1", Layer::Dense { out: shape.features() }));
    layers.push(Node::plain(Layer::Relu));
    layers.push(Node::named("proj2", Layer::Dense { out: 256 }));
    check("tiny-resnet18-gn", &layers, "head");
}

#[test]
fn vgg_of_pytorch() {
    let mut layers = vgg11(2);
    for node in &mut layers {
        // Dropout masks cannot match between two implementations.
        if let Layer::Dropout { p } = &mut node.layer {
            *p = 0.0;
        }
    }
    check("tiny-vgg11", &layers, "classifier.6");
}

const CIFAR: InputShape = InputShape::Image { channels: 3, height: 32, width: 32 };

fn layers_of(spec: &ModelSpec, input: InputShape, classes: usize) -> Model {
    Model::compile(&zoo::build(spec, input, classes).unwrap(), cpu()).unwrap()
}

/// The counts given in the papers and by torchvision.
#[test]
fn parameter_counts() {
    let tiny = InputShape::Image { channels: 3, height: 64, width: 64 };
    let count = |name: &str, projection, input, classes| {
        layers_of(&ModelSpec::new(name, projection), input, classes).layout().trainable_len()
    };
    for norm in ["gn", "bn"] {
        let (small, large) = (format!("resnet18-{norm}"), format!("resnet50-{norm}"));
        assert_eq!(count(&small, false, CIFAR, 10), 11_173_962);
        assert_eq!(count(&small, false, CIFAR, 100), 11_220_132);
        assert_eq!(count(&small, false, tiny, 200), 11_271_432);
        assert_eq!(count(&large, false, CIFAR, 10), 23_520_842);
        assert_eq!(count(&large, false, CIFAR, 100), 23_705_252);
        assert_eq!(count(&large, false, tiny, 200), 23_910_152);
        assert_eq!(count(&large, true, CIFAR, 100), 28_246_948);
        assert_eq!(count(&large, true, tiny, 200), 28_272_648);
        let femnist = InputShape::Image { channels: 1, height: 28, width: 28 };
        assert_eq!(count(&large, false, femnist, 62), 23_626_238);
        assert_eq!(count(&large, false, CIFAR, 62), 23_627_390);
    }
    assert_eq!(count("vgg11", false, CIFAR, 10), 9_750_922);
    // torchvision's resnet18 and resnet50 with 1000 classes.
    let photo = InputShape::Image { channels: 3, height: 96, width: 96 };
    assert_eq!(count("resnet18-bn", false, photo, 1000), 11_689_512);
    assert_eq!(count("resnet50-bn", false, photo, 1000), 25_557_032);
}

#[test]
fn the_stem_is_chosen_or_depends_on_the_size() {
    let first = |stem, side| {
        let spec = ModelSpec { stem, ..ModelSpec::new("resnet18-gn", false) };
        let input = InputShape::Image { channels: 3, height: side, width: side };
        layers_of(&spec, input, 10).layout().tensors()[0].shape.clone()
    };
    assert_eq!(first(None, 64), [64, 3, 3, 3]);
    assert_eq!(first(None, 65), [64, 3, 7, 7]);
    assert_eq!(first(Some(Stem::ImageNet), 32), [64, 3, 7, 7]);
    assert_eq!(first(Some(Stem::Cifar), 80), [64, 3, 3, 3]);
    for name in Stem::NAMES {
        assert_eq!(Stem::from_name(name).unwrap().name(), name);
    }
}

/// Running statistics are in the buffer, but are not trained.
#[test]
fn running_statistics_are_not_trained() {
    let model = layers_of(&ModelSpec::new("resnet18-bn", false), CIFAR, 10);
    let layout = model.layout();
    let still: Vec<&str> = layout.tensors().iter().filter(|t| !t.trainable).map(|t| t.name.as_str()).collect();
    assert_eq!(still.len(), 2 * 20, "{still:?}");
    assert!(still.iter().all(|name| name.ends_with("running_mean") || name.ends_with("running_var")));
    assert_eq!(layout.len() - layout.trainable_len(), 2 * (64 * 5 + 128 * 5 + 256 * 5 + 512 * 5));
}

/// PyTorch files with batch counters of running statistics load.
#[test]
fn files_of_pytorch_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = layers_of(&ModelSpec::new("resnet18-bn", false), CIFAR, 10);
    let params = model.init(&mut ChaCha8Rng::seed_from_u64(5));
    checkpoint::save(&path, model.layout(), &params, None).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let count = 3i64.to_le_bytes();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::I64, vec![], &count).unwrap();
    let mut tensors = file.tensors();
    tensors.push(("bn1.num_batches_tracked".to_owned(), view));
    std::fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    assert_eq!(checkpoint::load(&path, model.layout()).unwrap(), params);
}
