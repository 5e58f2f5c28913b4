//! Tables of several sites: columns by name, in training, evaluation, prediction and export.

use std::fs;

use crate::place::{Answer, Place};
use serde_json::Value;

/// Rows with a number, a category and an identifier; the outcome depends on the first two.
fn rows(from: usize, to: usize) -> Vec<[String; 5]> {
    let row = |i: usize| {
        let (age, smoker) = (20 + i * 7 % 60, i.is_multiple_of(3));
        let ill = age + if smoker { 30 } else { 0 } > 60;
        let words = [if smoker { "yes" } else { "no" }, if ill { "ill" } else { "healthy" }];
        [(5_000 + i).to_string(), format!("{age}.{i:03}5"), words[0].into(), format!("s{}", i % 3), words[1].into()]
    };
    (from..to).map(row).collect()
}

const COLUMNS: [&str; 5] = ["patient", "age", "smoker", "site", "outcome"];

/// The columns of rows in this order, as CSV.
fn table(rows: &[[String; 5]], order: &[usize], separator: &str) -> String {
    let line = |fields: Vec<&str>| fields.join(separator) + "\n";
    let head = line(order.iter().map(|&i| COLUMNS[i]).collect());
    head + &rows.iter().map(|row| line(order.iter().map(|&i| row[i].as_str()).collect())).collect::<String>()
}

const CONFIG: &str = "rounds = 12\n[data]\nname = \"csv\"\ntrain = \"a.csv\"\nlabel = \"outcome\"\nkey = \"site\"\nignore = \
                      [\"patient\"]\n[partition]\nkind = \"natural\"\n[clients]\nepochs = 5\nbatch = 10\n[model]\nname = \
                      \"logistic\"\n[optimizer]\nlr = 0.1\n";

/// A model of 240 rows, in the folder `a`.
fn trained() -> Place {
    let place = Place::new();
    place.write("a.csv", &table(&rows(0, 240), &[0, 1, 2, 3, 4], ","));
    place.write("exp.toml", CONFIG);
    done(&place, &["run", "exp.toml", "--output", "a"]);
    place
}

