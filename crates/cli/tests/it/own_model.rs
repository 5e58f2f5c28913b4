//! Models of one's own: from a file of layers to a trained model and its exports.

use std::fs;
use std::path::Path;

use crate::place::{Place, files};
use fedelity_nn::{checkpoint, zoo};
use safetensors::SafeTensors;

/// Settings that make a run short, without a model.
const SHORT: &[&str] = &["rounds=2", "partition.clients=5", "clients.per-round=2", "clients.epochs=1"];

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run"];
    SHORT.iter().for_each(|set| args.extend(["--set", set]));
    args.extend(more);
    args
}

fn done(place: &Place, args: &[&str]) -> String {
    let answer = place.call(args);
    assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
    answer.out
}

/// The tensors of a model file, by name.
fn tensors(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let mut all: Vec<_> = file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect();
    all.sort();
    all
}

fn example(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)).unwrap()
}

#[test]
fn the_example_trains_and_its_model_file_is_enough() {
    let place = Place::new();
    fs::create_dir(place.path("lab")).unwrap();
    for name in ["own-model.toml", "own-layers.toml"] {
        place.write(&format!("lab/{name}"), &example(name));
    }
    let answer = place.call(&run(&["lab/own-model.toml", "--output", "a"]));
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("small-resnet with "), "{}", answer.err);
    // The run folder has the layers, and repeats the run even if the file has changed.
    assert!(files(&place.path("a")).contains(&"layers.toml".to_string()));
    let config = String::from_utf8(place.read("a/config.toml")).unwrap();
    assert!(config.contains("\n[model]\nfile = \"layers.toml\"\nprojection = false\n"), "{config}");
    assert!(!config.contains("max-length") && !config.contains("simple-cnn"), "{config}");
    fs::remove_dir_all(place.path("lab")).unwrap();
    done(&place, &["run", "a/config.toml", "--output", "b"]);
    assert_eq!(place.read("a/model.safetensors"), place.read("b/model.safetensors"));
    assert_eq!(place.read("a/layers.toml"), place.read("b/layers.toml"));

    // The model file alone can be evaluated, exported and printed.
    fs::copy(place.path("a/model.safetensors"), place.path("m.safetensors")).unwrap();
    let all = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["accuracy"].clone();
    let alone = all(&done(&place, &["evaluate", "m.safetensors", "--data", "fashion-mnist-mini", "--json"]));
    assert_eq!(alone, all(&done(&place, &["evaluate", "a", "--json"])));
    assert!(alone.as_f64().unwrap() > 0.12, "{alone}");
    done(&place, &["export", "m.safetensors", "--onnx", "m.onnx", "--pytorch", "m.py"]);
    assert!(place.read("m.onnx").windows(18).any(|part| part == b"block.conv1.weight"));
    let source = String::from_utf8(place.read("m.py")).unwrap();
    assert!(source.contains("class Net(nn.Module):") && source.contains("\"Ankle boot\""), "{source}");
    assert_eq!(done(&place, &["layers", "m.safetensors"]).as_bytes(), place.read("a/layers.toml"));
    assert_eq!(done(&place, &["layers", "a/layers.toml"]).as_bytes(), place.read("a/layers.toml"));

    // Existing files stay.
    place.write("m.py", "mine");
    place.refuses(&["export", "a", "--pytorch", "m.py"], &["--pytorch m.py", "--overwrite"]);
    place.refuses(&["export", "a", "--pytorch", "n.py", "--onnx", "m.onnx"], &["--onnx m.onnx", "--overwrite"]);
    place.refuses(
        &["export", "a", "--pytorch", "n", "--onnx", "n"],
        &["--onnx and --pytorch n: each needs a file of its own"],
    );
    assert_eq!((place.read("m.py"), place.path("n.py").exists()), (b"mine".to_vec(), false));
    done(&place, &["export", "a", "--pytorch", "m.py", "--overwrite"]);
    assert_eq!(place.read("m.py"), source.into_bytes());

    // A file from PyTorch has the weights only: the layers come from the file.
    let card = checkpoint::card(&place.path("a/model.safetensors")).unwrap().unwrap();
    let bytes = place.read("a/model.safetensors");
    let bare = SafeTensors::deserialize(&bytes).unwrap();
    fs::write(place.path("t.safetensors"), safetensors::serialize(bare.tensors(), None).unwrap()).unwrap();
    place.write("net.toml", &card.layers.unwrap());
    let foreign = ["evaluate", "t.safetensors", "--model", "net.toml", "--data", "fashion-mnist-mini", "--json"];
    assert_eq!(all(&done(&place, &foreign)), alone);
    assert_eq!(all(&done(&place, &["evaluate", "a", "--model", "net.toml", "--json"])), alone);
    place.write("other.toml", "layers = [{ kind = \"flatten\" }]");
    place.refuses(&["evaluate", "a", "--model", "other.toml"], &["--model other.toml", "has other layers"]);
    place.refuses(&["evaluate", "a", "--model", "none.toml"], &["--model none.toml", "cannot read"]);
}

