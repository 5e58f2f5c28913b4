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

#[test]
fn init_for_sites_makes_each_a_client() {
    let place = Place::new();
    fs::create_dir(place.path("sites")).unwrap();
    for site in ["mercy", "charity", "hope"] {
        let rows: String = (0..40).map(|i| format!("{},{i}\n", ["no", "yes"][i % 2])).collect();
        place.write(&format!("sites/{site}.csv"), &format!("outcome,x\n{rows}"));
    }
    let label = ["--set", "data.label=outcome"];
    assert_eq!(place.call(&[&["init", "a.toml", "--data", "sites"], &label[..]].concat()).code, 0);
    let answer = place.call(&["check", "a.toml"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("natural keys over 3 clients") && answer.out.contains("\nmercy "), "{}", answer.out);
    // What the user says counts.
    let iid = ["--set", "partition.kind=iid", "--set", "partition.clients=2", "--set", "clients.per-round=2"];
    assert_eq!(place.call(&[&["init", "b.toml", "--data", "sites"], &label[..], &iid].concat()).code, 0);
    assert_eq!(resolved(&place, &["b.toml"])["partition"]["kind"], "iid");
    // One table has no sites unless a column names them.
    assert_eq!(place.call(&[&["init", "c.toml", "--data", "sites/hope.csv"], &label[..]].concat()).code, 0);
    assert!(String::from_utf8(place.read("c.toml")).unwrap().contains("\nkind = \"dirichlet\"\n"));
    // The default model reads images: the message says what reads tables. With two classes, FedNTD is FedAvg.
    let table = ["--set", "data.name=csv", "--set", "data.train=sites", "--set", "partition.kind=natural"];
    place.refuses(&[&["check"], &table[..], &label].concat(), &["the data are rows of numbers: use mlp or logistic"]);
    let ntd = ["--set", "method.name=fedntd", "--set", "rounds=2", "--output", "ntd"];
    let answer = place.call(&[&["run", "a.toml"], &ntd[..]].concat());
    assert!(
        answer.err.contains("warning: fedntd is FedAvg with 2 classes: it differs only with 3 or more\n"),
        "{}",
        answer.err
    );
    let answer = place.call(&["run", "a.toml", "--set", "rounds=2", "--output", "avg"]);
    assert!(answer.code == 0 && !answer.err.contains("is FedAvg"), "{}", answer.err);
    let last = |run: &str| -> serde_json::Value {
        let text = String::from_utf8(place.read(&format!("{run}/rounds.jsonl"))).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    };
    assert_eq!(last("ntd")["loss"], last("avg")["loss"]);
    place.refuses(&["predict", "avg", "sites"], &["sites: a folder: name the files in it, such as sites/*"]);
    place.refuses(&["runs", "export", ".", "--csv", "-"], &["choose one of the runs in it: ./avg, ./ntd"]);
    place.refuses(&["check", "--set", "method.nmae=x"], &["unknown key 'method.nmae', did you mean 'method.name'?"]);
}
