//! All kinds and names of a configuration, and the errors for wrong ones.

use std::fs;
use std::path::PathBuf;

use fedelity_data::{DataSource, Kind, SetName};
use fedelity_experiment::{Config, Document, Settings, Study};
use fedelity_keys::{Keys, Selected, ValueType};
use fedelity_methods::{Rule, ServerOptimizer, registry};
use fedelity_nn::zoo;

fn document(sets: &[&str]) -> Document {
    let mut document = Document::default();
    sets.iter().for_each(|set| document.set(set).unwrap());
    document
}

fn read(sets: &[&str]) -> Settings {
    Settings::read(&document(sets)).unwrap_or_else(|error| panic!("{sets:?}: {error}"))
}

fn refused(sets: &[&str]) -> String {
    Settings::read(&document(sets)).unwrap_err().to_string()
}

/// A partition kind forgotten somewhere would run as another one.
#[test]
fn every_kind_of_partition_can_be_configured() {
    for name in Kind::SELECTOR.words() {
        let kind = format!("partition.kind={name}");
        // Nothing else says how many sites there are.
        let settings = if name == "sites" { read(&[&kind, "partition.clients=3"]) } else { read(&[&kind]) };
        assert_eq!(settings.config.partition.kind.name(), name);
        assert!(settings.resolved("").contains(&format!("kind = \"{name}\"")), "{name}");
        // Natural clients are in the data, and sites have a test of their own.
        if !["natural", "sites"].contains(&name) {
            let study = Study::load(&document(&[&kind, "model.name=logistic"])).unwrap();
            assert_eq!(study.pool.partition.kind, name);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i % 2, i, i % 4)).collect();
    fs::write(&table, format!("label,x,site\n{rows}")).unwrap();
    let train = format!("data.train={}", table.display());
    let sets = ["partition.kind=natural", "data.name=csv", &train, "data.key=site", "model.name=logistic"];
    let study = Study::load(&document(&sets)).unwrap();
    assert_eq!((study.pool.partition.kind.as_str(), study.pool.partition.names.len()), ("natural", 4));
}

/// A data set forgotten somewhere would be read as another one.
#[test]
fn every_data_set_can_be_configured() {
    for set in SetName::ALL {
        let settings = read(&[&format!("data.name={}", set.name()), "data.dir=/nowhere"]);
        assert_eq!(settings.config.data.source.set(), Some(set));
        assert_eq!(set.entry().name, set.name());
        if set.entry().is_embedded() {
            assert_eq!(settings.config.data.source.load(&mut Default::default()).unwrap().name, set.name());
            continue;
        }
        let error = settings.config.data.source.load(&mut Default::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("'{}'", set.name())), "{error}");
        assert!(settings.resolved("").contains("dir = \"/nowhere\""));
    }
    assert_eq!(DataSource::own(), ["folder", "csv", "jsonl"]);
    for own in DataSource::own() {
        let key = if own == "folder" { "data.path=/a" } else { "data.train=/a" };
        assert_eq!(read(&[&format!("data.name={own}"), key]).config.data.source.name(), own);
        let needs = if own == "folder" { "data.path" } else { "data.train" };
        assert_eq!(refused(&[&format!("data.name={own}")]), format!("--set: data.name = \"{own}\" needs {needs}"));
    }
}

#[test]
fn every_model_method_optimizer_and_rule_can_be_configured() {
    for name in zoo::NAMES {
        assert_eq!(read(&[&format!("model.name={name}")]).config.model.name.unwrap().0, **name);
    }
    for entry in registry::entries() {
        let server = ["server.auxiliary=1", "server.validation=0.1", "server.unlabelled=1"];
        let name = format!("method.name={}", entry.id);
        let settings = read(&[&server[..], &[&name]].concat());
        assert_eq!((settings.methods[0].name, settings.methods[0].method.name()), (entry.id, entry.id));
        assert_eq!(settings.methods[0].keys.len(), entry.schema.keys.len());
    }
    for name in ServerOptimizer::SELECTOR.words() {
        assert_eq!(read(&[&format!("server.optimizer={name}")]).config.server.optimizer.name(), name);
    }
    for name in Rule::SELECTOR.words() {
        assert_eq!(read(&[&format!("server.rule={name}")]).config.server.rule.name(), name);
    }
}

