//! Parameter counts, gradients, files and batch-size independence of the models in the zoo.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fedelity_nn::{
    Architecture, Batch, Card, ColumnCard, ColumnValues, EncoderShape, Engine, Input, InputShape, Layer, Model,
    ModelSpec, Node, Params, Reading, TableCard, Window, checkpoint, cpu, engines, loss, zoo,
};
use half::{bf16, f16};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::tensor::{Dtype, TensorView};

const CIFAR: InputShape = InputShape::Image { channels: 3, height: 32, width: 32 };
const MNIST: InputShape = InputShape::Image { channels: 1, height: 28, width: 28 };

fn compile(name: &str, projection: bool, input: InputShape, classes: usize) -> Model {
    let spec = ModelSpec::new(name, projection);
    Model::compile(&zoo::build(&spec, input, classes).unwrap(), cpu()).unwrap()
}

/// The counts given in the papers.
#[test]
fn parameter_counts() {
    let count = |name, projection, input, classes| compile(name, projection, input, classes).layout().trainable_len();
    assert_eq!(count("simple-cnn", false, CIFAR, 10), 62_006);
    assert_eq!(count("simple-cnn", false, CIFAR, 100), 69_656);
    assert_eq!(count("simple-cnn", false, MNIST, 10), 44_426);
    assert_eq!(count("simple-cnn", true, CIFAR, 10), 92_626);
    assert_eq!(count("simple-cnn", true, MNIST, 10), 75_046);
    assert_eq!(count("ntd-cnn", false, CIFAR, 10), 2_156_490);
    assert_eq!(count("ntd-cnn", false, CIFAR, 100), 2_202_660);
    assert_eq!(count("ntd-cnn", false, MNIST, 10), 1_663_370);
    assert_eq!(count("resnet8-gn", false, CIFAR, 10), 78_042);
    assert_eq!(count("resnet8-gn", false, CIFAR, 100), 83_892);
    assert_eq!(count("resnet8-gn", true, CIFAR, 10), 100_762);
    assert_eq!(count("resnet8-gn", true, CIFAR, 100), 123_892);
    assert_eq!(count("mlp", false, MNIST, 10), 199_210);
    assert_eq!(count("logistic", false, MNIST, 10), 7_850);
}

#[test]
fn a_shape_that_does_not_fit_is_an_error() {
    let tiny = InputShape::Image { channels: 1, height: 4, width: 4 };
    let arch = zoo::build(&ModelSpec::new("simple-cnn", false), tiny, 10).unwrap();
    let message = Model::compile(&arch, cpu()).unwrap_err().to_string();
    assert!(message.contains("simple-cnn") && message.contains("4x4"), "{message}");
    let unknown = zoo::build(&ModelSpec::new("resnet9", false), CIFAR, 10).unwrap_err();
    assert!(unknown.to_string().contains("resnet8-gn"));
}

/// Every layer kind in one small network.
fn kitchen_sink(norm: &Layer) -> Architecture {
    let conv =
        |name: &str, out, kernel, stride, pad, bias| Node::named(name, Layer::Conv { out, kernel, stride, pad, bias });
    let norm = |name: &str| Node::named(name, norm.clone());
    let relu = || Node::plain(Layer::Relu);
    Architecture {
        name: "sink".to_owned(),
        input: InputShape::Image { channels: 2, height: 11, width: 9 },
        classes: 3,
        extractor: vec![
            conv("c1", 4, 3, 1, 1, true),
            norm("n1"),
            relu(),
            Node::plain(Layer::Residual {
                body: vec![
                    conv("c2", 4, 3, 1, 1, false),
                    norm("n2"),
                    relu(),
                    conv("c3", 4, 3, 1, 1, false),
                    norm("n3"),
                ],
                shortcut: vec![],
            }),
            relu(),
            // Pre-activation block: the sum has no ReLU, and both sides read the same value.
            Node::plain(Layer::Residual {
                body: vec![norm("n4"), relu(), conv("c4", 6, 3, 2, 1, true)],
                shortcut: vec![conv("c5", 6, 1, 2, 0, true)],
            }),
            Node::plain(Layer::AveragePool(Window { kernel: 3, stride: 1, pad: 1 })),
            relu(),
            Node::plain(Layer::MaxPool(Window { kernel: 3, stride: 2, pad: 1 })),
            conv("c6", 5, 2, 1, 0, true),
            relu(),
            Node::plain(Layer::GlobalAveragePool),
            Node::plain(Layer::Flatten),
            Node::named("f1", Layer::Dense { out: 7 }),
            relu(),
            Node::plain(Layer::Dropout { p: 0.3 }),
            Node::named("f2", Layer::Dense { out: 6 }),
        ],
        head: "out".to_owned(),
    }
}

