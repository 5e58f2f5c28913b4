//! Exported models in an independent runtime, compared with our own engine.

use fedelity_nn::{
    Architecture, Batch, BlockNames, EncoderShape, InputShape, Layer, Model, ModelSpec, Node, Params, ResidualShape,
    Stem, Window, cpu, encoder, vgg11, zoo,
};
use fedelity_onnx::{OnnxError, OnnxModel, encode};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rten::Value;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(3)
}

/// Weights and running statistics away from their initial values, so that each of them matters.
fn params(model: &Model) -> Params {
    let mut rng = rng();
    let mut params = model.init(&mut rng);
    for tensor in model.layout().tensors() {
        let spread = if tensor.shape.len() == 1 { 0.3 } else { 0.05 };
        for value in &mut params[tensor.range()] {
            *value += spread * rng.random::<f32>();
        }
    }
    params
}

fn export(arch: &Architecture, model: &Model, params: &Params, numbers: bool) -> rten::Model {
    let metadata = [("classes".to_owned(), "[\"a\"]".to_owned())];
    let source = OnnxModel { architecture: arch, layout: model.layout(), params, numbers, metadata: &metadata };
    rten::Model::load(encode(&source).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", arch.name))
}

fn run(model: &rten::Model, inputs: &[(&str, Value)], what: &str) -> ([usize; 2], Vec<f32>) {
    let inputs = inputs.iter().map(|(name, value)| (model.node_id(name).unwrap(), value.into())).collect();
    let outputs = model.run(inputs, &[model.node_id("logits").unwrap()], None);
    let outputs = outputs.unwrap_or_else(|e| panic!("{what}: {e}"));
    outputs.into_iter().next().unwrap().into_shape_vec::<f32, 2>().unwrap()
}

fn close(found: &[f32], expected: &[f32], what: &str) {
    let scale = expected.iter().fold(1.0f32, |a, b| a.max(b.abs()));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= 1e-4 * scale, "{what}[{i}]: {f}, not {e}");
    }
}

fn image_model(arch: &Architecture, numbers: bool) {
    let model = Model::compile(arch, cpu()).unwrap();
    let params = params(&model);
    let exported = export(arch, &model, &params, numbers);
    let (channels, height, width) = arch.input.sides();
    let mut rng = rng();
    // The batch may have any size.
    for samples in [1, 5] {
        let rows: Vec<f32> = (0..samples * arch.input.len()).map(|_| rng.random::<f32>() * 4.0 - 2.0).collect();
        let expected = model.session().evaluate(&params, &Batch::Floats { rows: &rows }).logits.to_vec();
        let shape = if numbers { vec![samples, width] } else { vec![samples, channels, height, width] };
        let input = Value::from_shape(shape, rows).unwrap();
        let (shape, found) = run(&exported, &[("input", input)], &arch.name);
        assert_eq!(shape, [samples, arch.classes], "{}", arch.name);
        close(&found, &expected, &arch.name);
    }
}

const CIFAR: InputShape = InputShape::Image { channels: 3, height: 32, width: 32 };

#[test]
fn image_models() {
    for (name, projection) in
        [("logistic", false), ("mlp", true), ("simple-cnn", true), ("ntd-cnn", false), ("resnet8-gn", true)]
    {
        image_model(&zoo::build(&ModelSpec::new(name, projection), CIFAR, 10).unwrap(), false);
    }
    let numbers = InputShape::Image { channels: 1, height: 1, width: 7 };
    image_model(&zoo::build(&ModelSpec::new("mlp", false), numbers, 3).unwrap(), true);
    // Layers on images read a row of numbers as an image of one row.
    image_model(&zoo::build(&ModelSpec::new("resnet8-gn", false), numbers, 3).unwrap(), true);
}

