//! Model files: what they say is what is built, and what they say wrongly is told with layer and shape.

use std::sync::Arc;

use fedelity_nn::{
    Architecture, Batch, Card, Input, InputShape, Layer, MOST_BYTES, Model, ModelFile, ModelSpec, Params, Stem,
    checkpoint, cpu, engines, loss, zoo,
};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CIFAR: InputShape = InputShape::Image { channels: 3, height: 32, width: 32 };
const TEXT: InputShape = InputShape::Tokens { vocabulary: 40, max_length: 12 };

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// The model of a text, or why there is none.
fn build(text: &str, input: InputShape, projection: bool) -> Result<Architecture, String> {
    ModelFile::parse(text)?.architecture("own", input, 4, projection).map_err(|misfit| misfit.to_string())
}

fn wrong(text: &str, input: InputShape) -> String {
    match build(text, input, false) {
        Ok(arch) => panic!("accepted as {arch:?}"),
        Err(message) => message,
    }
}

#[test]
fn every_model_of_the_zoo_is_the_same_when_read_back() {
    for name in zoo::NAMES {
        let stems: &[Option<Stem>] =
            if zoo::has_stem(name) { &[Some(Stem::Cifar), Some(Stem::ImageNet)] } else { &[None] };
        for (&stem, projection) in stems.iter().flat_map(|stem| [(stem, false), (stem, true)]) {
            let side = if stem == Some(Stem::ImageNet) { 64 } else { 32 };
            let image = InputShape::Image { channels: 3, height: side, width: side };
            let input = if zoo::reads_text(name) { TEXT } else { image };
            let arch = zoo::build(&ModelSpec { stem, ..ModelSpec::new(*name, projection) }, input, 10).unwrap();
            let text = ModelFile::of(&arch).text();
            assert!(text.len() < MOST_BYTES / 8, "{name}: {}", text.len());
            let read = ModelFile::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            assert_eq!(read.text(), text, "{name}");
            assert_eq!(read.reads_text(), zoo::reads_text(name), "{name}");
            assert_eq!(read.needs_start_token(), zoo::is_encoder(name), "{name}");
            let again = read.architecture(name, input, 10, false).unwrap();
            assert_eq!(again, arch, "{name}\n{text}");
            let (first, second) = (Model::compile(&arch, cpu()).unwrap(), Model::compile(&again, cpu()).unwrap());
            assert_eq!(first.layout(), second.layout(), "{name}");
            // Initial weights are equal bit for bit; large models would only take longer to show it.
            if first.layout().len() < 3_000_000 {
                assert_eq!(first.init(&mut rng(3)).hash(), second.init(&mut rng(3)).hash(), "{name}");
            }
        }
        // The file's own projection is that of the zoo.
        if !zoo::is_encoder(name) {
            let input = if zoo::reads_text(name) { TEXT } else { CIFAR };
            let plain = zoo::build(&ModelSpec::new(*name, false), input, 10).unwrap();
            let projected = zoo::build(&ModelSpec::new(*name, true), input, 10).unwrap();
            assert_eq!(ModelFile::of(&plain).architecture(name, input, 10, true).unwrap(), projected, "{name}");
        }
    }
}

#[test]
fn layers_without_a_name_get_one() {
    let text = "layers = [{ kind = \"conv\", out = 4, kernel = 3, name = \"conv2\" }, { kind = \"group-norm\", \
                channels-per-group = 2 }, { kind = \"residual\", body = [{ kind = \"conv\", out = 4, kernel = 1 }, { kind \
                = \"conv\", out = 4, kernel = 1 }] }, { kind = \"flatten\" }, { kind = \"dense\", out = 5 }]";
    let arch = build(text, CIFAR, false).unwrap();
    let model = Model::compile(&arch, cpu()).unwrap();
    let names: Vec<&str> = model.layout().tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    let layers = ["conv2", "group_norm1", "conv1", "conv3", "dense1", "head"];
    assert_eq!(
        names,
        layers.iter().flat_map(|name| [format!("{name}.weight"), format!("{name}.bias")]).collect::<Vec<_>>()
    );
    // Headers of tables are the same as a list.
    let other = "[[layers]]\nkind = \"flatten\"\n[[layers]]\nkind = \"dense\"\nout = 5\n";
    let list = "layers = [{ kind = \"flatten\" }, { kind = \"dense\", out = 5 }]";
    assert_eq!(ModelFile::parse(other), ModelFile::parse(list));
    // A pooling moves by its window unless told otherwise.
    let pool = ModelFile::parse("layers = [{ kind = \"max-pool\", kernel = 3 }]").unwrap();
    assert!(matches!(pool.layers[0].layer, Layer::MaxPool(window) if window.stride == 3 && window.pad == 0));
}

