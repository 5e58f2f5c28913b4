//! The source of a model computes what the engine does, in PyTorch where it is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fedelity_nn::{
    Architecture, Batch, BlockNames, EncoderShape, InputShape, Model, ModelFile, ModelSpec, Params, Stem, checkpoint,
    cpu, encoder, loss, zoo,
};
use fedelity_pytorch::{PyTorchError, PyTorchModel, source};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::tensor::{Dtype, TensorView};

const CIFAR: InputShape = InputShape::Image { channels: 3, height: 32, width: 32 };
const CLASSES: usize = 5;
const SAMPLES: usize = 3;

/// The interpreter, if it has what the check needs.
fn python() -> Option<String> {
    let program = std::env::var("FEDELITY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&program).args(["-c", "import torch, safetensors.torch"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    let required = std::env::var_os("FEDELITY_PYTHON").is_some();
    assert!(!required, "FEDELITY_PYTHON={program}: it cannot import torch and safetensors");
    println!("skipped: {program} has no torch and safetensors; FEDELITY_PYTHON names another interpreter");
    None
}

/// Random weights, so that each of them matters.
fn params(model: &Model, rng: &mut ChaCha8Rng) -> Params {
    let mut params = model.init(rng);
    for tensor in model.layout().tensors().iter().filter(|tensor| tensor.shape.len() == 1) {
        params[tensor.range()].iter_mut().for_each(|value| *value += 0.3 * rng.random::<f32>());
    }
    params
}

/// Named arrays for a file.
#[derive(Default)]
struct Arrays(BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>);

impl Arrays {
    fn floats(&mut self, name: &str, shape: Vec<usize>, values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.0.insert(name.to_owned(), (Dtype::F32, shape, bytes));
    }

    fn whole(&mut self, name: &str, shape: Vec<usize>, values: &[i64]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.0.insert(name.to_owned(), (Dtype::I64, shape, bytes));
    }

    fn write(&self, path: &Path) {
        let views = self.0.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }
}

/// Models to compare, in one folder each.
struct Comparison {
    dir: tempfile::TempDir,
    folders: Vec<PathBuf>,
}

impl Comparison {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), folders: Vec::new() }
    }

    /// Adds a model. `gradients`: compare those of a step, which needs a model without dropout.
    fn add(&mut self, name: &str, arch: &Architecture, numbers: bool, gradients: bool) {
        let folder = self.dir.path().join(format!("{}-{name}", self.folders.len()));
        std::fs::create_dir(&folder).unwrap();
        let classes: Vec<String> = (0..arch.classes).map(|class| format!("\"{class}\"\n")).collect();
        let channels = if let InputShape::Image { channels, .. } = arch.input { channels } else { 0 };
        let (mean, std) = (vec![0.5; channels], vec![0.25; channels]);
        let text = source(&PyTorchModel {
            architecture: arch,
            numbers,
            classes: &classes,
            mean: &mean,
            std: &std,
            columns: &[],
        })
        .unwrap();
        std::fs::write(folder.join("model.py"), text).unwrap();
        let model = Model::compile(arch, cpu()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut params = params(&model, &mut rng);
        checkpoint::save(&folder.join("weights.safetensors"), model.layout(), &params, None).unwrap();
        let mut arrays = Arrays::default();
        let mut rows = Vec::new();
        let (mut ids, mut starts) = (Vec::new(), vec![0]);
        let batch = match arch.input {
            InputShape::Image { channels, height, width } => {
                rows.extend((0..SAMPLES * arch.input.len()).map(|_| rng.random::<f32>() * 4.0 - 2.0));
                let shape = if numbers { vec![width] } else { vec![channels, height, width] };
                arrays.floats("input", [vec![SAMPLES], shape].concat(), &rows);
                Batch::Floats { rows: &rows }
            }
            InputShape::Tokens { vocabulary, .. } => {
                // Texts of 7, 1 and 4 tokens, padded to 7.
                let lengths = [7, 1, 4];
                let (mut padded, mut mask) = (Vec::new(), Vec::new());
                for length in lengths {
                    let text: Vec<u32> = (0..length).map(|_| rng.random_range(0..vocabulary as u32)).collect();
                    padded.extend((0..7).map(|i| text.get(i).map_or(0, |&id| i64::from(id))));
                    mask.extend((0..7).map(|i| i64::from(i < text.len())));
                    ids.extend(text);
                    starts.push(ids.len() as u32);
                }
                arrays.whole("input_ids", vec![SAMPLES, 7], &padded);
                arrays.whole("attention_mask", vec![SAMPLES, 7], &mask);
                Batch::Tokens { ids: &ids, starts: &starts, indices: &[0, 1, 2] }
            }
        };
        let mut session = model.session();
        arrays.floats("logits", vec![SAMPLES, arch.classes], session.evaluate(&params, &batch).logits);
        if gradients {
            let labels: Vec<u16> = (0..SAMPLES).map(|i| (i % arch.classes) as u16).collect();
            let (mut grad, mut d_logits) = (vec![0.0; params.len()], vec![0.0; SAMPLES * arch.classes]);
            let outputs = session.train(&mut params, &batch, 1);
            loss::cross_entropy(outputs.logits, &labels, arch.classes, 1.0, &mut d_logits);
            session.backward(&params, &d_logits, None, &mut grad);
            for tensor in model.layout().tensors() {
                arrays.floats(&format!("gradient.{}", tensor.name), tensor.shape.clone(), &grad[tensor.range()]);
            }
            let labels: Vec<i64> = labels.into_iter().map(i64::from).collect();
            arrays.whole("labels", vec![SAMPLES], &labels);
        }
        arrays.write(&folder.join("data.safetensors"));
        self.folders.push(folder);
    }

    fn run(&self, python: &str) {
        let script = self.dir.path().join("check.py");
        std::fs::write(&script, include_str!("check.py")).unwrap();
        let output = Command::new(python).arg(&script).args(&self.folders).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.lines().count(), self.folders.len(), "{text}");
    }
}

