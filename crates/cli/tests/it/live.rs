//! A run in progress, seen in a browser.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::browser::Browser;
use crate::place::{Endless, Place, TINY};

/// Starts `run --open` with a fake browser that records its argument, after a shell command if one is given; returns the
/// run and the address.
pub(crate) fn start(place: &Place, first: Option<&str>) -> (Endless, String) {
    start_with(place, first, &["--set", "rounds=100000", "--metrics", "fast"])
}

fn start_with(place: &Place, first: Option<&str>, options: &[&str]) -> (Endless, String) {
    place.write("browser", "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$(dirname \"$0\")/part\"\nmv \"$(dirname \"$0\")/part\" \"$(dirname \"$0\")/given\"\n");
    fs::set_permissions(place.path("browser"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = assert_cmd::cargo::cargo_bin!("fedelity");
    let mut command = match first {
        None => Command::new(program),
        Some(first) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{first}; exec \"$@\""), "sh"]).arg(program);
            shell
        }
    };
    command.args(["run", "--open", "--quiet", "--threads", "1", "--output", "run"]);
    for set in TINY {
        command.args(["--set", set]);
    }
    command.args(["--set", "model.name=simple-cnn"]).args(options);
    command.current_dir(place.0.path()).env("BROWSER", place.path("browser")).env_remove("FEDELITY_DATA");
    let run = Endless(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begun = Instant::now();
    while !place.path("given").is_file() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no browser was opened");
        std::thread::sleep(Duration::from_millis(20));
    }
    let given = String::from_utf8(place.read("given")).unwrap();
    assert_eq!(given.lines().count(), 1, "{given}");
    (run, given.trim_end().to_string())
}

/// To lay out the features of the end takes longer than anything before. The page is there meanwhile, and gets the end.
#[test]
fn a_viewer_gets_the_final_state_however_long_it_takes_to_build() {
    let place = Place::new();
    let (mut run, address) = start_with(&place, None, &["--set", "rounds=8", "--metrics", "all"]);
    let port = crate::flood::port_of(&address);
    let (mut version, mut last) = (String::new(), serde_json::Value::Null);
    while run.0.try_wait().unwrap().is_none() {
        let asked = Instant::now();
        // The server may just have ended.
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let head = format!("GET /data?version={version} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        if let Some((_, body)) = answer.split_once("\r\n\r\n")
            && let Ok(news) = serde_json::from_str::<serde_json::Value>(body)
        {
            version = news["version"].as_str().unwrap().to_string();
            last = news;
        }
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(place.path("run/features.safetensors").is_file());
    let last = last.to_string();
    assert!(last.contains("tsne-global"), "{}", &last[..last.len().min(2000)]);
}

/// Rounds on the accuracy curve of the page.
const ROUNDS: &str =
    "document.querySelector('[data-figure=accuracy]') ? fedelity.series('accuracy')[0].data.length : 0";

#[test]
fn a_page_grows_with_its_run() {
    let place = Place::new();
    let (mut run, address) = start(&place, None);
    let port = crate::flood::port_of(&address);
    // Nobody else can reach it: the port is bound only to the loopback address.
    if let Ok(table) = fs::read_to_string("/proc/net/tcp") {
        let local = |line: &str| line.split_whitespace().nth(1).map(str::to_string);
        let bound: Vec<String> = table.lines().filter(|line| line.contains(" 0A ")).filter_map(local).collect();
        let own: Vec<&String> = bound.iter().filter(|at| at.ends_with(&format!(":{port:04X}"))).collect();
        assert_eq!(own, [&format!("0100007F:{port:04X}")]);
    }
    let Some(mut browser) = Browser::start() else { return };
    browser.look(900, false);
    browser.open(&address);
    let first = browser.tab();
    browser.look(900, false);
    browser.open(&address);
    browser.until(&format!("({ROUNDS}) > 0"));
    let seen = browser.value(ROUNDS).as_u64().unwrap();
    // The same document, not a new one, gets more rounds.
    browser.value("window.mark = 1");
    browser.until(&format!("({ROUNDS}) > {seen} && window.mark === 1"));
    assert_eq!(browser.value("document.getElementById('state').textContent"), "live");
    // It says how far the run is, by the name that papers use, and raises no alarm.
    browser
        .until("/FedAvg, seed 1: round \\d+ of 100000, about \\d/.test(document.getElementById('progress').innerText)");
    assert_eq!(browser.value("document.querySelectorAll('.warning').length"), 0);
    // The page shows what the file contains.
    let records = String::from_utf8(place.read("run/rounds.jsonl")).unwrap();
    let record: serde_json::Value = serde_json::from_str(records.lines().nth(1).unwrap()).unwrap();
    let shown = browser.value("fedelity.series('accuracy')[0].data[0][1]").as_f64().unwrap();
    assert!((shown - 100.0 * record["accuracy"].as_f64().unwrap()).abs() < 1e-6);
    // A reload, and a second viewer in addition to the first.
    let seen = browser.value(ROUNDS).as_u64().unwrap();
    browser.open(&address);
    browser.until(&format!("({ROUNDS}) > {seen} && window.mark === undefined"));
    browser.tab();
    browser.look(900, true);
    browser.open(&address);
    let seen = browser.value(ROUNDS).as_u64().unwrap();
    browser.until(&format!("({ROUNDS}) > {seen}"));
    browser.turn_to(&first);
    browser.until(&format!("({ROUNDS}) > {seen}"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    let elsewhere: Vec<&String> = browser
        .requests
        .iter()
        .filter(|url| !url.starts_with(&address) && !url.starts_with("data:") && *url != "about:blank")
        .collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    // When the run is gone, the page keeps its contents and shows a note.
    run.0.kill().unwrap();
    browser.until("document.getElementById('state').textContent.includes('has stopped')");
    assert!(browser.value(ROUNDS).as_u64().unwrap() > seen);
}
