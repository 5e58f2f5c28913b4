//! Text models from the command line: tokens, pretrained folders, frozen layers, and errors for bad ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use crate::place::Place;

const WORDS: [&str; 5] = ["awful", "bad", "so", "good", "great"];

/// A vocabulary of 32 tokens, the size of the tiny encoder's, and its tokenizer.
fn tokenizer(last: u32) -> String {
    let mut vocabulary: Vec<(String, u32)> = WORDS.iter().zip(4..).map(|(w, i)| ((*w).to_string(), i)).collect();
    vocabulary.extend([("[UNK]".to_string(), 1), ("[CLS]".to_string(), 2), ("[SEP]".to_string(), 3)]);
    vocabulary.push(("film".to_string(), last));
    let entries: Vec<String> = vocabulary.iter().map(|(word, id)| format!("\"{word}\": {id}")).collect();
    let special =
        |name: &str, id: u32| format!("\"{name}\": {{\"id\": \"{name}\", \"ids\": [{id}], \"tokens\": [\"{name}\"]}}");
    format!(
        "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null, \
         \"pre_tokenizer\": {{\"type\": \"BertPreTokenizer\"}}, \"post_processor\": {{\"type\": \"TemplateProcessing\", \
         \"single\": [{{\"SpecialToken\": {{\"id\": \"[CLS]\", \"type_id\": 0}}}}, {{\"Sequence\": {{\"id\": \"A\", \
         \"type_id\": 0}}}}, {{\"SpecialToken\": {{\"id\": \"[SEP]\", \"type_id\": 0}}}}], \"pair\": [{{\"Sequence\": \
         {{\"id\": \"A\", \"type_id\": 0}}}}, {{\"Sequence\": {{\"id\": \"B\", \"type_id\": 1}}}}], \
         \"special_tokens\": {{{}, {}}}}}, \"decoder\": null, \"model\": {{\"type\": \"WordLevel\", \"vocab\": {{{}}}, \
         \"unk_token\": \"[UNK]\"}}}}",
        special("[CLS]", 2),
        special("[SEP]", 3),
        entries.join(", ")
    )
}

/// Reviews in which one word gives the class away, and the tiny encoder in a folder.
fn place() -> Place {
    let place = Place::new();
    let trees = place.path("sst5/trees");
    fs::create_dir_all(&trees).unwrap();
    for (name, count) in [("train.txt", 60), ("test.txt", 20)] {
        let line = |i: usize| {
            let filler = "(2 film) ".repeat(1 + i % 4);
            format!("({0} {filler}({0} {1}))\n", i % 5, WORDS[i % 5])
        };
        fs::write(trees.join(name), (0..count).map(line).collect::<String>()).unwrap();
    }
    let folder = place.path("encoder");
    fs::create_dir_all(&folder).unwrap();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/data/tiny-bert");
    fs::copy(tiny.join("config.json"), folder.join("config.json")).unwrap();
    // The file's classifier is for three classes: only the encoder is used.
    let bytes = fs::read(tiny.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let encoder: Vec<_> = file.tensors().into_iter().filter(|(name, _)| !name.contains("classifier")).collect();
    fs::write(folder.join("model.safetensors"), safetensors::serialize(encoder, None).unwrap()).unwrap();
    fs::write(folder.join("tokenizer.json"), tokenizer(31)).unwrap();
    place.write("empty.toml", "");
    place
}

const RUN: &[&str] = &[
    "--data-dir",
    ".",
    "--set",
    "data.name=sst5",
    "--set",
    "rounds=2",
    "--set",
    "partition.clients=3",
    "--set",
    "partition.alpha=1.0",
    "--set",
    "clients.per-round=2",
    "--set",
    "clients.epochs=1",
    "--set",
    "model.max-length=16",
];

fn with<'a>(command: &'a str, sets: &'a [&'a str]) -> Vec<&'a str> {
    let mut args = vec![command, "empty.toml"];
    args.extend(RUN);
    sets.iter().for_each(|set| args.extend(["--set", set]));
    args
}

const ENCODER: &[&str] = &["model.name=minilm", "model.weights=encoder"];

