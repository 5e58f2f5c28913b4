//! Configurations and files that are refused, and what is said of them.

use std::fs;

use crate::place::Place;

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
    let preset = place.call(&["reproduce", "feddistill/table4", "--show"]).out;
    place.write("p.toml", &preset);
    for command in ["run", "check", "sweep"] {
        place.refuses(&[command, "p.toml"], &["p.toml: this is a preset: fedelity reproduce p.toml"]);
    }
    place.refuses(&["sweep", "c.toml"], &["c.toml: this is a configuration: fedelity run c.toml"]);
    place.refuses(&["sweep", "both.toml"], &["unknown key 'rounds'"]);
    for table in ["t.txt", "t.xlsx"] {
        place.refuses(&["init", "new.toml", "--data", table], &["a table must be CSV or JSON lines", "save it as CSV"]);
    }
}
