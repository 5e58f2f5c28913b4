//! Text models: against `transformers` and PyTorch, against finite differences, and general properties.
//!
//! `data/text_models.py` wrote the files in `data`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedelity_nn::{
    Architecture, Batch, EncoderShape, Engine, InputShape, Layer, Model, ModelSpec, Node, Params, Pretrained,
    checkpoint, cpu, encoder, engines, loss, zoo,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::SafeTensors;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(9)
}

/// Texts in the format of the engine.
struct Texts {
    ids: Vec<u32>,
    starts: Vec<u32>,
    indices: Vec<u32>,
}

impl Texts {
    fn new(texts: &[Vec<u32>]) -> Self {
        let mut starts = vec![0];
        texts.iter().for_each(|t| starts.push(starts[starts.len() - 1] + t.len() as u32));
        Self { ids: texts.concat(), starts, indices: (0..texts.len() as u32).collect() }
    }

    fn random(count: usize, longest: usize, vocabulary: u32) -> Self {
        let mut rng = rng();
        let text = |_| (0..rng.random_range(1..=longest)).map(|_| rng.random_range(0..vocabulary)).collect();
        Self::new(&(0..count).map(text).collect::<Vec<_>>())
    }

    fn batch<'a>(&'a self, indices: &'a [u32]) -> Batch<'a> {
        Batch::Tokens { ids: &self.ids, starts: &self.starts, indices }
    }

    fn all(&self) -> Batch<'_> {
        self.batch(&self.indices)
    }
}

/// The outputs of the reference implementation for a tiny model.
struct Expected {
    texts: Texts,
    labels: Vec<u16>,
    logits: Vec<f32>,
    loss: f32,
    gradients: BTreeMap<String, Vec<f32>>,
}

impl Expected {
    fn read(name: &str) -> Self {
        let bytes = std::fs::read(data(name).join("expected.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let floats = |name: &str| -> Vec<f32> {
            let view = file.tensor(name).unwrap();
            view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        };
        let (ids, mut texts) = (floats("ids"), Vec::new());
        let mut at = 0;
        for length in floats("lengths") {
            texts.push(ids[at..at + length as usize].iter().map(|&id| id as u32).collect());
            at += length as usize;
        }
        let gradients = file
            .names()
            .into_iter()
            .filter_map(|n| n.strip_prefix("gradient/"))
            .map(|n| (n.to_owned(), floats(&format!("gradient/{n}"))));
        Self {
            texts: Texts::new(&texts),
            labels: floats("labels").iter().map(|&l| l as u16).collect(),
            logits: floats("logits"),
            loss: floats("loss")[0],
            gradients: gradients.collect(),
        }
    }

    fn check(&self, model: &Model, params: &Params, what: &str) {
        let mut workspace = model.session();
        let close = |found: &[f32], expected: &[f32], what: &str| {
            assert_eq!(found.len(), expected.len(), "{what}");
            let scale = expected.iter().fold(1e-2f32, |a, b| a.max(b.abs()));
            for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                assert!((f - e).abs() <= 2e-5 * scale, "{what}[{i}]: {f}, not {e}");
            }
        };
        close(workspace.evaluate(params, &self.texts.all()).logits, &self.logits, &format!("{what}: logits"));
        let mut params = params.clone();
        let mut d_logits = vec![0.0; self.logits.len()];
        let out = workspace.train(&mut params, &self.texts.all(), 1);
        close(out.logits, &self.logits, &format!("{what}: logits while training"));
        let loss = loss::cross_entropy(out.logits, &self.labels, 3, 1.0, &mut d_logits);
        assert!((loss - self.loss).abs() < 1e-5, "{what}: loss {loss}, not {}", self.loss);
        let mut grad = vec![0.0; model.layout().len()];
        workspace.backward(&params, &d_logits, None, &mut grad);
        for tensor in model.layout().tensors() {
            close(
                &grad[tensor.range()],
                &self.gradients[&tensor.name],
                &format!("{what}: gradient of {}", tensor.name),
            );
        }
        let tensors = model.layout().tensors().len() + model.frozen_layout().tensors().len();
        assert_eq!(tensors, self.gradients.len(), "{what}: tensors");
    }
}

