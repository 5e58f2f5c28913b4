//! Where data sets are: one rule for all commands.

use std::fs;

use crate::place::Place;
use serde_json::json;

/// Two writers of FEMNIST, in the folder where `fetch` would put them.
fn writers(place: &Place, folder: &str) {
    for (split, samples) in [("train", 24), ("test", 6)] {
        let own = |shade: f64| {
            let x: Vec<Vec<f64>> = (0..samples).map(|i| vec![shade + 0.01 * f64::from(i); 784]).collect();
            json!({ "x": x, "y": (0..samples).map(|i| i % 2).collect::<Vec<_>>() })
        };
        let data = json!({
            "users": ["a", "b"], "num_samples": [samples, samples], "user_data": { "a": own(0.1), "b": own(0.5) },
        });
        let path = place.path(&format!("{folder}/femnist/{split}/all_data.json"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data.to_string()).unwrap();
    }
}

const SETS: &[&str] = &[
    "--set",
    "rounds=1",
    "--set",
    "partition.kind=iid",
    "--set",
    "partition.clients=2",
    "--set",
    "clients.per-round=2",
    "--set",
    "model.name=logistic",
    "--set",
    "data.name=femnist",
];

/// What every command that reads data does with these options and variables; `Err` is its message.
fn every_command(place: &Place, name: &str, variables: &[(&str, &str)], options: &[&str]) -> Vec<Result<(), String>> {
    let sweep = "[set]\nrounds = 1\n\"data.name\" = \"femnist\"\n\"partition.kind\" = \"iid\"\n\"partition.clients\" = 2\n\
                 \"clients.per-round\" = 2\n\"model.name\" = \"logistic\"\n";
    place.write("sweep.toml", sweep);
    let (run, sweep) = (format!("{name}-run"), format!("{name}-sweep"));
    let commands: [&[&str]; 6] = [
        &["data", "show", "femnist"],
        &[&["check"], SETS].concat(),
        &[&["partition"], SETS].concat(),
        &[&["run", "--output", &run], SETS].concat(),
        &["sweep", "sweep.toml", "-o", &sweep],
        &["evaluate", "model.safetensors", "--data", "femnist"],
    ];
    commands
        .iter()
        .map(|command| {
            let answer = place.call_with(variables, &[command, options].concat());
            if answer.code == 0 { Ok(()) } else { Err(answer.err) }
        })
        .collect()
}

#[test]
fn all_commands_look_in_the_same_folder() {
    let place = Place::new();
    writers(&place, "data");
    let first = place.call(&[&["run", "--output", "first"], SETS].concat());
    assert_eq!(first.code, 0, "{}", first.err);
    fs::copy(place.path("first/model.safetensors"), place.path("model.safetensors")).unwrap();
    // The folder is in the run's configuration, so that it can be repeated from anywhere.
    let config = String::from_utf8(place.read("first/config.toml")).unwrap();
    assert!(config.contains(&format!("dir = \"{}\"", place.path("data").display())), "{config}");

    let found = every_command(&place, "default", &[], &[]);
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    fs::rename(place.path("data"), place.path("elsewhere")).unwrap();
    for (name, variables, options) in
        [("variable", &[("FEDELITY_DATA", "elsewhere")][..], &[][..]), ("option", &[], &["--data-dir", "elsewhere"])]
    {
        let found = every_command(&place, name, variables, options);
        assert!(found.iter().all(Result::is_ok), "{name}: {found:?}");
    }
    // The option is stronger than the variable.
    let found = every_command(&place, "both", &[("FEDELITY_DATA", "nowhere")], &["--data-dir", "elsewhere"]);
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    for (name, variables, folder) in
        [("gone", &[][..], "data"), ("wrong", &[("FEDELITY_DATA", "my data")][..], "my data")]
    {
        for found in every_command(&place, name, variables, &[]) {
            let text = found.unwrap_err();
            let quoted = if folder.contains(' ') { format!("\"{folder}\"") } else { folder.to_string() };
            let fetch = format!("'fedelity data fetch femnist --data-dir {quoted}'");
            assert!(text.contains(&format!("{folder}/femnist (no such folder)")) && text.contains(&fetch), "{text}");
        }
    }
}

/// What the message advises puts the files where the command looks.
#[test]
fn fetch_uses_the_folder_that_run_reads() {
    let place = Place::new();
    for (variables, options, folder) in [
        (&[][..], &[][..], "data"),
        (&[("FEDELITY_DATA", "a")], &[], "a"),
        (&[("FEDELITY_DATA", "a")], &["--data-dir", "b"], "b"),
    ] {
        let fetch = place.call_with(variables, &[&["data", "fetch", "sst5", "--mirror", "none"], options].concat());
        assert!(fetch.err.contains(&format!("files themselves into {folder}/sst5/trees")), "{}", fetch.err);
        let show = place.call_with(variables, &[&["data", "show", "sst5"], options].concat());
        assert!(show.err.contains(&format!("looked in {folder}/sst5/trees")) || folder == "b", "{}", show.err);
        assert!(show.err.contains(&format!("fetch sst5 --data-dir {folder}")), "{}", show.err);
    }
}
