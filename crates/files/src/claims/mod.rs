//! Work that processes share, on any machines that see one folder.
//!
//! Whoever creates the file `KEY.1.claim` first has the piece of work KEY. Whatever follows is a file with the next number,
//! which is created exclusively too: its holder gives it back, or another process takes over what a dead one held. So of
//! two that take over at the same moment one wins, and no number is ever used again. The files stay until the work is done,
//! which must be visible elsewhere: who gets a claim looks whether the work was done meanwhile.
//!
//! `NAME.worker` is the sign of life of a process. Nobody compares clocks: a process counts as dead if its file did not
//! change while another one watched it, or if it is gone from the system that both run on. That is a guess, and a process
//! that only slept may wake up: [`Claim::holds`] tells it before it writes.

mod claim;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use claim::Claim;
use claim::Entry;
use worker::Watched;
pub use worker::Worker;

use crate::Holder;
use crate::holder::LONGEST;

const CLAIM: &str = ".claim";
const WORKER: &str = ".worker";
/// The folder may vanish with its last user just when another one comes.
const TRIES: usize = 100;

/// A folder of claims that this process takes part in until the value is dropped.
#[derive(Debug)]
pub struct Claims {
    shared: Arc<Shared>,
    beat: AtomicU64,
    seen: Mutex<Seen>,
}

/// What a claim needs after [`Claims`] has gone.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    me: Worker,
}

/// The outcome of a request for a piece of work.
#[derive(Debug)]
pub enum Taking {
    Mine(Claim),
    Held(Holder),
    /// It failed since this process joined.
    Failed(Holder, String),
}

/// What became of a piece of work, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// Nobody has it.
    Open,
    /// This process has it.
    Mine,
    Held(Holder),
    /// A process has it that shows no sign of life.
    Stale(Holder),
    Failed(Holder, String),
}

#[derive(Debug, Default)]
struct Seen {
    /// The last claim of each key.
    tails: BTreeMap<String, Tail>,
    workers: BTreeMap<String, (Worker, Watched)>,
    /// Failures from before this process joined, which it may try again.
    old_failures: BTreeSet<(String, u64)>,
    looked: bool,
}

#[derive(Clone, Debug)]
struct Tail {
    number: u64,
    entry: Entry,
    /// A claim that says nothing is watched itself.
    watched: Option<Watched>,
}

/// All workers with the time since their last sign of life, and all claims.
pub type Listing = (Vec<(Worker, Option<Duration>)>, Vec<(String, ClaimState)>);