const TINY: InputShape = InputShape::Tokens { vocabulary: 32, max_length: 16 };

fn tiny(pretrained: &Pretrained, freeze: Option<usize>, engine: Arc<dyn Engine>) -> Model {
    let shape = EncoderShape { head_dropout: 0.0, ..pretrained.shape().clone().with_dropout(0.0) };
    Model::compile(&encoder("tiny", &shape, false, freeze, TINY, 3), engine).unwrap()
}

#[test]
fn logits_and_gradients_of_transformers() {
    for name in ["tiny-bert", "tiny-distilbert"] {
        let (expected, pretrained) = (Expected::read(name), Pretrained::open(&data(name)).unwrap());
        assert_eq!(pretrained.vocabulary(), 32);
        for engine in engines() {
            for freeze in [None, Some(0), Some(1), Some(2)] {
                let model = pretrained.load(tiny(&pretrained, freeze, Arc::clone(&engine))).unwrap();
                let params = model.init(&mut rng());
                assert_eq!(freeze.is_some(), !model.frozen().is_empty());
                expected.check(&model, &params, &format!("{name}, {freeze:?} frozen, {}", engine.name()));
            }
        }
    }
}

fn small_lstm() -> Architecture {
    let extractor =
        vec![Node::named("embedding", Layer::Embedding { width: 6 }), Node::named("lstm", Layer::Lstm { hidden: 5 })];
    Architecture { name: "small".to_owned(), input: TINY, classes: 3, extractor, head: "fc".to_owned() }
}

#[test]
fn logits_and_gradients_of_a_pytorch_lstm() {
    let expected = Expected::read("tiny-lstm");
    for engine in engines() {
        let model = Model::compile(&small_lstm(), Arc::clone(&engine)).unwrap();
        let params = checkpoint::load(&data("tiny-lstm").join("model.safetensors"), model.layout()).unwrap();
        expected.check(&model, &params, engine.name());
    }
}

/// Compares the gradient with finite differences, with dropout at every site.
#[test]
fn gradients_with_dropout() {
    let mut shape = Pretrained::open(&data("tiny-bert")).unwrap().shape().clone().with_dropout(0.3);
    shape.prefix.clear();
    for arch in [encoder("tiny", &shape, true, None, TINY, 3), small_lstm()] {
        for engine in engines() {
            let model = Model::compile(&arch, Arc::clone(&engine)).unwrap();
            let mut params = model.init(&mut rng());
            // BERT's initial weights are so small that finite differences drown in rounding errors.
            for tensor in model.layout().tensors() {
                if tensor.name.starts_with("e") && !tensor.name.contains("LayerNorm") {
                    params[tensor.range()].iter_mut().for_each(|w| *w *= 10.0);
                }
            }
            let texts = Texts::random(7, 12, 32);
            let labels: Vec<u16> = (0..7).map(|i| i % 3).collect();
            let mut workspace = model.session();
            let mut run = |params: &Params, grad: Option<&mut [f32]>| {
                let mut params = params.clone();
                let mut d_logits = vec![0.0; 21];
                let out = workspace.train(&mut params, &texts.all(), 3);
                let loss = loss::cross_entropy(out.logits, &labels, 3, 1.0, &mut d_logits);
                if let Some(grad) = grad {
                    workspace.backward(&params, &d_logits, None, grad);
                }
                f64::from(loss)
            };
            let mut grad = vec![f32::NAN; params.len()];
            grad[model.head()].fill(0.0);
            run(&params, Some(&mut grad));
            let (mut checked, mut far) = (0, Vec::new());
            for tensor in model.layout().tensors() {
                for k in 0..tensor.len.min(7) {
                    let i = tensor.offset + k * tensor.len / tensor.len.min(7);
                    let at = |delta: f32| {
                        let mut moved = params.clone();
                        moved[i] += delta;
                        moved
                    };
                    let slope = (run(&at(2e-3), None) - run(&at(-2e-3), None)) / 4e-3;
                    checked += 1;
                    if (f64::from(grad[i]) - slope).abs() > 1e-3 + 0.03 * slope.abs() {
                        far.push(format!("{}[{k}]: {}, not {slope}", tensor.name, grad[i]));
                    }
                }
            }
            assert!(far.len() * 20 <= checked, "{} of {checked} off with {}: {far:#?}", far.len(), engine.name());
        }
    }
}