/// Whatever was set, the written settings read back the same.
#[test]
fn resolved_settings_resolve_to_themselves() {
    let cases: &[&[&str]] = &[
        &[],
        &["optimizer.lr=0.037", "optimizer.weight-decay=1e-7", "optimizer.clip=0.1", "seeds=[3, 1]"],
        &["optimizer.kind=adam", "optimizer.eps=1e-9", "clients.fraction=0.3", "clients.weighting=uniform"],
        &["partition.kind=shards", "partition.shards=4", "partition.seed=9", "seed=4"],
        &["partition.kind=labels-per-client", "model.projection=true", "evaluation.every=7"],
        &["partition.kind=dirichlet-equal", "partition.alpha=3", "partition.clients=4", "clients.per-round=3"],
        &["partition.file=a b.json", "data.name=cifar10", "data.dir=/x \"y\""],
        &["partition.kind=natural", "partition.seed=3"],
        &["partition.kind=natural", "partition.clients=7", "data.name=csv", "data.train=/a.csv", "data.key=site"],
        &["data.name=jsonl", "data.train=/a", "data.test=/b", "data.features=[\"x\", \"y\"]", "data.skip-bad=true"],
        &["data.name=folder", "data.path=/a", "data.size=[8, 9]", "data.layout=key/class", "data.colour=grey"],
        &["data.name=cifar100", "data.augmentation=moon"],
        &["data.augmentation={crop=2, padding=\"reflect\", flip=true, rotation=7.5, cutout=3}"],
        &["data.normalisation={mean=[0.1307], std=[0.3081]}"],
        &["model.name=lstm", "model.max-length=40", "model.vocabulary=500"],
        &["model.name=minilm", "model.weights=a b", "model.freeze=0", "model.dropout=0.3"],
        &["model.name=resnet50-bn", "model.stem=imagenet"],
        &["method=[{name=\"fedavg\"}, {name=\"fedntd\", tau=2.0}]", "clients.teacher-cache=false"],
        &["server.auxiliary=32", "server.auxiliary-keep=true", "server.validation=0.1", "server.unlabelled=7"],
        &["server.optimizer=fedyogi", "server.tau=0.1", "server.rule=krum", "server.keep=2"],
        &["server.optimizer=fedavgm", "server.lr=0.7", "server.rule=trimmed-mean", "server.trim=0.2"],
        &["evaluation.confusion=[1, 30]", "evaluation.client=3", "evaluation.metrics=all"],
        &[
            "server.clip-update=0.3",
            "clients.weighting=uniform",
            "privacy.noise=1",
            "privacy.at=client",
            "privacy.delta=1e-6",
        ],
    ];
    for sets in cases {
        let first = read(sets).resolved("a b.json");
        let again = Document::parse("x.toml".to_string(), PathBuf::new(), &first).unwrap();
        assert_eq!(Settings::read(&again).unwrap().resolved("a b.json"), first, "{sets:?}");
    }
}

#[test]
fn resolved_settings_are_easy_to_read() {
    let text = read(&["optimizer.kind=adam", "method=[{name=\"fedntd\"}, {name=\"fedprox\", mu=1e-5}]"]).resolved("");
    assert!(text.contains("\neps = 1e-8\n") && text.contains("\nlr = 0.001\n"), "{text}");
    assert!(text.contains("\n[[method]]\nname = \"fedntd\"\nbeta = "), "{text}");
    assert!(text.contains("\n[[method]]\nname = \"fedprox\"\nmu = 1e-5\n"), "{text}");
    let text = read(&["method.name=fedntd"]).resolved("");
    assert!(text.contains("\nweight-decay = 1e-5\n") && text.contains("\n[method]\nname = \"fedntd\"\n"), "{text}");
}

