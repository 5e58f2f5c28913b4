//! Three hospitals: tables and images by site, from the partition to the report.

use std::fs;
use std::path::Path;

use crate::place::{Answer, Place};
use serde_json::Value;

/// Rows of a hospital, with the columns in this order. The outcome depends on age and smoking; who is ill is older.
fn rows(site: usize, n: usize, order: &[&str], separator: &str) -> String {
    let mut text = order.join(separator) + "\n";
    for i in 0..n {
        let (age, smoker) = (20 + (i * 37 + site * 11) % 60, (i + site).is_multiple_of(3));
        let noise = (i * 7919 + site * 31) % 13;
        let ill = age + noise + if smoker { 15 } else { 0 } > 58 + 4 * site;
        let fields = order.iter().map(|name| match *name {
            "age" => age.to_string(),
            "smoker" => if smoker { "yes" } else { "no" }.to_string(),
            _ => if ill { "ill" } else { "healthy" }.to_string(),
        });
        text += &(fields.collect::<Vec<_>>().join(separator) + "\n");
    }
    text
}

const CONFIG: &str = "rounds = 8\n[data]\nname = \"csv\"\ntrain = \"hospitals\"\nlabel = \"outcome\"\n[partition]\nkind = \
                      \"natural\"\n[clients]\nepochs = 3\nbatch = 10\n[model]\nname = \"logistic\"\n[optimizer]\nlr = 0.1\n";

/// Three hospitals, with the columns in three orders.
fn hospitals() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("hospitals")).unwrap();
    place.write("hospitals/mercy.csv", &rows(0, 120, &["age", "smoker", "outcome"], ","));
    place.write("hospitals/charity.csv", &rows(1, 80, &["outcome", "age", "smoker"], ","));
    place.write("hospitals/st-mary.csv", &rows(2, 60, &["smoker", "outcome", "age"], ";"));
    place.write("exp.toml", CONFIG);
    place
}