#[test]
fn a_pretrained_encoder_with_frozen_layers_is_trained_and_saved_completely() {
    let place = place();
    let sets = [ENCODER, &["model.freeze=1", "optimizer.kind=adam", "method.name=fedgkd"]].concat();
    let answer = place.call(&with("run", &sets));
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let run = fs::read_dir(place.path("runs")).unwrap().next().unwrap().unwrap().path();
    let find = |dir: &Path| -> Option<std::path::PathBuf> {
        let direct = dir.join("model.safetensors");
        if direct.exists() {
            return Some(direct);
        }
        fs::read_dir(dir).unwrap().flatten().map(|e| e.path().join("model.safetensors")).find(|p| p.exists())
    };
    let bytes = fs::read(find(&run).unwrap()).unwrap();
    let saved = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let bytes = place.read("encoder/model.safetensors");
    let first = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut moved = 0;
    for (name, tensor) in first.tensors().into_iter().filter(|(name, _)| !name.starts_with("pooler")) {
        let now = saved.tensor(&name).unwrap();
        assert_eq!(now.shape(), tensor.shape(), "{name}");
        if name.starts_with("encoder.layer.1") {
            moved += usize::from(now.data() != tensor.data());
        } else {
            assert_eq!(now.data(), tensor.data(), "{name} is frozen");
        }
    }
    assert!(moved > 10, "{moved} tensors of the second layer moved");
    assert_eq!(saved.tensor("classifier.weight").unwrap().shape(), [5, 12]);
    // The file contains its tokenizer.
    fs::remove_dir_all(place.path("encoder")).unwrap();
    let file = find(&run).unwrap();
    let summary = fs::read_to_string(file.with_file_name("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let answer = place.call(&["evaluate", file.to_str().unwrap(), "--data", "sst5", "--data-dir", ".", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let found: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(found["accuracy"], summary["final-accuracy"]);
}

#[test]
fn frozen_layers_are_reported() {
    let place = place();
    let sets = [ENCODER, &["model.freeze=1"]].concat();
    let answer = place.call(&with("check", &sets));
    assert!(answer.out.contains("frozen") && answer.out.contains("freeze = 1"), "{}", answer.out);
}

#[test]
fn words_without_a_tokenizer() {
    let place = place();
    for model in ["lstm", "minilm"] {
        let name = format!("model.name={model}");
        let answer = place.call(&with("check", &[&name, "model.vocabulary=8"]));
        assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
        assert!(answer.out.contains("vocabulary = 8"), "{}", answer.out);
    }
    let answer = place.call(&with("run", &["model.name=lstm", "model.projection=true"]));
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
}

#[test]
fn mismatches_are_named() {
    let place = place();
    let refuses = |sets: &[&str], expected: &[&str]| place.refuses(&with("run", sets), expected);
    refuses(&["model.name=simple-cnn"], &["model.max-length", "simple-cnn"]);
    refuses(&["model.name=minilm", "model.freeze=2"], &["model.freeze", "model.weights"]);
    refuses(&[ENCODER, &["model.freeze=3"]].concat(), &["model.freeze = 3", "0 to 2"]);
    refuses(&[ENCODER, &["model.max-length=17"]].concat(), &["model.max-length = 17", "1 to 16"]);
    refuses(&[ENCODER, &["model.max-length=2"]].concat(), &["tokenizer.json", "special tokens"]);
    refuses(&["model.name=distilbert", "model.weights=encoder"], &["config.json", "model_type"]);
    refuses(&["model.name=minilm", "model.weights=none"], &["model.weights", "none", "config.json"]);
    fs::write(place.path("encoder/tokenizer.json"), tokenizer(32)).unwrap();
    refuses(ENCODER, &["encoder/tokenizer.json", "token \"film\" has ID 32", "32 tokens", "encoder/config.json"]);
    fs::write(place.path("encoder/tokenizer.json"), tokenizer(31)).unwrap();
    let config = fs::read_to_string(place.path("encoder/config.json")).unwrap();
    fs::write(
        place.path("encoder/config.json"),
        config.replace("\"intermediate_size\": 20", "\"intermediate_size\": 21"),
    )
    .unwrap();
    refuses(
        ENCODER,
        &["encoder/model.safetensors", "encoder.layer.0.intermediate.dense.weight", "[20, 12]", "[21, 12]"],
    );
}