/// Printing a model and reading it back changes nothing, down to the trained bits.
#[test]
fn printed_models_train_to_the_same_bits() {
    let place = Place::new();
    for (name, projection) in [("simple-cnn", "model.projection=false"), ("resnet8-gn", "model.projection=true")] {
        let text = done(&place, &["layers", name, "--input", "1x28x28"]);
        place.write("my.toml", &text);
        let (zoo, own) = (format!("model.name={name}"), format!("{name}-own"));
        let short = ["--set", "rounds=1", "--set", "clients.per-round=1", "--metrics", "fast", "--set", projection];
        done(&place, &[&run(&["--set", &zoo, "--output", name])[..], &short].concat());
        done(&place, &[&run(&["--set", "model.file=my.toml", "--output", &own])[..], &short].concat());
        let model = |folder: &str| tensors(&place.read(&format!("{folder}/model.safetensors")));
        assert_eq!(model(name), model(&own), "{name}");
    }
    for name in zoo::NAMES {
        place.write("all.toml", &done(&place, &["layers", name]));
        assert_eq!(done(&place, &["layers", "all.toml"]).as_bytes(), place.read("all.toml"), "{name}");
    }
    place.refuses(&["layers", "simple-cn"], &["neither a file nor one of", "did you mean 'simple-cnn'?"]);
    place.refuses(&["layers", "mlp", "--input", "3x0x1"], &["--input 3x0x1", "3x32x32"]);
    place.refuses(&["layers", "mlp", "--stem", "cifar"], &["--stem", "mlp"]);
    place.refuses(&["layers", "resnet18-bn", "--stem", "big"], &["--stem big", "cifar, imagenet"]);
}

#[test]
fn texts_need_an_embedding_first() {
    let place = Place::new();
    let rows: String = (0..40).map(|i| format!("{},{}\n", ["good fine", "bad poor dull"][i % 2], i % 2)).collect();
    place.write("t.csv", &format!("text,label\n{rows}"));
    place.write(
        "my.toml",
        "layers = [{ kind = \"bert-embeddings\", width = 8, positions = 16 }, { kind = \"transformer\", heads = 2, hidden = \
         16 }, { kind = \"first-token\" }]\n",
    );
    place.write(
        "exp.toml",
        "[data]\nname = \"csv\"\ntrain = \"t.csv\"\ntext = \"text\"\n[partition]\nkind = \"iid\"\n[model]\nfile = \"my.toml\"\n",
    );
    place.refuses(
        &run(&["exp.toml"]),
        &["exp.toml:7:2: model.max-length = 128: expected 1 to 16, the number of positions"],
    );
    done(&place, &run(&["exp.toml", "--set", "model.max-length=16", "--output", "a"]));
    let config = String::from_utf8(place.read("a/config.toml")).unwrap();
    assert!(config.contains("max-length = 16\nvocabulary = 20000\n"), "{config}");
    let out = done(&place, &["predict", "a/model.safetensors", "--text", "good", "--json"]);
    assert!(out.contains("\"class\""), "{out}");
    done(&place, &["export", "a", "--onnx", "m.onnx", "--pytorch", "m.py"]);
    place.write("my.toml", "layers = [{ kind = \"flatten\" }]");
    place.refuses(&run(&["exp.toml"]), &["model.file", "my.toml", "start the layers with an embedding"]);
    let image = ["--set", "model.file=my.toml", "--set", "model.max-length=9"];
    place.refuses(&run(&image), &["model.max-length: not a key of this model, my, which does not read texts"]);
}

