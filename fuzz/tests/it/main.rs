//! A short run of every reader over its seeds, its findings and files made from them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod seeds;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use fedelity_fuzz::READERS;

/// Memory of a reader with everything that it reads, in KiB.
const MOST_MEMORY: usize = 512 << 10;

fn seeds_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name)
}

/// How many changed files a reader gets: fewer if each of them takes long.
fn changes(name: &str) -> u32 {
    match name {
        "cifar-10" | "cifar-100" => 4,
        "state" | "finished" | "memory" | "features" | "sweep" => 40,
        "rounds" | "summary" | "holdings" | "clients" | "tags" | "image-cache" | "tokenizer" => 80,
        _ => 200,
    }
}

/// Runs a reader in a process of its own with little memory. If it dies, its last file is kept.
fn run(name: &str) -> Result<String, String> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.last"));
    let program = env!("CARGO_BIN_EXE_fedelity-fuzz");
    // Other systems do not limit memory.
    let limit = if cfg!(target_os = "linux") { format!("ulimit -d {MOST_MEMORY} && ") } else { String::new() };
    let ended = Command::new("sh")
        .args(["-c", &format!("{limit}exec \"$@\""), "sh", program, name])
        .args([seeds_of(name), changes(name).to_string().into(), kept.clone()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    if ended.status.success() {
        let _ = fs::remove_file(kept);
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&ended.stderr).into_owned();
    Err(format!("{name}: {} with {}\n{said}{why}", ended.status, kept.display()))
}

#[test]
fn no_file_makes_a_reader_panic_hang_or_take_all_memory() {
    if seeds::are_renewed() {
        return;
    }
    let (left, wrong) = (Mutex::new(READERS.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(reader) = left.lock().unwrap().next() else { return };
                    match run(reader.name) {
                        Ok(said) => print!("{}: {said}", reader.name),
                        Err(why) => wrong.lock().unwrap().push(why),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_reader_has_a_seed_that_it_accepts() {
    if seeds::are_renewed() {
        return;
    }
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    for reader in READERS {
        let found = names(&seeds_of(reader.name));
        assert!(found.iter().any(|name| name.starts_with("valid")), "{}: {found:?}", reader.name);
    }
    for folder in names(&seeds_of("")) {
        assert!(READERS.iter().any(|reader| reader.name == folder), "nobody reads seeds/{folder}");
    }
}

#[test]
fn the_account_has_every_reader() {
    let account = include_str!("../../hours.tsv");
    let readers: Vec<&str> = account.lines().skip(1).filter_map(|line| line.split('\t').nth(1)).collect();
    for reader in READERS {
        assert!(readers.contains(&reader.name), "fuzz/hours.tsv lacks {}: add a line with zeros", reader.name);
    }
    assert_eq!(readers.len(), READERS.len(), "fuzz/hours.tsv has other readers: {readers:?}");
}
