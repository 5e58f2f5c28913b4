//! Using trained models: evaluate, predict and export, from run folders and from single files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::place::Place;
use fedelity_data::{NamedSource, SetName, Skipped};
use fedelity_nn::{Batch, Card, Model, checkpoint, cpu};
use safetensors::SafeTensors;
use serde_json::Value;

const MODEL: &str = "a/model.safetensors";
const DATA: &[&str] = &["--data", "fashion-mnist-mini"];

/// A model trained on the embedded data, in the folder `a`.
fn trained() -> Place {
    let place = Place::new();
    let answer = place.tiny(&["--output", "a"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    place
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn accuracy(place: &Place, args: &[&str]) -> Value {
    let answer = place.call(&[&["evaluate", "--json"][..], args].concat());
    assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
    json(&answer.out)
}

/// Writes a copy of the model file with other tensors, with or without its description.
fn rewrite(place: &Place, to: &str, described: bool, keep: impl Fn(&str) -> bool) {
    let bytes = place.read(MODEL);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().filter(|_| described);
    let tensors: Vec<_> = file.tensors().into_iter().filter(|(name, _)| keep(name)).collect();
    fs::write(place.path(to), safetensors::serialize(tensors, metadata).unwrap()).unwrap();
}

#[test]
fn evaluation_finds_what_the_run_recorded() {
    let place = trained();
    let recorded = json(&String::from_utf8(place.read("a/summary.json")).unwrap());
    let found = accuracy(&place, &["a"]);
    assert_eq!(found["accuracy"], recorded["final-accuracy"], "{recorded}");
    assert_eq!((found["samples"].as_u64(), found["model"].as_str()), (Some(1_000), Some("logistic")));
    let classes = found["classes"].as_array().unwrap();
    let correct: u64 = classes.iter().map(|class| class["correct"].as_u64().unwrap()).sum();
    assert_eq!(correct as f64 / 1_000.0, found["accuracy"].as_f64().unwrap());
    assert_eq!(classes[0]["samples"], 100);

    // The file alone is enough, wherever it is, on any number of threads.
    fs::copy(place.path(MODEL), place.path("b.safetensors")).unwrap();
    let alone = accuracy(&place, &[&["b.safetensors", "--threads", "3"], DATA].concat());
    assert_eq!((&alone["accuracy"], &alone["loss"]), (&found["accuracy"], &found["loss"]));
    // A file without a description needs further options.
    rewrite(&place, "c.safetensors", false, |_| true);
    let told = accuracy(&place, &[&["c.safetensors", "--model", "logistic"], DATA].concat());
    assert_eq!((&told["accuracy"], &told["loss"]), (&found["accuracy"], &found["loss"]));

    let shown = place.call(&["evaluate", "a"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    for text in ["logistic on 1,000 test samples of fashion-mnist-mini", "accuracy %", "Ankle boot"] {
        assert!(shown.out.contains(text), "{text}: {}", shown.out);
    }
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let place = trained();
    fs::create_dir(place.path("b")).unwrap();
    fs::copy(place.path(MODEL), place.path("b/model.safetensors")).unwrap();
    place.refuses(&["evaluate", "b"], &["--data", "fashion-mnist-mini"]);
    place.refuses(&["evaluate", "none.safetensors"], &["none.safetensors"]);
    place.refuses(&["evaluate", "a", "--model", "mlp"], &["--model mlp", "is a logistic model"]);
    place.refuses(&["evaluate", "a", "--data", "fashion-minst"], &["fashion-minst", "fashion-mnist"]);
    place.write("t.csv", "x,y,label\n1,2,a\n2,3,b\n1,2,a\n2,3,b\n1,2,a\n2,3,b\n1,2,a\n2,3,b\n1,2,a\n2,3,b\n");
    place.refuses(
        &["evaluate", "a", "--data", "csv", "--set", "data.train=t.csv"],
        &["model.safetensors", "the model reads images of 1x28x28, but csv has 2 numbers"],
    );
    place.write("x.safetensors", "not one");
    place.refuses(&[&["evaluate", "x.safetensors"], DATA].concat(), &["x.safetensors", "not a safetensors file"]);
    rewrite(&place, "x.safetensors", true, |name| name != "fc.bias");
    place.refuses(&[&["evaluate", "x.safetensors"], DATA].concat(), &["x.safetensors", "\"fc.bias\" is missing"]);
    rewrite(&place, "x.safetensors", false, |_| true);
    place.refuses(&[&["evaluate", "x.safetensors"], DATA].concat(), &["does not describe", "--model NAME"]);
    place.refuses(&["predict", "x.safetensors", "a.png", "--model", "logistic"], &["--data NAME"]);
    place.refuses(
        &[&["evaluate", "x.safetensors", "--model", "mlp"], DATA].concat(),
        &["x.safetensors", "tensor \"fc1.weight\" is missing"],
    );

    // A tensor of the wrong shape, and an invalid description.
    let bytes = place.read(MODEL);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let other = vec![0u8; 4 * 10 * 785];
    let view =
        |shape: Vec<usize>| safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, &other).unwrap();
    let file = safetensors::serialize([("fc.weight", view(vec![10, 785]))], Some(metadata.clone())).unwrap();
    fs::write(place.path("x.safetensors"), file).unwrap();
    place.refuses(&[&["evaluate", "x.safetensors"], DATA].concat(), &["[10, 785]", "expected F32 [10, 784]"]);
    for wrong in ["{}", "[", &metadata["fedelity"].replace("logistic", "resnet9")] {
        let about = HashMap::from([("fedelity".to_string(), wrong.to_string())]);
        let file = safetensors::serialize([("fc.weight", view(vec![10, 785]))], Some(about)).unwrap();
        fs::write(place.path("x.safetensors"), file).unwrap();
        place.refuses(&[&["evaluate", "x.safetensors"], DATA].concat(), &["x.safetensors"]);
    }

    // A folder with several runs lists them.
    fs::create_dir_all(place.path("many/fedavg")).unwrap();
    fs::rename(place.path("b"), place.path("many/fedavg/seed-1")).unwrap();
    place.refuses(&["export", "many", "--onnx", "m.onnx"], &["no model.safetensors", "many/fedavg/seed-1"]);
}

/// The first test images as PNG files, and the model's predictions for them, computed independently of the program.
fn pictures(place: &Place, count: usize) -> Vec<(String, usize)> {
    let source =
        fedelity_data::DataSource::Named(NamedSource { name: SetName::FashionMnistMini, dir: None, size: None });
    let data = source.load(&mut Skipped::default()).unwrap();
    let path = place.path(MODEL);
    let card: Card = checkpoint::card(&path).unwrap().unwrap();
    let model = Model::compile(&card.architecture().unwrap(), cpu()).unwrap();
    let params = checkpoint::load(&path, model.layout()).unwrap();
    let mut workspace = model.session();
    (0..count)
        .map(|i| {
            let (name, pixels) = (format!("{i}.png"), data.test.image(i));
            image::GrayImage::from_raw(28, 28, pixels.to_vec()).unwrap().save(place.path(&name)).unwrap();
            let value = |&pixel: &u8| (f32::from(pixel) / 255.0 - card.mean[0]) / card.std[0];
            let rows: Vec<f32> = pixels.iter().map(value).collect();
            let logits = workspace.evaluate(&params, &Batch::Floats { rows: &rows }).logits;
            let best = (0..10).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            (name, best)
        })
        .collect()
}

#[test]
fn images_are_recognised() {
    let place = trained();
    let expected = pictures(&place, 70);
    let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    let answer = place.call(&[&["predict", "a", "--json", "--top", "4", "--threads", "2"], &names[..]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let lines: Vec<Value> = answer.out.lines().map(json).collect();
    assert_eq!(lines.len(), 70);
    for (line, (name, label)) in lines.iter().zip(&expected) {
        let predictions = line["predictions"].as_array().unwrap();
        assert_eq!((line["input"].as_str().unwrap(), predictions.len()), (name.as_str(), 4));
        assert_eq!(predictions[0]["label"], *label, "{line}");
        let shares: Vec<f64> = predictions.iter().map(|p| p["probability"].as_f64().unwrap()).collect();
        assert!(shares.is_sorted_by(|a, b| a >= b) && shares.iter().sum::<f64>() <= 1.0 + 1e-9, "{line}");
    }
    let shown = place.call(&["predict", MODEL, names[0], "--top", "99"]);
    assert!(shown.out.contains("probability") && shown.out.lines().count() == 11, "{}", shown.out);

    // A damaged image, a file that is not an image, and a missing one.
    let whole = place.read("0.png");
    fs::write(place.path("bad.png"), &whole[..whole.len() / 2]).unwrap();
    place.write("bad.jpg", "text");
    for bad in ["bad.png", "bad.jpg", "none.png"] {
        place.refuses(&["predict", "a", "1.png", bad], &[bad, "--skip-bad"]);
    }
    let left = place.call(&["predict", "a", "bad.png", "1.png", "none.png", "--json", "--skip-bad"]);
    assert_eq!((left.code, left.out.lines().count()), (0, 1), "{}", left.err);
    assert!(left.err.contains("2 skipped: bad.png: damaged PNG"), "{}", left.err);
    place.refuses(&["predict", "a"], &["FILES", "at least one"]);
    place.refuses(&["predict", "a", "0.png", "--top", "0"], &["--top 0"]);
    place.refuses(&["predict", "a", "--text", "shoe"], &["--text", "images of 1x28x28"]);
}

#[test]
fn new_images_are_used_whole() {
    let place = trained();
    for (i, (name, _)) in pictures(&place, 20).iter().enumerate() {
        let folder = place.path(["photos/Bag", "photos/Coat"][i % 2]);
        fs::create_dir_all(&folder).unwrap();
        fs::rename(place.path(name), folder.join(name)).unwrap();
    }
    place.write("photos/Bag/Thumbs.db", "left behind by a file manager");
    let args = ["a", "--data", "folder", "--set", "data.path=photos"];
    let whole = accuracy(&place, &args);
    assert_eq!((&whole["samples"], &whole["part"], &whole["trained-on"]), (&20.into(), &"all".into(), &0.into()));
    assert_eq!(accuracy(&place, &["a", "--data", "photos"]), whole);
    let part = |part: &str| accuracy(&place, &[&args[..], &["--part", part]].concat())["samples"].as_u64();
    assert_eq!((part("train"), part("test"), part("all")), (Some(16), Some(4), Some(20)));
    let shown = place.call(&[&["evaluate"], &args[..]].concat());
    assert!(
        shown.out.starts_with("logistic on all 20 samples of folder\ntrained   on none of them\n"),
        "{}",
        shown.out
    );
    // The run's training samples, as a set of their own.
    let own = accuracy(&place, &["a", "--part", "train"]);
    assert_eq!((&own["samples"], &own["trained-on"]), (&6_000.into(), &6_000.into()));
}

#[test]
fn texts_are_read_from_all_sources() {
    let place = Place::new();
    let row = |i: usize| format!("{},{}\n", ["a good film", "a bad film"][i % 2], ["good", "bad"][i % 2]);
    place.write("t.csv", &format!("text,label\n{}", (0..80).map(row).collect::<String>()));
    let sets = [
        "data.name=csv",
        "data.train=t.csv",
        "model.name=lstm",
        "model.max-length=8",
        "partition.kind=iid",
        "partition.clients=2",
        "rounds=4",
        "optimizer.kind=adam",
    ];
    let mut args = vec!["run", "--output", "a"];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let answer = place.call(&args);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let recorded = json(&String::from_utf8(place.read("a/summary.json")).unwrap());
    assert_eq!(accuracy(&place, &["a"])["accuracy"], recorded["final-accuracy"]);

    place.write("t.txt", "a good film\n\na bad film\n");
    place.write("t.jsonl", "{\"body\": \"a good film\"}\n{\"body\": \"a bad film\"}\n");
    fs::copy(place.path(MODEL), place.path("b.safetensors")).unwrap();
    let predict = |args: &[&str]| {
        let answer = place.call(&[&["predict", "b.safetensors", "--json"], args].concat());
        assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
        let lines: Vec<Value> = answer.out.lines().map(json).collect();
        let probability = |line: &Value| line["predictions"][0]["probability"].as_f64().unwrap();
        assert_eq!(lines.len(), 2, "{}", answer.out);
        (lines[0]["input"].as_str().unwrap().to_string(), [probability(&lines[0]), probability(&lines[1])])
    };
    let (name, direct) = predict(&["--text", "a good film", "--text", "a bad film"]);
    assert_eq!(name, "a good film");
    assert_eq!(predict(&["t.txt"]), ("t.txt:1".to_string(), direct));
    assert_eq!(predict(&["t.jsonl", "--column", "body"]), ("t.jsonl:1".to_string(), direct));
    place.refuses(&["predict", "a", "t.jsonl"], &["t.jsonl:1", "no key 'text'", "--skip-bad"]);
    place.refuses(&["predict", "a", "none.txt"], &["none.txt"]);
    place.write("empty.txt", "\n");
    place.refuses(&["predict", "a", "empty.txt"], &["empty.txt", "no text"]);
    let answer = place.call(&["export", "a", "--onnx", "a.onnx"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(place.read("a.onnx").windows(14).any(|part| part == b"attention_mask"));
}

#[test]
fn exports_are_complete_and_never_overwrite_files() {
    let place = trained();
    place.refuses(&["export", "a"], &["--onnx FILE, --safetensors FILE or --pytorch FILE"]);
    let answer = place.call(&["export", "a", "--onnx", "m.onnx", "--safetensors", "m.safetensors"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, ""), "{}", answer.err);
    assert_eq!(place.read("m.safetensors"), place.read(MODEL));
    let first = place.read("m.onnx");
    let weight = SafeTensors::deserialize(&place.read(MODEL)).unwrap().tensor("fc.weight").unwrap().data().to_vec();
    assert!(first.windows(weight.len()).any(|part| part == weight), "the file contains the weights unchanged");
    assert!(first.windows(10).any(|part| part == b"Ankle boot"));
    place.refuses(&["export", "a", "--onnx", "m.onnx"], &["--onnx m.onnx", "--overwrite"]);
    assert_eq!(place.read("m.onnx"), first);
    assert_eq!(place.call(&["export", "a", "--onnx", "m.onnx", "--overwrite"]).code, 0);
    assert_eq!(place.read("m.onnx"), first, "the same model gives the same bytes");
    place.refuses(&["export", "a", "--onnx", "none/m.onnx"], &["none/m.onnx"]);
    let parts = |name: &String| name.contains("part");
    assert!(!crate::place::files(Path::new(place.0.path())).iter().any(parts), "nothing half-written is left");
}