fn done(place: &Place, args: &[&str]) -> Answer {
    let answer = place.call(args);
    assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
    answer
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

fn lines(place: &Place, run: &str) -> Vec<Value> {
    let text = String::from_utf8(place.read(&format!("{run}/rounds.jsonl"))).unwrap();
    text.lines().map(|line| json(line.as_bytes())).collect()
}

#[test]
fn sites_are_called_by_their_names() {
    let place = hospitals();
    let said = done(&place, &["partition", "exp.toml", "-o", "split.json"]).out;
    for text in ["charity ", "mercy ", "st-mary ", "healthy ill"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    let file = json(&place.read("split.json"));
    let names = serde_json::json!(["charity", "mercy", "st-mary"]);
    assert_eq!((&file["names"], &file["class_names"]), (&names, &serde_json::json!(["healthy", "ill"])));
    assert_eq!(json(done(&place, &["partition", "exp.toml", "--json"]).out.as_bytes())["names"], names);
    let said = done(&place, &["check", "exp.toml"]).out;
    let row = said.lines().find(|line| line.starts_with("st-mary ")).unwrap_or_else(|| panic!("{said}"));
    assert!(row.contains("healthy (") && row.contains("ill ("), "{row}");
    done(&place, &["run", "exp.toml", "--output", "a"]);
    let records = lines(&place, "a");
    assert_eq!((&records[0]["client-names"], &records[0]["positive"]), (&names, &Value::from(1)));
    assert!(records[1..].iter().all(|round| round["client-accuracy"].as_array().unwrap().len() == 3));
    // The run's own partition file keeps the names.
    done(&place, &["run", "exp.toml", "--partition", "split.json", "--output", "b"]);
    assert_eq!(lines(&place, "b")[0]["client-names"], names);
    assert_eq!(place.read("a/model.safetensors"), place.read("b/model.safetensors"));
    let said = done(&place, &["run", "exp.toml", "--set", "evaluation.client=mercy", "--output", "c"]);
    assert_eq!(said.code, 0);
    let focus = lines(&place, "c").into_iter().find_map(|round| round["local"].get("focus").cloned()).unwrap();
    assert_eq!(focus["client"], 1);
    let wild = place.call(&["run", "exp.toml", "--set", "optimizer.lr=3e38", "--output", "d"]);
    assert_eq!(wild.code, 1, "{}", wild.err);
    assert!(wild.err.contains("round 1, client 'mercy': training diverged"), "{}", wild.err);
    assert!(wild.out.contains("diverged in round 1 on client 'mercy'"), "{}", wild.out);
    place.refuses(
        &["run", "exp.toml", "--set", "evaluation.client=mercyy"],
        &["evaluation.client = \"mercyy\": expected the name of a client; did you mean 'mercy'?"],
    );
}

/// What a run records about each site at its end is what `evaluate` finds for the model that it saved.
#[test]
fn each_site_is_measured() {
    let place = hospitals();
    done(&place, &["run", "exp.toml", "--metrics", "all", "--output", "a"]);
    let recorded = json(&place.read("a/clients.json"));
    assert_eq!((recorded["round"].as_u64(), recorded["tested-on"].as_str()), (Some(8), Some("own")));
    let found = json(done(&place, &["evaluate", "a", "--json"]).out.as_bytes());
    assert_eq!((found["positive"].as_str(), found["part"].as_str()), (Some("ill"), Some("test")));
    let sites = found["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 3);
    let mut samples = 0;
    for site in sites {
        let name = site["site"].as_str().unwrap();
        let same = recorded["clients"].as_array().unwrap().iter().find(|client| client["name"] == name).unwrap();
        for key in ["samples", "accuracy", "balanced-accuracy", "macro-f1", "auc", "sensitivity", "specificity", "f1"] {
            assert_eq!(site["scores"][key], same["global"][key], "{name} {key}");
        }
        samples += site["scores"]["samples"].as_u64().unwrap();
        let own = &same["own"];
        assert_eq!((own["round"].as_u64(), &own["scores"]["samples"]), (Some(8), &same["global"]["samples"]), "{own}");
        assert_eq!(own["scores"]["class-samples"], same["global"]["class-samples"]);
        let auc: Vec<f64> = own["scores"]["auc"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert!(auc[1] <= auc[0] && auc[0] <= auc[2] && auc[0] > 0.8, "{auc:?}");
    }
    assert_eq!(Some(samples), found["samples"].as_u64());
    let round = &lines(&place, "a")[8];
    for key in ["accuracy", "auc", "f1", "macro-f1"] {
        assert_eq!(round["scores"][key], found["scores"][key], "{key}");
    }
    let said = done(&place, &["evaluate", "a"]).out;
    let row = said.lines().filter(|line| line.starts_with("charity ")).collect::<Vec<_>>();
    assert_eq!((row.len(), row.concat().matches(" to ").count()), (2, 5), "every measure has an interval: {said}");
    for text in ["to find      'ill'", "AUC          0.", "sensitivity  ", "macro-F1", "charity ", "95 % intervals"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    // The other class is to be found.
    let other = json(done(&place, &["evaluate", "a", "--json", "--positive", "healthy"]).out.as_bytes());
    assert_eq!(other["scores"]["sensitivity"], found["scores"]["specificity"]);
    place.refuses(&["evaluate", "a", "--positive", "no"], &["--positive no: expected 'healthy' or 'ill'"]);
    // A configuration that names it is remembered by the model.
    done(&place, &["run", "exp.toml", "--set", "evaluation.positive=healthy", "--output", "b"]);
    let other = json(done(&place, &["evaluate", "b", "--json"]).out.as_bytes());
    assert_eq!(other["positive"], "healthy");
    place.refuses(
        &["run", "exp.toml", "--set", "evaluation.positive=well"],
        &["evaluation.positive = \"well\": expected 'healthy' or 'ill'"],
    );
    // New files are tested site by site, too, whole.
    fs::create_dir(place.path("new")).unwrap();
    place.write("new/mercy.csv", &rows(0, 30, &["outcome", "age", "smoker"], ","));
    place.write("new/north.csv", &rows(1, 20, &["age", "smoker", "outcome"], ","));
    let new =
        json(done(&place, &["evaluate", "a", "--json", "--data", "csv", "--set", "data.train=new"]).out.as_bytes());
    let names: Vec<&str> = new["sites"].as_array().unwrap().iter().map(|site| site["site"].as_str().unwrap()).collect();
    assert_eq!((names, new["samples"].as_u64()), (vec!["mercy", "north"], Some(50)));
}

#[test]
fn the_report_draws_chosen_clients() {
    let place = hospitals();
    done(&place, &["run", "exp.toml", "--output", "a"]);
    done(&place, &["report", "a", "-o", "all.html"]);
    let page = String::from_utf8(place.read("all.html")).unwrap();
    for text in
        ["Single clients", "mercy, ", "st-mary, ", "Clients at the end", "Clients by class", "\"client-charity\""]
    {
        assert!(page.contains(text), "{text}");
    }
    let table = &page[page.find("<section id=client-table>").unwrap()..];
    let table = &table[..table.find("</section>").unwrap()];
    assert!(table.contains("<th rowspan=2>mercy</th>") && table.contains("own, round 8"), "{table}");
    assert!(table.contains("&#39;ill&#39;"), "{table}");
    assert_eq!((table.matches("<tr>").count(), table.matches("sensitivity %").count()), (7, 1), "{table}");
    done(&place, &["report", "a", "-o", "one.html", "--clients", "st-mary,0"]);
    let page = String::from_utf8(place.read("one.html")).unwrap();
    assert!(page.contains("\"client-st-mary\"") && page.contains("\"client-charity\""));
    assert!(!page.contains("\"client-mercy\"") && !page.contains(">mercy</th>"));
    place.refuses(
        &["report", "a", "--clients", "marcy", "-o", "x.html"],
        &["no client 'marcy' among the runs: they are charity, mercy, st-mary"],
    );
    done(&place, &["report", "a", "--figures", "figures", "--clients", "mercy"]);
    assert!(place.path("figures/client-mercy.svg").is_file() && !place.path("figures/client-charity.svg").exists());
    // Clients without names are drawn by number, if they are asked for.
    let tiny = place.tiny(&["--output", "plain"]);
    assert_eq!(tiny.code, 0, "{}", tiny.err);
    done(&place, &["report", "plain", "-o", "plain.html"]);
    let plain = String::from_utf8(place.read("plain.html")).unwrap();
    assert!(!plain.contains("Single clients") && plain.contains("Clients at the end"));
    let last = lines(&place, "plain").pop().unwrap();
    let (there, away): (Vec<u64>, Vec<u64>) =
        (0..5).partition(|client| last["clients"].as_array().unwrap().contains(&Value::from(*client)));
    done(&place, &["report", "plain", "-o", "plain.html", "--clients", "4,3,2,1,0"]);
    let drawn = String::from_utf8(place.read("plain.html")).unwrap();
    assert!(drawn.contains(&format!("\"client-{}\"", there[0])), "{there:?}");
    let missing = away.iter().any(|client| !drawn.contains(&format!("\"client-{client}\"")));
    assert_eq!(missing, drawn.contains("Not measured in any round: "), "{away:?}");
    place.refuses(&["report", "plain", "-o", "y.html", "--clients", "5"], &["numbers from 0 to 4"]);
}

#[test]
fn the_best_round_is_kept_and_a_run_can_stop_early() {
    let place = hospitals();
    let early = ["--set", "server.validation=0.2", "--set", "stop.patience=3", "--set", "rounds=60"];
    let answer = done(&place, &[&["run", "exp.toml", "--output", "a"][..], &early].concat());
    let summary = json(&place.read("a/summary.json"));
    let records = lines(&place, "a");
    let last = records.last().unwrap();
    let (best, rounds) = (summary["best-model"]["round"].as_u64().unwrap(), summary["rounds"].as_u64().unwrap());
    assert_eq!(summary["status"]["kind"], "stopped-early", "{summary}");
    assert!(rounds < 60 && records.len() as u64 == rounds + 1, "{rounds}");
    assert_eq!(last["early-stop"]["best"].as_u64(), Some(rounds - 3));
    assert!(last["confusion"].is_array());
    assert!(answer.err.contains(&format!("stopped early after round {rounds}")), "{}", answer.err);
    assert!(
        answer.err.contains(&format!("best.safetensors is the model of round {best}, the best on the validation part"))
    );
    assert!(answer.out.contains("stopped early"), "{}", answer.out);
    // It is the best by the record, and the file is that round's model.
    let accuracy = |round: &Value| round["validation"]["accuracy"].as_f64().unwrap();
    let most = records[1..].iter().map(accuracy).fold(0.0, f64::max);
    assert_eq!(accuracy(&records[best as usize]), most);
    let found = json(done(&place, &["evaluate", "a/best.safetensors", "--json"]).out.as_bytes());
    assert_eq!(found["accuracy"], records[best as usize]["accuracy"]);
    assert_eq!((found["round"].as_str(), found["part"].as_str()), (Some(best.to_string().as_str()), Some("test")));
    assert!(found["chosen-by"].as_str().unwrap().starts_with("accuracy on "), "{found}");
    let said = done(&place, &["evaluate", "a/best.safetensors"]).out;
    assert!(said.contains(&format!("round     {best}, chosen by its accuracy on ")), "{said}");
    // It counts as finished.
    let compared = json(done(&place, &["compare", "a", "--json"]).out.as_bytes());
    assert_eq!(compared["rows"][0]["unfinished"], 0, "{compared}");
    let listed = done(&place, &["runs", "list", "."]).out;
    assert!(listed.contains("finished") && !listed.contains("/60"), "{listed}");
    assert!(!done(&place, &["report", "a", "-o", "a.html"]).err.contains("it stopped after round"));
    // Up to the end, it is the run without early stopping.
    let full = ["--set", "server.validation=0.2", "--set", "rounds=60"];
    done(&place, &[&["run", "exp.toml", "--output", "b"][..], &full].concat());
    let whole = lines(&place, "b");
    assert_eq!(whole[rounds as usize]["loss"], last["loss"]);
    assert_eq!(json(&place.read("b/summary.json"))["status"]["kind"], "finished");
}

#[test]
fn nothing_is_chosen_by_test_data_unasked() {
    let place = hospitals();
    done(&place, &["run", "exp.toml", "--output", "a"]);
    assert!(!place.path("a/best.safetensors").exists());
    assert_eq!(json(&place.read("a/summary.json")).get("best-model"), None);
    let answer = done(&place, &["run", "exp.toml", "--set", "evaluation.best=test", "--output", "b"]);
    assert!(answer.err.contains("the best on the test samples") && answer.err.contains("too high an estimate"));
    assert_eq!(json(&place.read("b/summary.json"))["best-model"]["chosen-by"], "test");
    let found = json(done(&place, &["evaluate", "b/best.safetensors", "--json"]).out.as_bytes());
    assert_eq!(found["chosen-by"], "accuracy on the test samples");
    // Keeping a model changes none.
    assert_eq!(place.read("a/model.safetensors"), place.read("b/model.safetensors"));
    for (set, said) in [
        ("stop.patience=3", "stop.patience: stopping early needs a validation part: set server.validation"),
        ("evaluation.best=validation", "evaluation.best: choosing the best round by it needs a validation part"),
        ("stop.min-delta=0.1", "stop.min-delta: only allowed with stop.patience"),
        ("stop.patience=0", "stop.patience = 0: expected a whole number of at least 1"),
    ] {
        place.refuses(&["run", "exp.toml", "--set", set], &[said]);
    }
}

#[test]
fn a_file_that_does_not_fit_is_named() {
    let place = hospitals();
    place.write("hospitals/st-mary.csv", &rows(2, 60, &["smoker", "outcome"], ","));
    place.refuses(&["run", "exp.toml"], &["st-mary.csv:1: there is no column 'age', which ", "charity.csv has"]);
    // A list of files, relative to the configuration.
    place.write("exp.toml", &CONFIG.replace("\"hospitals\"", "[\"hospitals/mercy.csv\", \"hospitals/charity.csv\"]"));
    done(&place, &["run", "exp.toml", "--output", "a"]);
    assert_eq!(lines(&place, "a")[0]["client-names"], serde_json::json!(["mercy", "charity"]));
    let config = String::from_utf8(place.read("a/config.toml")).unwrap();
    let listed = config.lines().find(|line| line.starts_with("train = [")).unwrap();
    assert!(listed.contains(&place.path("hospitals/mercy.csv").display().to_string()), "{listed}");
    // The run folder reproduces the run from anywhere.
    done(&place, &["run", "a/config.toml", "--output", "b"]);
    assert_eq!(place.read("a/model.safetensors"), place.read("b/model.safetensors"));
    assert!(done(&place, &["data", "show", "exp.toml"]).out.contains("mercy.csv"));
    place.refuses(&["run", "exp.toml", "--set", "data.train=[]"], &["data.train = []: expected at least one file"]);
}

#[test]
fn images_by_site() {
    let place = Place::new();
    for (s, site) in ["north", "south"].iter().enumerate() {
        for (c, class) in ["cat", "dog", "owl"].iter().enumerate() {
            let folder = place.path(&format!("photos/{site}/{class}"));
            fs::create_dir_all(&folder).unwrap();
            for i in 0..12u32 {
                let shade = |x: u32, y: u32| (70 * c as u32 + 9 * ((x * y + i) % 6) + 10 * s as u32) as u8;
                let image = image::GrayImage::from_fn(8, 8, |x, y| image::Luma([shade(x, y)]));
                image.save(folder.join(format!("{i}.png"))).unwrap();
            }
        }
    }
    place.write(
        "exp.toml",
        "rounds = 3\n[data]\nname = \"folder\"\npath = \"photos\"\nlayout = \"key/class\"\ncolour = \"grey\"\n[partition]\nkind \
         = \"natural\"\n[model]\nname = \"logistic\"\n",
    );
    place.refuses(
        &["check", "exp.toml", "--set", "model.name=simple-cnn"],
        &["layer 4 (conv)", "'fedelity models --input 1x8x8 --classes 3' shows which models fit"],
    );
    done(&place, &["run", "exp.toml", "--output", "a"]);
    let recorded = json(&place.read("a/clients.json"));
    assert_eq!((recorded["tested-on"].as_str(), recorded.get("positive")), (Some("own"), None));
    for (client, name) in recorded["clients"].as_array().unwrap().iter().zip(["north", "south"]) {
        assert_eq!(client["name"], name);
        let own = &client["own"]["scores"];
        assert!(own["macro-f1"].is_number() && own.get("auc").is_none(), "{client}");
        assert_eq!(client["held"].as_array().unwrap().len(), 3);
    }
    let found = json(done(&place, &["evaluate", "a", "--json"]).out.as_bytes());
    assert_eq!(found["sites"].as_array().unwrap().len(), 2);
    // The names of its classes tell what the levels of a folder mean.
    let found = json(done(&place, &["evaluate", "a", "--json", "--data", "photos"]).out.as_bytes());
    assert_eq!((found["samples"].as_u64(), found["sites"].as_array().unwrap().len()), (Some(72), 2));
    let found = json(done(&place, &["evaluate", "a", "--json", "--data", "photos/north"]).out.as_bytes());
    assert_eq!((found["samples"].as_u64(), found["sites"].as_array().unwrap().len()), (Some(36), 0));
}

/// Except those that need a data set or trained weights from elsewhere.
#[test]
fn examples_run_as_they_are() {
    let place = Place::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["methods", "own-images", "own-model", "own-table", "own-tables", "own-texts", "quickstart"] {
        let file = examples.join(format!("{name}.toml"));
        done(
            &place,
            &["run", file.to_str().unwrap(), "--set", "rounds=1", "--set", "seeds=[1]", "-q", "--output", name],
        );
    }
    for name in ["attack", "dropouts", "sweep", "tune"] {
        let file = examples.join(format!("{name}.toml"));
        done(&place, &["sweep", file.to_str().unwrap(), "--dry-run", "-o", "out"]);
    }
}
