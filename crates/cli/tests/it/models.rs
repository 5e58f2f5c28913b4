//! The list of models, and the layers of one.

use crate::place::Place;
use serde_json::Value;

#[test]
fn models_are_listed_with_their_layers_and_sizes() {
    let place = Place::new();
    let answer = place.call(&["models"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for name in fedelity_nn::zoo::NAMES {
        assert_eq!(answer.out.lines().filter(|line| line.split_whitespace().next() == Some(name)).count(), 2, "{name}");
    }
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    // The size is what `check` reports for the same data.
    let check = place.call(&["check", "--json"]);
    let check: Value = serde_json::from_str(&check.out).unwrap();
    let listed = |args: &[&str]| -> Value { serde_json::from_str(&place.call(args).out).unwrap() };
    let model = listed(&["models", "simple-cnn", "--json"]);
    assert_eq!(model["weights"], check["parameters"]);
    let layers = model["layers"].as_array().unwrap();
    let numbers: u64 = layers.iter().map(|layer| layer["numbers"].as_u64().unwrap()).sum();
    assert_eq!(Value::from(numbers), model["weights"]);
    assert_eq!(layers[0]["output"], "6x24x24");
    assert_eq!(listed(&["models", "simple-cnn", "--data", "cifar100", "--json"])["layers"][0]["output"], "6x28x28");
    assert_eq!(
        listed(&["models", "mlp", "--input", "1x1x12", "--classes", "2", "--json"])["weights"],
        13 * 200 + 201 * 200 + 201 * 2
    );
    for name in ["resnet18-bn", "lstm", "bert"] {
        let answer = place.call(&["models", name]);
        assert!(
            answer.code == 0 && answer.out.contains("multiply-adds per input"),
            "{name}: {}{}",
            answer.out,
            answer.err
        );
    }
    // A model of one's own, and one that was trained.
    place.write("my.toml", &place.call(&["layers", "simple-cnn"]).out);
    for data in [&["--data", "cifar10"][..], &["--input", "1x20x24", "--classes", "3"]] {
        let of = |model: &str| listed(&[&["models", model, "--json"], data].concat());
        let (own, zoo) = (of("my.toml"), of("simple-cnn"));
        assert_eq!((&own["layers"], &own["weights"], &own["input"]), (&zoo["layers"], &zoo["weights"], &zoo["input"]));
    }
    let answer = place.call(&["models", "my.toml"]);
    assert!(answer.out.starts_with("simple-cnn\nA model of your own, from my.toml.\n"), "{}{}", answer.out, answer.err);
    place.refuses(&["models", "my.toml", "--input", "1x4x4"], &["my.toml:", "layer 1 (conv)", "images of 1x4x4"]);
    place.refuses(&["models", "mine.toml"], &["mine.toml: cannot read it"]);
    place.write("words.toml", &place.call(&["layers", "lstm"]).out);
    assert!(listed(&["models", "words.toml", "--json"])["input"].as_str().unwrap().contains("tokens"));
    assert_eq!(place.tiny(&["--output", "a"]).code, 0);
    let trained = listed(&["models", "a", "--json"]);
    let config: Value = serde_json::from_str(&place.call(&["check", "a/config.toml", "--json"]).out).unwrap();
    assert_eq!((&trained["weights"], &trained["classes"]), (&config["parameters"], &10.into()), "{trained}");
    place.refuses(&["models", "a", "--classes", "3"], &["leave out --input, --classes and --projection"]);
    place.refuses(&["models", "resnet18"], &["there is no model 'resnet18'", "did you mean 'resnet18-gn'?"]);
    place.refuses(&["models", "--input", "3x32"], &["--input 3x32: expected channels, height and width"]);
    place.refuses(&["models", "simple-cnn", "--input", "1x4x4"], &["layer 1 (conv)", "does not fit an image of 1x4x4"]);
    place.refuses(&["models", "--data", "cifar11"], &["did you mean 'cifar10'"]);
    place.refuses(&["models", "--classes", "0"], &["--classes 0"]);
}