fn zoo_model(name: &str, projection: bool, stem: Option<Stem>, input: InputShape) -> Architecture {
    zoo::build(&ModelSpec { stem, ..ModelSpec::new(name, projection) }, input, CLASSES).unwrap()
}

#[test]
fn images() {
    let Some(python) = python() else { return };
    let mut all = Comparison::new();
    for name in zoo::NAMES.iter().filter(|name| !zoo::reads_text(name)) {
        // In evaluation: a few samples through many normalisations of a batch magnify rounding in training.
        all.add(name, &zoo_model(name, false, None, CIFAR), false, ["logistic", "mlp", "simple-cnn"].contains(name));
    }
    all.add("projection", &zoo_model("simple-cnn", true, None, CIFAR), false, true);
    let large = InputShape::Image { channels: 1, height: 70, width: 65 };
    all.add("imagenet", &zoo_model("resnet18-gn", false, Some(Stem::ImageNet), large), false, false);
    let numbers = InputShape::Image { channels: 1, height: 1, width: 9 };
    all.add("numbers", &zoo_model("mlp", false, None, numbers), true, true);
    all.add("numbers-as-image", &zoo_model("resnet8-gn", false, None, numbers), true, false);
    all.run(&python);
}

#[test]
fn texts() {
    let Some(python) = python() else { return };
    let input = InputShape::Tokens { vocabulary: 40, max_length: 12 };
    for name in zoo::NAMES.iter().filter(|name| zoo::reads_text(name)) {
        // One at a time: they are large.
        let mut one = Comparison::new();
        one.add(name, &zoo_model(name, *name == "lstm", None, input), false, *name == "lstm");
        one.run(&python);
    }
    let mut small = Comparison::new();
    for names in BlockNames::ALL {
        let usual = EncoderShape::named("minilm").unwrap().with_dropout(0.0);
        let shape = EncoderShape {
            names,
            prefix: "text.".to_owned(),
            width: 12,
            layers: 2,
            heads: 3,
            hidden: 20,
            head_dropout: 0.0,
            types: 0,
            ..usual
        };
        small.add(names.name(), &encoder("small", &shape, true, None, input, CLASSES), false, true);
    }
    small.run(&python);
}