/// Outputs are the same in any batch, whatever its size, order or lengths, for texts that fill more than one chunk.
#[test]
fn evaluation_is_the_same_in_any_batch() {
    let input = InputShape::Tokens { vocabulary: 50, max_length: 60 };
    let shape = EncoderShape { width: 24, layers: 2, heads: 3, hidden: 40, ..EncoderShape::named("minilm").unwrap() };
    let lstm = zoo::build(&ModelSpec::new("lstm", true), input, 4).unwrap();
    for arch in [encoder("small", &shape, false, None, input, 4), lstm] {
        let model = Model::compile(&arch, cpu()).unwrap();
        let params = model.init(&mut rng());
        let texts = Texts::random(150, 60, 50);
        let mut workspace = model.session();
        let whole = workspace.evaluate(&params, &texts.all()).logits.to_vec();
        let mut backwards = texts.indices.clone();
        backwards.reverse();
        for indices in [&texts.indices[3..4], &texts.indices[100..], &backwards[..], &backwards[20..31]] {
            let got = workspace.evaluate(&params, &texts.batch(indices));
            for (row, &i) in got.logits.chunks_exact(4).zip(indices) {
                assert_eq!(row, &whole[i as usize * 4..(i as usize + 1) * 4], "{} {i}", arch.name);
            }
        }
    }
}

/// The counts given in the papers.
#[test]
fn parameter_counts() {
    let input = InputShape::Tokens { vocabulary: 30_522, max_length: 128 };
    let compile = |name: &str, projection, classes| {
        let spec = ModelSpec::new(name, projection);
        Model::compile(&zoo::build(&spec, input, classes).unwrap(), cpu()).unwrap()
    };
    let count = |name: &str, projection, classes| compile(name, projection, classes).layout().trainable_len();
    let encoder_only = |name: &str, width: usize| count(name, false, 4) - (width * width + width) - (4 * width + 4);
    assert_eq!(encoder_only("distilbert", 768), 66_362_880);
    assert_eq!(count("distilbert", false, 4), 66_956_548);
    assert_eq!(count("distilbert", false, 5), 66_957_317);
    assert_eq!(count("distilbert", true, 4), 67_151_364);
    assert_eq!(count("distilbert", true, 5), 67_151_621);
    // Without the pooler: 22,713,216 - 147,840 and 109,482,240 - 590,592.
    assert_eq!(encoder_only("minilm", 384), 22_565_376);
    assert_eq!(encoder_only("bert", 768), 108_891_648);
    assert_eq!(count("lstm", false, 5), 30_522 * 100 + 4 * 128 * (100 + 128 + 2) + 129 * 5);
}

