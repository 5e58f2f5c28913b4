//! The last run, wherever a run is named.

use crate::place::Place;
use serde_json::Value;

#[test]
fn latest_works_wherever_a_run_is_named() {
    let place = Place::new();
    place.refuses(&["report", "runs/latest"], &["runs/latest: there is no run in runs"]);
    let first = place.tiny(&["--set", "method.name=fedprox"]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.ends_with("Next: fedelity report runs/latest -o report.html\n"), "{}", first.err);
    assert_eq!(place.tiny(&["--output", "runs/a"]).code, 0);
    // The newest is not the last by name.
    let answer = place.call(&["compare", "runs/latest", "--json"]);
    assert!(answer.err.contains("runs/latest is runs/a\n"), "{}", answer.err);
    let json: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((json["rows"].as_array().unwrap().len(), &json["rows"][0]["label"]), (1, &"fedavg".into()));

    image::GrayImage::new(28, 28).save(place.path("x.png")).unwrap();
    let commands: &[&[&str]] = &[
        &["report", "runs/latest"],
        &["report", "latest"],
        &["evaluate", "runs/latest"],
        &["evaluate", "runs/latest/model.safetensors", "--data", "fashion-mnist-mini"],
        &["predict", "runs/latest", "x.png"],
        &["export", "runs/latest", "--onnx", "x.onnx"],
        &["layers", "runs/latest"],
        &["layers", "latest"],
        &["runs", "list", "runs/latest"],
        &["runs", "tag", "last", "runs/latest"],
        &["runs", "export", "runs/latest", "--csv", "x.csv"],
        &["runs", "export", "runs/latest", "--tensorboard", "logs"],
        &["runs", "export", "latest", "--mlflow", "store"],
        &["models", "latest"],
        &["compare", "latest"],
        &["verify", "latest"],
        &["resume", "latest"],
        &["check", "runs/latest/config.toml"],
        &["partition", "runs/latest/config.toml"],
        &["run", "runs/latest/config.toml", "--output", "again"],
    ];
    for command in commands {
        let answer = place.call(command);
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.err);
    }
    assert_eq!(place.read("again/model.safetensors"), place.read("runs/a/model.safetensors"));
    assert!(place.path("runs/a/tags.json").is_file());
    // A run folder is no configuration, and the message names the one in it.
    for command in ["check", "run", "partition"] {
        let answer = place.call(&[command, "latest"]);
        let said = "runs/a: a folder, not a configuration; its configuration is runs/a/config.toml\n";
        assert!(answer.code == 2 && answer.err.ends_with(said), "{command}: {}", answer.err);
    }
    let answer = place.call(&["runs", "remove", "runs/latest"]);
    assert_eq!(answer.out, "would remove runs/a\n");
    // A folder elsewhere is named as it is.
    let answer = place.tiny(&["--output", "my run"]);
    assert!(answer.err.ends_with("Next: fedelity report \"my run\" -o report.html\n"), "{}", answer.err);
}