#[test]
fn what_is_wrong_is_named_with_its_layer() {
    let layers = |list: &str| format!("layers = [{list}]");
    let relu = "{ kind = \"relu\" }, ";
    for (text, said) in [
        (String::new(), "layers is missing"),
        ("layers = 3".to_owned(), "layers: expected a list of layers, found the integer 3"),
        (layers("3"), "layer 1: expected a table such as { kind = \"relu\" }, found the integer 3"),
        (layers("{}"), "layer 1: kind is missing: expected one of conv, dense"),
        (layers("{ kind = \"cov\" }"), "layer 1: kind = \"cov\": expected one of conv, dense"),
        (layers("{ kind = \"cov\" }"), "did you mean 'conv'?"),
        (layers("{ kind = 1 }"), "layer 1: kind: expected one of conv"),
        (layers(&format!("{relu}{{ kind = \"conv\", kernel = 3 }}")), "layer 2 (conv): kind = \"conv\" needs out"),
        (
            layers("{ kind = \"conv\", out = 0, kernel = 3 }"),
            "layer 1 (conv): out = 0: expected a whole number of at least 1",
        ),
        (layers("{ kind = \"conv\", out = -4, kernel = 3 }"), "layer 1 (conv): out = -4: expected"),
        (layers("{ kind = \"conv\", out = 4, kernel = 3.5 }"), "layer 1 (conv): kernel: expected a whole number"),
        (
            layers("{ kind = \"conv\", out = 4, kernal = 3 }"),
            "unknown key 'kernal', did you mean 'kernel'? (allowed here: kind, ",
        ),
        (
            layers("{ kind = \"relu\", out = 4 }"),
            "layer 1 (relu): out: not a key of kind = \"relu\" (its keys: none); it goes with conv, dense",
        ),
        (
            layers("{ kind = \"relu\", name = \"a\" }"),
            "layer 1 (relu): name = \"a\": a relu layer has no weights to name",
        ),
        (
            layers("{ kind = \"dropout\", p = 1.0 }"),
            "layer 1 (dropout): p = 1.0: expected a number of at least 0 and below 1",
        ),
        (layers("{ kind = \"dropout\", p = nan }"), "layer 1 (dropout): p = nan: expected"),
        (
            layers("{ kind = \"dense\", out = 9223372036854775807 }"),
            "layer 1 (dense): out = 9223372036854775807: expected",
        ),
        (
            layers("{ kind = \"dense\", out = 2, name = \"a b\" }"),
            "layer 1 (dense): name = \"a b\": expected up to 100 letters",
        ),
        (layers("{ kind = \"dense\", out = 2, name = \"0\" }"), "layer 1 (dense): name = \"0\": expected"),
        (layers("{ kind = \"dense\", out = 2, name = \"a..b\" }"), "name = \"a..b\": expected"),
        (
            layers("{ kind = \"dense\", out = 2, name = \"forward\" }"),
            "\"forward\" is a word that PyTorch or Python uses itself",
        ),
        (
            layers("{ kind = \"dense\", out = 2, name = \"a\" }, { kind = \"dense\", out = 2, name = \"a\" }"),
            "layer 2 (dense): name = \"a\": another layer has this name",
        ),
        (layers("{ kind = \"residual\" }"), "layer 1 (residual): kind = \"residual\" needs body"),
        (
            layers("{ kind = \"residual\", body = 3 }"),
            "layer 1 (residual): body: expected a list of layers, found the integer 3",
        ),
        (
            layers(&format!("{relu}{{ kind = \"residual\", body = [{relu}{{ kind = \"conv\" }}] }}")),
            "layer 2 (residual), body layer 2 (conv): kind = \"conv\" needs out",
        ),
        (
            layers(&format!("{{ kind = \"residual\", body = [{relu}], shortcut = [{{ kind = \"pool\" }}] }}")),
            "layer 1 (residual), shortcut layer 1: kind = \"pool\": expected",
        ),
        ("name = \"a\\nb\"\nlayers = []".to_owned(), "name = \"a\\nb\": expected a name"),
        ("head = \"self.\"\nlayers = []".to_owned(), "head = \"self.\": expected"),
        ("rounds = 3\nlayers = []".to_owned(), "unknown key 'rounds'"),
        ("layers = [".to_owned(), ""),
    ] {
        let message = wrong(&text, CIFAR);
        assert!(message.contains(said), "{text}\n{message}\n{said}");
    }
}

