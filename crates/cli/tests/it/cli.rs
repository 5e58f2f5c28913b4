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
fn wrong_values_are_refused_with_key_value_and_what_is_allowed() {
    let place = Place::new();
    let cases: &[(&str, &[&str])] = &[
        ("rondus=3", &["unknown key 'rondus'", "did you mean 'rounds'", "--set", "evaluation"]),
        ("clients.bacth=3", &["unknown key 'clients.bacth'", "did you mean 'clients.batch'", "per-round, fraction"]),
        ("method.beta=3", &["unknown key 'method.beta'", "fedavg"]),
        ("method.name=fedagv", &["method.name = \"fedagv\"", "fedavg"]),
        ("method=3", &["method", "[[method]]", "the integer 3"]),
        ("rounds=many", &["rounds", "the string \"many\"", "whole number"]),
        ("rounds=0", &["rounds = 0", "at least 1"]),
        ("rounds=2.5", &["rounds", "the number 2.5"]),
        ("partition.clients=0", &["partition.clients = 0", "at least 1"]),
        ("partition.clients=6001", &["partition.clients = 6001", "6000"]),
        ("clients.per-round=21", &["clients.per-round = 21", "at most 20"]),
        ("clients.per-round=0", &["clients.per-round = 0"]),
        ("clients.fraction=0", &["clients.fraction = 0", "above 0 and at most 1"]),
        ("clients.fraction=1.5", &["clients.fraction = 1.5"]),
        ("clients.fraction=nan", &["clients.fraction = nan"]),
        ("clients.batch=0", &["clients.batch = 0", "at least 1"]),
        ("clients.epochs=-1", &["clients.epochs = -1", "at least 1"]),
        ("clients.weighting=sise", &["clients.weighting", "size, uniform", "did you mean 'size'"]),
        ("clients=3", &["clients", "[clients]", "the integer 3"]),
        ("model.stem=cifar", &["model.stem: not a key of model.name = \"simple-cnn\"; it goes with resnet18-gn"]),
        ("model.stem=big", &["model.stem: not a key of model.name", "simple-cnn"]),
        ("optimizer.lr=nan", &["optimizer.lr = nan", "finite number above 0"]),
        ("optimizer.lr=inf", &["optimizer.lr = inf"]),
        ("optimizer.lr=0", &["optimizer.lr = 0"]),
        ("optimizer.lr=-0.1", &["optimizer.lr = -0.1"]),
        ("optimizer.lr=1e-60", &["optimizer.lr"]),
        ("optimizer.lr=fast", &["optimizer.lr", "the string \"fast\""]),
        ("optimizer.momentum=1", &["optimizer.momentum = 1", "below 1"]),
        ("optimizer.momentum=-0.1", &["optimizer.momentum = -0.1"]),
        ("optimizer.beta1=0.9", &["optimizer.beta1", "sgd", "momentum"]),
        ("optimizer.kind=sdg", &["optimizer.kind = \"sdg\"", "sgd, adam"]),
        ("optimizer.weight-decay=-1", &["optimizer.weight-decay = -1"]),
        ("optimizer.lr-decay=1.5", &["optimizer.lr-decay = 1.5"]),
        ("optimizer.clip=0", &["optimizer.clip = 0"]),
        ("model.name=simple-cn", &["model.name = \"simple-cn\"", "did you mean 'simple-cnn'", "ntd-cnn"]),
        ("model.projection=1", &["model.projection", "true or false"]),
        ("partition.kind=dirichle", &["partition.kind", "did you mean 'dirichlet'", "shards"]),
        ("partition.alpha=0", &["partition.alpha = 0", "above 0"]),
        ("partition.alpha=nan", &["partition.alpha = nan"]),
        ("partition.shards=2", &["partition.shards", "dirichlet", "alpha, min-size"]),
        ("partition.file=nowhere.json", &["nowhere.json"]),
        ("data.name=cifar", &["data.name = \"cifar\"", "cifar10"]),
        ("data.name=cifar10", &["cifar10", "FEDELITY_DATA", "'fedelity data fetch cifar10 --data-dir data'"]),
        ("data.dir=nowhere", &["data.dir", "nowhere", "no such folder"]),
        ("seeds=[]", &["seeds = []", "different whole numbers"]),
        ("seeds=[1,2,1]", &["seeds = [1, 2, 1]"]),
        ("seeds=[-1]", &["seeds"]),
        ("seeds=1", &["seeds: expected a list", "the integer 1"]),
        ("seed=x", &["seed", "the string \"x\""]),
        ("evaluation.every=0", &["evaluation.every = 0"]),
        ("clients.teacher-cache=1", &["clients.teacher-cache", "true or false"]),
        ("server=3", &["server", "[server]", "the integer 3"]),
        ("server.auxilary=3", &["unknown key 'server.auxilary'", "did you mean 'server.auxiliary'", "unlabelled"]),
        ("server.auxiliary=-1", &["server.auxiliary = -1", "at least 0"]),
        ("server.auxiliary-keep=3", &["server.auxiliary-keep", "true or false"]),
        ("server.auxiliary=6000", &["server.auxiliary", "none of the 6000 training samples"]),
        ("server.validation=1", &["server.validation = 1", "below 1"]),
        ("server.validation=nan", &["server.validation = nan"]),
        ("server.unlabelled=many", &["server.unlabelled", "the string \"many\""]),
        ("server.optimizer=fedadm", &["server.optimizer = \"fedadm\"", "fedadam"]),
        ("server.lr=1.0", &["server.lr", "fedavgm, fedadam, fedyogi"]),
        ("server.rule=3", &["server.rule: expected one of mean", "the integer 3"]),
        ("server.trim=0.1", &["server.trim", "trimmed-mean"]),
        ("rounds", &["--set rounds", "KEY=VALUE"]),
        ("seeds=[1", &["--set seeds=[1", "not a TOML value"]),
    ];
    for (set, expected) in cases {
        place.refuses(&["run", "--set", set], expected);
    }
}