#[test]
fn the_example_states_the_defaults() {
    let text = include_str!("../../../../examples/quickstart.toml");
    let example = Document::parse("quickstart.toml".to_string(), PathBuf::new(), text).unwrap();
    assert_eq!(Settings::read(&example).unwrap().resolved(""), read(&[]).resolved(""));
}

/// Decay inside Adam's quotient would move weights without a gradient by the full learning rate.
#[test]
fn adam_does_not_decay_unless_told() {
    let decay = |sets: &[&str]| read(sets).training().weight_decay;
    assert_eq!(decay(&[]), 1e-5);
    assert_eq!(decay(&["optimizer.kind=adam"]), 0.0);
    assert_eq!(decay(&["optimizer.kind=adam", "optimizer.weight-decay=0.01"]), 0.01);
}

#[test]
fn wrong_values_are_named_with_what_is_expected() {
    for (sets, message) in [
        (&["rounds=0"][..], "--set: rounds = 0: expected a whole number of at least 1"),
        (&["seeds=[1, 1]"], "--set: seeds = [1, 1]: expected a list of different whole numbers, such as [1, 2, 3]"),
        (&["seed=1", "seeds=[2]"], "--set: seed: expected seed or seeds, not both"),
        (&["optimizer.lr=1e-60"], "expected a finite number above 0"),
        (&["partition.alpha=0"], "--set: partition.alpha = 0: expected a finite number above 0"),
        (&["partition.kind=iid", "partition.alpha=1.0"], "not a key of partition.kind = \"iid\" (its keys: none)"),
        (&["partition.kind=dirichlett"], "did you mean 'dirichlet'?"),
        (&["partition.file=a", "partition.alpha=1"], "partition.alpha: not allowed together with partition.file"),
        (&["partition.clients=3", "clients.per-round=4"], "expected at most 3, the number of clients in the partition"),
        (&["method.name=fedntt"], "did you mean 'fedntd'?"),
        (&["method.name=fedntd", "method.betta=1"], "unknown key 'method.betta', did you mean 'method.beta'?"),
        (&["method.name=fedntd", "method.tau=0"], "--set: method.tau = 0: expected a finite number above 0"),
        (&["method.name=fedcad"], "needs labelled samples on the server: set server.auxiliary, such as"),
        (&["method=3"], "method: expected a table [method] or tables [[method]], found the integer 3"),
        (&["method=fedntd"], "found the string \"fedntd\"; did you mean method.name = \"fedntd\"?"),
        (&["partition=iid"], "[partition], found the string \"iid\"; did you mean partition.kind = \"iid\"?"),
        (
            &["data.name=mnist", "data.augmentation=moon"],
            "the recipe is for cifar10, cifar100, tiny-imagenet, not for mnist",
        ),
        (
            &["data.name=cifar10", "data.size=[8, 8]"],
            "data.size: not a key of data.name = \"cifar10\"; it goes with folder, cinic10, tiny-imagenet",
        ),
        (&["data.normalisation={mean=[0.1], std=[0.0]}"], "data.normalisation.std = [0.0]: expected"),
        (&["data.normalisation={mean=[0.1]}"], "data.normalisation.std is missing"),
        (&["model.stem=cifar"], "model.stem: not a key of model.name = \"simple-cnn\""),
        (&["model.name=bert", "model.freeze=1"], "model.freeze: there is nothing to freeze without model.weights"),
        (&["server.lr=1.0"], "server.lr: not a key of server.optimizer = \"none\""),
        (&["server.rule=krum", "server.keep=0"], "server.keep = 0: expected a whole number of at least 1"),
        (
            &["faults.late=0.6", "faults.twice=0.6"],
            "faults.twice: late, twice add up to 1.2, but chances are at most 1 together",
        ),
        (&["faults.slow=0.2"], "faults.slow: slow clients change nothing without faults.deadline, such as 3"),
        (&["faults.attackers=0.2"], "faults.attackers: not a key of faults.attack = \"none\""),
        (&["faults.attack=sign-flop"], "did you mean 'sign-flip'?"),
        (&["server.quorum=1.5"], "server.quorum = 1.5: expected"),
        (&["evaluation.confusion=[31]"], "expected rounds from 1 to 30"),
        (&["clientz.batch=3"], "--set: unknown key 'clientz', did you mean 'clients'?"),
        (&["client.epochs=5"], "--set: unknown key 'client', did you mean 'clients'?"),
    ] {
        let text = refused(sets);
        assert!(text.contains(message), "{sets:?}: {text}");
    }
}

