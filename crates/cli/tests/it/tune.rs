//! Sweeps: everything is checked before the first run, and settings can be chosen.

use std::fs;

use crate::place::Place;
use serde_json::Value;

const SET: &str = "[set]\nrounds = 2\n\"partition.clients\" = 5\n\"partition.alpha\" = 1.0\n\"clients.per-round\" = 2\n\
                   \"clients.epochs\" = 1\n\"model.name\" = \"logistic\"\n";

#[test]
fn a_sweep_that_cannot_run_fails_once_and_before_its_first_run() {
    let place = Place::new();
    let methods = "[grid]\n\"method.name\" = [\"fedavg\", \"fedprox\"]\n";
    for (grid, said) in [
        ("\"data.name\" = [\"fashion-mnist-mini\", \"mnist\"]\n", "fedelity data fetch mnist --data-dir data"),
        ("\"data.name\" = [\"fashion-mnist-mini\", \"minst\"]\n", "did you mean 'mnist'"),
        ("\"model.name\" = [\"mlp\", \"lstm\"]\n", "the model reads texts, but the data are not texts"),
        ("\"partition.clients\" = [5, 9000]\n", "partition.clients = 9000"),
        ("\"evaluation.client\" = [4, 5]\n", "evaluation.client = 5"),
    ] {
        place.write("sweep.toml", &format!("seeds = [1, 2]\n{SET}{methods}{grid}"));
        for options in [&["--dry-run"][..], &[]] {
            let args = [&["sweep", "sweep.toml", "-o", "out"], options].concat();
            place.refuses(&args, &[said]);
            assert!(!place.path("out").exists(), "{grid}");
        }
    }
}

