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

/// Two methods in two partitions. FedAvg is tuned by its server or its clipping, FedProx by its learning rate, and for both,
/// only one of two settings learns.
fn apart() -> String {
    let lists = [
        "fedavg\"\noptimizer.lr = 1e-6",
        "fedavg\"\nserver.optimizer = \"fedavgm\"",
        "fedprox\"\nmethod.mu = 0.1\noptimizer.lr = 0.05",
        "fedprox\"\nmethod.mu = 0.2\noptimizer.lr = 1e-6",
    ]
    .map(|list| format!("[[list]]\nmethod.name = \"{list}\n"));
    let set = SET.replace("\"partition.alpha\" = 1.0\n", "");
    format!("seeds = [1, 2]\n{set}[tune]\nseeds = [11]\n[grid]\npartition.alpha = [1.0, 5.0]\n{}", lists.concat())
}

#[test]
fn what_was_tuned_is_part_of_the_method() {
    let place = Place::new();
    place.write("tune.toml", &apart());
    let swept = place.call(&["sweep", "tune.toml", "-o", "out", "-q"]);
    assert_eq!(swept.code, 0, "{}", swept.err);
    let chosen: Value = serde_json::from_slice(&place.read("out/chosen.json")).unwrap();
    let tuned =
        |i: usize| chosen[i]["tuned"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect::<Vec<_>>();
    // What a server optimiser adds is tuned, too, although the file does not name it.
    assert_eq!(tuned(0), ["optimizer.lr", "server.lr", "server.momentum", "server.optimizer"]);
    assert_eq!(tuned(1), ["method.mu", "optimizer.lr"]);
    // The table of the sweep is that of a later command, from the folder alone.
    let table = |text: &str| {
        let at = text.lines().position(|line| line.starts_with("method") && line.contains(" seeds ")).unwrap();
        text.lines().skip(at).map(String::from).collect::<Vec<_>>()
    };
    for folder in ["out", "out/compare"] {
        let answer = place.call(&["compare", folder, "-q"]);
        assert_eq!((answer.code, table(&answer.out)), (0, table(&swept.out)), "{}", answer.err);
        let found: Value = serde_json::from_str(&place.call(&["compare", folder, "--json"]).out).unwrap();
        assert_eq!(found["settings"].as_array().unwrap().len(), 2, "{found}");
        for (row, method, chosen) in [
            (0, "fedavg", "optimizer=fedavgm"),
            (1, "fedprox", "mu=0.1 optimizer.lr=0.05"),
            (2, "fedavg", ""),
            (3, "fedprox", ""),
        ] {
            let row = &found["rows"][row];
            assert_eq!(row["name"], method);
            assert!(row["chosen"].as_str().unwrap().contains(chosen), "{row}");
            let n = if method == "fedavg" { &Value::Null } else { &row["difference"]["n"] };
            assert_eq!(n, &if method == "fedavg" { Value::Null } else { 2.into() }, "{row}");
        }
    }
    let latex = place.call(&["compare", "out", "--format", "latex"]).out;
    // Only the baselines have no difference.
    assert_eq!((latex.matches("\nFedProx & ").count(), latex.matches("-- & --").count()), (2, 2), "{latex}");
    assert_eq!(place.call(&["report", "out", "-o", "page.html"]).code, 0);
    let page = String::from_utf8(place.read("page.html")).unwrap();
    assert!(page.contains("<th>chosen</th>") && page.contains("FedProx alpha=5.0") && !page.contains("FedProx lr"));
    // Every run is still listed.
    assert_eq!(place.call(&["runs", "list", "out", "--json"]).out.lines().count(), 16);
}

#[test]
fn keys_that_may_differ_need_not() {
    let place = Place::new();
    for name in ["fedavg", "fedprox"] {
        let method = format!("method.name={name}");
        let set = ["rounds=1", "partition.clients=3", "clients.epochs=1", "model.name=logistic", &method];
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        let folder = format!("out/{name}");
        assert_eq!(place.call(&[&["run", "--output", &folder], &set[..]].concat()).code, 0);
    }
    for (mix, said) in [
        ("server", "warning: --mix server: the runs differ in no key but the method's"),
        ("optimizer.clip", "warning: --mix optimizer.clip: the runs differ in no key"),
        ("method.mu", "warning: --mix method.mu: the keys of a method may always differ"),
    ] {
        for command in [&["compare", "out"][..], &["report", "out", "-o", "page.html"]] {
            let answer = place.call(&[command, &["--mix", mix]].concat());
            assert_eq!(answer.code, 0, "{}", answer.err);
            assert!(answer.err.contains(said), "{}", answer.err);
        }
    }
    for (mix, said) in [
        ("optimizer.ls", "--mix optimizer.ls: there is no key 'optimizer.ls'; did you mean 'optimizer.lr'?"),
        ("method.mux", "--mix method.mux: there is no key 'method.mux'"),
        ("seeds", "--mix seeds: runs are always compared on the same seeds"),
    ] {
        place.refuses(&["compare", "out", "--mix", mix], &[said]);
    }
}

#[test]
fn options_are_the_same_as_values_in_the_file() {
    let place = Place::new();
    let file = format!("seeds = [1, 2]\n{SET}[grid]\n\"method.name\" = [\"fedavg\", \"fedprox\"]\n");
    place.write("sweep.toml", &file);
    let set = ["--set", "rounds=1", "--set", "clients.batch=64", "--set", "seeds=[3]"];
    let swept = |command: &[&str], options: &[&str]| {
        let answer = place.call(&[&["sweep", "sweep.toml", "-o", "out"], command, options].concat());
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.out
    };
    let dry = swept(&["--dry-run"], &set);
    assert_eq!(dry.lines().count(), 2, "{dry}");
    assert!(dry.contains("clients.batch=64") && dry.contains("rounds=1 ") && !dry.contains("rounds=2"), "{dry}");
    // Parts that are run with the same options belong together.
    for part in ["1/2", "2/2"] {
        swept(&["--shard", part, "-q"], &set);
    }
    assert_eq!(swept(&["--dry-run"], &set).matches("done ").count(), 2);
    assert!(place.call(&["sweep", "--status", "out"]).out.starts_with("2 runs done"));
    let both = place.call(&["sweep", "--status", "out", "--set", "rounds=1"]);
    assert!(both.code != 0 && both.err.contains("cannot be used with '--set"), "{}", both.err);
    // The same values in the file are the same runs; others are not.
    let edited = file.replace("seeds = [1, 2]", "seeds = [3]").replace("rounds = 2", "rounds = 1\nclients.batch = 64");
    place.write("sweep.toml", &edited);
    assert_eq!(swept(&["--dry-run"], &[]).matches("done ").count(), 2);
    assert_eq!(swept(&["--dry-run"], &["--set", "rounds=3"]).matches("in the way").count(), 2);
    for (set, said) in [
        ("method.name=fedntd", "sweep.toml:11:18: --set method.name=\"fedntd\": the sweep varies method.name itself"),
        ("rundes=3", "--set: unknown key 'rundes', did you mean 'rounds'?"),
        ("clients.batch=0", "--set: clients.batch = 0"),
        ("seeds=3", "--set: seeds: expected a list"),
        ("rounds", "--set rounds: expected KEY=VALUE"),
    ] {
        for options in [&["--dry-run"][..], &[]] {
            place.refuses(&[&["sweep", "sweep.toml", "-o", "new", "--set", set], options].concat(), &[said]);
        }
    }
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
    // Without a choice, runs that diverge are results, but not if there are no others.
    for (lr, code) in [("[1e30, 0.05]", 0), ("[1e30, 2e30]", 1)] {
        place.write("grid.toml", &format!("{SET}[grid]\n\"optimizer.lr\" = {lr}\n"));
        let answer = place.call(&["sweep", "grid.toml", "-o", &format!("grid-{code}")]);
        assert!(answer.code == code && answer.err.contains("diverged"), "{lr}: {}{}", answer.out, answer.err);
    }
}