/// Compares the analytic gradient of the whole network with finite differences of the loss.
fn check_gradient(arch: &Architecture, engine: &Arc<dyn Engine>, batch: usize) {
    let model = Model::compile(arch, Arc::clone(engine)).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let params = model.init(&mut rng);
    let inputs: Vec<f32> = (0..batch * arch.input.len()).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect();
    let labels: Vec<u16> = (0..batch).map(|i| (i % arch.classes) as u16).collect();
    // A second loss term on the features, so that their direct gradient is used.
    let pull: Vec<f32> = (0..batch * model.features()).map(|_| rng.random::<f32>() - 0.5).collect();
    let mut workspace = model.session();
    let mut run = |params: &Params, grad: Option<&mut [f32]>| {
        let mut params = params.clone();
        let mut d_logits = vec![0.0; batch * arch.classes];
        let out = workspace.train(&mut params, &Batch::Floats { rows: &inputs }, 3);
        let ce = loss::cross_entropy(out.logits, &labels, arch.classes, 1.0, &mut d_logits);
        let dot: f64 = out.features.iter().zip(&pull).map(|(a, b)| f64::from(a * b)).sum();
        if let Some(grad) = grad {
            workspace.backward(&params, &d_logits, Some(&pull), grad);
        }
        f64::from(ce) + dot
    };
    // Only the head's gradient is added to.
    let mut grad = vec![f32::NAN; model.layout().len()];
    grad[model.head()].fill(0.0);
    run(&params, Some(&mut grad));
    let (mut checked, mut far) = (0, Vec::new());
    for tensor in model.layout().tensors().iter().filter(|t| t.trainable) {
        for k in 0..tensor.len.min(9) {
            let i = tensor.offset + k * tensor.len / tensor.len.min(9);
            let step = 2e-3;
            let at = |delta: f32| {
                let mut moved = params.clone();
                moved[i] += delta;
                moved
            };
            let slope = (run(&at(step), None) - run(&at(-step), None)) / f64::from(2.0 * step);
            let got = f64::from(grad[i]);
            checked += 1;
            if (got - slope).abs() > 2e-3 + 0.03 * slope.abs() {
                far.push(format!("{}[{k}]: {got}, not {slope}", tensor.name));
            }
        }
    }
    // A step can cross a kink of a ReLU or a maximum: a few differences may be off, but a wrong kernel makes many
    // wrong.
    assert!(far.len() * 20 <= checked, "{} of {checked} off with {}: {far:#?}", far.len(), engine.name());
}

#[test]
fn gradients_through_every_layer() {
    for norm in [Layer::GroupNorm { channels_per_group: 2 }, Layer::BatchNorm] {
        for engine in engines() {
            for batch in [3, 8, 19] {
                check_gradient(&kitchen_sink(&norm), &engine, batch);
            }
        }
    }
}