impl Claims {
    /// Takes part in a folder of claims, which is made if it does not exist. `note` is what others are told; they take over
    /// what this process holds if they see no [`Claims::beat`] for as long as `patience`.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn join(folder: &Path, note: &str, patience: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared { path: folder.to_path_buf(), me: Worker::here(note, patience) });
        let claims = Self { shared, beat: AtomicU64::new(0), seen: Mutex::default() };
        for left in (0..TRIES).rev() {
            fs::create_dir_all(folder)?;
            match claims.appear() {
                Err(error) if error.kind() == ErrorKind::NotFound && left > 0 => {}
                other => {
                    other?;
                    break;
                }
            }
        }
        claims.look(Duration::ZERO)?;
        Ok(claims)
    }

    /// All workers and claims of a folder, for a process that does not take part: each worker with the time since its last
    /// sign of life by the folder's and this system's clocks, and each piece of work that is held, given back or failed.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(folder: &Path) -> io::Result<Listing> {
        let (tails, workers) = names(folder)?;
        let mut found = Vec::new();
        for name in workers {
            let path = folder.join(format!("{name}{WORKER}"));
            let Some(text) = read(&path)? else { continue };
            let age = fs::metadata(&path).and_then(|file| file.modified()).ok().and_then(|time| time.elapsed().ok());
            found.push((Worker::of(&name, &text), age));
        }
        let state = |name: &str, holder: Holder| match found.iter().find(|(worker, _)| worker.name == name) {
            Some((worker, age)) if !is_silent(worker, *age) => ClaimState::Held(holder),
            _ => ClaimState::Stale(holder),
        };
        let mut claims = Vec::new();
        for (key, number) in tails {
            let state = match entry(folder, &key, number)? {
                Entry::Held { worker, holder } => state(&worker, holder),
                Entry::Free => ClaimState::Open,
                Entry::Failed { holder, reason } => ClaimState::Failed(holder, reason),
                Entry::Unknown => ClaimState::Held(Holder::default()),
            };
            claims.push((key, state));
        }
        claims.sort_by(|a, b| a.0.cmp(&b.0));
        found.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        Ok((found, claims))
    }

    pub fn me(&self) -> &Worker {
        &self.shared.me
    }

    /// Shows that this process lives.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn beat(&self) -> io::Result<()> {
        let beat = self.beat.fetch_add(1, Ordering::Relaxed) + 1;
        // In place: whoever opens the file on another machine then gets the new content.
        match File::options().write(true).open(self.shared.worker(&self.shared.me.name)) {
            Ok(mut file) => file.write_all(self.shared.me.lines(beat).as_bytes()),
            // Somebody took this process for dead, and may have removed the whole folder when all was done.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(&self.shared.path)?;
                self.appear()
            }
            Err(error) => Err(error),
        }
    }

    fn appear(&self) -> io::Result<()> {
        let text = self.shared.me.lines(self.beat.load(Ordering::Relaxed));
        File::create_new(self.shared.worker(&self.shared.me.name))?.write_all(text.as_bytes())
    }

    /// Reads what has changed in the folder. Of the time since the last look, `most` counts as silence of those that have
    /// not changed.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn look(&self, most: Duration) -> io::Result<()> {
        let folder = &self.shared.path;
        let (listed, mut workers) = names(folder)?;
        let mut seen = self.lock();
        let mut tails = BTreeMap::new();
        for (key, number) in listed {
            let known = seen.tails.remove(&key).filter(|tail| tail.number == number);
            let tail = match known {
                Some(tail) if tail.entry != Entry::Unknown => tail,
                other => Tail::read(folder, &key, number, other, most)?,
            };
            if let Entry::Held { worker, .. } = &tail.entry {
                // One that came while the names were read may be missing among them.
                workers.insert(worker.clone());
            }
            if !seen.looked && matches!(tail.entry, Entry::Failed { .. }) {
                seen.old_failures.insert((key.clone(), number));
            }
            tails.insert(key, tail);
        }
        seen.tails = tails;
        seen.looked = true;
        workers.remove(&self.shared.me.name);
        let mut found = BTreeMap::new();
        for name in workers {
            let Some(text) = read(&self.shared.worker(&name))? else { continue };
            let (worker, watched) = match seen.workers.remove(&name) {
                Some((worker, mut watched)) => match watched.look(text.clone(), most) {
                    true => (Worker::of(&name, &text), watched),
                    false => (worker, watched),
                },
                None => (Worker::of(&name, &text), Watched::new(text)),
            };
            found.insert(name, (worker, watched));
        }
        seen.workers = found;
        self.bury(&mut seen);
        Ok(())
    }

    /// Removes the files of dead workers that hold nothing any more.
    fn bury(&self, seen: &mut Seen) {
        let holders: BTreeSet<&str> = seen.tails.values().filter_map(|tail| tail.entry.worker()).collect();
        let dead = |name: &String| !seen.lives(name) && !holders.contains(&**name);
        let dead: Vec<String> = seen.workers.keys().filter(|name| dead(name)).cloned().collect();
        for name in dead {
            let _ = fs::remove_file(self.shared.worker(&name));
            seen.workers.remove(&name);
        }
    }

    /// The other processes that do not seem dead, as of the last look, and whether each has shown a sign of life since this
    /// process first saw it.
    pub fn others(&self) -> Vec<(Worker, bool)> {
        let seen = self.lock();
        let alive = seen.workers.iter().filter(|(name, _)| seen.lives(name));
        alive.map(|(_, (worker, watched))| (worker.clone(), watched.has_changed())).collect()
    }

    /// What the other processes have, as of the last look: the key, its holder, and whether that one has shown a sign of
    /// life since this process first saw it.
    pub fn held(&self) -> Vec<(String, Holder, bool)> {
        let seen = self.lock();
        let held = seen.tails.iter().filter_map(|(key, tail)| match &tail.entry {
            Entry::Held { worker, holder } if *worker != self.shared.me.name && seen.lives(worker) => {
                let sure = seen.workers.get(worker).is_some_and(|(_, watched)| watched.has_changed());
                Some((key.clone(), holder.clone(), sure))
            }
            _ => None,
        });
        held.collect()
    }

    /// What is known about a piece of work, without asking the file system.
    pub fn state(&self, key: &str) -> ClaimState {
        self.lock().state(key, &self.shared.me)
    }

    /// The number of the last claim of a piece of work: 0 if there never was one.
    pub fn number(&self, key: &str) -> u64 {
        self.lock().tails.get(key).map_or(0, |tail| tail.number)
    }

    /// Claims a piece of work. Its key must be usable as a name of a file.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn claim(&self, key: &str) -> io::Result<Taking> {
        let me = &self.shared.me;
        loop {
            let (state, number) = {
                let seen = self.lock();
                (seen.state(key, me), seen.tails.get(key).map_or(0, |tail| tail.number))
            };
            match state {
                ClaimState::Held(holder) => return Ok(Taking::Held(holder)),
                ClaimState::Mine => return Ok(Taking::Held(me.holder.clone())),
                ClaimState::Failed(holder, reason) => return Ok(Taking::Failed(holder, reason)),
                ClaimState::Open | ClaimState::Stale(_) => {}
            }
            let holder = Holder::here();
            let entry = Entry::Held { worker: me.name.clone(), holder };
            match self.shared.write(key, number + 1, &entry) {
                Ok(()) => {
                    let from = match state {
                        ClaimState::Stale(holder) => Some(holder),
                        _ => None,
                    };
                    if from.is_some() {
                        self.shared.overwrite(key, number, &entry);
                    }
                    let tail = Tail { number: number + 1, entry: entry.clone(), watched: None };
                    self.lock().tails.insert(key.to_string(), tail);
                    return Ok(Taking::Mine(Claim::new(&self.shared, key, number + 1, &entry, from)));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.climb(key, number + 1)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds the last claim of a key, from a number that exists.
    fn climb(&self, key: &str, mut number: u64) -> io::Result<()> {
        while fs::exists(self.shared.file(key, number + 1))? {
            number += 1;
        }
        let known = self.lock().tails.remove(key).filter(|tail| tail.number == number);
        let tail = Tail::read(&self.shared.path, key, number, known, Duration::ZERO)?;
        let worker = tail.entry.worker().filter(|name| *name != self.shared.me.name).map(str::to_string);
        let text = worker.as_ref().map_or(Ok(None), |name| read(&self.shared.worker(name)))?;
        let mut seen = self.lock();
        if let (Some(name), Some(text)) = (worker, text) {
            let new = || (Worker::of(&name, &text), Watched::new(text.clone()));
            seen.workers.entry(name.clone()).or_insert_with(new);
        }
        seen.tails.insert(key.to_string(), tail);
        Ok(())
    }

    /// Removes every claim of a piece of work that is done.
    pub fn clear(&self, key: &str) {
        let tail = self.lock().tails.remove(key);
        self.shared.clear(key, tail.map_or(0, |tail| tail.number));
    }

    /// The pieces of work that have claims, as of the last look.
    pub fn keys(&self) -> Vec<String> {
        self.lock().tails.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.shared.worker(&self.shared.me.name));
        // Only if nothing is in it.
        let _ = fs::remove_dir(&self.shared.path);
    }
}

impl Shared {
    fn file(&self, key: &str, number: u64) -> PathBuf {
        claim_file(&self.path, key, number)
    }

    fn worker(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{WORKER}"))
    }

    /// Writes a claim that does not exist yet.
    fn write(&self, key: &str, number: u64, entry: &Entry) -> io::Result<()> {
        let path = self.file(key, number);
        let file = match File::create_new(&path) {
            // As for a beat: the folder went with those who took this process for dead.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(&self.path)?;
                File::create_new(&path)
            }
            other => other,
        };
        file?.write_all(entry.lines().as_bytes())
    }

    /// Tells the former holder on another machine, which may remember for a while that there is no later claim, but not
    /// what is in its own.
    fn overwrite(&self, key: &str, number: u64, entry: &Entry) {
        let file = File::options().write(true).truncate(true).open(self.file(key, number));
        let _ = file.and_then(|mut file| file.write_all(entry.lines().as_bytes()));
    }

    fn clear(&self, key: &str, last: u64) {
        for number in (1..=last).rev() {
            let _ = fs::remove_file(self.file(key, number));
        }
    }
}