#[test]
fn a_default_that_does_not_fit_is_called_one() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    fs::write(&table, "label,x\n0,1\n1,2\n0,3\n1,4\n0,5\n1,6\n").unwrap();
    let train = format!("data.train={}", table.display());
    let sets = ["data.name=csv", &train, "model.name=logistic", "partition.kind=iid"];
    let refused = |sets: &[&str]| Study::load(&document(sets)).err().unwrap().to_string();
    assert!(refused(&sets).contains("partition.clients = 20 (the default): expected 1 to "), "{}", refused(&sets));
    let given = refused(&[&sets[..], &["partition.clients=20"]].concat());
    assert!(given.contains("partition.clients = 20: expected 1 to "), "{given}");
}

/// If the command line chooses another kind, the file's keys for the old one are ignored, with a note.
#[test]
fn a_choice_on_the_command_line_drops_the_files_keys_for_another() {
    let text = "[server]\noptimizer = \"fedadam\"\nbeta1 = 0.5\ntau = 0.1\n[method]\nname = \"fedntd\"\nbeta = 2.0\n";
    let mut document = Document::parse("x.toml".to_string(), PathBuf::new(), text).unwrap();
    document.set("server.optimizer=fedavgm").unwrap();
    document.set("method.name=fedavg").unwrap();
    let settings = Settings::read(&document).unwrap();
    assert_eq!(settings.config.server.optimizer.name(), "fedavgm");
    assert_eq!(settings.notes[0], "server.beta1 in the file is ignored: server.optimizer is now fedavgm");
    assert_eq!(settings.notes[2], "method.beta in the file is ignored: method.name is now fedavg");
    assert_eq!(settings.notes.len(), 3);
    let file = Document::parse("x.toml".to_string(), PathBuf::new(), "[clients]\n  batch = 0\n").unwrap();
    assert!(Settings::read(&file).unwrap_err().to_string().starts_with("x.toml:2:3: clients.batch = 0: expected"));
}

/// Every key has a description and a default of its own type, or is optional.
#[test]
fn every_key_is_explained() {
    fn walk(at: &str, schema: &fedelity_keys::Schema, keys: &mut usize) {
        let own = schema.selectors.iter().flat_map(|selector| selector.variants).flat_map(|variant| variant.keys);
        for key in schema.keys.iter().chain(own) {
            *keys += 1;
            assert!(key.summary().len() > 3 && !key.summary().starts_with(char::is_lowercase), "{at}.{}", key.name);
            assert!(!key.expected().is_empty(), "{at}.{}", key.name);
            if let ValueType::Table(inner) = key.value {
                walk(&format!("{at}.{}", key.name), inner, keys);
            }
        }
        for selector in schema.selectors {
            assert!(!selector.about.is_empty(), "{at}.{}", selector.name);
        }
    }
    let mut keys = 0;
    walk("", Config::SCHEMA, &mut keys);
    assert!(keys > 60, "{keys}");
    for entry in registry::entries() {
        walk(entry.id, entry.schema, &mut keys);
    }
}