/// A layer's activations are the features of a model that ends there.
#[test]
fn layer_activations_equal_the_features_of_truncated_models() {
    let relu = || Node::plain(Layer::Relu);
    for norm in [Layer::GroupNorm { channels_per_group: 2 }, Layer::BatchNorm] {
        let mut arch = kitchen_sink(&norm);
        // A convolution whose ReLU is fused into the following pooling.
        let conv = Layer::Conv { out: 3, kernel: 3, stride: 1, pad: 1, bias: true };
        let pool = Layer::MaxPool(Window { kernel: 2, stride: 1, pad: 0 });
        arch.extractor.splice(3..3, [Node::named("c0", conv), relu(), Node::plain(pool)]);
        let conv = Layer::Conv { out: 4, kernel: 1, stride: 1, pad: 0, bias: false };
        arch.extractor.insert(6, Node::named("c7", conv));
        let model = Model::compile(&arch, cpu()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let params = model.init(&mut rng);
        let inputs: Vec<f32> = (0..21 * arch.input.len()).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect();
        let batch = Batch::Floats { rows: &inputs };
        let mut workspace = model.session();
        let plain = workspace.evaluate(&params, &batch).logits.to_vec();
        let (outputs, layers) = workspace.evaluate_layers(&params, &batch);
        assert_eq!(outputs.logits, plain);
        let names: Vec<&str> = layers.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["c1", "c0", "c7", "c2", "c3", "c5", "c4", "c6", "f1", "f2", "out"]);
        let inside = |at: usize, end: usize| match &arch.extractor[at].layer {
            Layer::Residual { body, .. } => body[..end].to_vec(),
            other => panic!("{other:?}"),
        };
        let side = |at: usize| match &arch.extractor[at].layer {
            Layer::Residual { shortcut, .. } => shortcut.clone(),
            other => panic!("{other:?}"),
        };
        let to = |end: usize| arch.extractor[..end].to_vec();
        let ends = [
            ("c1", to(3)),
            ("c0", to(5)),
            ("c7", to(7)),
            ("c2", [to(7), inside(7, 3)].concat()),
            ("c3", [to(7), inside(7, 5)].concat()),
            ("c4", [to(9), inside(9, 3)].concat()),
            ("c5", [to(9), side(9)].concat()),
            ("c6", to(15)),
        ];
        for (name, mut extractor) in ends {
            extractor.extend([Node::plain(Layer::GlobalAveragePool), Node::plain(Layer::Flatten)]);
            let short = Model::compile(&Architecture { extractor, ..arch.clone() }, cpu()).unwrap();
            let mut own = short.init(&mut rng);
            for tensor in short.layout().tensors() {
                let same = model.layout().tensors().iter().find(|other| other.name == tensor.name).unwrap();
                if same.len == tensor.len {
                    own[tensor.range()].copy_from_slice(&params[same.range()]);
                }
            }
            let mut end = short.session();
            let expected = end.evaluate(&own, &batch).features;
            let found = layers.iter().find(|(layer, _)| *layer == name).unwrap().1;
            assert_eq!(found.len(), expected.len(), "{name}");
            let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-6, "{name}: {far}");
        }
    }
}

/// A sample's outputs do not depend on the rest of its batch, so a teacher's outputs can be cached.
#[test]
fn evaluation_is_the_same_in_any_batch() {
    for (name, input) in [("simple-cnn", MNIST), ("resnet8-gn", CIFAR), ("mlp", MNIST), ("ntd-cnn", MNIST)] {
        let model = compile(name, true, input, 10);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let params = model.init(&mut rng);
        let inputs: Vec<f32> = (0..21 * input.len()).map(|_| rng.random::<f32>()).collect();
        let mut workspace = model.session();
        let whole = workspace.evaluate(&params, &Batch::Floats { rows: &inputs }).logits.to_vec();
        for range in [0..1, 3..10, 5..21, 0..21] {
            let part = &inputs[range.start * input.len()..range.end * input.len()];
            let got = workspace.evaluate(&params, &Batch::Floats { rows: part });
            assert_eq!(got.logits, &whole[range.start * 10..range.end * 10], "{name} {range:?}");
        }
    }
}

