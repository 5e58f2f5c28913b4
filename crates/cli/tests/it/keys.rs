//! What `fedelity keys` explains.

use crate::place::Place;
use serde_json::Value;

#[test]
fn every_key_is_explained_by_the_program() {
    let place = Place::new();
    let all = place.call(&["keys"]);
    assert_eq!(all.code, 0, "{}", all.err);
    for part in ["rounds = 30", "optimizer.lr = 0.02", "Only with optimizer.kind = \"sgd\"", "partition.alpha = 0.1"] {
        assert!(all.out.contains(part), "{part} in {}", all.out);
    }
    assert_eq!(all.out.matches("data.label = \"label\"").count(), 1, "one key of csv and jsonl");
    let some = place.call(&["keys", "clients"]).out;
    assert!(some.contains("clients.batch = 32") && !some.contains("rounds"), "{some}");
    place.refuses(&["keys", "clients.bach"], &["there is no key 'clients.bach'", "did you mean 'clients.batch'?"]);
    place.refuses(&["keys", "method.mu"], &["method.mu is a key of fedprox", "fedelity methods fedprox"]);
    place.refuses(&["keys", "method.nothing"], &["there is no key 'method.nothing'", "fedelity methods NAME"]);
    place.refuses(
        &["keys", "foo"],
        &["there is no key 'foo'", "sections are data, partition, clients", "rounds, seeds"],
    );
    place.refuses(&["keys", "client"], &["did you mean 'clients'?"]);
    // The last part of a key is enough if no other key ends so.
    let alpha = place.call(&["keys", "alpha"]);
    assert_eq!((alpha.code, &alpha.out), (0, &place.call(&["keys", "partition.alpha"]).out), "{}", alpha.err);
    place.refuses(&["keys", "lr"], &["did you mean 'optimizer.lr' or 'server.lr'?"]);
    place.refuses(&["keys", "alpa"], &["did you mean 'partition.alpha'?"]);
    place.refuses(&["keys", "mu"], &["method.mu is a key of fedprox", "fedelity methods fedprox explains it"]);
    place.refuses(&["check", "--set", "alpha=1"], &["--set: unknown key 'alpha', did you mean 'partition.alpha'?"]);
    let lines = place.call(&["keys", "--json"]).out;
    let keys: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(keys.len() > 60 && keys.iter().all(|key| !key["about"].as_str().unwrap().is_empty()), "{lines}");
    // Keys of several variants are one key only if all facts are equal.
    let with = |name: &str| -> Vec<(&str, &str)> {
        let found = keys.iter().filter(|key| key["key"] == name);
        found.map(|key| (key["default"].as_str().unwrap_or(""), key["with"].as_str().unwrap_or(""))).collect()
    };
    let by_kind = [("0.02", "optimizer.kind = \"sgd\""), ("0.001", "optimizer.kind = \"adam\"")];
    assert_eq!(with("optimizer.lr"), by_kind);
    let by_optimizer =
        [("1.0", "server.optimizer = \"fedavgm\""), ("0.01", "server.optimizer = \"fedadam\" or \"fedyogi\"")];
    assert_eq!(with("server.lr"), by_optimizer);
    for (default, condition) in by_kind.into_iter().chain(by_optimizer) {
        let key = condition.split('.').next().unwrap();
        let text = format!("{key}.lr = {default}\n");
        let rest = all.out.split_once(&text).unwrap().1;
        let facts = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        let first = facts.split_once("Only with ").unwrap().1;
        assert!(first.starts_with(&format!("{condition}.")), "{rest}");
    }
    // Conditions name the values, and hold.
    assert_eq!(
        with("data.size"),
        [("", "data.name = \"folder\""), ("", "data.name = \"cinic10\" or \"tiny-imagenet\"")]
    );
    let stem = with("model.stem")[0].1;
    assert!(stem.starts_with("model.name = ") && stem.contains("\"resnet50-bn\"") && !stem.contains("bert"), "{stem}");
    for key in keys.iter().filter(|key| !key["with"].is_null()) {
        let (selector, words) = key["with"].as_str().unwrap().split_once(" = ").unwrap();
        assert!(words.split(['"', ' ', ',']).filter(|word| !["", "or"].contains(word)).count() > 0, "{key}");
        assert!(keys.iter().any(|other| other["key"] == selector), "{key}");
    }
    let per_round = place.call(&["keys", "clients.per-round"]).out;
    let per_round = per_round.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(per_round.contains("at most as many as there are. The default is 10, or all of them"), "{per_round}");
    // Every printed default is accepted.
    for key in keys.iter().filter(|key| !key["default"].is_null() && key["with"].is_null()) {
        let set = format!("{}={}", key["key"].as_str().unwrap(), key["default"].as_str().unwrap());
        let answer = place.call(&["partition", "--json", "--set", &set]);
        assert_eq!(answer.code, 0, "{set}: {}", answer.err);
    }
}

#[test]
fn keys_of_other_files_are_explained_too() {
    let place = Place::new();
    let said = |key: &str| {
        let answer = place.call(&["keys", key]);
        assert_eq!(answer.code, 0, "{key}: {}", answer.err);
        answer.out
    };
    let sweep = said("sweep");
    for part in ["A sweep file\n", "\nseeds = [1]\n", "\ngrid = {}\n", "\ntune\n", "\ntune.validation = 0.1\n"] {
        assert!(sweep.contains(part), "{part} in {sweep}");
    }
    let tune = said("tune");
    assert!(tune.contains("tune.seeds = [101, 102, 103]") && !tune.contains("grid = "), "{tune}");
    assert!(said("tune.validation").starts_with("A sweep file\ntune.validation = 0.1\n"));
    assert_eq!(said("sweep.tune"), tune);
    assert!(said("seeds").starts_with("seeds = "), "a key of a configuration comes first");
    let preset = said("preset");
    assert!(preset.contains("A preset\n") && preset.contains("\nrow.published = {}\n"), "{preset}");
    assert!(said("config").contains("A sweep file\nconfig\n") && said("config").contains("A preset\nconfig = {}\n"));
    let json: Value = serde_json::from_str(&place.call(&["keys", "tune.validation", "--json"]).out).unwrap();
    assert_eq!((&json["key"], &json["file"]), (&"tune.validation".into(), &"sweep".into()));
    place.refuses(&["keys", "tune.validaton"], &["did you mean 'tune.validation' of a sweep file?"]);
    place
        .refuses(&["keys", "fedntd"], &["there is no key 'fedntd', but a method: fedelity methods fedntd explains it"]);
    place.refuses(&["keys", "lstm"], &["there is no key 'lstm', but a model: fedelity models lstm explains it"]);
}
