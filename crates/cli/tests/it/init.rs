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
fn init_guesses_the_label_and_says_so() {
    let place = Place::new();
    let rows = |row: &dyn Fn(usize) -> String| (0..60).map(row).collect::<Vec<_>>().join("\n");
    let numbers = |i: usize| format!("{}.5,{}.25", i % 17, (i * 7) % 23);
    for (name, header, row, label) in [
        // By its name, wherever it is and however it is written.
        (
            "a.csv",
            "id,Diagnosis,x,z",
            &(|i| format!("{i},{},{}", ["B", "M"][i % 2], numbers(i))) as &dyn Fn(usize) -> String,
            "Diagnosis",
        ),
        (
            "b.csv",
            "x,z,patient_outcome,sex",
            &|i| format!("{},{},{}", numbers(i), i % 3, ["f", "m"][i % 2]),
            "patient_outcome",
        ),
        // A number that varies is no class, whatever it is called; the last column with few values is.
        ("c.csv", "target,x,z,kind", &|i| format!("{}.75,{},{}", i, numbers(i), i % 3), "kind"),
        // The first column, as in tables of digits.
        ("d.csv", "digit,x,z", &|i| format!("{},{}", i % 10, numbers(i)), "digit"),
        ("e.csv", "x,grade,z", &|i| format!("{}.5,{},{}.25", i % 17, i % 4, (i * 7) % 23), "grade"),
    ] {
        place.write(name, &format!("{header}\n{}\n", rows(row)));
        let file = format!("{name}.toml");
        let answer = place.call(&["init", &file, "--data", name]);
        assert_eq!(answer.code, 0, "{name}: {}", answer.err);
        assert!(answer.err.contains(&format!("data.label = \"{label}\" is a guess: it")), "{name}: {}", answer.err);
        let text = String::from_utf8(place.read(&file)).unwrap();
        let at = text.find(&format!("\nlabel = \"{label}\"\n")).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(text[..at].lines().last().unwrap().starts_with("# A guess: it"), "{name}: {text}");
        let small = ["--set", "partition.clients=2", "--set", "clients.per-round=2", "--set", "partition.kind=iid"];
        assert_eq!(place.call(&[&["check", &file], &small[..]].concat()).code, 0, "{name}");
    }
    // A column called label needs no guess, and what the user says is none.
    place.write("f.csv", &format!("label,x,z\n{}\n", rows(&|i| format!("{},{}", i % 2, numbers(i)))));
    for args in [&["--data", "f.csv"][..], &["--data", "b.csv", "--set", "data.label=sex"]] {
        let answer = place.call(&[&["init", "-"], args].concat());
        assert!(answer.code == 0 && !answer.out.contains("A guess") && !answer.err.contains("guess"), "{}", answer.err);
    }
    place.write("g.csv", &format!("x,z\n{}\n", rows(&|i| numbers(i))));
    let answer = place.call(&["init", "-", "--data", "g.csv"]);
    assert!(
        answer.code == 0 && answer.err.contains("warning: no column looks like a label: set data.label"),
        "{}",
        answer.err
    );
    // A column that is called like a site makes each site a client.
    let sites = |i: usize| format!("{},{},{}", ["north", "south"][i / 30], numbers(i), i % 2);
    place.write("h.csv", &format!("Hospital_ID,x,z,outcome\n{}\n", rows(&sites)));
    let answer = place.call(&["init", "h.toml", "--data", "h.csv"]);
    assert!(answer.err.contains("data.key = \"Hospital_ID\" is a guess: its name says so\n"), "{}", answer.err);
    let config = resolved(&place, &["h.toml"]);
    assert_eq!((&config["data"]["label"], &config["partition"]["kind"]), (&"outcome".into(), &"natural".into()));
    // Levels of folders: sites and in them classes, classes and in them users, or classes alone.
    for (folder, path, layout) in [
        ("sites", &["mercy/cat", "mercy/dog", "hope/cat", "hope/dog"][..], Some("key/class")),
        ("users", &["cat/u1", "cat/u2", "cat/u3", "dog/u4", "dog/u5"], Some("class/key")),
        ("plain", &["cat", "dog"], None),
    ] {
        for below in path {
            fs::create_dir_all(place.path(folder).join(below)).unwrap();
            image::GrayImage::new(8, 8).save(place.path(folder).join(below).join("1.png")).unwrap();
        }
        let answer = place.call(&["init", "-", "--data", folder]);
        assert!(
            answer.out.contains(&format!("\nlayout = \"{}\"\n", layout.unwrap_or("class"))),
            "{folder}: {}",
            answer.out
        );
        assert_eq!(answer.out.contains("A guess: there are two levels of folders"), layout.is_some(), "{folder}");
    }
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
    place.refuses(&["runs", "tag", "x", "."], &["choose one of the runs in it: ./avg, ./ntd"]);
    place.refuses(&["check", "--set", "method.nmae=x"], &["unknown key 'method.nmae', did you mean 'method.name'?"]);
}
