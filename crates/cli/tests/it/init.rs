//! The configuration that `init` writes.

use std::fs;

use crate::place::Place;
use serde_json::Value;

/// The configuration that a file or the command line describes, with every default.
fn resolved(place: &Place, args: &[&str]) -> Value {
    let answer = place.call(&[&["check", "--json"], args].concat());
    assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
    serde_json::from_str::<Value>(&answer.out).unwrap()["configuration"].clone()
}

#[test]
fn what_init_writes_is_the_default_run() {
    let place = Place::new();
    let answer = place.call(&["init"]);
    assert_eq!((answer.code, &*answer.out), (0, ""), "{}", answer.err);
    assert!(
        answer.err.contains("Next: fedelity check experiment.toml, then fedelity run experiment.toml"),
        "{}",
        answer.err
    );
    let text = String::from_utf8(place.read("experiment.toml")).unwrap();
    assert_eq!(resolved(&place, &["experiment.toml"]), resolved(&place, &[]));
    // Every key is there, and every line of it can be read.
    for line in place.call(&["keys", "--json"]).out.lines() {
        let key: Value = serde_json::from_str(line).unwrap();
        let name = key["key"].as_str().unwrap().rsplit('.').next().unwrap();
        let is_there =
            |line: &str| line.trim_start_matches("# ").starts_with(&format!("{name} =")) || line == format!("[{name}]");
        assert!(text.lines().any(is_there), "{name}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    assert!(text.contains("Only with partition.kind = \"shards\""), "{text}");

    place.refuses(&["init"], &["experiment.toml: the file exists; --overwrite replaces it"]);
    assert_eq!(place.call(&["init", "--overwrite", "--set", "rounds=7", "--set", "method.name=fedntd"]).code, 0);
    let changed = resolved(&place, &["experiment.toml"]);
    assert_eq!((&changed["rounds"], &changed["method"]["name"]), (&7.into(), &"fedntd".into()));
    assert!(String::from_utf8(place.read("experiment.toml")).unwrap().contains("\nbeta = 1.0\n"));
    assert_eq!(place.call(&["init", "-"]).out, text);
    place.refuses(&["init", "x.toml", "--set", "rounds=0"], &["rounds = 0"]);
    place.refuses(&["init", "x.toml", "--data", "cifra10"], &["did you mean 'cifar10'"]);
    assert!(!place.path("x.toml").exists());
}

#[test]
fn init_for_other_data_fits_them() {
    let place = Place::new();
    let rows: String = (0..40).map(|i| format!("{},{},word\n", ["no", "yes"][i % 2], i)).collect();
    place.write("visits.csv", &format!("outcome,x,note\n{rows}"));
    fs::create_dir(place.path("configs")).unwrap();
    for (file, column, model) in
        [("configs/numbers.toml", "data.features=[\"x\"]", "mlp"), ("texts.toml", "data.text=note", "lstm")]
    {
        let sets = ["--set", "data.train=visits.csv", "--set", "data.label=outcome", "--set", column];
        let more = ["--set", "partition.kind=iid", "--set", "partition.clients=2"];
        let answer = place.call(&[&["init", file, "--data", "csv"], &sets[..], &more].concat());
        assert_eq!(answer.code, 0, "{}", answer.err);
        let config = resolved(&place, &[file]);
        assert_eq!((&config["model"]["name"], &config["data"]["label"]), (&model.into(), &"outcome".into()));
    }
    place.refuses(&["init", "x.toml", "--data", "csv"], &["needs data.train"]);
    // A data set that is not here yet: the file is complete, and says where the data will be looked for.
    assert_eq!(place.call(&["init", "news.toml", "--data", "agnews"]).code, 0);
    let text = String::from_utf8(place.read("news.toml")).unwrap();
    assert!(text.contains("\nname = \"lstm\"\n") && text.contains("\n# dir = \"data\"\n"), "{text}");
    place.refuses(&["check", "news.toml"], &["fetch agnews --data-dir data"]);
}