impl Seen {
    fn lives(&self, name: &str) -> bool {
        self.workers.get(name).is_some_and(|(worker, watched)| match worker.is_there() {
            Some(false) => false,
            // A process that has been stopped is there, and silent.
            Some(true) | None => watched.silent() < worker.patience,
        })
    }

    fn state(&self, key: &str, me: &Worker) -> ClaimState {
        let Some(tail) = self.tails.get(key) else { return ClaimState::Open };
        match &tail.entry {
            Entry::Free => ClaimState::Open,
            Entry::Failed { .. } if self.old_failures.contains(&(key.to_string(), tail.number)) => ClaimState::Open,
            Entry::Failed { holder, reason } => ClaimState::Failed(holder.clone(), reason.clone()),
            Entry::Held { worker, .. } if *worker == me.name => ClaimState::Mine,
            Entry::Held { worker, holder } if self.lives(worker) => ClaimState::Held(holder.clone()),
            Entry::Held { holder, .. } => ClaimState::Stale(holder.clone()),
            Entry::Unknown => match &tail.watched {
                Some(watched) if watched.silent() >= me.patience => ClaimState::Stale(Holder::default()),
                _ => ClaimState::Held(Holder::default()),
            },
        }
    }
}

impl Tail {
    fn read(folder: &Path, key: &str, number: u64, known: Option<Self>, most: Duration) -> io::Result<Self> {
        let text = read(&claim_file(folder, key, number))?.unwrap_or_default();
        let entry = Entry::of(&text);
        let watched = (entry == Entry::Unknown).then(|| match known.and_then(|tail| tail.watched) {
            Some(mut watched) => {
                watched.look(text, most);
                watched
            }
            None => Watched::new(text),
        });
        Ok(Self { number, entry, watched })
    }
}