#[test]
fn frozen_layers_are_saved_but_neither_trained_nor_sent() {
    let pretrained = Pretrained::open(&data("tiny-distilbert")).unwrap();
    let whole = pretrained.load(tiny(&pretrained, None, cpu())).unwrap();
    let model = pretrained.load(tiny(&pretrained, Some(1), cpu())).unwrap();
    let params = model.init(&mut rng());
    let (all, kept) = (whole.layout().len(), model.layout().len());
    assert_eq!(all, kept + model.frozen_layout().len());
    assert!(model.layout().tensors()[0].name.starts_with("distilbert.transformer.layer.1."));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    checkpoint::save_model(&path, &model, &params, None).unwrap();
    std::fs::copy(data("tiny-distilbert").join("config.json"), folder.path().join("config.json")).unwrap();
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let (ours, theirs) = (bytes(&path), bytes(&data("tiny-distilbert").join("model.safetensors")));
    let (ours, theirs) = (SafeTensors::deserialize(&ours).unwrap(), SafeTensors::deserialize(&theirs).unwrap());
    assert_eq!(ours.names().len(), theirs.names().len());
    for name in theirs.names() {
        assert_eq!(ours.tensor(name).unwrap().data(), theirs.tensor(name).unwrap().data(), "{name}");
    }
    let again = Pretrained::open(folder.path()).unwrap();
    let loaded = again.load(tiny(&again, Some(1), cpu())).unwrap();
    assert_eq!((loaded.init(&mut rng()), loaded.frozen()), (params, model.frozen()));
    // Neither a layer above a trained one nor a dense layer can be frozen.
    let mut arch = encoder("odd", pretrained.shape(), false, None, TINY, 3);
    arch.extractor[2].frozen = true;
    let message = Model::compile(&arch, cpu()).unwrap_err().to_string();
    assert!(message.contains("transformer.layer.1") && message.contains("below"), "{message}");
    arch.extractor[2].frozen = false;
    arch.extractor[4].frozen = true;
    assert!(Model::compile(&arch, cpu()).unwrap_err().to_string().contains("pre_classifier"));
}

/// Every message names the file and the offending entry.
#[test]
fn bad_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (config, weights) = (folder.path().join("config.json"), folder.path().join("model.safetensors"));
    let open = || Pretrained::open(folder.path()).map(drop).unwrap_err().to_string();
    assert!(open().contains("config.json"), "{}", open());
    let good = std::fs::read_to_string(data("tiny-bert").join("config.json")).unwrap();
    for (from, to, says) in [
        ("\"bert\"", "\"roberta\"", "model_type"),
        ("\"hidden_size\": 12", "\"hidden_size\": 0", "hidden_size is 0"),
        ("\"hidden_size\": 12", "\"hidden_size\": 13", "3 heads do not divide a width of 13"),
        ("\"gelu\"", "\"relu\"", "hidden_act is \"relu\""),
        ("\"hidden_dropout_prob\": 0.1", "\"hidden_dropout_prob\": 1.5", "hidden_dropout_prob is 1.5"),
        ("\"vocab_size\": 32", "\"vocab\": 32", "vocab_size is missing"),
        ("{", "", "not JSON"),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(&config, good.replacen(from, to, 1)).unwrap();
        let message = open();
        assert!(message.contains("config.json") && message.contains(says), "{message}");
    }
    std::fs::write(&config, good.replace("\"vocab_size\": 32", "\"vocab_size\": 40")).unwrap();
    assert!(open().contains("model.safetensors"), "{}", open());
    std::fs::copy(data("tiny-bert").join("model.safetensors"), &weights).unwrap();
    std::fs::write(&config, good.replace("\"vocab_size\": 32", "\"vocab_size\": 90000000")).unwrap();
    assert!(open().contains("weights, but the file can hold"), "{}", open());
    std::fs::write(&config, good.replace("\"vocab_size\": 32", "\"vocab_size\": 40")).unwrap();
    let pretrained = Pretrained::open(folder.path()).unwrap();
    let input = InputShape::Tokens { vocabulary: pretrained.vocabulary(), max_length: 16 };
    let load = |shape: &EncoderShape, input| {
        let model = Model::compile(&encoder("minilm", shape, false, None, input, 3), cpu()).unwrap();
        pretrained.load(model).map(drop).unwrap_err().to_string()
    };
    let message = load(pretrained.shape(), input);
    let says = "tensor \"embeddings.word_embeddings.weight\" is F32 [32, 12], expected F32 [40, 12]";
    assert!(message.contains("model.safetensors") && message.contains(says), "{message}");
    let more = EncoderShape { layers: 3, ..pretrained.shape().clone() };
    assert!(load(&more, TINY).contains("\"encoder.layer.2.attention.self.query.weight\" is missing"));
    let fewer = EncoderShape { layers: 1, ..pretrained.shape().clone() };
    let message = load(&fewer, TINY);
    assert!(message.contains("encoder.layer.1.") && message.contains("does not belong"), "{message}");
    let long = InputShape::Tokens { vocabulary: 32, max_length: 17 };
    let arch = encoder("minilm", pretrained.shape(), false, None, long, 3);
    let message = Model::compile(&arch, cpu()).unwrap_err().to_string();
    assert!(message.contains("17 tokens") && message.contains("16 positions"), "{message}");
    std::fs::write(&weights, b"not it").unwrap();
    assert!(open().contains("model.safetensors"), "{}", open());
    std::fs::copy(data("tiny-lstm").join("model.safetensors"), &weights).unwrap();
    assert!(open().contains("word_embeddings"), "{}", open());
}

