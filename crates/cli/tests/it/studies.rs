//! Several runs together: compare, report, runs, sweep, watch.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::place::{Endless, Place};
use serde_json::Value;

/// Three methods with two seeds, in a fraction of a second each.
fn three(place: &Place) {
    place.write("three.toml", "rounds = 3\nseeds = [1, 2]\n[[method]]\nname = \"fedavg\"\n[[method]]\nname = \"fedntd\"\n[[method]]\nname = \"fedprox\"\n[partition]\nclients = 5\nalpha = 1.0\n[clients]\nper-round = 2\nepochs = 1\n[model]\nname = \"mlp\"\n");
    let answer = place.call(&["run", "three.toml", "--output", "three", "--tensorboard"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
}

#[test]
fn runs_are_compared_reported_listed_and_exported() {
    let place = Place::new();
    three(&place);
    let answer = place.call(&["compare", "three"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    for text in
        ["fedavg", "fedntd", "95 % interval", "p (Holm)", "paired t, n = 2", "Two seeds are very little evidence"]
    {
        assert!(answer.out.contains(text), "{text:?} in {}", answer.out);
    }
    assert!(!answer.out.contains('\u{1b}'));
    let json: Value = serde_json::from_str(&place.call(&["compare", "three", "--json"]).out).unwrap();
    let finals: Vec<f64> = [1, 2]
        .iter()
        .map(|seed| {
            let text = String::from_utf8(place.read(&format!("three/fedntd/seed-{seed}/summary.json"))).unwrap();
            serde_json::from_str::<Value>(&text).unwrap()["final-accuracy"].as_f64().unwrap()
        })
        .collect();
    assert_eq!(json["rows"][1]["label"], "fedntd");
    assert_eq!(json["rows"][1]["final-accuracy"]["mean"], (finals[0] + finals[1]) / 2.0);
    for (format, name) in [("markdown", "FedProx"), ("latex", "FedProx"), ("csv", "fedprox")] {
        assert!(place.call(&["compare", "three", "--format", format]).out.contains(name), "{format}");
    }
    let chosen = ["compare", "three", "--format", "latex", "--columns", "rank,final"];
    assert!(place.call(&chosen).out.contains("method & rank & final \\% \\\\"));
    place.refuses(&["compare", "three", "--format", "csv", "--columns", "rank"], &["--columns", "markdown or latex"]);
    let answer = place.call(&["compare", "three", "--format", "latex", "--columns", "x"]);
    assert!(answer.code == 2 && answer.err.contains("to-target"), "{}", answer.err);

    let answer = place.call(&["report", "three", "-o", "report.html", "--figures", "figures", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let html = String::from_utf8(place.read("report.html")).unwrap();
    for text in ["card-", "t-SNE", "Who holds what", "fedelity run study.toml", "FedNTD", "default-src 'none'"] {
        assert!(html.contains(text), "{text:?} is missing");
    }
    let written: Value = serde_json::from_str(&answer.out).unwrap();
    assert!(
        written["figures"].as_array().unwrap().len() > 40 && place.path("figures/tsne-local-fedprox.png").is_file()
    );
    // Every figure of the page is written, and has a caption that says what it is of.
    let captions = String::from_utf8(place.read("figures/captions.txt")).unwrap();
    let caption = captions.split("\n\n").find(|part| part.starts_with("accuracy\n")).unwrap();
    for text in ["on the test set after each round", "means over 2 seeds", "fashion-mnist-mini", "mlp with"] {
        assert!(caption.contains(text), "{text:?} in {caption}");
    }
    assert!(String::from_utf8(place.read("figures/figures.tex")).unwrap().contains("[width=88mm]{accuracy}"));
    place.refuses(
        &["report", "three", "--figures", "g", "--width", "3"],
        &["--width 3: expected 30 to 1000 millimetres"],
    );
    place.refuses(&["report", "three", "--figures", "g", "--font", "nan"], &["--font NaN: expected 3 to 40 points"]);
    let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    for figure in data["cards"].as_array().unwrap().iter().flat_map(|card| card["figures"].as_array().unwrap()) {
        let name = figure["id"].as_str().unwrap().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        for ending in ["pdf", "svg", "png"] {
            assert!(place.path(&format!("figures/{name}.{ending}")).is_file(), "{name}.{ending}");
        }
    }

    let answer = place.call(&["runs", "list", "three"]);
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    assert!(answer.out.contains("curve") && !answer.out.contains("fashion-mnist-mini"), "{}", answer.out);
    let answer = place.call(&["runs", "list", "three", "--json", "--method", "fedntd"]);
    assert_eq!(answer.out.lines().count(), 2, "{}", answer.out);
    let answer = place.call(&["runs", "tag", "paper", "three/fedntd/seed-1", "--json"]);
    let tagged: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((answer.code, &tagged["tags"][0]), (0, &Value::from("paper")));
    let answer = place.call(&["runs", "ls", "three", "--tag", "paper"]);
    assert!(answer.out.contains("three/fedntd/seed-1") && !answer.out.contains("seed-2"), "{}", answer.out);
    let answer = place.call(&["runs", "remove", "three/fedntd/seed-1"]);
    assert!(answer.out.starts_with("would remove") && place.path("three/fedntd/seed-1").exists());
    let answer = place.call(&["runs", "remove", "three/fedntd/seed-1", "--json"]);
    assert!(answer.out.contains("\"removed\":false") && place.path("three/fedntd/seed-1").exists(), "{}", answer.out);
    place.refuses(&["runs", "remove", "three", "--yes"], &["not a run folder"]);
    assert_eq!(place.call(&["runs", "rm", "three/fedntd/seed-1", "--yes"]).code, 0);
    assert!(!place.path("three/fedntd/seed-1").exists());
    let answer = place.call(&["compare", "three"]);
    let said = answer.out.replace('\n', " ");
    assert!(said.contains("The seeds that count differ: 1 2 (fedavg, fedprox), 2 (fedntd)."), "{}", answer.out);
    let answer = place.call(&["runs", "export", "three/fedavg/seed-1", "--csv", "-"]);
    assert_eq!(answer.out.lines().count(), 4);
    let answer = place.call(&["runs", "export", "three", "--tensorboard", "logs", "--json"]);
    let written: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((answer.code, written["tensorboard"].as_array().unwrap().len()), (0, 5));
    place.refuses(&["runs", "export", "three/fedavg/seed-1", "--csv", "-", "--json"], &["--csv - and --json"]);
    assert_eq!(fs::read_dir(place.path("logs")).unwrap().count(), 5);
    let answer = place.call(&["runs", "export", "three", "--tensorboard", "logs"]);
    assert!(answer.err.contains("5 runs there already\nWrote 0 runs to logs\n"), "{}", answer.err);
    assert_eq!(fs::read_dir(place.path("logs")).unwrap().count(), 5);
    let events = crate::place::files(&place.path("three/fedavg/seed-1"));
    assert!(events.iter().any(|name| name.contains("tfevents")), "{events:?}");
    place.refuses(&["compare", "nowhere"], &["no runs in nowhere"]);
    place.refuses(&["report", "figures"], &["no runs in figures"]);
}

#[test]
fn the_list_of_runs_names_the_data_set() {
    let place = Place::new();
    for name in ["a", "b"] {
        assert_eq!(place.tiny(&["--output", &format!("r/{name}")]).code, 0);
    }
    let answer = place.call(&["runs", "list", "r"]);
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    let lines: Vec<Vec<&str>> = answer.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0][..2].join(" "), lines[2][1]), ("method data".to_string(), "fashion-mnist-mini"));
    assert!(!answer.out.contains("tags"), "{}", answer.out);

    // A run that lost its rounds is named, here and in a report, and in the page itself.
    fs::remove_file(place.path("r/b/rounds.jsonl")).unwrap();
    let lost = "r/b: the folder has summary.json, but no rounds.jsonl";
    assert!(place.call(&["runs", "list", "r"]).err.contains(lost));
    let answer = place.call(&["report", "r", "-o", "r.html", "--json"]);
    assert!(answer.code == 0 && answer.err.contains(lost), "{}", answer.err);
    let written: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(written["left-out"][0]["path"], "r/b");
    assert!(
        String::from_utf8(place.read("r.html")).unwrap().contains("the folder has summary.json, but no rounds.jsonl")
    );
}

/// The longest method name, with seeds whose numbers are as wide as possible.
#[test]
fn long_names_stay_within_eighty_columns() {
    let place = Place::new();
    for method in ["fedavg", "feddistill-plus"] {
        let (set, folder) = (format!("method.name={method}"), format!("long/{method}"));
        let answer = place.tiny(&["--output", &folder, "--set", &set, "--set", "seeds=[1,2]"]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    }
    let answer = place.call(&["compare", "long"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.lines().all(|line| line.chars().count() <= 80), "{}", answer.out);
    assert!(answer.out.contains("feddistill-plus") && answer.out.contains("curve"), "{}", answer.out);
}

#[test]
fn metrics_are_chosen_and_reported() {
    let place = Place::new();
    for (metrics, samples) in [("all", 1_000), ("fast", 0)] {
        let answer = place.tiny(&["--output", metrics, "--metrics", metrics, "--set", "evaluation.confusion=[1]"]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        let text = String::from_utf8(place.read(&format!("{metrics}/rounds.jsonl"))).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["local-evaluation"]["samples"], samples);
        assert_eq!(lines[0]["local-evaluation"]["metrics"], metrics);
        assert!(lines[1]["confusion"].is_array() && lines[1]["drift"]["mean"].is_number());
        assert_eq!(lines[1]["local"].is_object(), samples > 0);
        assert_eq!(place.path(&format!("{metrics}/features.safetensors")).exists(), samples > 0);
    }
    place.refuses(&["run", "--metrics", "most"], &["evaluation.metrics = \"most\"", "all, standard, fast"]);
    assert!(!place.call(&["run", "--metrics", "most"]).err.contains("did you mean"));
    place.refuses(&["run", "--set", "evaluation.client=20"], &["evaluation.client = 20", "0 to 19"]);
    place.refuses(&["run", "--set", "evaluation.confusion=[31]"], &["evaluation.confusion", "from 1 to 30"]);
}

#[test]
fn a_sweep_skips_what_is_done() {
    let place = Place::new();
    place.write(
        "sweep.toml",
        "seeds = [1, 2]\n[set]\nrounds = 2\n\"partition.clients\" = 5\n\"partition.alpha\" = 1.0\n\"clients.per-round\" = 2\n\
         \"clients.epochs\" = 1\n\"model.name\" = \"logistic\"\n[grid]\n\"method.name\" = [\"fedavg\", \"fedprox\"]\n",
    );
    let answer = place.call(&["sweep", "sweep.toml", "--dry-run"]);
    assert_eq!((answer.code, answer.out.matches("to run").count()), (0, 4), "{}{}", answer.out, answer.err);
    let answer = place.call(&["sweep", "sweep.toml", "--dry-run", "--json"]);
    assert_eq!(answer.out.matches("\"state\":\"to run\"").count(), 4, "{}{}", answer.out, answer.err);
    let answer = place.call(&["sweep", "sweep.toml", "-o", "out", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(answer.out.matches("\"state\":\"done\"").count(), 4, "{}", answer.out);
    // One run broke off half-way: only that one is repeated.
    let first = fs::read_dir(place.path("out")).unwrap().next().unwrap().unwrap().path().join("seed-2");
    fs::remove_file(first.join("summary.json")).unwrap();
    let answer = place.call(&["sweep", "sweep.toml", "-o", "out"]);
    assert_eq!(answer.err.matches("] was done").count(), 3, "{}", answer.err);
    assert_eq!(answer.err.matches("] done").count(), 1, "{}", answer.err);
    assert!(answer.out.contains("fedprox") && answer.out.contains("95 % interval"), "{}", answer.out);
    place.refuses(&["resume", "out"], &["it is the folder of a sweep, which goes on with its own command"]);
    // The curve of a setting is that of the same runs in the table of `run`.
    let sets = ["rounds=9", "seeds=[1,2]", "method=[{name=\"fedavg\"},{name=\"fedprox\"}]"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let curve = |text: &str| -> Vec<String> {
        let blocks = |word: &&str| word.chars().all(|c| ('▁'..='█').contains(&c));
        text.split_whitespace().filter(blocks).map(String::from).collect()
    };
    let ran = curve(&place.tiny(&[&["--output", "ran"][..], &sets].concat()).out);
    assert!(ran.len() == 2 && ran[0].chars().count() == 9, "{ran:?}");
    assert_eq!(curve(&place.call(&["compare", "ran"]).out), ran);
    let longer = String::from_utf8(place.read("sweep.toml")).unwrap().replace("rounds = 2", "rounds = 9");
    place.write("longer.toml", &longer);
    let answer = place.call(&["sweep", "longer.toml", "-o", "longer"]);
    assert_eq!(curve(&answer.out), ran, "{}", answer.out);
    assert!(answer.out.contains("seeds") && answer.out.contains("bytes") && !answer.out.contains("traffic"));
    // Without seeds of its own, a sweep has those of the configuration.
    let dry = |config: &str, sweep: &str| {
        place.write("base.toml", config);
        place.write("of-base.toml", &format!("config = \"base.toml\"\n{sweep}[grid]\n\"clients.epochs\" = [1, 2]\n"));
        let answer = place.call(&["sweep", "of-base.toml", "--dry-run"]);
        (answer.code, answer.out.matches("to run").count(), answer.err)
    };
    for (config, sweep, runs) in
        [("seeds = [7, 8, 9]", "", 6), ("seed = 7", "", 2), ("seeds = [7, 8]", "seeds = [1]\n", 2)]
    {
        let (code, found, err) = dry(config, sweep);
        assert_eq!((code, found), (0, runs), "{config}: {err}");
    }
    assert!(dry("seeds = [\"a\"]", "").2.contains("base.toml:1:1: seeds: expected whole numbers of at least 0"));
    place.write("bad.toml", "[grid]\n\"rondus\" = [1]\n");
    let answer = place.call(&["sweep", "bad.toml", "-o", "bad"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("bad.toml:2:13: unknown key 'rondus'"), "{}", answer.err);
    place.refuses(&["sweep", "nowhere.toml"], &["nowhere.toml"]);
}

#[test]
fn a_finished_sweep_shows_its_results_without_its_data() {
    let place = Place::new();
    let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, i % 11, i % 2)).collect();
    let set = "[set]\nrounds = 1\n\"data.name\" = \"csv\"\n\"data.train\" = \"t.csv\"\n\"partition.kind\" = \"iid\"\n\
               \"partition.clients\" = 2\n\"model.name\" = \"logistic\"\n";
    let tune = "[tune]\nvalidation = 0.2\nseeds = [11]\n[grid]\n\"optimizer.lr\" = [0.01, 0.05]\n";
    place.write("plain.toml", &format!("seeds = [1, 2]\n{set}"));
    place.write("tuned.toml", &format!("seeds = [1, 2]\n{set}{tune}"));
    for (file, folder, runs) in [("plain.toml", "plain", 2), ("tuned.toml", "tuned", 4)] {
        place.write("t.csv", &format!("a,b,label\n{rows}"));
        let args = ["sweep", file, "-o", folder];
        let first = place.call(&args);
        assert_eq!(first.code, 0, "{}", first.err);
        fs::remove_file(place.path("t.csv")).unwrap();
        let again = place.call(&args);
        assert_eq!((again.code, again.out), (0, first.out), "{}", again.err);
        let said = "all runs have finished, but whether what they were made from has changed since cannot be told";
        assert!(again.err.contains("t.csv") && again.err.contains(said), "{}", again.err);
        assert_eq!(again.err.matches("] was done").count(), runs, "{}", again.err);
        // One that has not finished needs its data.
        let below = if folder == "tuned" { place.path("tuned/compare") } else { place.path(folder) };
        let setting =
            fs::read_dir(below).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
        fs::remove_dir_all(setting.join("seed-2")).unwrap();
        let answer = place.call(&args);
        assert!(answer.code == 2 && !answer.err.contains("have finished"), "{}", answer.err);
    }
}

/// Two methods on two partitions: a sweep and `compare` say the same, in every format.
#[test]
fn a_sweep_and_compare_agree_and_mix_only_what_is_named() {
    let place = Place::new();
    place.write(
        "sweep.toml",
        "seeds = [1, 2]\n[set]\nrounds = 2\n\"partition.clients\" = 5\n\"clients.per-round\" = 3\n\
         \"clients.epochs\" = 1\n\"model.name\" = \"logistic\"\n[grid]\n\"method.name\" = [\"fedavg\", \"fedprox\"]\n\
         \"partition.alpha\" = [0.1, 10.0]\n",
    );
    let swept = place.call(&["sweep", "sweep.toml", "-o", "out"]);
    assert_eq!(swept.code, 0, "{}", swept.err);
    let compared = place.call(&["compare", "out"]);
    assert_eq!((compared.code, &compared.out), (0, &swept.out), "{}", compared.err);
    assert_eq!(compared.out.matches("\nalpha=10.0\n").count(), 3, "{}", compared.out);
    let json: Value = serde_json::from_str(&place.call(&["compare", "out", "--json"]).out).unwrap();
    for row in [1, 3] {
        let finals = |row: usize| json["rows"][row]["final-accuracy"]["mean"].as_f64().unwrap();
        let difference = json["rows"][row]["difference"]["mean"].as_f64().unwrap();
        assert!((difference - (finals(row) - finals(row - 1))).abs() < 1e-9, "{json}");
        assert_eq!(json["rows"][row]["baseline"], json["rows"][row - 1]["label"]);
    }
    // Runs that differ only in their setting have names that tell them apart.
    assert_eq!(place.call(&["runs", "export", "out", "--tensorboard", "logs"]).code, 0);
    assert!(
        place.path("logs/fedavg-seed-1-alpha-10.0").is_dir(),
        "{:?}",
        fs::read_dir(place.path("logs")).unwrap().collect::<Vec<_>>()
    );
    let mixed = place.call(&["compare", "out", "--mix", "partition.alpha", "--json"]);
    let json: Value = serde_json::from_str(&mixed.out).unwrap();
    let baseline = json["rows"].as_array().unwrap().iter().filter(|row| row["difference"].is_null()).count();
    assert_eq!((json["settings"].as_array().unwrap().len(), baseline), (1, 1), "{json}");
    assert_eq!(json["rows"][0]["label"], "fedavg alpha=0.1");
    // The last part of a key, as labels have it, is enough.
    let short = place.call(&["compare", "out", "--mix", "alpha", "--json"]);
    assert_eq!(short.out, mixed.out, "{}", short.err);
    place.refuses(
        &["compare", "out", "--mix", "alphq"],
        &["--mix alphq: there is no key", "did you mean 'partition.alpha'?"],
    );
    // All runs in one table, with what tells them apart.
    let table = place.call(&["runs", "export", "out", "--csv", "-"]);
    assert_eq!(table.code, 0, "{}", table.err);
    // What is quoted, the partition in words, has commas.
    let plain = |line: &str| line.split('"').step_by(2).collect::<String>();
    let mut lines = table.out.lines().map(plain);
    let names: Vec<String> = lines.next().unwrap().split(',').map(String::from).collect();
    let first = ["run", "method", "dataset", "partition", "model", "seed", "method.mu", "partition.alpha", "round"];
    assert_eq!(names[..first.len()], first);
    let rows: Vec<Vec<String>> = lines.map(|line| line.split(',').map(String::from).collect()).collect();
    let kinds: BTreeSet<[&String; 4]> = rows.iter().map(|row| [&row[1], &row[5], &row[7], &row[8]]).collect();
    assert_eq!((rows.len(), kinds.len()), (16, 16));
    assert!(place.path("out").join(&rows[15][0]).join("rounds.jsonl").is_file(), "{:?}", rows[15]);
    let idle = place.call(&["compare", "out", "--mix", "rounds"]);
    let note = "warning: --mix rounds: the runs do not differ in it; they differ in partition, partition.alpha\n";
    assert!(idle.code == 0 && idle.err.contains(note), "{}", idle.err);
    place.refuses(&["compare", "out", "--mix", "seeds"], &["always compared on the same seeds"]);
}

/// However short it was, a run that ends without having learnt anything says so, in words that are true.
#[test]
fn a_run_that_learnt_nothing_says_so() {
    let place = Place::new();
    let run = |rounds: &str, folder: &str| {
        let sets = [rounds, "optimizer.lr=1e-9", "partition.clients=4", "clients.per-round=2", "clients.epochs=1"];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        place.call(&[&["run", "--metrics", "fast", "--output", folder][..], &sets].concat())
    };
    let said = |n: u64| format!("learnt nothing in {n} evaluations: accuracy 10.0 %; guessing gives 10.0 %");
    let answer = run("rounds=2", "part");
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains(&format!("warning: fedavg, seed 1: {}. ", said(2))), "{}", answer.err);
    assert!(!answer.err.contains("clip") && !answer.out.contains("collapsed"), "{}{}", answer.err, answer.out);
    assert!(
        answer.out.contains("1‡") && answer.out.contains("‡ fedavg, seed 1: learnt nothing in 2"),
        "{}",
        answer.out
    );
    let listed = place.call(&["runs", "list", "part", "--status", "unlearnt", "--json"]);
    assert!(listed.out.contains(&said(2)), "{}{}", listed.out, listed.err);
    // It follows from the records alone, so a run that is prolonged ends like one that was never stopped.
    assert_eq!(run("rounds=3", "whole").code, 0);
    assert_eq!(place.call(&["resume", "part", "--set", "rounds=3"]).code, 0);
    let summary = |run: &str| -> Value { serde_json::from_slice(&place.read(&format!("{run}/summary.json"))).unwrap() };
    let (part, whole) = (summary("part"), summary("whole"));
    assert_eq!((&part["unlearnt"], &part["notices"]), (&whole["unlearnt"], &whole["notices"]));
    assert_eq!((&part["unlearnt"]["evaluations"], &part["collapse"]), (&3.into(), &Value::Null), "{part}");
    let page = place.call(&["report", "part", "-o", "page.html"]);
    assert_eq!(page.code, 0, "{}", page.err);
    let page = String::from_utf8(place.read("page.html")).unwrap();
    assert!(page.contains(&said(3)) && page.contains("Save the configuration below, and run it with"));
}

/// SCAFFOLD on very skewed clients: a client runs away and takes the global model with it. Results have the same bits on
/// every processor, so it always does.
#[test]
fn a_collapse_is_said_and_recorded() {
    let place = Place::new();
    let sets = ["rounds=13", "partition.alpha=0.05", "partition.clients=40", "method.name=scaffold"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let answer = place.call(&[&["run", "--metrics", "fast", "--output", "run"][..], &sets].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let warnings: Vec<&str> = answer.err.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert!(warnings[0].contains("scaffold, seed 1, round 12: client 35: drift "), "{}", answer.err);
    assert_eq!(answer.err.matches("--set optimizer.clip=10").count(), 1, "{}", answer.err);
    assert!(warnings.iter().any(|line| line.contains("after client 35 was out of line in round 12")), "{warnings:?}");
    assert!(answer.out.contains("1†") && answer.out.contains("collapsed in round 12"), "{}", answer.out);
    let summary: Value = serde_json::from_slice(&place.read("run/summary.json")).unwrap();
    assert_eq!((&summary["collapse"], &summary["notices"][0]["kind"]), (&12.into(), &"outlier".into()), "{summary}");
    let listed = place.call(&["runs", "list", "run", "--status", "collapsed", "--json"]);
    assert!(listed.out.contains("collapsed in round 12"), "{}{}", listed.out, listed.err);
    // One key away.
    let clipped = [&["run", "--metrics", "fast", "--output", "clipped", "--set", "optimizer.clip=10"][..], &sets];
    let answer = place.call(&clipped.concat());
    assert!(answer.code == 0 && !answer.out.contains('†') && !answer.err.contains("warning: "), "{}", answer.err);
}

#[test]
fn faults_are_said_recorded_and_reported() {
    let place = Place::new();
    let sets = |sets: &[&'static str]| sets.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
    let faults =
        ["rounds=4", "faults.drop-before=0.2", "faults.truncated=0.2", "faults.attack=scale", "server.quorum=0.1"];
    let run = place.tiny(&[&["--output", "a"][..], &sets(&faults)].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let counts: Value = serde_json::from_slice(&place.read("a/summary.json")).unwrap();
    let (dropped, refused) = (&counts["incidents"]["dropped"], &counts["incidents"]["refused"]);
    assert!(dropped.as_u64() > Some(0) && refused.as_u64() > Some(0), "{counts}");
    let said = run.err + &run.out;
    assert!(said.contains(&format!("{dropped} client")) && said.contains(&format!("{refused} upload")), "{said}");
    let rounds = String::from_utf8(place.read("a/rounds.jsonl")).unwrap();
    assert!(rounds.contains("it cannot be read: ") && rounds.contains("\"attackers\":["), "{rounds}");
    let report = place.call(&["report", "a", "-o", "r.html"]);
    assert_eq!(report.code, 0, "{}", report.err);
    assert!(String::from_utf8_lossy(&place.read("r.html")).contains("dropped out"));
    let verified = place.call(&["verify", "a"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    // Nobody is left.
    let none = place.tiny(&[&["--output", "b"][..], &sets(&["faults.drop-during=1.0"])].concat());
    assert_eq!(none.code, 2, "{}", none.err);
    assert!(none.err.contains("round 1: only 0 of at least "), "{}", none.err);
    assert!(none.err.contains("repeated 20 times; in the last attempt, 2 clients dropped out"), "{}", none.err);
    let ended: Value = serde_json::from_slice(&place.read("b/summary.json")).unwrap();
    assert_eq!(ended["status"]["kind"], "interrupted");
    // A run that stops because of the quorum goes on with another one.
    let harsh = sets(&["faults.drop-during=0.8", "server.quorum=1.0", "clients.per-round=5"]);
    let harsh = place.tiny(&[&["--output", "e"][..], &harsh].concat());
    assert_eq!(harsh.code, 2, "{}", harsh.err);
    let resumed = place.call(&["resume", "e", "--set", "server.quorum=0.2"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let check = place.call(&[&["check"][..], &sets(&["faults.late=0.6", "faults.attack=scale"])].concat());
    let said = "about 4.0 of 10 uploads count, and 5 uploads close a round, so most rounds are repeated; 4 of 20 clients attack";
    assert!(check.out.contains(said), "{}", check.out);
    let more =
        "on average: 6.0 late\n            attackers send 10 times their update; the mean has no defence against that";
    assert!(check.out.contains(more), "{}", check.out);
    // One seed that misses the quorum does not stop the others.
    let seeds =
        ["faults.drop-during=0.5", "server.quorum=1.0", "clients.per-round=5", "rounds=1", "seeds=[1,2,3,4,5,6]"];
    let several = place.tiny(&[&["--output", "f"][..], &sets(&seeds)].concat());
    assert_eq!(several.code, 2, "{}", several.err);
    let status = |seed: usize| -> Value {
        let text = place.read(&format!("f/fedavg/seed-{seed}/summary.json"));
        serde_json::from_slice::<Value>(&text).unwrap()["status"]["kind"].clone()
    };
    let missed: Vec<usize> = (1..=6).filter(|&seed| status(seed) == "interrupted").collect();
    assert!(!missed.is_empty() && missed.len() < 6, "{missed:?}");
    let listed: Vec<String> = missed.iter().map(|seed| format!("fedavg, seed {seed}")).collect();
    let said = format!("error: {} of 6 runs did not finish: {}\n", missed.len(), listed.join("; "));
    assert!(several.err.contains(&said), "{}", several.err);
    assert!(several.out.contains("fedavg"), "{}", several.out);
    let resumed = place.call(&["resume", "f", "--set", "server.quorum=0.2"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    // Krum with one attacker needs five uploads, whatever the quorum.
    let krum = sets(&[
        "server.rule=krum",
        "server.quorum=0.1",
        "faults.late=0.1",
        "partition.clients=8",
        "clients.per-round=6",
    ]);
    let krum = place.tiny(&[&["--output", "c"][..], &krum].concat());
    assert_eq!(krum.code, 0, "{}", krum.err);
    // Training that fails everywhere has diverged.
    let lost = place.tiny(&[&["--output", "d"][..], &sets(&["optimizer.lr=1e30", "faults.twice=0.01"])].concat());
    assert_eq!(lost.code, 1, "{}", lost.err);
}

/// A run that was stopped early, and a summary that claims too much.
#[test]
fn unfinished_runs_are_marked_everywhere() {
    let place = Place::new();
    three(&place);
    let rounds = place.path("three/fedntd/seed-2/rounds.jsonl");
    let text = fs::read_to_string(&rounds).unwrap();
    fs::write(&rounds, text.lines().take(2).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    fs::remove_file(place.path("three/fedntd/seed-2/summary.json")).unwrap();
    let answer = place.call(&["compare", "three"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let said = answer.out.replace('\n', " ");
    assert!(said.contains("* fedntd, seed 2: no end recorded, last round 1 of 3"), "{}", answer.out);
    assert!(answer.err.contains("--include unfinished"), "{}", answer.err);
    let of = |arguments: &[&str]| -> Value {
        serde_json::from_str(&place.call(&[&["compare", "three", "--json"], arguments].concat()).out).unwrap()
    };
    let row = &of(&[])["rows"][1];
    assert_eq!((&row["unfinished"], &row["difference"]["n"]), (&1.into(), &1.into()), "{row}");
    assert_eq!(of(&["--include", "unfinished,collapsed"])["rows"][1]["difference"]["n"], 2);
    let answer = place.call(&["runs", "list", "three"]);
    assert!(answer.out.contains("1/3"), "{}", answer.out);
    let path = place.path("three/fedprox/seed-1/summary.json");
    let mut summary: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    summary["final-accuracy"] = 0.999.into();
    fs::write(&path, summary.to_string()).unwrap();
    for command in [&["compare", "three"][..], &["runs", "list", "three"], &["report", "three", "-o", "r.html"]] {
        let answer = place.call(command);
        assert!(answer.err.contains("final accuracy 99.90 %, but the rounds give"), "{command:?}: {}", answer.err);
        assert!(!answer.out.contains("99.90"), "{}", answer.out);
    }
}

/// One request, like a browser's.
fn get(port: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_watched_run_is_served_only_to_this_computer() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "runs/a"]).code, 0);
    let program = assert_cmd::cargo::cargo_bin!("fedelity");
    let mut command = Command::new(program);
    command.args(["watch", "runs", "--no-open"]).current_dir(place.0.path()).stdout(Stdio::piped());
    // It ends with the test, also if that fails.
    let mut watch = Endless(command.stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(watch.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("http://127.0.0.1:").unwrap().trim_end_matches('/').to_string();
    let own = format!("127.0.0.1:{port}");
    let until = |path: &str, holds: &dyn Fn(&str) -> bool| {
        let begun = std::time::Instant::now();
        loop {
            let answer = get(&port, path, &own);
            if holds(&answer) {
                return answer;
            }
            assert!(begun.elapsed().as_secs() < 40, "{path}: {answer:.400}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    // It says that it is being built, if that takes a while.
    let page = get(&port, "/", &own);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("connect-src 'self'"), "{page:.400}");
    until("/", &|page| page.contains("fedavg"));
    assert!(get(&port, "/", "evil.example").starts_with("HTTP/1.1 403"));
    assert!(get(&port, "/etc/passwd", &own).starts_with("HTTP/1.1 404"));
    let news = get(&port, "/data?version=", &own);
    let version = news.split("\"version\":\"").nth(1).unwrap().split('"').next().unwrap().to_string();
    assert!(get(&port, &format!("/data?version={version}"), &own).starts_with("HTTP/1.1 204"));
    // A second viewer while the first one is connected, and a second run.
    let _first = TcpStream::connect(&own).unwrap();
    assert_eq!(place.tiny(&["--output", "runs/b", "--set", "method.name=fedprox"]).code, 0);
    until(&format!("/data?version={version}"), &|news| news.starts_with("HTTP/1.1 200") && news.contains("fedprox"));
    drop(watch);
    Place::new().refuses(&["watch", "nowhere"], &["nowhere: no such folder"]);
}