/// Whether a worker seems dead to somebody who looks once.
fn is_silent(worker: &Worker, age: Option<Duration>) -> bool {
    worker.is_there() == Some(false) || age.is_some_and(|age| age > worker.patience)
}

fn claim_file(folder: &Path, key: &str, number: u64) -> PathBuf {
    folder.join(format!("{key}.{number}{CLAIM}"))
}

fn entry(folder: &Path, key: &str, number: u64) -> io::Result<Entry> {
    Ok(Entry::of(&read(&claim_file(folder, key, number))?.unwrap_or_default()))
}

/// The last claim of each key, and the workers.
fn names(folder: &Path) -> io::Result<(BTreeMap<String, u64>, BTreeSet<String>)> {
    let (mut tails, mut workers) = (BTreeMap::new(), BTreeSet::new());
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(worker) = name.strip_suffix(WORKER) {
            workers.insert(worker.to_string());
        } else if let Some((key, number)) = name.strip_suffix(CLAIM).and_then(|name| name.rsplit_once('.')) {
            let Some(number) = number.parse::<u64>().ok().filter(|&number| number > 0 && number < u64::MAX) else {
                continue;
            };
            let last: &mut u64 = tails.entry(key.to_string()).or_default();
            *last = number.max(*last);
        }
    }
    Ok((tails, workers))
}

/// The start of a file; nothing if there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