#[test]
fn a_text_model_needs_texts_and_an_image_model_images() {
    let image = InputShape::Image { channels: 1, height: 28, width: 28 };
    for (name, input, says) in
        [("minilm", image, "reads texts"), ("lstm", image, "reads texts"), ("simple-cnn", TINY, "needs an embedding")]
    {
        let arch = zoo::build(&ModelSpec::new(name, false), input, 3).unwrap();
        let message = Model::compile(&arch, cpu()).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(says), "{message}");
    }
}

/// Compares first token and logits of the real MiniLM with those of `transformers`, if its folder exists.
#[test]
fn minilm_agrees_with_transformers() {
    let Some(folder) = std::env::var_os("FEDELITY_DATA").map(|d| Path::new(&d).join("minilm")).filter(|d| d.is_dir())
    else {
        println!("skipped: FEDELITY_DATA names no folder with minilm");
        return;
    };
    let text = std::fs::read_to_string(data("minilm.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let floats = |value: &serde_json::Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
    };
    let rows = |key: &str| -> Vec<Vec<f32>> { expected[key].as_array().unwrap().iter().map(floats).collect() };
    let texts = Texts::new(&rows("ids").iter().map(|t| t.iter().map(|&id| id as u32).collect()).collect::<Vec<_>>());
    let pretrained = Pretrained::open(&folder).unwrap();
    let input = InputShape::Tokens { vocabulary: pretrained.vocabulary(), max_length: 512 };
    let mut arch = encoder("minilm", pretrained.shape(), false, None, input, 5);
    // The features are the first token itself.
    arch.extractor.truncate(arch.extractor.iter().position(|n| n.layer == Layer::FirstToken).unwrap() + 1);
    let model = pretrained.load(Model::compile(&arch, cpu()).unwrap()).unwrap();
    let mut params = model.init(&mut rng());
    for (name, values) in
        [("classifier.weight", rows("weight").concat()), ("classifier.bias", floats(&expected["bias"]))]
    {
        let tensor = model.layout().tensors().iter().find(|t| t.name == name).unwrap();
        params[tensor.range()].copy_from_slice(&values);
    }
    let mut workspace = model.session();
    let out = workspace.evaluate(&params, &texts.all());
    for (found, expected, what) in
        [(out.features, rows("first"), "first token"), (out.logits, rows("logits"), "logits")]
    {
        let expected = expected.concat();
        assert_eq!(found.len(), expected.len());
        let far = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{what}: {} values, largest difference {far:e}", found.len());
        assert!(far <= 1e-4, "{what}: {far}");
    }
}