#[test]
fn pairs_that_exclude_each_other() {
    let place = Place::new();
    let krum = ["run", "--set", "server.rule=krum", "--set", "clients.per-round=4"];
    place.refuses(&krum, &["server.rule", "krum", "at least 5 uploads", "there are 4"]);
    let range = ["run", "--set", "server.optimizer=fedavgm", "--set", "server.momentum=1"];
    place.refuses(&range, &["server.momentum = 1", "below 1"]);
    let both = ["run", "--set", "clients.per-round=2", "--set", "clients.fraction=0.5"];
    place.refuses(&both, &["clients.fraction", "not both"]);
    place.refuses(&["run", "--set", "seed=1", "--set", "seeds=[1]"], &["seed", "not both"]);
    place.refuses(
        &["run", "--set", "partition.kind=shards", "--set", "partition.shards=3", "--set", "partition.clients=7"],
        &["partition.shards = 3", "multiple"],
    );
    place.write("p.json", "{}");
    let both = ["run", "--set", "partition.file=p.json", "--set", "partition.alpha=1"];
    place.refuses(&both, &["partition.alpha", "partition.file"]);
}

#[test]
fn errors_of_a_file_have_line_and_column() {
    let place = Place::new();
    let cases: &[(&str, &[&str])] = &[
        ("rounds = 3\n[clients]\nbatch = 0\n", &["x.toml:3:1: clients.batch = 0"]),
        ("rounds = 3\n[clients\n", &["x.toml:2:"]),
        ("rounds = 3\nrounds = 4\n", &["x.toml:2:1", "duplicate key"]),
        ("[optimiser]\nlr = 0.1\n", &["x.toml:1:2", "unknown key 'optimiser'", "did you mean 'optimizer'"]),
        (
            "[[method]]\nname = \"fedavg\"\n[[method]]\nname = \"fedavg\"\nx = 1\n",
            &["x.toml:5:1", "method.1 (fedavg).x"],
        ),
        (
            "[data]\nname = \"cifar10\"\ndir = \"none\"\n",
            &["x.toml:3:1", "no such folder; 'fedelity data fetch cifar10 --data-dir none' makes it"],
        ),
        ("[data]\nname = \"cifar10\"\n", &["x.toml:2:1", "data/cifar-10-batches-bin (no such folder)"]),
        (
            "[method]\nname = \"fedavg\"\n\n[method] # the other\nname = \"fedntd\"\n",
            &["x.toml:4:2: a second table [method]: for several, write [[method]]"],
        ),
        (
            "[[method]]\nname = \"fedavg\"\n[method]\nname = \"fedntd\"\n",
            &["x.toml:3:2: a second table [method]: for several, write [[method]]"],
        ),
        ("[data]\nname = \"cifar10\"\ndir = \".\"\n", &["x.toml:2:1", "files not found"]),
        (
            "[[method]]\nname = \"fedavg\"\n[[method]]\nname = \"fedprox\"\nmu = -1\n",
            &["x.toml:5:1: method.1 (fedprox).mu = -1"],
        ),
    ];
    for (text, expected) in cases {
        place.write("x.toml", text);
        place.refuses(&["run", "x.toml"], expected);
        place.refuses(&["check", "x.toml"], expected);
    }
    place.refuses(&["run", "nowhere.toml"], &["cannot read nowhere.toml"]);
    place.refuses(&["run", "--data-dir", "nowhere"], &["--data-dir", "nowhere", "no such folder"]);
    place.refuses(&["run", "--threads", "0"], &["--threads", "at least 1"]);
    place.refuses(&["run", "--partition", "nowhere.json"], &["--partition", "nowhere.json"]);
}

