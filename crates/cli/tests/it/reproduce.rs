//! Published tables: our numbers beside them, with a preset of the test's own.

use std::fs;

use crate::place::{Answer, Place};
use serde_json::Value;

/// Two cells, two rows and a third that is not in the table, all numbers made up.
const PRESET: &str = "\
title = \"Nobody, Table 1\"
source = \"nobody, nowhere\"
about = \"All numbers are made up.\"
seeds = [5, 7, 9]

[config]
rounds = 3
partition.clients = 5
clients.per-round = 2
clients.epochs = 1
model.name = \"logistic\"

[[quantity]]
name = \"accuracy\"
kind = \"final\"

[[quantity]]
name = \"forgetting\"
kind = \"forgetting\"

[[quantity]]
name = \"rounds\"
kind = \"to-target\"

[[cell]]
name = \"mini-1\"
title = \"Dirichlet 1\"
set.partition.alpha = 1.0

[[cell]]
name = \"mnist\"
set.data.name = \"mnist\"

[[row]]
name = \"fedavg\"
published.accuracy = [50.5, 90]
published.forgetting = [0.2, 0.1]
published.rounds = [3, 3]

[[row]]
name = \"fedprox\"
set.method.mu = 0.1
published.accuracy = [99.5, 91]
published.forgetting = [0.1, 0.1]
published.rounds = [\"never\", 2]
sd.accuracy = [0.25, \"-\"]

[[row]]
name = \"strong\"
title = \"FedProx, mu = 1\"
set.method.name = \"fedprox\"
set.method.mu = 1.0

[[departure]]
paper = \"It says nothing.\"
here = \"We chose something.\"
";

fn place() -> Place {
    let place = Place::new();
    place.write("mine.toml", PRESET);
    place
}

fn call(place: &Place, args: &[&str]) -> Answer {
    let cache = place.path("cache");
    place.call_with(&[("XDG_CACHE_HOME", cache.to_str().unwrap())], &[&["reproduce", "mine.toml"], args].concat())
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn runs_are_compared_with_the_table_and_resumed() {
    let place = place();
    let args = ["--cells", "mini-1", "-o", "out"];
    let first = call(&place, &[&args[..], &["--seeds", "2"]].concat());
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.starts_with("Nobody, Table 1: 4 runs, "), "{}", first.err);
    assert_eq!(first.err.matches("] done").count(), 4, "{}", first.err);
    assert!(first.err.contains("done      mini-1 fedprox  seed 7"), "{}", first.err);
    assert!(first.out.contains("Two seeds are very little evidence"), "{}", first.out);
    // A third seed runs what is missing.
    let all = call(&place, &args);
    assert_eq!(all.code, 0, "{}", all.err);
    assert_eq!((all.err.matches("] was done").count(), all.err.matches("] done").count()), (4, 2), "{}", all.err);
    for said in [
        "Nobody, Table 1\nnobody, nowhere\nAll numbers are made up.\n",
        "mini-1: Dirichlet 1, 3 rounds",
        "A gap is the difference from FedAvg; ours is over the same seeds (n = 3)",
        "Pairs in the published order, final accuracy, %: ",
        "- It says nothing. -> We chose something.",
        "last ten %",
    ] {
        assert!(all.out.contains(said), "{said}: {}", all.out);
    }
    assert!(!all.out.contains("not the published setting"), "{}", all.out);
    // The numbers are those of the comparison of the same runs.
    let compared: Value = serde_json::from_str(&place.call(&["compare", "out/mini-1", "--json"]).out).unwrap();
    let json = call(&place, &[&args[..], &["--json"]].concat());
    let last: Value = serde_json::from_str(json.out.lines().last().unwrap()).unwrap();
    assert_eq!(json.out.lines().count(), 7);
    let rows = &last["replication"]["cells"][0]["rows"];
    for (at, name) in ["fedavg", "fedprox"].iter().enumerate() {
        let (ours, theirs) = (&rows[at], &compared["rows"][at]);
        assert_eq!((&ours["name"], &theirs["label"]), (&(*name).into(), &(*name).into()));
        assert_eq!(ours["final-accuracy"], theirs["final-accuracy"]);
        assert_eq!(ours["best-accuracy"], theirs["best-accuracy"]);
        assert_eq!(ours["forgetting"], theirs["forgetting"]);
    }
    let near = |a: &Value, b: f64| assert!((a.as_f64().unwrap() - b).abs() < 1e-9, "{a} {b}");
    let (value, difference) = (&rows[1]["values"][0], &compared["rows"][1]["difference"]);
    near(&value["gap"]["mean"], 100.0 * difference["mean"].as_f64().unwrap());
    near(&value["gap"]["interval"]["low"], 100.0 * difference["interval"]["low"].as_f64().unwrap());
    near(&value["published-gap"], 49.0);
    // FedProx with a small mu is not 49 points above FedAvg.
    let line = all.out.lines().filter(|line| line.starts_with("FedProx ")).nth(1).unwrap();
    assert!(line.contains("+49.00") && line.contains("order"), "{line}");
    // The page has the table and the figures.
    let page = String::from_utf8(place.read("out/report.html")).unwrap();
    for said in ["<section id=published><h2>Nobody, Table 1</h2>", "99.50 ± 0.25", "We chose something.", "echarts"] {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn other_rounds_and_other_settings_are_said() {
    let place = place();
    let short = ["--cells", "mini-1", "--seeds", "1", "--rounds", "2"];
    // What is measured on local models changes no published number.
    let answer =
        call(&place, &[&short[..], &["--set", "clients.epochs=2", "--set", "evaluation.metrics=fast"]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let text = words(&answer.out).join(" ");
    let said = "This is not the published setting, and no replication: 2 rounds instead of 3 in mini-1; clients.epochs=2 (--set).";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("One seed gives no interval: verdicts are about the sign of the gap only"), "{text}");
    assert!(text.contains("no interval"), "{text}");
    // Another number of rounds is another folder.
    let config = String::from_utf8(place.read("runs/mine-2-rounds/mini-1/fedprox/seed-5/config.toml")).unwrap();
    assert!(config.contains("rounds = 2") && config.contains("epochs = 2") && config.contains("mu = 0.1"), "{config}");
    let page = String::from_utf8(place.read("runs/mine-2-rounds/report.html")).unwrap();
    assert!(page.contains("class=warning>This is not the published setting"));
    // What is there with other settings is not mistaken for this.
    let answer = call(&place, &["--cells", "mini-1", "--seeds", "1", "--rounds", "2"]);
    assert_eq!(answer.code, 2, "{}", answer.out);
    assert!(answer.err.contains("already exists, but it has other settings"), "{}", answer.err);
}

#[test]
fn methods_can_be_added_to_a_cell() {
    let place = place();
    let args =
        ["--cells", "mini-1", "--seeds", "1", "--methods", "fedavg,strong,fedntd", "-o", "out", "--page", "p.html"];
    let answer = call(&place, &[&args[..], &["--format", "csv"]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let lines: Vec<Vec<&str>> = answer.out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + 3 * 3, "{}", answer.out);
    let methods: Vec<&str> = lines.iter().skip(1).step_by(3).map(|cells| cells[2]).collect();
    assert_eq!(methods, ["fedavg", "strong", "fedntd"]);
    // They have a gap of their own, but there is none to compare it with.
    let added = &lines[7];
    assert_eq!((added[4], added[11], added[15]), ("", "", ""), "{added:?}");
    assert!(added[12].parse::<f64>().is_ok(), "{added:?}");
    let config = String::from_utf8(place.read("out/mini-1/strong/seed-5/config.toml")).unwrap();
    assert!(config.contains("name = \"fedprox\"") && config.contains("mu = 1.0"), "{config}");
    assert!(place.path("p.html").is_file() && !place.path("out/report.html").exists());
    for (form, start) in
        [("markdown", "**Nobody, Table 1** (nobody, nowhere)"), ("latex", "% \\usepackage{booktabs}"), ("json", "{")]
    {
        let answer = call(&place, &[&args[..], &["--format", form]].concat());
        assert!(answer.code == 0 && answer.out.starts_with(start), "{form}: {}{}", answer.out, answer.err);
    }
    // A page of ours is replaced, any other file is not.
    place.write("p.html", "mine");
    let answer = call(&place, &args);
    assert!(answer.code == 2 && answer.err.contains("--page p.html: the file exists"), "{}", answer.err);
}

#[test]
fn a_finished_table_is_shown_without_its_data() {
    let place = place();
    let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, i % 11, i % 2)).collect();
    place.write("t.csv", &format!("a,b,label\n{rows}"));
    place.write("mine.toml", &PRESET.replace("data.name = \"mnist\"", "data = { name = \"csv\", train = \"t.csv\" }"));
    let args = ["--cells", "mnist", "--seeds", "2", "-o", "out"];
    let first = call(&place, &args);
    assert_eq!(first.code, 0, "{}", first.err);
    fs::remove_file(place.path("t.csv")).unwrap();
    let again = call(&place, &args);
    assert_eq!((again.code, again.out), (0, first.out), "{}", again.err);
    for said in ["warning: ", "t.csv", "all runs have finished, but whether what they were made from has changed since"]
    {
        assert!(again.err.contains(said), "{said}: {}", again.err);
    }
    // A run that is missing needs the data.
    let more = call(&place, &["--cells", "mnist", "--seeds", "3", "-o", "out"]);
    assert!(more.code == 2 && more.err.contains("t.csv") && !more.err.contains("have finished"), "{}", more.err);
}

#[test]
fn a_table_of_which_every_run_diverged_ends_with_1() {
    let place = place();
    let args =
        ["--cells", "mini-1", "--seeds", "1", "--set", "optimizer.lr=1e30", "--set", "model.name=mlp", "-o", "all"];
    let answer = call(&place, &args);
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    let again = call(&place, &args);
    assert_eq!((again.code, again.err.matches("] was done").count()), (1, 2), "{}", again.err);
    place.write(
        "mine.toml",
        &PRESET.replace("set.method.mu = 0.1", "set.optimizer.lr = 1e30\nset.model.name = \"mlp\""),
    );
    let answer = call(&place, &["--cells", "mini-1", "--seeds", "1", "-o", "some"]);
    assert!(answer.code == 0 && answer.err.contains("diverged"), "{}{}", answer.out, answer.err);
}

#[test]
fn nothing_runs_if_something_is_missing() {
    let place = place();
    for (args, said) in [
        (&["-o", "out"][..], "'fedelity data fetch mnist --data-dir data'"),
        (
            &["--cells", "mini", "-o", "out"],
            "--cells mini: there is no cell 'mini'; there are mini-1, mnist; did you mean 'mini-1'?",
        ),
        (&["--methods", "fedvg", "-o", "out"], "did you mean 'fedavg'?"),
        (&["--methods", "fedssd", "--cells", "mini-1", "-o", "out"], "needs labelled samples on the server"),
        (&["--rounds", "0", "-o", "out"], "--rounds: rounds = 0"),
        (&["--seeds", "0", "-o", "out"], "--seeds 0"),
    ] {
        let answer = call(&place, args);
        assert!(answer.code == 2 && answer.err.contains(said), "{said}: {}", answer.err);
        assert!(!place.path("out").exists() && answer.out.is_empty());
    }
    place.write("mine.toml", &PRESET.replace("[50.5, 90]", "[50.5, 190]"));
    let answer = call(&place, &[]);
    assert!(answer.err.starts_with("error: mine.toml:36:29: row.0.published.accuracy.1 = 190"), "{}", answer.err);
    assert_eq!(place.call(&["reproduce", "--cells", "a"]).code, 2);
}

#[test]
fn a_table_is_shown_without_running_it() {
    let place = place();
    let answer = call(&place, &["--dry-run"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for said in [
        "mine: Nobody, Table 1",
        "99.50 ± 0.25",
        "never",
        "Needs fedelity data fetch mnist",
        "Row strong (not in the table)",
    ] {
        assert!(answer.out.contains(said), "{said}: {}", answer.out);
    }
    let line = answer.out.lines().find(|line| line.starts_with("mini-1 ")).unwrap();
    assert_eq!(words(line)[1..4], ["3", "6", "0"], "{line}");
    assert!(words(line)[5].ends_with('s'), "a time: {line}");
    assert!(!place.path("runs").exists() && !place.path("out").exists());
    // Measurements are kept.
    let kept = place.read("cache/fedelity/paces.json");
    assert!(String::from_utf8_lossy(&kept).contains("logistic"));
    call(&place, &["--dry-run"]);
    assert_eq!(place.read("cache/fedelity/paces.json"), kept);
    let json: Value = serde_json::from_str(&call(&place, &["--dry-run", "--json"]).out).unwrap();
    assert_eq!(json["cells"][0]["rows"][1]["published"]["accuracy"]["number"]["value"], 99.5);
    assert!(json["cells"][0]["seconds"].as_f64().unwrap() > 0.0 && json["cells"][1]["seconds"].is_null());
    // --show prints what can be changed and run.
    assert_eq!(call(&place, &["--show"]).out, PRESET);
    let shown = place.call(&["reproduce", "feddistill/table2", "--show"]).out;
    place.write("copy.toml", &shown);
    let answer = place.call(&["reproduce", "copy.toml", "--dry-run", "--json"]);
    let copied: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((copied["table"].as_str(), copied["cells"].as_array().unwrap().len()), (Some("copy"), 5));
    fs::remove_file(place.path("copy.toml")).unwrap();
}

#[test]
fn every_table_of_the_program_is_listed() {
    let place = Place::new();
    let answer = place.call(&["reproduce"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    for table in ["feddistill/table2", "fedntd/table1-sharding", "fedssd/table3", "fedgkd/table9", "fedcad/table4"] {
        let line = answer.out.lines().find(|line| line.starts_with(table)).unwrap_or_else(|| panic!("{}", answer.out));
        assert!(line.contains("data fetch "), "{line}");
    }
    let all: Vec<Value> =
        place.call(&["reproduce", "--json"]).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 21);
    assert!(all.iter().all(|table| !table["departures"].as_array().unwrap().is_empty()));
    let text = all.iter().find(|table| table["table"] == "fedgkd/table4").unwrap().to_string();
    assert!(text.contains("--set model.weights=FOLDER") && text.contains("DistilBERT"), "{text}");
    let loud = place.call(&["-v", "reproduce"]);
    assert!(loud.out.contains("fedssd/table3: FedSSD, Table 3") && loud.out.contains("71.57"), "{}", loud.out);
}

/// What has an option of its own is refused before anything is trained.
#[test]
fn seeds_and_rounds_are_not_settings_of_a_table() {
    let place = place();
    let refused = |args: &[&str], said: &str| {
        place.refuses(&[&["reproduce", "mine.toml", "--cells", "mini-1", "-o", "runs/x"], args].concat(), &[said]);
        assert!(!place.path("runs").exists());
    };
    refused(&["--set", "seeds=[4, 5]"], "--set seeds=[4, 5]: not allowed here; use --seeds");
    refused(&["--set", "rounds=2", "--rounds", "1"], "--set rounds=2: not allowed here; use --rounds");
    let plan = place.call(&["reproduce", "mine.toml", "--cells", "mini-1", "--dry-run", "--set", "clients.epochs=2"]);
    assert!(plan.out.contains("Instead of the above (--set): clients.epochs=2"), "{}", plan.out);
}
