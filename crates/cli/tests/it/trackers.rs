//! Runs in other programs: TensorBoard and MLflow; and a page that is enough to repeat them.

use std::fs;

use crate::place::{Place, files};

/// Two methods with two seeds.
fn two(place: &Place) {
    place.write("two.toml", "rounds = 2\nseeds = [1, 2]\n[[method]]\nname = \"fedavg\"\n[[method]]\nname = \"fedntd\"\nbeta = 0.5\n[partition]\nclients = 5\nalpha = 1.0\n[clients]\nper-round = 2\nepochs = 1\n[model]\nname = \"logistic\"\n");
    let answer = place.call(&["run", "two.toml", "--output", "runs/two"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
}

#[test]
fn a_store_for_mlflow_has_every_run_once() {
    let place = Place::new();
    two(&place);
    let export = ["runs", "export", "runs/two", "--mlflow", "mlruns", "--json"];
    let answer = place.call(&export);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let written: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    let runs = written["mlflow"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    let read =
        |run: &serde_json::Value, name: &str| fs::read_to_string(format!("{}/{name}", run.as_str().unwrap())).unwrap();
    // The last of FedNTD: its numbers are those of its record.
    let rounds = String::from_utf8(place.read("runs/two/fedntd/seed-2/rounds.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(rounds.lines().nth(2).unwrap()).unwrap();
    let metric = read(&runs[3], "metrics/accuracy");
    let fields: Vec<f64> = metric.lines().nth(1).unwrap().split(' ').map(|field| field.parse().unwrap()).collect();
    assert_eq!((fields[1], fields[2]), (last["accuracy"].as_f64().unwrap(), 2.0));
    assert!(fields[0] > 1.7e12, "milliseconds: {metric}");
    assert_eq!(read(&runs[3], "metrics/class-accuracy/T-shirt-top").lines().count(), 2);
    assert_eq!(
        (read(&runs[3], "params/method.beta"), read(&runs[3], "params/seed")),
        ("0.5".to_string(), "2".to_string())
    );
    assert_eq!(read(&runs[3], "tags/mlflow.runName"), "FedNTD, seed 2");
    assert!(read(&runs[3], "meta.yaml").contains("status: 3\n"));
    // Again: nothing is written twice.
    let answer = place.call(&export);
    let again: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert!(
        again["mlflow"].as_array().unwrap().is_empty() && answer.err.contains("4 runs there already"),
        "{}",
        answer.err
    );
    assert_eq!(fs::read_dir(place.path("mlruns")).unwrap().count(), 1);
}

/// Whatever a record says, exports stay in the folder that was named.
#[test]
fn names_from_records_are_not_paths() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "deep/er/a"]).code, 0);
    let path = place.path("deep/er/a/rounds.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replacen("\"method\":\"fedavg\"", "\"method\":\"../../../x\"", 1);
    let text = text.replacen("\"T-shirt/top\"", "\"../../../../y\"", 1).replace("{\"ce\":", "{\"../../z\":");
    assert!(text.contains("../../../x") && text.contains("../../../../y"));
    fs::write(&path, text).unwrap();
    let before = files(place.0.path());
    for (option, folder) in [("--tensorboard", "deep/er/logs"), ("--mlflow", "deep/er/store")] {
        let answer = place.call(&["runs", "export", "deep/er/a", option, folder]);
        assert_eq!(answer.code, 0, "{}", answer.err);
    }
    let answer = place.call(&["report", "deep/er/a", "--figures", "deep/er/figures", "-o", "deep/er/page.html"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(files(place.0.path()), before, "nothing beside the folders");
    let below = fs::read_dir(place.path("deep")).unwrap().count();
    assert_eq!(below, 1);
    let mut names: Vec<String> = fs::read_dir(place.path("deep/er"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "figures", "logs", "page.html", "store"]);
}

/// The page alone is enough to run everything again, with the same numbers.
#[test]
fn a_page_is_enough_to_repeat_its_runs() {
    let place = Place::new();
    two(&place);
    assert_eq!(place.call(&["report", "runs/two", "-o", "page.html"]).code, 0);
    let html = String::from_utf8(place.read("page.html")).unwrap();
    let recipe = html.split("<section id=reproduce>").nth(1).unwrap().split("</section>").next().unwrap();
    for text in ["Data (SHA-256)", "Partition (SHA-256)", env!("CARGO_PKG_VERSION"), "FedAvg, FedNTD, seeds 1, 2"] {
        assert!(recipe.contains(text), "{text:?} in {recipe}");
    }
    let text = |part: &str| part.split("<pre>").nth(1).unwrap().split("</pre>").next().unwrap().replace("&quot;", "\"");
    let command = text(recipe);
    assert_eq!(command, "fedelity run study.toml");
    place.write("study.toml", &text(recipe.split("<details>").nth(1).unwrap()));
    let answer = place.call(&["run", "study.toml", "--output", "again"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for run in ["fedavg/seed-1", "fedavg/seed-2", "fedntd/seed-1", "fedntd/seed-2"] {
        let model = |folder: &str| place.read(&format!("{folder}/{run}/model.safetensors"));
        assert!(model("again") == model("runs/two"), "{run}: other weights");
    }
}