#[test]
fn what_does_not_fit_is_named_with_its_shape() {
    let flatten = "{ kind = \"flatten\" }";
    let conv = |rest: &str| format!("{{ kind = \"conv\", {rest} }}");
    for (list, input, said) in [
        (
            String::new(),
            CIFAR,
            "the layers end with an image of 3x32x32, not with a row of features: add a flatten layer",
        ),
        (conv("out = 4, kernel = 3"), CIFAR, "layer 1 (conv): the layers end with an image of 4x30x30"),
        (
            "{ kind = \"dense\", out = 4 }".into(),
            CIFAR,
            "layer 1 (dense): it works on rows, but its input is an image of 3x32x32: put a flatten layer before it",
        ),
        ("{ kind = \"dropout\" }".into(), CIFAR, "layer 1 (dropout): it works on rows"),
        (
            conv("out = 4, kernel = 33"),
            CIFAR,
            "layer 1 (conv): a 33x33 kernel with stride 1 and padding 0 does not fit an image of 3x32x32",
        ),
        (
            format!("{}, {{ kind = \"max-pool\", kernel = 40 }}", conv("out = 4, kernel = 3")),
            CIFAR,
            "layer 2 (max-pool): a 40x40 window with stride 40 and padding 0 does not fit an image of 4x30x30",
        ),
        (
            "{ kind = \"average-pool\", kernel = 2, pad = 2 }".into(),
            CIFAR,
            "layer 1 (average-pool): a padding of 2 is more than half of its window of 2",
        ),
        (
            "{ kind = \"group-norm\", channels-per-group = 2 }".into(),
            CIFAR,
            "layer 1 (group-norm): 3 channels do not divide into groups of 2",
        ),
        (
            format!("{flatten}, {}", conv("out = 4, kernel = 1")),
            CIFAR,
            "layer 2 (conv): it works on images, but its input is a row of 3072 numbers",
        ),
        (format!("{flatten}, {{ kind = \"batch-norm\" }}"), CIFAR, "layer 2 (batch-norm): it works on images"),
        (
            format!("{{ kind = \"residual\", body = [{}] }}", conv("out = 4, kernel = 3, pad = 1")),
            CIFAR,
            "layer 1 (residual): its body makes an image of 4x32x32, but its shortcut an image of 3x32x32",
        ),
        (
            format!("{{ kind = \"residual\", body = [{flatten}], shortcut = [{flatten}] }}"),
            CIFAR,
            "layer 1 (residual): both sides make a row of 3072 numbers",
        ),
        (
            format!("{{ kind = \"residual\", body = [{}] }}", conv("out = 4, kernel = 50")),
            CIFAR,
            "layer 1 (residual), body layer 1 (conv): a 50x50 kernel",
        ),
        (
            "{ kind = \"embedding\", width = 4 }".into(),
            CIFAR,
            "layer 1 (embedding): it reads texts, but its input is an image of 3x32x32",
        ),
        (flatten.into(), TEXT, "layer 1 (flatten): it works on images, but its input is token IDs"),
        (
            "{ kind = \"lstm\", hidden = 4 }".into(),
            TEXT,
            "layer 1 (lstm): it works on tokens, but its input is token IDs: put an embedding before it",
        ),
        (
            "{ kind = \"embedding\", width = 4 }".into(),
            TEXT,
            "layer 1 (embedding): the layers end with tokens of width 4, not with a row of features: add an lstm",
        ),
        (
            "{ kind = \"embedding\", width = 4 }, { kind = \"first-token\" }".into(),
            TEXT,
            "layer 2 (first-token): there is no transformer block before it",
        ),
        (
            "{ kind = \"embedding\", width = 4 }, { kind = \"transformer\", heads = 3, hidden = 8 }".into(),
            TEXT,
            "layer 2 (transformer): 3 heads do not divide a width of 4",
        ),
        (
            "{ kind = \"bert-embeddings\", width = 4, positions = 8 }".into(),
            TEXT,
            "layer 1 (bert-embeddings): it has 8 positions, but texts have up to 12 tokens",
        ),
        (
            format!("{flatten}, {{ kind = \"dense\", out = 4, name = \"head\" }}"),
            CIFAR,
            "layer 2 (dense): the name \"head\" is that of another layer, or of the last one",
        ),
        (
            format!(
                "{flatten}, {{ kind = \"dense\", out = 4, name = \"a.b\" }}, {{ kind = \"dense\", out = 4, name = \"a\" }}"
            ),
            CIFAR,
            "layer 2 (dense): the name \"a.b\" is inside \"a\", which is a layer",
        ),
    ] {
        let message = wrong(&format!("layers = [{list}]"), input);
        assert!(message.contains(said), "{list}\n{message}\n{said}");
    }
    let taken = format!("layers = [{flatten}, {{ kind = \"dense\", out = 4, name = \"proj1\" }}]");
    assert!(build(&taken, CIFAR, true).unwrap_err().contains("layer 2 (dense): the name \"proj1\""));
    let inside = format!("head = \"a.b\"\nlayers = [{flatten}, {{ kind = \"dense\", out = 4, name = \"a\" }}]");
    assert!(wrong(&inside, CIFAR).contains("the name of the last layer is inside \"a\""));
}