#[test]
fn data_files_of_the_wrong_shape_are_refused() {
    let place = Place::new();
    for name in ["train", "t10k"] {
        let mut file = vec![0, 0, 8, 3];
        [20u32, 4, 4].iter().for_each(|n| file.extend(n.to_be_bytes()));
        file.extend([7; 20 * 16]);
        fs::write(place.path(&format!("{name}-images-idx3-ubyte")), file).unwrap();
        let mut file = vec![0, 0, 8, 1];
        file.extend(20u32.to_be_bytes());
        file.extend((0..20).map(|i| i % 10));
        fs::write(place.path(&format!("{name}-labels-idx1-ubyte")), file).unwrap();
    }
    let args = ["run", "--data-dir", ".", "--set", "data.name=mnist", "--set", "partition.clients=2"];
    place.refuses(&args, &["train-images-idx3-ubyte", "28", "4"]);
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

#[test]
fn files_of_another_kind_name_their_command() {
    let place = Place::new();
    place.write("s.toml", "seeds = [1]\n[grid]\n\"method.name\" = [\"fedavg\"]\n");
    place.write("c.toml", "seeds = [1]\n[clients]\nepochs = 1\n");
    place.write("both.toml", "rounds = 1\n[grid]\n");
    place.write("t.csv", "age,label\n1,a\n2,b\n");
    place.write("t.txt", "age;label\n1;a\n");
    std::fs::write(place.path("t.xlsx"), b"PK\x03\x04\xff\xfe").unwrap();
    for command in ["run", "check"] {
        place.refuses(&[command, "s.toml"], &["s.toml: this is a sweep file: fedelity sweep s.toml"]);
        place.refuses(&[command, "both.toml"], &["unknown key 'grid'"]);
        place.refuses(
            &[command, "t.csv"],
            &["t.csv: a table, not a configuration: fedelity init mine.toml --data t.csv"],
        );
    }
    place.refuses(&["sweep", "c.toml"], &["c.toml: this is a configuration: fedelity run c.toml"]);
    place.refuses(&["sweep", "both.toml"], &["unknown key 'rounds'"]);
    for table in ["t.txt", "t.xlsx"] {
        place.refuses(&["init", "new.toml", "--data", table], &["a table must be CSV or JSON lines", "save it as CSV"]);
    }
}

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
