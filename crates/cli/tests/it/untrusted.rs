//! Files that say what no run says: names of any length and kind, numbers out of range, links to itself.

use std::fs;

use serde_json::{Value, json};

use crate::place::{Place, files};

/// A place with a finished run, `run`.
fn with_run() -> Place {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "run"]).code, 0);
    place
}

/// Changes a line of the rounds: 0 is the header.
fn change(place: &Place, line: usize, change: impl Fn(&mut Value)) {
    let path = place.path("run/rounds.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    let mut value: Value = serde_json::from_str(&lines[line]).unwrap();
    change(&mut value);
    lines[line] = value.to_string();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
}

/// Every command that prints names from a record.
const READERS: &[&[&str]] = &[
    &["runs", "run"],
    &["runs", "list", "run", "--json"],
    &["compare", "run"],
    &["compare", "run", "--format", "markdown"],
    &["report", "run", "-o", "page.html", "--overwrite"],
    &["report", "run", "-o", "page.html", "--overwrite", "--json"],
];

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let place = with_run();
    let name = "a\x1b[2J\x1b]0;title\x07\r\u{9b}31m\u{202e}b";
    change(&place, 0, |header| {
        for key in ["method", "dataset", "partition", "model", "machine", "fedelity"] {
            header[key] = json!(name);
        }
        header["classes"] = json!([name, name, name, name, name, name, name, name, name, name]);
    });
    change(&place, 1, |round| round["accuracy"] = json!(7));
    let text = fs::read_to_string(place.path("run/config.toml")).unwrap();
    fs::write(place.path("run/config.toml"), format!("{text}\n\"a\\u001b[2J\" = 1\n")).unwrap();
    for colour in ["auto", "always"] {
        for args in READERS.iter().filter(|args| !args.contains(&"markdown")) {
            let answer = place.call(&[args, &["--color", colour][..]].concat());
            assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
            // Only colours of our own: all start with one of these.
            let plain = ["\x1b[1m", "\x1b[0m", "\x1b[1;33m", "\x1b[1;31m"]
                .iter()
                .fold(answer.out + &answer.err, |text, own| text.replace(own, ""));
            let bad = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
            assert_eq!(plain.chars().find(bad), None, "{args:?}: {plain:?}");
        }
    }
    assert!(place.call(&["runs", "run"]).out.contains("a\\u{1b}[2J"));
    let listed: Value = serde_json::from_str(&place.call(&["runs", "list", "run", "--json"]).out).unwrap();
    assert_eq!(listed["method"], name);
}

#[test]
fn a_name_of_any_length_can_be_listed() {
    let place = with_run();
    change(&place, 0, |header| header["method"] = json!("x".repeat(70_000)));
    for args in READERS {
        let answer = place.call(args);
        assert_eq!(answer.code, 0, "{args:?}: {:.300}", answer.err);
    }
}

#[test]
fn names_do_not_become_paths() {
    let place = with_run();
    change(&place, 0, |header| {
        for key in ["method", "dataset", "model"] {
            header[key] = json!("../../outside/name");
        }
        header["classes"] = json!(vec!["../../outside/class"; 10]);
    });
    change(&place, 2, |round| round["train-terms"] = json!({ "../../outside/term": 0.5 }));
    fs::create_dir(place.path("below")).unwrap();
    for args in READERS.iter().copied().chain([
        &["report", "run", "--figures", "below/figures"][..],
        &["runs", "export", "run", "--csv", "below/rounds.csv"],
        &["export", "run", "--onnx", "below/model.onnx"],
    ]) {
        assert_eq!(place.call(args).code, 0, "{args:?}");
    }
    assert_eq!(files(place.0.path()), ["below", "page.html", "run"]);
    assert_eq!(files(&place.path("below")), ["figures", "model.onnx", "rounds.csv"]);
    let known =
        |name: &String| ["svg", "png", "pdf", "txt", "tex"].iter().any(|end| name.ends_with(&format!(".{end}")));
    assert!(files(&place.path("below/figures")).iter().all(known));
}

#[test]
fn figures_of_numbers_out_of_range_are_drawn() {
    let place = with_run();
    change(&place, 2, |round| round["seconds"]["train"] = json!(1e306));
    let answer = place.call(&["report", "run", "--figures", "figures"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("line 3 left out: 1e306 seconds"), "{}", answer.err);
}

#[test]
fn text_from_records_never_becomes_markup() {
    let place = with_run();
    let name = "</script><script>window.bad = 1</script><img src=x onerror='window.bad = 2'>\u{2028}\"&";
    change(&place, 0, |header| {
        for key in ["method", "dataset", "partition", "model", "machine", "fedelity"] {
            header[key] = json!(name);
        }
        header["classes"] = json!(vec![name; 10]);
    });
    let term = |round: &mut Value| round["train-terms"] = json!({ name: 0.5 });
    change(&place, 1, term);
    change(&place, 2, term);
    let answer = place.call(&["report", "run", "-o", "page.html"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let page = String::from_utf8(place.read("page.html")).unwrap();
    assert!(!page.contains("<script>window.bad") && !page.contains("<img src=x"));
    assert!(!page.contains('\u{2028}') || !page.split("id=\"data\">").nth(1).unwrap().contains('\u{2028}'));
    #[cfg(unix)]
    if let Some(mut browser) = crate::browser::Browser::start() {
        browser.look(900, false);
        browser.open(&format!("file://{}", place.path("page.html").display()));
        browser.until("document.querySelectorAll('[data-figure]').length > 0");
        assert_eq!(browser.value("window.bad === undefined && !document.querySelector('img')"), true);
        assert_eq!(browser.complaints, Vec::<String>::new());
    }
}

#[test]
fn the_folder_one_stands_in_is_not_removed() {
    let place = with_run();
    fs::create_dir(place.path("run/below")).unwrap();
    for (from, path) in [("run", "."), ("run", "../run"), ("run/below", ".."), ("run", "./")] {
        let mut command = assert_cmd::Command::cargo_bin("fedelity").unwrap();
        let output = command.current_dir(place.path(from)).args(["runs", "remove", path, "--yes"]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{path}: {text}");
        assert!(text.contains("is the folder you are in, or contains it"), "{path}: {text}");
        assert!(place.path("run/rounds.jsonl").is_file() && place.path("run/config.toml").is_file(), "{path}");
    }
    assert_eq!(place.call(&["runs", "remove", "run", "--yes"]).code, 0);
    assert!(!place.path("run").exists());
}