/// Files that want too much are refused before anything is allocated for them.
#[test]
fn hostile_files_are_refused() {
    let dense = "{ kind = \"flatten\" }, { kind = \"dense\", out = 1048576 }, { kind = \"dense\", out = 1048576 }";
    assert!(wrong(&format!("layers = [{dense}]"), CIFAR).contains("the model has more than 536870912"));
    let conv = "{ kind = \"conv\", out = 65536, kernel = 255, pad = 127 }, ".repeat(3);
    let message = wrong(&format!("layers = [{conv}]"), CIFAR);
    assert!(message.starts_with("layer 1 (conv): with its 65536x3x255x255 weights"), "{message}");
    let wide = "{ kind = \"conv\", out = 65536, kernel = 1 }, { kind = \"max-pool\", kernel = 1 }";
    let large = InputShape::Image { channels: 1, height: 1024, width: 1024 };
    assert!(wrong(&format!("layers = [{wide}]"), large).contains("a sample takes more than"));
    let halo = "{ kind = \"max-pool\", kernel = 32 }, { kind = \"conv\", out = 65536, kernel = 1 }, { kind = \"conv\", out = 1, kernel = 255, pad = 127 }";
    assert!(wrong(&format!("layers = [{halo}]"), CIFAR).contains("layer 3 (conv)"));
    let many = "{ kind = \"relu\" },".repeat(4097);
    assert!(wrong(&format!("layers = [{many}]"), CIFAR).contains("more than 4096 layers"));
    assert!(wrong(&format!("layers = [{}]", "{ kind = \"relu\" },".repeat(1 << 20)), CIFAR).contains("bytes"));
    let nested = |n: usize| format!("layers = [{}{}]", "{ kind = \"residual\", body = [".repeat(n), "] }".repeat(n));
    let message = wrong(&nested(17), CIFAR);
    assert!(message.contains("residual layers are nested more than 16 deep"), "{message}");
    assert!(build(&nested(16).replace("layers = [", "layers = [{ kind = \"relu\" }, "), CIFAR, false).is_err());
    wrong(&nested(2000), CIFAR);
    wrong(&format!("layers = {}{}", "[".repeat(50_000), "]".repeat(50_000)), CIFAR);
    let embedding = "layers = [{ kind = \"embedding\", width = 65536 }, { kind = \"lstm\", hidden = 65536 }]";
    assert!(
        wrong(embedding, InputShape::Tokens { vocabulary: 1 << 24, max_length: 5 }).contains("layer 1 (embedding)")
    );
    // The same through the description of a saved model.
    let card = |text: &str| Card {
        table: None,
        model: "own".into(),
        projection: false,
        stem: None,
        encoder: None,
        layers: Some(text.to_owned()),
        input: Input::Image { channels: 3, height: 32, width: 32 },
        classes: vec!["a".into(), "b".into()],
        mean: vec![0.5; 3],
        std: vec![0.5; 3],
        reading: None,
        origin: Default::default(),
    };
    let message = card(&format!("layers = [{dense}]")).architecture().unwrap_err().to_string();
    assert!(message.contains("\"own\"") && message.contains("layer 2 (dense)"), "{message}");
    assert!(card("layers = [").architecture().is_err());
    assert!(card("layers = [{ kind = \"flatten\" }]").architecture().is_ok());
}

