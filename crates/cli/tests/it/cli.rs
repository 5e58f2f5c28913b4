//! The binary as users see it: its output, files and exit codes.

use std::fs;

use crate::place::{Place, TINY, files};
use fedelity_experiment::{Document, Study};
use serde_json::Value;

#[test]
fn every_command_has_help() {
    let place = Place::new();
    let commands: &[&[&str]] = &[
        &[],
        &["init"],
        &["run"],
        &["resume"],
        &["verify"],
        &["check"],
        &["compare"],
        &["report"],
        &["watch"],
        &["sweep"],
        &["runs"],
        &["evaluate"],
        &["predict"],
        &["export"],
        &["partition"],
        &["keys"],
        &["methods"],
        &["models"],
        &["data"],
        &["data", "list"],
        &["data", "show"],
        &["bench"],
        &["bench", "client"],
        &["bench", "peak"],
        &["bench", "kernels"],
        &["bench", "round"],
        &["bench", "scale"],
        &["completions"],
        &["man"],
    ];
    for command in commands {
        let answer = place.call(&[command, &["--help"][..]].concat());
        assert_eq!(answer.code, 0, "{command:?}");
        assert!(answer.out.contains("Usage: fedelity"), "{}", answer.out);
        if command.len() < 2 {
            assert!(answer.out.contains("Examples:"), "{command:?}: {}", answer.out);
        }
    }
    let version = place.call(&["--version"]);
    assert_eq!(version.out, format!("fedelity {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(place.call(&["rum"]).code, 2);
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = Place::new().call(&["completions", shell]);
        assert_eq!(answer.code, 0);
        assert!(answer.out.contains("partition"), "{shell}");
    }
}

/// One page per command, which name each other and have the examples.
#[test]
fn manual_pages_for_every_command() {
    let place = Place::new();
    let answer = place.call(&["man"]);
    assert!(answer.code == 0 && answer.out.contains(".TH fedelity 1"), "{}", answer.out);
    assert_eq!(place.call(&["man", "man1"]).code, 0);
    let pages = files(&place.path("man1"));
    for name in ["fedelity.1", "fedelity-run.1", "fedelity-data-fetch.1", "fedelity-bench-client.1"] {
        assert!(pages.contains(&name.to_string()), "{name}: {pages:?}");
    }
    let run = String::from_utf8(place.read("man1/fedelity-run.1")).unwrap();
    assert!(run.contains("Train a federation") && run.contains("methods.toml"), "{run}");
    place.refuses(&["man", "man1"], &["man1/fedelity.1: the file exists; --overwrite replaces it"]);
    assert_eq!(place.call(&["man", "man1", "--overwrite"]).code, 0);
}

#[test]
fn a_run_writes_its_folder_and_prints_a_table() {
    let place = Place::new();
    let answer = place.tiny(&["--output", "out"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("fedavg") && answer.out.contains("final %"), "{}", answer.out);
    let names = files(&place.path("out"));
    for name in ["config.toml", "model.safetensors", "partition.json", "rounds.jsonl", "summary.json"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    let rounds = fs::read_to_string(place.path("out/rounds.jsonl")).unwrap();
    assert!(rounds.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{rounds}");
    let model = fs::read(place.path("out/model.safetensors")).unwrap();
    assert!(safetensors::SafeTensors::deserialize(&model).is_ok());

    let again = place.tiny(&["--output", "out"]);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("out") && again.err.contains("exists"), "{}", again.err);
    assert_eq!(names, files(&place.path("out")));
}

#[test]
fn the_default_folder_is_new_every_time() {
    let place = Place::new();
    assert_eq!(place.tiny(&[]).code, 0);
    assert_eq!(place.tiny(&["-q"]).code, 0);
    let names = files(&place.path("runs"));
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].contains("fedavg"), "{names:?}");
}

#[test]
fn an_unwritable_folder_is_refused() {
    let place = Place::new();
    place.write("file", "");
    let answer = place.tiny(&["--output", "file/out"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("file/out"), "{}", answer.err);
    assert_eq!(files(place.0.path()), ["file"]);
}

#[test]
fn json_lines_parse_and_nothing_else_is_on_stdout() {
    let place = Place::new();
    let answer = place.tiny(&["--json", "--output", "out"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let rounds: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rounds.len(), 2);
    for (i, round) in rounds.iter().enumerate() {
        assert_eq!(round["round"], i + 1, "{round}");
        assert_eq!(round["method"], "fedavg");
        assert_eq!(round["seed"], 1);
        assert!(round["bytes-down"].as_u64().unwrap() > 0, "{round}");
        let accuracy = round["accuracy"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&accuracy));
    }
}

#[test]
fn the_resolved_config_repeats_the_run_bit_for_bit() {
    let place = Place::new();
    let sets = ["--set", "optimizer.lr=0.037", "--set", "seed=7", "--output", "a"];
    assert_eq!(place.tiny(&sets).code, 0);
    let answer = place.call(&["run", "a/config.toml", "-o", "b"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for name in ["model.safetensors", "config.toml", "partition.json"] {
        assert_eq!(
            fs::read(place.path("a").join(name)).unwrap(),
            fs::read(place.path("b").join(name)).unwrap(),
            "{name}"
        );
    }
    let other = place.tiny(&["--set", "optimizer.lr=0.038", "--set", "seed=7", "--output", "c"]);
    assert_eq!(other.code, 0);
    let model = |dir: &str| fs::read(place.path(dir).join("model.safetensors")).unwrap();
    assert_ne!(model("a"), model("c"));
}

/// As `examples/run_file.rs` does, whose test is in `fedelity-experiment`.
#[test]
fn the_library_gives_the_same_weights() {
    let place = Place::new();
    let text = "rounds = 2\nseeds = [1, 2]\n[partition]\nclients = 5\n[clients]\nepochs = 1\nper-round = 2\n\
                [model]\nname = \"logistic\"\n[method]\nname = \"fedntd\"\n";
    place.write("x.toml", text);
    assert_eq!(place.call(&["run", "x.toml", "--output", "program"]).code, 0);
    let study = Study::load(&Document::read(&place.path("x.toml")).unwrap()).unwrap();
    study.run(&study.folder(Some(&place.path("library"))).unwrap(), 1, &mut ()).unwrap();
    for seed in [1, 2] {
        for name in ["model.safetensors", "config.toml", "partition.json"] {
            let of = |root: &str| place.read(&format!("{root}/fedntd/seed-{seed}/{name}"));
            assert!(of("program") == of("library"), "{name}");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let place = Place::new();
    let run = |threads: &str, out: &str| {
        let sets = ["--set", "model.name=simple-cnn", "--set", "rounds=1", "--threads", threads, "--output", out];
        let answer = place.tiny(&sets);
        assert_eq!(answer.code, 0, "{}", answer.err);
        fs::read(place.path(out).join("model.safetensors")).unwrap()
    };
    assert!(run("1", "one") == run("2", "two"));
}

#[test]
fn several_methods_and_seeds_get_a_folder_each() {
    let place = Place::new();
    let answer = place.tiny(&["--set", "seeds=[1,2]", "--output", "out"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("±"), "{}", answer.out);
    for seed in ["seed-1", "seed-2"] {
        let names = files(&place.path("out/fedavg").join(seed));
        assert!(names.contains(&"config.toml".to_string()) && names.contains(&"rounds.jsonl".to_string()), "{names:?}");
    }
    assert!(place.path("out/config.toml").exists());
    let alone = place.call(&["run", "out/fedavg/seed-2/config.toml", "--output", "alone"]);
    assert_eq!(alone.code, 0, "{}", alone.err);
    let model = |dir: &str| fs::read(place.path(dir).join("model.safetensors")).unwrap();
    assert!(model("out/fedavg/seed-2") == model("alone"));
}

#[test]
fn a_diverging_run_ends_with_1_and_keeps_its_records() {
    let place = Place::new();
    let sets = ["--set", "optimizer.lr=1e30", "--set", "optimizer.momentum=0.99", "--set", "model.name=mlp"];
    let answer = place.tiny(&[&sets[..], &["--output", "out"]].concat());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("round 1") && answer.err.contains("client"), "{}", answer.err);
    let names = files(&place.path("out"));
    assert!(names.contains(&"rounds.jsonl".to_string()) && names.contains(&"config.toml".to_string()), "{names:?}");

    // One step per client: the loss was finite, the model is not.
    let sets = ["--set", "optimizer.lr=1e38", "--set", "clients.batch=5000", "--set", "rounds=1"];
    let answer = place.tiny(&[&sets[..], &["--set", "model.name=mlp", "--output", "one"]].concat());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("round 1"), "{}", answer.err);
    let summary: Value = serde_json::from_str(&fs::read_to_string(place.path("one/summary.json")).unwrap()).unwrap();
    assert_eq!((&summary["status"]["kind"], &summary["status"]["round"]), (&"diverged".into(), &1.into()));
}

/// The loss of every step is finite, but what a client sends with its weights is not.
#[test]
fn an_upload_that_is_not_finite_is_a_divergence() {
    let place = Place::new();
    place.write(
        "x.toml",
        "rounds = 2\n[partition]\nkind = \"iid\"\nclients = 60\n[clients]\nepochs = 1\nbatch = 1000\nper-round = 3\n\
         [optimizer]\nlr = 1e-37\nmomentum = 0.0\nweight-decay = 0.0\n[model]\nname = \"logistic\"\n\
         [data]\nnormalisation = { mean = [0.0], std = [1e-20] }\n[method]\nname = \"fedcurv\"\n",
    );
    let answer = place.call(&["run", "x.toml", "--output", "out"]);
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("round 1: the upload of client"), "{}", answer.err);
    let summary: Value = serde_json::from_slice(&place.read("out/summary.json")).unwrap();
    let status = &summary["status"];
    assert_eq!((&status["kind"], &status["round"]), (&"diverged".into(), &1.into()), "{summary}");
    let client = status["client"].as_u64().unwrap();
    assert!(answer.err.contains(&format!("client {client} ")), "{}", answer.err);
}

/// The clients in training finish, everything is written, the exit code is 130.
#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_was_recorded() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let place = Place::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("fedelity"));
    command.current_dir(place.0.path()).args(["run", "--json", "--output", "out"]);
    TINY.iter().for_each(|set| {
        command.args(["--set", set]);
    });
    command.args(["--set", "rounds=1000000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with('{'));
    let id = child.id().to_string();
    // Whoever runs the tests may ignore -INT, and then it stays ignored.
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let told = rest.len() + 1;
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8(output.stderr).unwrap().contains("Interrupted; resume with: fedelity resume out"));
    let summary: Value = serde_json::from_slice(&fs::read(place.path("out/summary.json")).unwrap()).unwrap();
    assert_eq!((&summary["status"]["kind"], &summary["rounds"]), (&"interrupted".into(), &told.into()));
    assert!(place.path("out/model.safetensors").exists());
}

#[test]
#[cfg(unix)]
fn a_closed_pipe_is_not_an_error() {
    let place = Place::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("fedelity"));
    command.current_dir(place.0.path()).args(["partition"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn a_partition_is_written_and_read_back() {
    let place = Place::new();
    let answer =
        place.call(&["partition", "--set", "partition.clients=5", "--set", "partition.alpha=1.0", "-o", "p.json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("client") && answer.out.contains('█'), "{}", answer.out);
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    assert!(answer.err.contains("p.json"));
    place.refuses(&["partition", "-o", "p.json"], &["p.json", "exists"]);

    assert_eq!(place.tiny(&["--output", "made"]).code, 0);
    let args = ["run", "--partition", "p.json", "--output", "read", "--set", "rounds=2"];
    let more = ["--set", "clients.per-round=2", "--set", "clients.epochs=1", "--set", "model.name=logistic"];
    let answer = place.call(&[&args[..], &more].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let model = |dir: &str| fs::read(place.path(dir).join("model.safetensors")).unwrap();
    assert!(model("made") == model("read"));

    let again = place.call(&["run", "read/config.toml", "--output", "again"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(model("again") == model("read"));
    place.refuses(
        &["run", "--partition", "p.json", "--set", "partition.alpha=1"],
        &["partition.alpha", "together with"],
    );
    place.write("bad.json", "{\"format\": \"other\"}");
    let answer = place.call(&["run", "--partition", "bad.json"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("bad.json"), "{}", answer.err);
    let mut lost: Value = serde_json::from_str(&fs::read_to_string(place.path("p.json")).unwrap()).unwrap();
    let samples = lost["clients"].as_array_mut().unwrap().pop().unwrap().as_array().unwrap().len();
    place.write("lost.json", &lost.to_string());
    let args = ["run", "--partition", "lost.json", "--output", "lost", "--set", "rounds=1"];
    let answer = place.call(&[&args[..], &more].concat());
    assert!(answer.err.contains(&format!("{samples} of 6000 training samples belong to no client")), "{}", answer.err);
    let answer = place.call(&["run", "--partition", "p.json", "--set", "clients.per-round=6"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("at most 5"), "{}", answer.err);
}

#[test]
fn partition_as_json() {
    let answer = Place::new().call(&["partition", "--json"]);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(value["counts"].as_array().unwrap().len(), 20);
    assert_eq!(value["samples"], 6000);
}

#[test]
fn the_command_line_wins_over_the_file() {
    let place = Place::new();
    place.write("x.toml", "rounds = 9\n[partition]\nalpha = 0.3\n[clients]\nper-round = 3\n");
    let sets = ["--set", "rounds=4", "--set", "partition.kind=iid", "--set", "clients.fraction=0.5"];
    let answer = place.call(&[&["check", "x.toml"][..], &sets].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    for text in ["rounds = 4", "kind = \"iid\"", "fraction = 0.5", "simple-cnn", "fedavg"] {
        assert!(answer.out.contains(text), "{text}: {}", answer.out);
    }
    assert!(answer.err.contains("partition.alpha"), "{}", answer.err);
}

/// A few epochs tell how long many take.
#[test]
fn check_does_not_train_through_all_local_epochs() {
    let place = Place::new();
    let told =
        place.call(&["check", "--json", "--set", "clients.epochs=9000000000", "--set", "model.name=logistic"]).out;
    let seconds = serde_json::from_str::<serde_json::Value>(&told).unwrap()["costs"][0]["seconds"].as_f64().unwrap();
    assert!(seconds > 1e6, "{told}");
}

#[test]
fn check_shows_what_would_run() {
    let place = Place::new();
    place.write("x.toml", "");
    let told = place.call(&["check", "x.toml", "--json"]).out;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(
        told["costs"][0]["bytes-up"].as_u64().unwrap() > 0 && told["configuration"]["rounds"].is_number(),
        "{told}"
    );
    let answer = place.call(&["check", "x.toml"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for text in ["alpha = 0.1", "Parameters", "44,426", "Traffic", "Time", "Memory", "estimate"] {
        assert!(answer.out.contains(text), "{text}: {}", answer.out);
    }
    assert!(!place.path("runs").exists());
}

#[test]
fn the_catalogues() {
    let place = Place::new();
    let answer = place.call(&["methods"]);
    assert!(answer.out.contains("fedavg"), "{}", answer.out);
    let answer = place.call(&["methods", "fedavg"]);
    assert_eq!(answer.code, 0);
    assert!(answer.out.contains("McMahan"), "{}", answer.out);
    place.refuses(&["methods", "fedagv"], &["fedagv", "did you mean 'fedavg'"]);
    place.refuses(&["methods", "feddistill+"], &["did you mean 'feddistill-plus'"]);
    place.refuses(&["run", "--set", "method.name=fedgkd+"], &["did you mean 'fedgkd-plus'"]);
    let answer = place.call(&["data", "list"]);
    assert!(answer.out.contains("cifar100") && answer.out.contains("built in"), "{}", answer.out);
    let sets = place.call(&["data", "list", "--json"]).out;
    assert!(sets.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{sets}");
    let shown = place.call(&["data", "show", "fashion-mnist-mini", "--json"]).out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["train"]["samples"], &shown["classes"][0]), (&6_000.into(), &"T-shirt/top".into()));
    let answer = place.call(&["data", "show", "fashion-mnist-mini"]);
    assert!(
        answer.out.contains("Sneaker") && answer.out.contains("600") && answer.out.contains("MIT"),
        "{}",
        answer.out
    );
    place.refuses(&["data", "show", "mnist"], &["data/mnist (no such folder)", "fetch mnist --data-dir data"]);
    place.refuses(&["data", "show", "minst"], &["minst", "did you mean 'mnist'"]);
    place.refuses(&["data", "show", "foldr"], &["foldr", "did you mean 'folder'"]);
}

#[test]
fn bench_scale_compares_the_first_rounds_with_the_last() {
    let args = ["bench", "scale", "--pool", "2000", "--clients", "50", "--rounds", "5", "--threads", "1", "--json"];
    let answer = Place::new().call(&args);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let found: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((found["pool"].as_u64(), found["clients"].as_u64()), (Some(2000), Some(50)));
    assert!(found["last_client_seconds"].as_f64().unwrap() > 0.0, "{found}");
    Place::new().refuses(&["bench", "scale", "--pool", "10", "--clients", "11"], &["--clients 11", "pool"]);
    Place::new().refuses(&["bench", "scale", "--pool", "0"], &["--pool 0"]);
}

#[test]
fn bench_client_prints_one_object() {
    let args = ["bench", "client", "--model", "simple-cnn", "--method", "fedavg", "--samples", "16", "--epochs", "1"];
    let more = ["--batch", "8", "--threads", "2", "--seconds", "0.05", "--json"];
    let answer = Place::new().call(&[&args[..], &more].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let value: Value = serde_json::from_str(&answer.out).unwrap();
    for key in ["samples_per_second", "gflops", "fraction_of_peak", "peak_gflops"] {
        assert!(value[key].as_f64().unwrap() > 0.0, "{value}");
    }
    assert_eq!((&value["threads"], &value["model"], &value["batch"]), (&2.into(), &"simple-cnn".into(), &8.into()));
    Place::new().refuses(&["bench", "client", "--model", "nothing"], &["--model", "simple-cnn"]);
    Place::new().refuses(&["bench", "client", "--batch", "0"], &["--batch"]);
}

#[test]
fn the_instruction_set_can_be_chosen() {
    let place = Place::new();
    let run = |isa: &str, args: &[&str]| place.call_with(&[("FEDELITY_ISA", isa)], args);
    let answer = run("portable", &["bench", "peak", "--seconds", "0.01", "--json"]);
    assert!(answer.out.contains("\"portable\""), "{}{}", answer.out, answer.err);
    for command in [&["run"][..], &["bench", "client"], &["bench", "kernels"], &["methods"]] {
        let answer = run("sse", command);
        assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{command:?}");
        assert!(
            answer.err.contains("FEDELITY_ISA: there is no engine \"sse\" on this machine; the engines are portable"),
            "{}",
            answer.err
        );
    }
    assert!(!place.path("runs").exists());
}

#[test]
fn colour_only_where_requested() {
    let place = Place::new();
    assert!(!place.call(&["partition"]).out.contains('\x1b'));
    assert!(place.call(&["partition", "--color", "always"]).out.contains('\x1b'));
}
