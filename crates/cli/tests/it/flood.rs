//! Clients that mean harm to the page of a run: they reach neither the run nor the other viewers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::live::start;
use crate::place::{Endless, Place, TINY};

/// No request takes longer than this, whatever others do.
const PATIENCE: Duration = Duration::from_secs(20);

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    stream
}

/// Sends bytes and reads until the server closes; what cannot be sent or read any more is left out.
fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut stream = connect(port);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(port: u16, path: &str) -> String {
    exchange(port, format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

pub(crate) fn port_of(address: &str) -> u16 {
    address.strip_prefix("http://127.0.0.1:").unwrap().trim_end_matches('/').parse().unwrap()
}

fn rounds(place: &Place) -> usize {
    fs::read_to_string(place.path("run/rounds.jsonl")).unwrap_or_default().lines().count()
}

/// The run goes on and the page answers.
fn is_well(place: &Place, run: &mut Child, port: u16) {
    let (begun, before) = (Instant::now(), rounds(place));
    let page = get(port, "/");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("Fedelity"), "{page:.300}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    while rounds(place) <= before {
        assert!(run.try_wait().unwrap().is_none(), "the run has ended");
        assert!(begun.elapsed() < 3 * PATIENCE, "the run stands still");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_flood_hurts_neither_the_run_nor_its_viewers() {
    let place = Place::new();
    let (mut run, address) = start(&place, None);
    let port = port_of(&address);
    is_well(&place, &mut run.0, port);
    // A length that no memory has, and bodies of any kind.
    let host = format!("Host: localhost:{port}\r\n");
    for method in ["GET", "POST"] {
        let huge = format!("{method} /data HTTP/1.1\r\n{host}Content-Length: 99999999999999999\r\n\r\nx");
        assert_eq!(status(&exchange(port, huge.as_bytes())), if method == "GET" { "413" } else { "405" });
    }
    let chunked = format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n");
    assert_eq!(status(&exchange(port, chunked.as_bytes())), "413");
    is_well(&place, &mut run.0, port);
    // Headers without an end are cut off.
    let long = format!("GET / HTTP/1.1\r\n{host}X: {}", "x".repeat(1 << 20));
    let answer = exchange(port, long.as_bytes());
    assert!(answer.is_empty() || status(&answer) == "431", "{answer:.100}");
    let just = format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(9_000));
    assert_eq!(status(&exchange(port, just.as_bytes())), "431");
    // Requests that are never read, as many as fit into the connection.
    let one = format!("GET / HTTP/1.1\r\n{host}\r\n").repeat(100);
    let mut unread = Vec::new();
    for _ in 0..30 {
        let mut stream = connect(port);
        let _ = stream.write_all(one.as_bytes());
        unread.push(stream);
    }
    is_well(&place, &mut run.0, port);
    // Connections that say nothing, or say it letter by letter.
    let mut silent: Vec<TcpStream> = (0..200).map(|_| connect(port)).collect();
    is_well(&place, &mut run.0, port);
    for stream in &mut silent {
        let _ = stream.write_all(b"G");
    }
    is_well(&place, &mut run.0, port);
    // Bytes that are no request.
    assert_eq!(status(&exchange(port, b"\x16\x03\x01\x02\x00\x01\r\n\r\n")), "400");
    drop((unread, silent));
    is_well(&place, &mut run.0, port);
}

#[test]
fn a_page_answers_only_this_computer_and_has_no_other_paths() {
    let place = Place::new();
    assert_eq!(place.tiny(&["--output", "run"]).code, 0);
    place.write("secret", "secret");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("fedelity"));
    command.args(["watch", "run", "--no-open"]).current_dir(place.0.path()).stdout(Stdio::piped());
    let mut watch = Endless(command.stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(watch.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = port_of(line.trim_end());
    assert_eq!(status(&get(port, "/")), "200");
    let of = |headers: &str| {
        let answer = exchange(port, format!("GET /data HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes());
        status(&answer).to_string()
    };
    assert_eq!(of(&format!("Host: 127.0.0.1:{port}")), "200");
    assert_eq!(of(&format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}")), "200");
    for headers in [
        "Host: rebound.example".to_string(),
        format!("Host: rebound.example:{port}"),
        format!("Host: localhost:{port}\r\nHost: rebound.example"),
        format!("Host: localhost:{port}\r\nOrigin: http://elsewhere.example"),
        format!("Host: localhost:{port}\r\nOrigin: null"),
        "X-Host: localhost".to_string(),
    ] {
        assert_eq!(of(&headers), "403", "{headers}");
    }
    for path in [
        "/secret",
        "/run/rounds.jsonl",
        "/rounds.jsonl",
        "/../secret",
        "/..%2fsecret",
        "/data/../../secret",
        "//etc/passwd",
        "/data/",
    ] {
        let answer = get(port, path);
        assert_eq!(status(&answer), "404", "{path}");
        assert!(!answer.contains("secret"), "{answer}");
    }
    let page = get(port, "/");
    for header in ["Connection: close", "X-Content-Type-Options: nosniff", "Cross-Origin-Resource-Policy: same-origin"]
    {
        assert!(page.contains(header), "{header}");
    }
}

#[test]
fn a_page_survives_the_end_of_descriptors() {
    let place = Place::new();
    let (mut run, address) = start(&place, Some("ulimit -n 40"));
    let port = port_of(&address);
    is_well(&place, &mut run.0, port);
    let many: Vec<TcpStream> = (0..120).map(|_| connect(port)).collect();
    is_well(&place, &mut run.0, port);
    drop(many);
    is_well(&place, &mut run.0, port);
}

#[test]
fn viewers_do_not_hold_up_the_end_of_a_run() {
    let place = Place::new();
    // Fewer rounds come last and count.
    let (mut run, address) = start(&place, Some("set -- \"$@\" --set rounds=400"));
    let port = port_of(&address);
    let request = format!("GET /data HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").repeat(1_000);
    let mut held = Vec::new();
    // However slow the machine is, the run goes on, and its end follows its last round.
    let (mut seen, mut last) = (0, Instant::now());
    let ended = loop {
        if let Some(ended) = run.0.try_wait().unwrap() {
            break ended;
        }
        let now = rounds(&place);
        if now > seen {
            (seen, last) = (now, Instant::now());
        }
        if held.len() < 40
            && let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port))
        {
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let _ = stream.write_all(request.as_bytes());
            held.push(stream);
        }
        assert!(last.elapsed() < 3 * PATIENCE, "the run stands still after {seen} lines");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ended.code(), Some(0));
    assert_eq!(rounds(&place), 401, "{TINY:?}");
    assert!(!held.is_empty());
}