/// A residual network with both norms' neighbours, every pooling and dropout.
const OWN: &str = "layers = [
  { kind = \"conv\", out = 6, kernel = 3, pad = 1, bias = false },
  { kind = \"batch-norm\" },
  { kind = \"relu\" },
  { kind = \"residual\", body = [
    { kind = \"conv\", out = 8, kernel = 3, stride = 2, pad = 1 },
    { kind = \"group-norm\", channels-per-group = 4 },
  ], shortcut = [{ kind = \"average-pool\", kernel = 3, stride = 2, pad = 1 }, { kind = \"conv\", out = 8, kernel = 1 }] },
  { kind = \"global-average-pool\" },
  { kind = \"flatten\" },
  { kind = \"dropout\", p = 0.25 },
  { kind = \"dense\", out = 7 },
  { kind = \"relu\" },
]";

#[test]
fn a_saved_model_carries_its_layers() {
    let arch = build(OWN, CIFAR, false).unwrap();
    let model = Model::compile(&arch, cpu()).unwrap();
    let params = model.init(&mut rng(5));
    let card = Card {
        table: None,
        model: "own".into(),
        projection: false,
        stem: None,
        encoder: None,
        layers: Some(ModelFile::of(&arch).text()),
        input: Input::Image { channels: 3, height: 32, width: 32 },
        classes: ["a", "b", "c", "d"].map(String::from).to_vec(),
        mean: vec![0.5; 3],
        std: vec![0.5; 3],
        reading: None,
        origin: Default::default(),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.safetensors");
    checkpoint::save(&path, model.layout(), &params, Some(&card)).unwrap();
    let found = checkpoint::card(&path).unwrap().unwrap();
    assert_eq!(found, card);
    let again = found.architecture().unwrap();
    assert_eq!(again, arch);
    let again = Model::compile(&again, cpu()).unwrap();
    assert_eq!(checkpoint::load(&path, again.layout()).unwrap().hash(), params.hash());
}

/// Random models of small layers: each is refused with a layer's name, or trains with every instruction set to the same
/// bits.
#[test]
fn random_models_are_refused_or_train() {
    let (mut trained, mut refused) = (0, 0);
    for seed in 0..600 {
        let mut rng = rng(seed);
        let text = format!("layers = [{}]", random_layers(&mut rng, 0));
        let input = InputShape::Image {
            channels: rng.random_range(1..4),
            height: rng.random_range(1..9),
            width: rng.random_range(1..9),
        };
        match build(&text, input, rng.random_bool(0.2)) {
            Err(message) => {
                assert!(message.starts_with("layer ") || message.starts_with("the layers end"), "{message}");
                refused += 1;
            }
            Ok(arch) => {
                let hashes: Vec<String> = engines()
                    .iter()
                    .map(|engine| {
                        let model = Model::compile(&arch, Arc::clone(engine)).unwrap_or_else(|e| panic!("{text}: {e}"));
                        step(&model, seed)
                    })
                    .collect();
                assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{text} on {input:?}: {hashes:?}");
                trained += 1;
            }
        }
    }
    assert!(trained > 100 && refused > 100, "{trained} trained, {refused} refused");
}

/// The hash of the gradient of one step.
fn step(model: &Model, seed: u64) -> String {
    let (mut rng, samples) = (rng(seed), 9);
    let mut params = model.init(&mut rng);
    let rows: Vec<f32> = (0..samples * model.input().len()).map(|_| rng.random::<f32>() - 0.5).collect();
    let labels: Vec<u16> = (0..samples).map(|i| (i % model.classes()) as u16).collect();
    let (mut session, mut grad) = (model.session(), Params(vec![0.0; model.layout().len()]));
    let mut d_logits = vec![0.0; samples * model.classes()];
    let outputs = session.train(&mut params, &Batch::Floats { rows: &rows }, seed);
    loss::cross_entropy(outputs.logits, &labels, model.classes(), 1.0, &mut d_logits);
    session.backward(&params, &d_logits, None, &mut grad);
    assert!(grad.iter().all(|value| value.is_finite()));
    grad.hash()
}

fn random_layers(rng: &mut ChaCha8Rng, depth: usize) -> String {
    let mut out = Vec::new();
    for _ in 0..rng.random_range(0..4) {
        let (n, kernel) = (rng.random_range(1..6), rng.random_range(1..4));
        let (stride, pad) = (rng.random_range(1..3), rng.random_range(0..2));
        let kinds = [
            format!("{{ kind = \"conv\", out = {n}, kernel = {kernel}, stride = {stride}, pad = {pad} }}"),
            format!("{{ kind = \"conv\", out = {n}, kernel = 3, pad = 1, bias = false }}"),
            "{ kind = \"relu\" }".to_owned(),
            format!("{{ kind = \"max-pool\", kernel = {kernel}, stride = {stride} }}"),
            format!(
                "{{ kind = \"average-pool\", kernel = {kernel}, stride = {stride}, pad = {} }}",
                pad.min(kernel / 2)
            ),
            "{ kind = \"global-average-pool\" }".to_owned(),
            format!("{{ kind = \"group-norm\", channels-per-group = {} }}", rng.random_range(1..3)),
            "{ kind = \"batch-norm\" }".to_owned(),
            "RESIDUAL".to_owned(),
        ];
        let kind = kinds.choose(rng).unwrap().clone();
        out.push(if kind == "RESIDUAL" && depth < 3 {
            let (body, shortcut) = (random_layers(rng, depth + 1), random_layers(rng, depth + 1));
            let shortcut = if rng.random_bool(0.6) { String::new() } else { format!(", shortcut = [{shortcut}]") };
            format!("{{ kind = \"residual\", body = [{body}]{shortcut} }}")
        } else if kind == "RESIDUAL" {
            kinds[2].clone()
        } else {
            kind
        });
    }
    if depth == 0 {
        out.push("{ kind = \"flatten\" }".to_owned());
        for _ in 0..rng.random_range(0..3) {
            let kinds = ["{ kind = \"dense\", out = 5 }", "{ kind = \"relu\" }", "{ kind = \"dropout\", p = 0.3 }"];
            out.push((*kinds.choose(rng).unwrap()).to_owned());
        }
    }
    out.join(", ")
}