/// Layers with residual paths, norms, pooling and dropout, as people write them.
#[test]
fn models_of_ones_own() {
    let Some(python) = python() else { return };
    let mut all = Comparison::new();
    let text = |dropout: &str| {
        format!(
            "head = \"out.0\"\nlayers = [
              {{ kind = \"conv\", out = 6, kernel = 3, pad = 1, bias = false, name = \"stem.conv\" }},
              {{ kind = \"batch-norm\", name = \"stem.norm\" }},
              {{ kind = \"relu\" }},
              {{ kind = \"residual\", body = [
                {{ kind = \"conv\", out = 8, kernel = 3, stride = 2, pad = 1 }},
                {{ kind = \"group-norm\", channels-per-group = 4 }},
                {{ kind = \"residual\", body = [{{ kind = \"relu\" }}, {{ kind = \"conv\", out = 8, kernel = 5, pad = 2 }}] }},
              ], shortcut = [
                {{ kind = \"average-pool\", kernel = 3, stride = 2, pad = 1 }},
                {{ kind = \"conv\", out = 8, kernel = 1 }},
              ] }},
              {{ kind = \"max-pool\", kernel = 3, stride = 2, pad = 1 }},
              {{ kind = \"flatten\" }},
              {dropout}
              {{ kind = \"dense\", out = 7 }},
              {{ kind = \"relu\" }},
            ]"
        )
    };
    let input = InputShape::Image { channels: 2, height: 11, width: 9 };
    let own =
        |text: &str, input| ModelFile::parse(text).unwrap().architecture("own \"net\"", input, CLASSES, false).unwrap();
    all.add("dropout", &own(&text("{ kind = \"dropout\", p = 0.25 },"), input), false, false);
    all.add("gradients", &own(&text(""), input), false, true);
    let bare = "layers = [{ kind = \"residual\", body = [] }, { kind = \"relu\" }, { kind = \"global-average-pool\" }, { kind = \"flatten\" }]";
    all.add("bare", &own(bare, input), false, true);
    let words = "layers = [{ kind = \"embedding\", width = 6 }, { kind = \"transformer\", heads = 2, hidden = 5, dropout = 0.0, \
                 attention-dropout = 0.0, eps = 1e-5 }, { kind = \"first-token\" }, { kind = \"relu\" }]";
    all.add("words", &own(words, InputShape::Tokens { vocabulary: 9, max_length: 7 }), false, true);
    all.run(&python);
}

/// A description of unknown origin must not become code.
#[test]
fn names_cannot_become_code() {
    let mut arch = zoo_model("mlp", false, None, CIFAR);
    arch.name = "a\nimport os".to_owned();
    let classes = vec!["\"]; import os".to_owned(), "b\nc".to_owned()];
    let model =
        PyTorchModel { architecture: &arch, numbers: false, classes: &classes, mean: &[], std: &[], columns: &[] };
    let text = source(&model).unwrap();
    assert!(text.starts_with("# a import os, written by"), "{text}");
    assert!(text.contains("CLASSES = [\"\\\"]; import os\", \"b\\nc\"]\n"), "{text}");
    assert!(!text.contains("\nimport os"), "{text}");
    let renamed = Architecture { head: "a\"]; import os".to_owned(), ..arch.clone() };
    let model = PyTorchModel { architecture: &renamed, ..model };
    assert!(matches!(source(&model), Err(PyTorchError::Name { .. })));
}
