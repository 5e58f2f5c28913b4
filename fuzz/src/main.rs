//! Gives a reader its seeds and findings, and files made from them by random changes.
//!
//! `fedelity-fuzz READER SEEDS CHANGES LAST`: the folder of its seeds, how many changed files, and where to keep the last
//! file given to it, which is the finding if this program dies. `fedelity-fuzz READER FILE` gives it one file.

#![allow(clippy::print_stdout, clippy::exit, reason = "a program for developers")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fedelity_fuzz::{Mutator, READERS, Read};

/// No file may take more time of the processor, in a build without optimisation.
const LONGEST: Duration = Duration::from_secs(10);
/// Nor more time on the wall, which depends on what else the machine does.
const HUNG: Duration = Duration::from_secs(60);

/// When the reader was given its file, in milliseconds since the start; 0 if it has none.
static GIVEN: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let reader = arguments.first().and_then(|name| READERS.iter().find(|reader| reader.name == *name));
    match (reader, &arguments[..]) {
        (Some(reader), [_, file]) => {
            let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            println!("{:?}", (reader.open)()(&bytes));
        }
        (Some(reader), [_, seeds, changes, last]) => {
            let changes = changes.parse().expect("a number of changed files");
            watch();
            short_run((reader.open)(), &inputs(Path::new(seeds)), changes, Path::new(last));
        }
        _ => {
            println!("fedelity-fuzz READER FILE, or READER SEEDS CHANGES LAST; the readers are:");
            READERS.iter().for_each(|reader| println!("{}", reader.name));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// The files of a folder by name.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a seed can be read"))).collect()
}

fn short_run(mut read: Read, seeds: &[(PathBuf, Vec<u8>)], changes: u64, last: &Path) {
    let (start, mut slowest, mut accepted) = (Instant::now(), Duration::ZERO, 0u64);
    let mut give = |bytes: &[u8]| {
        std::fs::write(last, bytes).expect("a file can be written");
        GIVEN.store(start.elapsed().as_millis() as u64 + 1, Ordering::SeqCst);
        let given = Instant::now();
        let answer = read(bytes);
        GIVEN.store(0, Ordering::SeqCst);
        slowest = slowest.max(given.elapsed());
        accepted += u64::from(answer.is_ok());
        answer
    };
    for (path, bytes) in seeds {
        let answer = give(bytes);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("valid") {
            assert_eq!(answer, Ok(()), "{name} is refused");
        }
        if name.starts_with("refused") {
            assert!(answer.is_err(), "{name} is accepted");
        }
    }
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|(_, bytes)| bytes.clone()).collect();
    let mut mutator = Mutator::new(1);
    for _ in 0..changes {
        let _ = give(&mutator.change(&seeds));
    }
    let given = seeds.len() as u64 + changes;
    println!("{given} files, {accepted} accepted, {:.1} s, slowest {slowest:.1?}", start.elapsed().as_secs_f64());
}

/// Ends the program if a file takes too long.
fn watch() {
    let start = Instant::now();
    std::thread::spawn(move || {
        let (mut last, mut spent) = (0, Duration::ZERO);
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let (given, now) = (GIVEN.load(Ordering::SeqCst), start.elapsed().as_millis() as u64);
            if given != last {
                (last, spent) = (given, processor_time());
            }
            let hangs = now > given + HUNG.as_millis() as u64;
            if given > 0 && (hangs || processor_time() > spent + LONGEST) {
                println!("a file takes more than {LONGEST:?} of the processor, or {HUNG:?}");
                std::process::exit(3);
            }
        }
    });
}

/// What this process has used of the processor, where Linux tells: hundredths of a second for the program and for the system.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = told.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