/// Residual networks and VGG as in the zoo, but narrow.
#[test]
fn deep_image_models() {
    let arch = |name: &str, extractor: Vec<Node>, head: &str, side: usize| Architecture {
        name: name.to_owned(),
        input: InputShape::Image { channels: 3, height: side, width: side },
        classes: 4,
        extractor,
        head: head.to_owned(),
    };
    for bottleneck in [false, true] {
        for norm in [Layer::BatchNorm, Layer::GroupNorm { channels_per_group: 4 }] {
            for (stem, side) in [(Stem::Cifar, 17), (Stem::ImageNet, 65)] {
                let shape = ResidualShape { width: 8, blocks: vec![1, 2, 1, 1], bottleneck, norm: norm.clone() };
                let name = format!("{norm:?}, bottleneck {bottleneck}, {}", stem.name());
                image_model(&arch(&name, shape.layers(stem), "fc", side), false);
            }
        }
    }
    image_model(&arch("vgg11", vgg11(4), "classifier.6", 32), false);
    let pooled = vec![
        Node::named("c", Layer::Conv { out: 4, kernel: 3, stride: 2, pad: 1, bias: true }),
        Node::plain(Layer::AveragePool(Window { kernel: 3, stride: 2, pad: 1 })),
        Node::plain(Layer::Flatten),
    ];
    image_model(&arch("average", pooled, "fc", 13), false);
}

fn text_model(arch: &Architecture) {
    let model = Model::compile(arch, cpu()).unwrap();
    let params = params(&model);
    let exported = export(arch, &model, &params, false);
    let texts: [&[u32]; 4] = [&[2, 5, 9, 3], &[2, 31, 7, 7, 11, 30, 12, 3], &[2], &[2, 4, 8, 15, 16, 23]];
    let mut starts = vec![0];
    texts.iter().for_each(|text| starts.push(starts[starts.len() - 1] + text.len() as u32));
    let ids = texts.concat();
    let batch = Batch::Tokens { ids: &ids, starts: &starts, indices: &[0, 1, 2, 3] };
    let expected = model.session().evaluate(&params, &batch).logits.to_vec();
    // Single texts without padding, then all of them with padding.
    for (chosen, length) in [(0..1, 4), (1..2, 8), (2..3, 1), (0..4, 8), (0..4, 10)] {
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for text in &texts[chosen.clone()] {
            ids.extend((0..length).map(|i| text.get(i).map_or(0, |&id| id as i32)));
            mask.extend((0..length).map(|i| i32::from(i < text.len())));
        }
        let shape = [chosen.len(), length];
        let inputs = [
            ("input_ids", Value::from_shape(shape, ids).unwrap()),
            ("attention_mask", Value::from_shape(shape, mask).unwrap()),
        ];
        let (_, found) = run(&exported, &inputs, &arch.name);
        let what = format!("{}, texts {chosen:?} of {length}", arch.name);
        close(&found, &expected[chosen.start * arch.classes..chosen.end * arch.classes], &what);
    }
}

#[test]
fn text_models() {
    let input = InputShape::Tokens { vocabulary: 32, max_length: 16 };
    for (names, prefix, types) in [(BlockNames::Bert, "", 2), (BlockNames::DistilBert, "distilbert.", 0)] {
        let usual = EncoderShape::named("minilm").unwrap();
        let shape = EncoderShape {
            names,
            prefix: prefix.to_owned(),
            width: 12,
            layers: 2,
            heads: 3,
            hidden: 20,
            positions: 16,
            types,
            ..usual
        };
        text_model(&encoder(&format!("{names:?}"), &shape, true, None, input, 3));
    }
    text_model(&zoo::build(&ModelSpec::new("lstm", true), input, 3).unwrap());
}

#[test]
fn what_is_missing_is_named() {
    let arch = zoo::build(&ModelSpec::new("mlp", false), CIFAR, 10).unwrap();
    let other = zoo::build(&ModelSpec::new("logistic", false), CIFAR, 10).unwrap();
    let model = Model::compile(&other, cpu()).unwrap();
    let params = params(&model);
    let source =
        OnnxModel { architecture: &arch, layout: model.layout(), params: &params, numbers: false, metadata: &[] };
    let error = encode(&source).unwrap_err();
    assert!(matches!(&error, OnnxError::Missing { name } if name == "fc1.weight"), "{error}");
}