#[test]
fn bytes_and_floats_agree() {
    let model = compile("simple-cnn", false, MNIST, 10);
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let params = model.init(&mut rng);
    let pixels: Vec<u8> = (0..5 * MNIST.len()).map(|_| rng.random()).collect();
    let (scale, shift) = ([1.0 / 255.0 / 0.3081], [-0.1307 / 0.3081]);
    let indices = [4, 0, 2, 2];
    let rows: Vec<f32> = indices
        .iter()
        .flat_map(|&i| &pixels[i as usize * MNIST.len()..(i as usize + 1) * MNIST.len()])
        .map(|&p| f32::from(p).mul_add(scale[0], shift[0]))
        .collect();
    let mut workspace = model.session();
    let a = workspace.evaluate(&params, &Batch::Floats { rows: &rows }).logits.to_vec();
    let batch = Batch::Bytes { pixels: &pixels, indices: &indices, scale: &scale, shift: &shift };
    for (a, b) in a.iter().zip(workspace.evaluate(&params, &batch).logits) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

/// Rows picked by index equal rows passed directly, for a model on rows and for one on images.
#[test]
fn rows_by_index() {
    for (name, input) in [("mlp", InputShape::Image { channels: 1, height: 1, width: 13 }), ("simple-cnn", MNIST)] {
        let model = compile(name, false, input, 3);
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let params = model.init(&mut rng);
        let values: Vec<f32> = (0..6 * input.len()).map(|_| rng.random::<f32>()).collect();
        let indices = [5, 1, 1, 3];
        let rows: Vec<f32> =
            indices.iter().flat_map(|&i| &values[i as usize * input.len()..][..input.len()]).copied().collect();
        let mut workspace = model.session();
        let given = workspace.evaluate(&params, &Batch::Floats { rows: &rows }).logits.to_vec();
        assert_eq!(workspace.evaluate(&params, &Batch::Rows { values: &values, indices: &indices }).logits, given);
    }
}

/// F16 and BF16 files load as f32.
fn halves_are_widened(path: &Path, model: &Model, params: &Params) {
    let short = |dtype: Dtype| {
        let bytes = |v: &f32| match dtype {
            Dtype::F16 => f16::from_f32(*v).to_le_bytes(),
            _ => bf16::from_f32(*v).to_le_bytes(),
        };
        let all: Vec<u8> = params.iter().flat_map(bytes).collect();
        let views = model.layout().tensors().iter().map(|t| {
            let part = &all[2 * t.range().start..2 * t.range().end];
            (t.name.clone(), TensorView::new(dtype, t.shape.clone(), part).unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
        checkpoint::load(path, model.layout())
    };
    let near: Vec<f32> = params.iter().map(|v| f16::from_f32(*v).to_f32()).collect();
    assert_eq!(short(Dtype::F16).unwrap()[..], near);
    let near: Vec<f32> = params.iter().map(|v| bf16::from_f32(*v).to_f32()).collect();
    assert_eq!(short(Dtype::BF16).unwrap()[..], near);
    assert!(short(Dtype::I16).unwrap_err().to_string().contains("is I16"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_weights_and_names_come_back(
        bits in prop::collection::vec(any::<u32>(), 3 * 4 + 3),
        classes in prop::collection::vec(".{0,12}", 3),
        mean in prop::collection::vec(-1e30f32..1e30, 4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let card = Card {
            model: "logistic".to_owned(),
            projection: false,
            stem: None,
            encoder: None,
            layers: None,
            input: Input::Numbers { width: 4 },
            origin: BTreeMap::from([("data".to_owned(), classes[0].clone())]),
            classes,
            mean,
            std: vec![1e-30; 4],
            reading: None,
            table: None,
        };
        let model = Model::compile(&card.architecture().unwrap(), cpu()).unwrap();
        let params = Params(bits.into_iter().map(f32::from_bits).collect());
        checkpoint::save(&path, model.layout(), &params, Some(&card)).unwrap();
        prop_assert_eq!(checkpoint::load(&path, model.layout()).unwrap().hash(), params.hash());
        prop_assert_eq!(checkpoint::card(&path).unwrap().unwrap(), card);
    }
}

#[test]
fn files_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = compile("resnet8-gn", true, CIFAR, 10);
    let params = model.init(&mut ChaCha8Rng::seed_from_u64(5));
    let card = Card {
        model: "resnet8-gn".to_owned(),
        projection: true,
        stem: None,
        encoder: None,
        layers: None,
        input: Input::Image { channels: 3, height: 32, width: 32 },
        classes: (0..10).map(|k| format!("class \"{k}\"\n")).collect(),
        mean: vec![0.1, 0.2, 1.0 / 3.0],
        std: vec![0.3; 3],
        reading: None,
        table: None,
        origin: BTreeMap::from([("seed".to_owned(), "3".to_owned())]),
    };
    checkpoint::save(&path, model.layout(), &params, Some(&card)).unwrap();
    assert_eq!(checkpoint::load(&path, model.layout()).unwrap(), params);
    assert_eq!(checkpoint::card(&path).unwrap().unwrap(), card);
    assert_eq!(card.architecture().unwrap(), zoo::build(&ModelSpec::new("resnet8-gn", true), CIFAR, 10).unwrap());
    let first = std::fs::read(&path).unwrap();
    checkpoint::save(&path, model.layout(), &params, Some(&card)).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first, "the same model gives the same bytes");
    let other = compile("resnet8-gn", true, CIFAR, 100);
    let message = checkpoint::load(&path, other.layout()).unwrap_err().to_string();
    assert!(message.contains("head.weight"), "{message}");
    halves_are_widened(&path, &model, &params);
    std::fs::write(&path, &first[..first.len() / 2]).unwrap();
    assert!(checkpoint::load(&path, model.layout()).is_err());
    // Holes take no room on disk, and would take that much memory.
    for length in [1 << 33, 1 << 39] {
        std::fs::write(&path, &first).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        let message = checkpoint::load(&path, model.layout()).unwrap_err().to_string();
        assert!(
            message.contains("its header describes ") && message.ends_with(&format!("but it has {length}")),
            "{message}"
        );
    }
    std::fs::write(&path, &first[..7]).unwrap();
    assert!(checkpoint::card(&path).unwrap_err().to_string().contains("not a safetensors file"));
    assert!(checkpoint::load(&folder.path().join("none"), model.layout()).unwrap_err().to_string().contains("none"));
}

/// A description that no model can have is an error.
#[test]
fn descriptions_are_checked() {
    let sound = Card {
        model: "bert".to_owned(),
        projection: false,
        stem: None,
        encoder: EncoderShape::named("bert"),
        layers: None,
        input: Input::Tokens { vocabulary: 100, max_length: 16 },
        classes: vec!["a".to_owned(), "b".to_owned()],
        mean: Vec::new(),
        std: Vec::new(),
        reading: None,
        table: None,
        origin: BTreeMap::new(),
    };
    assert!(sound.architecture().is_ok());
    let wrong: [fn(&mut Card); 8] = [
        |card| card.classes.clear(),
        |card| card.input = Input::Tokens { vocabulary: 100, max_length: 513 },
        |card| card.input = Input::Image { channels: 3, height: 32, width: 32 },
        |card| card.reading = Some(Reading::Words(vec![String::new(); 101])),
        |card| card.mean.push(0.0),
        |card| card.encoder.as_mut().unwrap().layers = usize::MAX,
        |card| card.encoder.as_mut().unwrap().width = 0,
        |card| (card.model, card.encoder) = ("resnet9".to_owned(), None),
    ];
    for (i, spoil) in wrong.iter().enumerate() {
        let mut card = sound.clone();
        spoil(&mut card);
        assert!(card.architecture().is_err(), "{i}: {card:?}");
    }
    let image = Card {
        model: "mlp".to_owned(),
        encoder: None,
        layers: None,
        input: Input::Image { channels: 1, height: 2, width: 2 },
        mean: vec![0.0],
        std: vec![0.0],
        ..sound
    };
    assert!(image.architecture().is_err(), "a deviation of 0");
    let number = |std: f64| ColumnCard { name: "age".to_owned(), values: ColumnValues::Number { mean: 0.5, std } };
    let names = ColumnValues::Categories(vec!["a".to_owned(), "b".to_owned()]);
    let table = |std: f64| TableCard {
        label: "outcome".to_owned(),
        text: None,
        columns: vec![number(std), ColumnCard { name: "ward".to_owned(), values: names.clone() }],
        others: vec!["site".to_owned()],
    };
    let rows = |width: usize, std: f64| Card {
        input: Input::Numbers { width },
        mean: vec![0.0; width],
        std: vec![1.0; width],
        table: Some(table(std)),
        ..image.clone()
    };
    assert!(rows(3, 1.0).architecture().is_ok());
    assert!(rows(2, 1.0).architecture().is_err(), "a category without its number");
    assert!(rows(3, 0.0).architecture().is_err() && rows(3, f64::NAN).architecture().is_err());
    let json = serde_json::to_string(&rows(3, 0.1)).unwrap();
    assert!(json.contains(r#"{"name":"age","number":{"mean":0.5,"std":0.1}},{"name":"ward","categories":["a","b"]}"#));
    assert_eq!(serde_json::from_str::<Card>(&json).unwrap(), rows(3, 0.1));
}
