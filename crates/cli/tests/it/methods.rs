//! All methods of the registry through the binary: what they need, what they send, and that they run.

use std::collections::BTreeSet;

use crate::place::{Place, TINY};
use fedelity_fl::Extra;
use fedelity_nn::{InputShape, Model, ModelSpec, zoo};
use serde_json::Value;

/// The server holds everything any method needs.
const HELD: [&str; 6] =
    ["--set", "server.auxiliary=4", "--set", "server.validation=0.01", "--set", "server.unlabelled=16"];

/// A configuration with one `[[method]]` per name.
fn methods<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("[[method]]\nname = \"{name}\"\n")).collect()
}

fn all() -> Vec<&'static str> {
    fedelity_methods::entries().iter().map(|entry| entry.id).collect()
}

/// `run` of a file with the tiny settings.
fn tiny<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run", file];
    TINY.iter().for_each(|set| args.extend(["--set", set]));
    args.extend(more);
    args
}

fn indices(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|i| i.as_u64().unwrap() as u32).collect()
}

#[test]
fn every_method_finishes() {
    let place = Place::new();
    place.write("all.toml", &methods(all()));
    let more = ["--set", "model.name=mlp", "--output", "out", "--json"];
    let answer = place.call(&tiny("all.toml", &[&more[..], &HELD].concat()));
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("moon was published with a projection head"), "{}", answer.err);
    let lines: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2 * all().len());
    for (k, name) in all().into_iter().enumerate() {
        assert_eq!((&lines[2 * k]["method"], &lines[2 * k + 1]["round"]), (&name.into(), &2.into()));
        let summary: Value = serde_json::from_slice(&place.read(&format!("out/{name}/seed-1/summary.json"))).unwrap();
        assert_eq!(summary["status"]["kind"], "finished", "{name}");
        let traffic = |value: &Value| value["traffic"].as_f64().unwrap();
        let mean = (traffic(&lines[2 * k]) + traffic(&lines[2 * k + 1])) / 2.0;
        assert!((traffic(&summary) - mean).abs() < 1e-12 && mean >= 1.0, "{name}: {summary}");
        // Penalties on the weights are part of the loss, by name.
        let penalty = match name {
            "fedprox" => "proximal",
            "fedcurv" => "curvature",
            "scaffold" => "control",
            _ => "ce",
        };
        let terms = lines[2 * k + 1]["train-terms"].as_object().unwrap();
        assert!(terms.contains_key(penalty), "{name}: {terms:?}");
        let sum: f64 = terms.values().map(|term| term.as_f64().unwrap()).sum();
        assert!((lines[2 * k + 1]["train-loss"].as_f64().unwrap() - sum).abs() < 1e-9, "{name}: {terms:?}");
        // The same clients with the same samples, whatever the method.
        assert_eq!(lines[2 * k]["clients"], lines[0]["clients"]);
        let partition = |name: &str| place.read(&format!("out/{name}/seed-1/partition.json"));
        assert!(partition(name) == partition("fedavg"), "{name}");
    }
}