#[test]
fn mistakes_are_named_with_file_and_line() {
    let place = Place::new();
    place.write("exp.toml", "rounds = 1\n[model]\nfile = \"my.toml\"\n");
    let said = |text: &str, said: &[&str]| {
        place.write("my.toml", text);
        for command in [&["run", "exp.toml"][..], &["check", "exp.toml"]] {
            place.refuses(command, said);
        }
    };
    place.refuses(&["run", "exp.toml"], &["exp.toml:3:1: model.file = \"my.toml\": cannot read it"]);
    said(
        "layers = [\n  { kind = \"flatten\" },\n  { kind = \"dense\", out = 0 },\n]\n",
        &["my.toml:3:21: layer 2 (dense): out = 0"],
    );
    said(
        "layers = [\n  { kind = \"dense\", out = 4 },\n]\n",
        &[
            "my.toml:2:3: layer 1 (dense): it works on rows, but its input is an image of 1x28x28",
            "(the data: fashion-mnist-mini, images of 1x28x28)",
        ],
    );
    said(
        "[[layers]]\nkind = \"residual\"\n[[layers.body]]\nkind = \"conv\"\nout = 4\nkernel = 99\n",
        &["my.toml:3:1: layer 1 (residual), body layer 1 (conv): a 99x99 kernel"],
    );
    said("layers = [\n", &["my.toml:"]);
    said("rounds = 2\n", &["my.toml:1:1: unknown key 'rounds'"]);
    said(&" ".repeat(300_000), &["exp.toml:3:1: model.file", "more than 262144 bytes"]);
    fs::write(place.path("my.toml"), [0xff, 0xfe]).unwrap();
    place.refuses(&["run", "exp.toml"], &["not a text file"]);
    place.refuses(&["run", "--set", "model.file=."], &["--set: model.file = \".\": cannot read it"]);
    place.write("both.toml", "[model]\nname = \"mlp\"\nfile = \"my.toml\"\n");
    place.refuses(&["run", "both.toml"], &["both.toml:3:1: model.file: expected model.file or model.name, not both"]);
    place.refuses(
        &["run", "exp.toml", "--set", "model.stem=cifar"],
        &["model.stem: only allowed with model.name, one of"],
    );
    said("name = \"x\"\n", &["exp.toml:3:1: model.file = \"my.toml\": layers is missing"]);
    said("layers = []\n", &["my.toml:1:1: the layers end with an image of 1x28x28"]);
    // The command line's model replaces the file's.
    done(&place, &run(&["exp.toml", "--set", "model.name=logistic", "--output", "a"]));
}

#[test]
fn keys_explain_every_kind_of_layer() {
    let place = Place::new();
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = flat(done(&place, &["keys", "layers"]));
    for said in
        ["kind = \"conv\" Convolution with a square kernel", "stride = 1: Pixels from one position", "kind = \"lstm\""]
    {
        assert!(all.contains(said), "{all}");
    }
    let key = flat(done(&place, &["keys", "model.file"]));
    assert!(key.starts_with("model.file") && key.contains("kind = \"residual\""), "{key}");
    let one = flat(done(&place, &["keys", "layers.dropout"]));
    assert!(one.starts_with("kind = \"dropout\"") && !one.contains("conv") && one.contains("p = 0.5"), "{one}");
    let json = done(&place, &["keys", "layers", "--json"]);
    let conv = json.lines().find(|line| line.contains("layers.out")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(conv).unwrap()["with"], "layers.kind = \"conv\"");
    place.refuses(&["keys", "layers.cov"], &["there is no kind of layer 'cov'", "did you mean 'layers.conv'?"]);
    place.refuses(&["keys", "layer"], &["there is no key 'layer'"]);
}
