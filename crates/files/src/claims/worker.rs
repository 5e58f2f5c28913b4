//! A process that shares work, and its signs of life.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use crate::Holder;
use crate::holder::value;

/// Seconds without a sign of life that are granted to a process whose file does not say how many.
const USUAL: f64 = 60.0;

/// A process that shares work: what its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The name of its file, which no other process ever has.
    pub name: String,
    pub holder: Holder,
    /// What others should know about it, such as which part of the work it does.
    pub note: String,
    /// After this long without a sign of life, others take its work over.
    pub patience: Duration,
    /// The booted system and the set of process numbers that it lives in; empty if the system does not tell.
    pub(super) place: String,
    /// When its process started, in the system's own count: a number is given to another process some day.
    pub(super) start: String,
}

impl Worker {
    /// This process.
    pub(super) fn here(note: &str, patience: Duration) -> Self {
        let holder = Holder::here();
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let host: String = holder.host.chars().map(plain).take(64).collect();
        let random = RandomState::new().hash_one(Instant::now());
        let process = std::process::id();
        let start = process_state(process).map_or(String::new(), |(_, start)| start);
        let name = format!("{host}-{process}-{random:016x}");
        Self { name, holder, note: note.to_string(), patience, place: place().unwrap_or_default(), start }
    }

    pub(super) fn of(name: &str, text: &str) -> Self {
        let of = |key| value(text, key).unwrap_or_default().to_string();
        let told = value(text, "patience").and_then(|found| found.parse::<f64>().ok()).filter(|told| told.is_finite());
        Self {
            name: name.to_string(),
            holder: Holder::of(text),
            note: of("note").chars().filter(|c| !c.is_control()).take(80).collect(),
            patience: Duration::from_secs_f64(told.map_or(USUAL, |told| told.clamp(0.1, 86_400.0))),
            place: of("place"),
            start: of("start"),
        }
    }

    /// Its file, which changes with every beat.
    pub(super) fn lines(&self, beat: u64) -> String {
        let Self { holder, note, place, start, .. } = self;
        let (holder, patience) = (holder.lines(), self.patience.as_secs_f64());
        format!("{holder}note: {note}\npatience: {patience}\nplace: {place}\nstart: {start}\nbeat: {beat:020}\n")
    }

    /// Whether it certainly lives, or certainly does not. Only a process of the same system can be asked for.
    pub(super) fn is_there(&self) -> Option<bool> {
        let (process, here) = (self.holder.process?, place()?);
        if self.place != here || self.start.is_empty() {
            return None;
        }
        Some(process_state(process).is_some_and(|(state, start)| start == self.start && !matches!(state, 'Z' | 'X')))
    }
}

/// How long something has not changed, as this process saw it. Time in which nobody looked does not count: whoever sleeps
/// must not believe that the others did.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    text: String,
    silent: Duration,
    looked: Instant,
    changed: bool,
}

impl Watched {
    pub(super) fn new(text: String) -> Self {
        Self { text, silent: Duration::ZERO, looked: Instant::now(), changed: false }
    }

    /// Looks again; `most` is the longest time that counts since the last look. Returns whether it has changed.
    pub(super) fn look(&mut self, text: String, most: Duration) -> bool {
        let passed = self.looked.elapsed().min(most);
        self.looked = Instant::now();
        let changed = text != self.text;
        self.silent = if changed { Duration::ZERO } else { self.silent + passed };
        self.text = text;
        self.changed |= changed;
        changed
    }

    pub(super) fn silent(&self) -> Duration {
        self.silent
    }

    /// Whether it ever changed while this process watched.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }
}

/// The state of a process and when it started.
fn process_state(process: u32) -> Option<(char, String)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.to_string()))
}

/// Where process numbers mean the same as here. Nothing where the processes of others cannot be seen.
fn place() -> Option<String> {
    if !fs::exists("/proc/1/stat").ok()? {
        return None;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let numbers = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), numbers.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_what_its_file_says() {
        let worker = Worker { note: "shard 1/2".to_string(), ..Worker::here("", Duration::from_millis(2500)) };
        assert_eq!(Worker::of(&worker.name, &worker.lines(3)), worker);
        assert_ne!(worker.lines(3), worker.lines(4));
        assert_eq!(worker.lines(3).len(), worker.lines(u64::MAX).len());
        let odd = Worker::of("x", "patience: inf\nprocess: -1\nnote: a\u{1b}[1m");
        assert_eq!((odd.patience.as_secs(), odd.holder.process, &*odd.note), (60, None, "a[1m"));
        assert_eq!(Worker::of("x", "patience: 1e300\n").patience.as_secs(), 86_400);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_of_this_system_is_there_or_not() {
        let here = Worker::here("", Duration::from_secs(60));
        assert_eq!(here.is_there(), Some(true));
        assert_eq!(Worker { start: "1".to_string(), ..here.clone() }.is_there(), Some(false), "the number was reused");
        assert_eq!(Worker { place: "elsewhere".to_string(), ..here.clone() }.is_there(), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = process_state(child.id()).unwrap().1;
        let holder = Holder { process: Some(child.id()), ..here.holder.clone() };
        let other = Worker { holder, start, ..here };
        assert_eq!(other.is_there(), Some(true));
        child.kill().unwrap();
        let begun = Instant::now();
        // Nobody has asked for its exit code yet.
        while other.is_there() == Some(true) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(other.is_there(), Some(false));
        child.wait().unwrap();
        assert_eq!(other.is_there(), Some(false));
    }

    #[test]
    fn silence_counts_only_while_somebody_looks() {
        let mut watched = Watched::new("1".to_string());
        watched.looked = Instant::now().checked_sub(Duration::from_secs(3600)).unwrap_or_else(Instant::now);
        assert!(!watched.look("1".to_string(), Duration::from_secs(2)));
        assert!(watched.silent() <= Duration::from_secs(2));
        assert!(watched.look("2".to_string(), Duration::from_secs(2)));
        assert_eq!(watched.silent(), Duration::ZERO);
    }
}