fn done(place: &Place, args: &[&str]) -> Answer {
    let answer = place.call(args);
    assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
    answer
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn evaluate(place: &Place, args: &[&str]) -> Value {
    json(&done(place, &[&["evaluate", "--json"][..], args].concat()).out)
}

#[test]
fn columns_are_matched_by_name() {
    let place = trained();
    let recorded = json(&String::from_utf8(place.read("a/summary.json")).unwrap());
    let own = evaluate(&place, &["a"]);
    assert_eq!(own["accuracy"], recorded["final-accuracy"]);
    assert!(own["accuracy"].as_f64().unwrap() > 0.85, "{own}");
    assert_eq!((own["part"].as_str(), own["samples"].as_u64()), (Some("test"), Some(48)));
    // New rows in three arrangements: the same result, for the file alone too.
    let new = rows(300, 360);
    place.write("b.csv", &table(&new, &[0, 1, 2, 3, 4], ","));
    place.write("c.csv", &table(&new, &[4, 2, 1], ";").replace('.', ","));
    place.write("d.csv", &table(&new, &[2, 4, 1, 0], "\t"));
    fs::copy(place.path("a/model.safetensors"), place.path("m.safetensors")).unwrap();
    let first = evaluate(&place, &["a", "--data", "csv", "--set", "data.train=b.csv"]);
    assert_eq!((first["part"].as_str(), first["samples"].as_u64()), (Some("all"), Some(60)));
    for (model, file) in [("a", "c.csv"), ("a", "d.csv"), ("m.safetensors", "c.csv"), ("m.safetensors", "b.csv")] {
        for key in ["train", "test"] {
            let found = evaluate(&place, &[model, "--data", "csv", "--set", &format!("data.{key}={file}")]);
            assert_eq!((&found["loss"], &found["samples"]), (&first["loss"], &first["samples"]), "{model} {file}");
        }
        let found = evaluate(&place, &[model, "--data", file]);
        assert_eq!((&found["loss"], &found["samples"]), (&first["loss"], &first["samples"]), "{model} {file}");
    }
    // A folder of tables, one per site.
    fs::create_dir(place.path("sites")).unwrap();
    fs::copy(place.path("b.csv"), place.path("sites/b.csv")).unwrap();
    fs::copy(place.path("c.csv"), place.path("sites/c.csv")).unwrap();
    let found = evaluate(&place, &["a", "--data", "sites"]);
    assert_eq!((found["samples"].as_u64(), found["sites"].as_array().unwrap().len()), (Some(120), 2), "{found}");
    place.refuses(&["evaluate", "a", "--data", "nowhere.csv"], &["nowhere.csv"]);
    let text = table(&new, &[1, 4], ",");
    place.write("e.csv", &text);
    place.refuses(
        &["evaluate", "a", "--data", "csv", "--set", "data.train=e.csv"],
        &["e.csv:1: there is no column 'smoker': the model reads 'age', 'smoker'", "'age', 'outcome'"],
    );
    place.write("f.csv", &table(&new, &[4, 2, 1], ",").replacen("smoker", "Smoker", 1));
    place.refuses(&["predict", "a", "f.csv"], &["there is no column 'smoker'", "'Smoker'"]);
    let extra = table(&new, &[4, 2, 1], ",").replacen("\n", ",x\n", 1).replace("5\n", "5,0\n");
    place.write("g.csv", &extra);
    let args = ["evaluate", "a", "--data", "csv", "--set", "data.train=g.csv"];
    place.refuses(&args, &["g.csv:1: the model does not know the column 'x'", "--ignore 'x', or data.ignore"]);
    let found = evaluate(&place, &[&args[1..], &["--ignore", "x"]].concat());
    assert_eq!(found["loss"], first["loss"]);
}

#[test]
fn classes_are_matched_by_name_or_number() {
    let place = trained();
    let new = rows(240, 300);
    let named = |ill: &str, healthy: &str| {
        let name = |word: &str| if word == "ill" { ill.to_string() } else { healthy.to_string() };
        let rows: Vec<_> = new.iter().cloned().map(|[a, b, c, d, e]| [a, b, c, d, name(&e)]).collect();
        place.write("new.csv", &table(&rows, &[0, 1, 2, 3, 4], ","));
    };
    named("ill", "healthy");
    let own = evaluate(&place, &["a", "--data", "new.csv"]);
    // Healthy is the model's first class.
    named("1", "0");
    assert_eq!(evaluate(&place, &["a", "--data", "new.csv"])["accuracy"], own["accuracy"]);
    for (ill, healthy) in [("sick", "well"), ("ill", "dead"), ("2", "1")] {
        named(ill, healthy);
        let message = "use the model's names, or its numbers 0 to 1";
        place.refuses(&["evaluate", "a", "--data", "new.csv"], &["the model has 2 classes (healthy, ill)", message]);
    }
}

#[test]
fn samples_that_were_trained_on_are_counted() {
    let place = trained();
    let shown = done(&place, &["evaluate", "a"]);
    assert!(shown.out.contains("logistic on 48 test samples of csv\ntrained   on none of them\n"), "{}", shown.out);
    let whole = evaluate(&place, &["a", "--data", "csv", "--set", "data.train=a.csv"]);
    assert_eq!((whole["samples"].as_u64(), whole["part"].as_str()), (Some(240), Some("all")));
    assert_eq!(whole["trained-on"], 192);
    let shown = done(&place, &["evaluate", "a", "--part", "train"]);
    assert!(shown.out.contains("192 training samples of csv\ntrained   on all of them"), "{}", shown.out);
    let part = evaluate(&place, &["a", "--part", "all"]);
    assert_eq!((&part["samples"], &part["trained-on"]), (&whole["samples"], &whole["trained-on"]));
    fs::copy(place.path("a/model.safetensors"), place.path("m.safetensors")).unwrap();
    let alone = done(&place, &["evaluate", "m.safetensors", "--data", "csv", "--set", "data.test=a.csv"]);
    assert!(
        alone.out.contains("logistic on all 240 samples of csv\ntrained   perhaps on some of them: "),
        "{}",
        alone.out
    );
    let args = ["evaluate", "a", "--data", "csv", "--set", "data.test=a.csv", "--part"];
    place.refuses(&[&args[..], &["train"]].concat(), &["--part train: there is no data.train"]);
    place.refuses(&[&args[..], &["most"]].concat(), &["--part most: expected one of all, train, test"]);
    place.write("b.csv", &table(&rows(300, 330), &[0, 1, 2, 3, 4], ","));
    fs::remove_file(place.path("a.csv")).unwrap();
    let gone = done(&place, &["evaluate", "a", "--data", "csv", "--set", "data.train=b.csv"]);
    assert!(
        gone.out.contains("trained   perhaps on some of them: the run's data cannot be read (cannot open"),
        "{}",
        gone.out
    );
}

#[test]
fn data_that_changed_since_the_run_are_not_taken_for_what_it_was_trained_on() {
    let place = trained();
    fs::copy(place.path("a.csv"), place.path("old.csv")).unwrap();
    place.write("a.csv", &table(&rows(300, 540), &[0, 1, 2, 3, 4], ","));
    let changed = "the data have changed since the run (SHA-256 was ";
    // The rows of the training, of which none is in the file now.
    for args in [&["a", "--data", "old.csv"][..], &["a", "--part", "all"], &["a"]] {
        let found = evaluate(&place, args);
        assert!(found["trained-on"].is_null(), "{found}");
        assert!(found["trained-on-unknown"].as_str().unwrap().starts_with(changed), "{found}");
    }
    let shown = done(&place, &["evaluate", "a"]);
    assert!(shown.out.contains(&format!("trained   perhaps on some of them: {changed}")), "{}", shown.out);
    assert!(shown.err.contains("the test part is drawn from the data as they are now"), "{}", shown.err);
    // As before, they are known again; without the record they are not.
    fs::copy(place.path("old.csv"), place.path("a.csv")).unwrap();
    let found = evaluate(&place, &["a", "--data", "old.csv"]);
    assert_eq!((found["trained-on"].as_u64(), &found["trained-on-unknown"]), (Some(192), &Value::Null));
    fs::remove_file(place.path("a/rounds.jsonl")).unwrap();
    let found = evaluate(&place, &["a"]);
    assert!(found["trained-on-unknown"].as_str().unwrap().starts_with("it is not known whether"), "{found}");
}

#[test]
fn rows_are_classified_and_columns_are_exported() {
    let place = trained();
    let new = rows(300, 330);
    place.write("new.csv", &table(&new, &[2, 3, 1], ";"));
    let answer = done(&place, &["predict", "a", "new.csv", "--json"]);
    let lines: Vec<Value> = answer.out.lines().map(json).collect();
    assert_eq!((lines.len(), lines[0]["input"].as_str()), (30, Some("new.csv:2")));
    let right = |(line, row): (&Value, &[String; 5])| line["predictions"][0]["class"].as_str() == Some(row[4].as_str());
    let right = lines.iter().zip(&new).filter(|(line, row)| right((line, row))).count();
    // The same as evaluation finds.
    place.write("labelled.csv", &table(&new, &[0, 1, 2, 3, 4], ","));
    let found = evaluate(&place, &["a", "--data", "csv", "--set", "data.train=labelled.csv"]);
    assert_eq!(right as f64 / 30.0, found["accuracy"].as_f64().unwrap());
    let labelled = done(&place, &["predict", "a", "labelled.csv", "--json"]);
    assert_eq!(labelled.out.replace("labelled.csv", "new.csv"), answer.out);
    let shown = done(&place, &["predict", "a", "new.csv", "--top", "1"]);
    assert!(shown.out.contains("probability") && shown.out.contains("new.csv:31"), "{}", shown.out);

    place.write("odd.jsonl", "{\"age\": 40, \"smoker\": \"never\"}\n{\"age\": \"old\", \"smoker\": \"no\"}\n");
    place.refuses(&["predict", "a", "odd.jsonl"], &["odd.jsonl:2: key 'age': expected a number", "--skip-bad"]);
    let odd = done(&place, &["predict", "a", "odd.jsonl", "--skip-bad", "--json"]);
    assert_eq!(odd.out.lines().count(), 1);
    assert!(odd.err.contains("1 value is not among the categories of column 'smoker'"), "{}", odd.err);
    place.refuses(&["predict", "a", "--text", "x"], &["--text", "reads rows of 3 numbers"]);
    done(&place, &["export", "a", "--onnx", "a.onnx"]);
    let onnx = place.read("a.onnx");
    let columns = br#"{"name":"smoker","categories":["no","yes"]}"#;
    assert!(onnx.windows(columns.len()).any(|part| part == columns));
    done(&place, &["export", "a", "--pytorch", "a.py"]);
    let source = String::from_utf8(place.read("a.py")).unwrap();
    assert!(source.contains("\nCOLUMNS = [(\"age\", None), (\"smoker\", [\"no\", \"yes\"])]\n"), "{source}");
}

#[test]
fn columns_that_mislead_are_spoken_of() {
    let place = trained();
    let args = ["check", "exp.toml", "--set", "data.ignore=[]"];
    let found = done(&place, &args);
    assert!(found.out.contains("column 'patient' looks like an identifier"), "{}", found.out);
    let run = done(&place, &["run", "exp.toml", "--output", "b", "--set", "data.ignore=[]", "--set", "rounds=1"]);
    assert!(run.err.contains("data.ignore = [\"patient\"] leaves it out"), "{}", run.err);
    place.refuses(&["run", "exp.toml", "--set", "data.ignore=[\"nobody\"]"], &["no column 'nobody' for data.ignore"]);
    place.refuses(
        &["run", "exp.toml", "--set", "data.features=[\"patient\"]"],
        &["data.ignore: column 'patient' is also in data.features"],
    );
    let shown = done(&place, &["data", "show", "exp.toml"]);
    for text in ["sample   3 numbers", "columns  age: number, mean ", "smoker: 2 categories: no, yes"] {
        assert!(shown.out.contains(text), "{text}: {}", shown.out);
    }
    let shown = json(&done(&place, &["data", "show", "exp.toml", "--json"]).out);
    assert_eq!(shown["columns"][1]["categories"], serde_json::json!(["no", "yes"]), "{shown}");
}

#[test]
fn a_constant_column_is_said_to_carry_nothing() {
    let place = Place::new();
    // The mean of many numbers 0.1 is not exactly 0.1.
    let rows: String = (0..60).map(|i| format!("{},0.1,{}\n", i * 7 % 13, ["no", "yes"][i % 2])).collect();
    place.write("p.csv", &format!("x,kit,label\n{rows}"));
    let shown = done(&place, &["data", "show", "p.csv"]);
    assert!(shown.out.contains(" kit: number, always 0.1: it carries nothing\n"), "{}", shown.out);
    let said = "column 'kit' has the same value in every training row, so nothing can be learnt from it: data.ignore = \
                [\"kit\"] leaves it out";
    assert!(shown.err.contains(said), "{}", shown.err);
    let found = json(&done(&place, &["data", "show", "p.csv", "--json"]).out);
    assert_eq!(found["columns"][1]["std"], 0.0, "{found}");
    assert!(found["columns"][0]["std"].as_f64().unwrap() > 1.0);
    // The model reads it as 0, and another value as little more.
    let small = ["--set", "model.name=logistic", "--set", "partition.kind=iid", "--set", "partition.clients=2"];
    done(
        &place,
        &[
            &["run", "--set", "data.name=csv", "--set", "data.train=p.csv", "--set", "rounds=1", "--output", "a"][..],
            &small,
        ]
        .concat(),
    );
    place.write("new.csv", "x,kit,label\n3,0.1,no\n3,0.2,no\n");
    let rows = done(&place, &["predict", "a", "new.csv", "--json"]).out;
    let shares: Vec<f64> =
        rows.lines().map(|row| json(row)["predictions"][0]["probability"].as_f64().unwrap()).collect();
    assert!((shares[0] - shares[1]).abs() < 0.1, "{rows}");
}

#[test]
fn a_single_class_is_named() {
    let place = Place::new();
    place.write("a.csv", &table(&rows(0, 60), &[0, 1, 2, 3, 4], ",").replace("healthy", "ill"));
    place.write("exp.toml", CONFIG);
    let warning = "there is only one class, 'ill': every answer is right, and nothing can be learnt";
    let once = |text: &str| assert_eq!(text.matches(warning).count(), 1, "{text}");
    once(&done(&place, &["data", "show", "exp.toml"]).err);
    once(&done(&place, &["check", "exp.toml"]).out);
    once(&done(&place, &["run", "exp.toml", "--output", "a", "--set", "rounds=1"]).err);
}

#[test]
fn a_part_of_a_known_set_is_named() {
    let place = Place::new();
    fs::create_dir(place.path("ag_news_csv")).unwrap();
    let rows: String = (0..80).map(|i| format!("\"{}\",\"title {i}\",\"words\"\n", 1 + i % 4)).collect();
    place.write("ag_news_csv/train.csv", &rows);
    place.write("ag_news_csv/test.csv", &rows);
    let warning = "80 training samples, but AG News has 120,000: results cannot be compared with published ones";
    let shown = done(&place, &["data", "show", "agnews", "--data-dir", "."]);
    assert!(shown.err.contains(warning) && shown.err.contains("AG News has 7,600"), "{}", shown.err);
    let config = "rounds = 1\n[data]\nname = \"agnews\"\ndir = \".\"\n[model]\nname = \"lstm\"\nmax-length = 4\n[partition]\n\
                  kind = \"iid\"\nclients = 2\n";
    place.write("exp.toml", config);
    assert!(done(&place, &["check", "exp.toml"]).out.contains(warning));
    assert!(done(&place, &["run", "exp.toml", "--output", "a"]).err.contains(warning));
    assert!(done(&place, &["evaluate", "a"]).err.contains(warning));
    // The record has it, so it is said wherever the numbers are shown.
    let header = String::from_utf8(place.read("a/rounds.jsonl")).unwrap();
    assert_eq!(json(header.lines().next().unwrap())["data-gaps"][0], warning);
    assert!(done(&place, &["runs", "list", "a"]).err.contains(&format!("warning: agnews: {warning}\n")));
    assert_eq!(json(&done(&place, &["runs", "list", "a", "--json"]).out)["data-gaps"][0], warning);
    let compared = done(&place, &["compare", "a"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(compared.contains(&format!("agnews: {warning}.")), "{compared}");
    done(&place, &["report", "a", "-o", "page.html"]);
    assert!(String::from_utf8(place.read("page.html")).unwrap().contains(warning));
    // Training samples that stand in for the test samples are no more complete.
    let held = done(&place, &["check", "exp.toml", "--set", "evaluation.held-out=0.2"]).out;
    assert!(held.contains(warning) && !held.contains("AG News has 7,600"), "{held}");
}

#[test]
fn a_cell_of_any_length_does_not_fill_the_screen() {
    let place = Place::new();
    let rows: String = (0..60).map(|i| format!("{i},{},{}\n", i % 7, if i % 2 == 0 { "a" } else { "b" })).collect();
    place.write("big.csv", &format!("x,y,label\n{rows}1,2,{}\n", "L".repeat(70_000)));
    let sets = ["data.name=csv", "data.train=\"big.csv\"", "model.name=mlp", "rounds=1", "partition.clients=2"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let answer = place.call(&[&["run", "-o", "out"], &sets[..]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("no test sample of 1 of 3 classes: 'LLL") && answer.err.len() < 10_000);
}