#[test]
fn as_many_runs_as_announced() {
    let place = Place::new();
    place.write("base.toml", "seeds = [7, 8, 9]\n");
    place.write(
        "sweep.toml",
        &format!("config = \"base.toml\"\nseeds = [1, 2]\n{SET}[grid]\n\"method.name\" = [\"fedavg\", \"fedprox\"]\n"),
    );
    let answer = place.call(&["sweep", "sweep.toml", "-o", "out"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.starts_with("4 runs, "), "{}", answer.err);
    assert!(answer.err.ends_with("Next: fedelity report out\n"), "{}", answer.err);
    assert_eq!(answer.err.matches("] done").count(), 4, "{}", answer.err);
    assert_eq!(place.call(&["runs", "list", "out", "--json"]).out.lines().count(), 4);
}

/// Two methods with two settings each. The learning rate 1e-6 learns nothing.
fn tuning() -> String {
    format!(
        "seeds = [1, 2]\n{SET}[tune]\nvalidation = 0.2\nseeds = [11, 12]\n[grid]\n\"method.name\" = [\"fedavg\", \"fedprox\"]\n\
         \"optimizer.lr\" = [1e-6, 0.05]\n"
    )
}

#[test]
fn the_best_setting_of_each_method_is_chosen_on_training_data() {
    let place = Place::new();
    place.write("tune.toml", &tuning());
    let answer = place.call(&["sweep", "tune.toml", "--dry-run"]);
    assert_eq!(answer.out.matches("to run").count(), 8, "{}{}", answer.out, answer.err);
    assert!(answer.out.ends_with("then    4 runs with the best setting of each method\n"), "{}", answer.out);

    let answer = place.call(&["sweep", "tune.toml", "-o", "out"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.starts_with("8 runs to choose settings, then 4 to compare them, "), "{}", answer.err);
    assert!(answer.err.ends_with("Next: fedelity report out/compare\n"), "{}", answer.err);
    let chosen: Value = serde_json::from_slice(&place.read("out/chosen.json")).unwrap();
    for (i, method) in ["fedavg", "fedprox"].iter().enumerate() {
        let one = &chosen[i];
        assert_eq!((&one["task"], &one["setting"], &one["of"]), (&(*method).into(), &"lr=0.05".into(), &2.into()));
        assert!(one["accuracy"].as_f64().unwrap() > one["next"][1].as_f64().unwrap(), "{one}");
        let line = answer.out.lines().find(|line| line.starts_with(method)).unwrap();
        assert!(line.contains("lr=0.05") && line.contains("lr=1e-6") || line.contains("lr=0.000001"), "{line}");
    }
    // The runs that chose were tested on 1,200 of the 6,000 training samples, which no client had.
    let runs = |below: &str| -> Vec<Value> {
        let out = place.call(&["runs", "list", &format!("out/{below}"), "--json"]).out;
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (choosing, compared) = (runs("choose"), runs("compare"));
    assert_eq!((choosing.len(), compared.len()), (8, 4));
    assert!(choosing.iter().all(|run| run["dataset"] == "fashion-mnist-mini-held-out"), "{choosing:?}");
    assert!(compared.iter().all(|run| run["dataset"] == "fashion-mnist-mini"), "{compared:?}");
    let seeds = |runs: &[Value]| {
        runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((seeds(&choosing), seeds(&compared)), ([11, 12].into(), [1, 2].into()));
    for (runs, held) in [(&choosing, 4_800), (&compared, 6_000)] {
        let folder = runs[0]["path"].as_str().unwrap();
        let holdings: Value = serde_json::from_slice(&place.read(&format!("{folder}/holdings.json"))).unwrap();
        let counts = holdings["counts"].as_array().unwrap().iter().flat_map(|client| client.as_array().unwrap());
        assert_eq!(counts.map(|count| count.as_u64().unwrap()).sum::<u64>(), held, "{folder}");
    }
    // A run that chose can be repeated by itself.
    let folder = choosing[0]["path"].as_str().unwrap();
    assert_eq!(place.call(&["run", &format!("{folder}/config.toml"), "--output", "again"]).code, 0);
    assert_eq!(place.read("again/model.safetensors"), place.read(&format!("{folder}/model.safetensors")));

    // What is done is not repeated; what is missing is.
    fs::remove_dir_all(place.path(compared[0]["path"].as_str().unwrap())).unwrap();
    let answer = place.call(&["sweep", "tune.toml", "-o", "out", "--json"]);
    assert_eq!(answer.out.matches("\"state\":\"was done\"").count(), 11, "{}", answer.out);
    assert_eq!(answer.out.matches("\"state\":\"done\"").count(), 1, "{}", answer.out);
    assert_eq!(answer.out.matches("{\"chosen\":").count(), 2, "{}", answer.out);
}

#[test]
fn wrong_tuning_is_refused() {
    let place = Place::new();
    for (from, to, said) in [
        ("seeds = [11, 12]", "seeds = [2, 3]", "tune.toml:11:1: tune.seeds: 2 is also in seeds"),
        ("validation = 0.2", "validation = 1.0", "tune.validation = 1.0: expected"),
        ("validation = 0.2", "validaton = 0.2", "did you mean 'tune.validation'?"),
        ("rounds = 2", "rounds = 2\nevaluation.held-out = 0.1", "not allowed together with [tune]"),
    ] {
        place.write("tune.toml", &tuning().replace(from, to));
        place.refuses(&["sweep", "tune.toml", "-o", "out"], &[said]);
        assert!(!place.path("out").exists());
    }
    // A setting that diverges cannot be chosen; if all do, nothing can.
    place.write("tune.toml", &tuning().replace("1e-6", "1e30"));
    let answer = place.call(&["sweep", "tune.toml", "-o", "some"]);
    assert!(answer.code == 0 && answer.err.contains("2 settings diverged and could not be chosen"), "{}", answer.err);
    place.write("tune.toml", &tuning().replace("1e-6, 0.05", "1e30"));
    let answer = place.call(&["sweep", "tune.toml", "-o", "none"]);
    assert!(answer.code == 2 && answer.err.contains("fedavg: every setting diverged"), "{}", answer.err);
}