fn number_of(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

#[test]
fn what_travels_is_what_was_declared() {
    let answer = Place::new().call(&["methods", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let found: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.iter().map(|value| value["method"].as_str().unwrap()).collect::<Vec<_>>(), all());
    for (value, entry) in found.iter().zip(fedelity_methods::entries()) {
        let number = |key: &str| number_of(value, key);
        let p = number("weights");
        assert_eq!(p > number_of(&found[0], "weights"), value["projection"].as_bool().unwrap(), "{value}");
        let spec = ModelSpec::new("simple-cnn", value["projection"].as_bool().unwrap());
        let input = InputShape::Image { channels: 1, height: 28, width: 28 };
        let model = Model::compile(&zoo::build(&spec, input, number("classes") as usize).unwrap(), fedelity_nn::cpu());
        let (model, method) = (model.unwrap(), entry.build(&Default::default(), "method", &mut ()).unwrap().method);
        let numbers = |declared: Vec<Extra>| p + declared.iter().map(|extra| extra.len as u64).sum::<u64>();
        let (down, up) = (numbers(method.receives(&model)), numbers(method.sends(&model)));
        assert_eq!((number("numbers-down"), number("numbers-up")), (down, up), "{value}");
        let traffic = (down + up) as f64 / (2 * p) as f64;
        assert!((value["traffic"].as_f64().unwrap() - traffic).abs() < 1e-12, "{value}");
        assert_eq!(value["client-memory"].as_bool().unwrap(), number("numbers-kept") > 0, "{value}");
        let sends = |what: &str| value["sends-beside-weights"].as_array().unwrap().contains(&what.into());
        assert_eq!(value["label-counts-leave-client"].as_bool().unwrap(), sends("label-counts"), "{value}");
    }
}

#[test]
fn the_list_and_every_explanation_fit_a_terminal() {
    let place = Place::new();
    let list = place.call(&["methods"]);
    for name in all() {
        assert!(list.out.lines().any(|line| line.starts_with(name)), "{name}");
        let answer = place.call(&["methods", name]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        for text in ["Published", "Helps", "Needs", "Traffic", "Keys"] {
            assert!(answer.out.contains(text), "{name} {text}: {}", answer.out);
        }
        assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    }
    assert!(list.out.lines().all(|line| line.chars().count() <= 80), "{}", list.out);
}

#[test]
fn a_method_without_its_samples_is_refused() {
    let place = Place::new();
    let cases = [
        ("fedcad", "server.auxiliary = 32"),
        ("fedssd", "server.auxiliary = 32"),
        ("fedgkd-vote", "server.validation = 0.1"),
        ("feddf", "server.unlabelled = 1000"),
    ];
    for (name, key) in cases {
        let set = format!("method.name={name}");
        place.refuses(&["run", "--set", &set], &["--set", &format!("'{name}' needs"), "on the server", key]);
        place.write("x.toml", &methods(["fedavg", name]));
        place.refuses(&["check", "x.toml"], &["x.toml:4:1", name, key]);
    }
    // A method that is switched off needs nothing.
    let off = place.tiny(&["--set", "method.name=fedssd", "--set", "method.m-max=0.0"]);
    assert_eq!(off.code, 0, "{}", off.err);
}

#[test]
fn no_client_holds_the_servers_samples() {
    let place = Place::new();
    let sets = ["server.auxiliary=20", "server.validation=0.1", "server.unlabelled=50", "partition.clients=5"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let answer = place.call(&[&["partition", "--json", "-o", "p.json"][..], &sets].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let told: Value = serde_json::from_str(&answer.out).unwrap();
    let sets_of = |value: &Value| ["auxiliary", "validation", "unlabelled"].map(|set| indices(&value["server"][set]));
    let [auxiliary, validation, unlabelled] = sets_of(&told);
    assert_eq!((auxiliary.len(), validation.len(), unlabelled.len()), (200, 600, 50));
    let labels = fedelity_data::load("fashion-mnist-mini", None).unwrap().train.labels;
    for class in 0..10 {
        assert_eq!(auxiliary.iter().filter(|&&i| labels[i as usize] == class).count(), 20);
    }
    let file: Value = serde_json::from_slice(&place.read("p.json")).unwrap();
    let clients: Vec<u32> = file["clients"].as_array().unwrap().iter().flat_map(indices).collect();
    let server = [auxiliary.clone(), validation, unlabelled].concat();
    let everything: BTreeSet<u32> = clients.iter().chain(&server).copied().collect();
    assert_eq!((clients.len() + server.len(), everything.len()), (6_000, 6_000));

    // With auxiliary-keep, clients also hold the same auxiliary samples.
    let keep = ["partition", "--json", "-o", "kept.json", "--set", "server.auxiliary-keep=true"];
    let answer = place.call(&[&keep[..], &sets].concat());
    let told: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(sets_of(&told)[0], auxiliary);
    assert_eq!(told["samples"], 5_350);
}

#[test]
fn a_partition_of_all_samples_loses_the_servers() {
    let place = Place::new();
    let made = ["partition", "-o", "p.json", "--set", "partition.clients=5", "--set", "partition.alpha=1.0"];
    assert_eq!(place.call(&made).code, 0);
    let mut args = vec!["run", "--partition", "p.json", "--set", "rounds=1", "--set", "model.name=logistic"];
    args.extend(["--set", "clients.per-round=2", "--set", "server.auxiliary=20", "--output", "out"]);
    let answer = place.call(&args);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("200 samples of the partition file went to the server"), "{}", answer.err);
    let written: Value = serde_json::from_slice(&place.read("out/partition.json")).unwrap();
    assert_eq!(written["clients"].as_array().unwrap().iter().map(|c| indices(c).len()).sum::<usize>(), 5_800);

    let again = place.call(&["run", "out/config.toml", "--output", "again"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(!again.err.contains("went to the server"), "{}", again.err);
    for name in ["model.safetensors", "partition.json", "config.toml"] {
        assert!(place.read(&format!("out/{name}")) == place.read(&format!("again/{name}")), "{name}");
    }

    // A client with one sample that the server wants.
    let told = place.call(&["partition", "--json", "--set", "server.auxiliary=1"]);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    let wanted = indices(&told["server"]["auxiliary"])[0];
    let mut file: Value = serde_json::from_slice(&place.read("p.json")).unwrap();
    let others: Vec<u32> = (0..6_000).filter(|i| *i != wanted).collect();
    file["clients"] = serde_json::json!([others, [wanted]]);
    place.write("poor.json", &file.to_string());
    place.refuses(
        &["run", "--partition", "poor.json", "--set", "server.auxiliary=1"],
        &["poor.json", "client 1 is left with no samples", "[server]"],
    );
}

#[test]
fn the_teacher_cache_changes_no_bit() {
    let place = Place::new();
    place.write("x.toml", &methods(["fedntd", "moon"]));
    let run = |cache: &str, out: &str| {
        let set = format!("clients.teacher-cache={cache}");
        let more = ["--set", &set, "--set", "model.name=simple-cnn", "--set", "clients.epochs=2", "--output", out];
        // All clients in both rounds, so that MOON has a previous model.
        let more = [&more[..], &["--set", "clients.per-round=5"]].concat();
        let answer = place.call(&tiny("x.toml", &more));
        assert_eq!(answer.code, 0, "{}", answer.err);
    };
    run("true", "on");
    run("false", "off");
    for name in ["fedntd", "moon"] {
        let model = |out: &str| place.read(&format!("{out}/{name}/seed-1/model.safetensors"));
        assert!(model("on") == model("off"), "{name}");
    }
    let model = |name: &str| place.read(&format!("on/{name}/seed-1/model.safetensors"));
    assert!(model("fedntd") != model("moon"));
}

#[test]
fn moon_without_features_is_said_to_be_fedavg() {
    let place = Place::new();
    let run = |method: &str, more: &[&str]| {
        let name = format!("method.name={method}");
        let args =
            [&["--output", method, "--set", &name, "--set", "model.name=logistic", "--set", "rounds=3"], more].concat();
        let answer = place.tiny(&args);
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.err
    };
    let said = "warning: moon is FedAvg with logistic, which trains no layer before its classifier: use another model, or \
                model.projection = true\n";
    assert!(run("moon", &[]).contains(said));
    assert!(!run("fedavg", &[]).contains("is FedAvg"));
    assert_eq!(weights(&place, "moon"), weights(&place, "fedavg"));
    // The head of its paper is a trained layer.
    let check =
        ["check", "--set", "method.name=moon", "--set", "model.name=logistic", "--set", "model.projection=true"];
    let answer = place.call(&check);
    assert!(answer.code == 0 && !answer.out.contains("is FedAvg"), "{}{}", answer.out, answer.err);
    assert!(place.call(&["methods", "moon"]).out.contains("without one, it is FedAvg"));
}

/// The tensors of a run's model, without its description.
fn weights(place: &Place, run: &str) -> Vec<u8> {
    let bytes = place.read(&format!("{run}/model.safetensors"));
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> = file.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors.into_iter().flat_map(|(_, view)| view.data().to_vec()).collect()
}

#[test]
fn several_methods_share_one_table() {
    let place = Place::new();
    place.write("x.toml", &methods(["fedavg", "scaffold", "feddistill-plus"]));
    let answer = place.call(&tiny("x.toml", &["--set", "seeds=[1,2]", "--output", "out"]));
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    for text in ["final %", "best %", "forgetting", "to fedavg", "down", "up", "traffic", "time", "±"] {
        assert!(answer.out.contains(text), "{text}: {}", answer.out);
    }
    let scaffold = answer.out.lines().rfind(|line| line.starts_with("scaffold")).unwrap();
    // Its first round sends no control variate down: 1.5 and 2.
    assert!(scaffold.contains("1.75x"), "{}", answer.out);
    place.write("y.toml", &methods(["fedprox", "fednova"]));
    let answer = place.call(&tiny("y.toml", &["--output", "two"]));
    assert!(!answer.out.contains("to fedavg"), "{}", answer.out);
}

#[test]
fn server_settings_work_with_every_method() {
    let place = Place::new();
    let run = |method: &str, sets: &[&str], out: &str| {
        let method = format!("method.name={method}");
        let mut args = vec!["--output", out, "--set", &method, "--set", "clients.per-round=5"];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let answer = place.tiny(&args);
        assert_eq!(answer.code, 0, "{}", answer.err);
        place.read(&format!("{out}/model.safetensors"))
    };
    for method in ["fedavg", "fedntd"] {
        let plain = run(method, &[], &format!("{method}-plain"));
        let settings: [&[&str]; 3] = [
            &["server.optimizer=fedavgm", "server.momentum=0.5"],
            &["server.optimizer=fedadam"],
            &["server.rule=krum", "server.keep=3"],
        ];
        for (k, sets) in settings.iter().enumerate() {
            assert!(run(method, sets, &format!("{method}-{k}")) != plain, "{sets:?}");
        }
    }
    let config = String::from_utf8(place.read("fedavg-0/config.toml")).unwrap();
    assert!(config.contains("optimizer = \"fedavgm\"\nlr = 1.0\nmomentum = 0.5\nrule = \"mean\""), "{config}");
    let again = place.call(&["run", "fedavg-0/config.toml", "--output", "again"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(place.read("again/model.safetensors") == place.read("fedavg-0/model.safetensors"));
}

#[test]
fn every_method_can_be_measured() {
    for name in all() {
        let args = ["bench", "client", "--method", name, "--samples", "16", "--epochs", "2", "--batch", "8"];
        let answer = Place::new().call(&[&args[..], &["--seconds", "0.01", "--json"]].concat());
        assert_eq!(answer.code, 0, "{name}: {}", answer.err);
        let value: Value = serde_json::from_str(&answer.out).unwrap();
        assert!(value["samples_per_second"].as_f64().unwrap() > 0.0, "{value}");
        assert_eq!(value["projection"].as_bool().unwrap(), ["moon", "fedgkd-plus"].contains(&name), "{value}");
    }
}

#[test]
fn check_counts_the_traffic_of_later_rounds() {
    let place = Place::new();
    place.write("x.toml", &methods(["fedgkd-vote", "fedcurv"]));
    let mut args = tiny("x.toml", &HELD);
    args[0] = "check";
    let answer = place.call(&args);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for name in ["fedgkd-vote", "fedcurv"] {
        let line = answer.out.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains("3.00x"), "{}", answer.out);
    }
    assert!(answer.out.contains("Server    40 auxiliary, 60 validation, 16 unlabelled samples"), "{}", answer.out);
}
