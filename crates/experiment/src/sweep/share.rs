//! How processes share the jobs of a sweep.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fedelity_files::{ClaimState, Claims, Holder, Worker};
use fedelity_record::names::{self, STAMP};

use super::SweepObserver;
use super::job::claimed_folder;
use super::queue::Queue;
use crate::error::Result;
use crate::{ExperimentError, StopSign};

/// The folder of the claims inside that of a sweep.
const CLAIMS: &str = ".claims";
/// A process shows at least this many signs of life before others lose patience.
const BEATS: u32 = 6;
/// How often a process looks at the others: more rarely if there are many, to spare the file server.
const SHORTEST: Duration = Duration::from_millis(500);
const PER_OTHER: Duration = Duration::from_millis(200);

/// How the jobs of a sweep are shared with other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each job is claimed by one of them.
    Claims {
        /// After this long without a sign of life of this process, the others take over what it runs.
        patience: Duration,
        /// Whether to wait until the others have finished theirs, and to take over what they leave.
        wait: bool,
    },
    /// This process has a fixed part, and nobody takes it over.
    Shard(Shard),
}

impl Default for Sharing {
    fn default() -> Self {
        Self::Claims { patience: Self::PATIENCE, wait: true }
    }
}

/// One of several equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `of`.
    number: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err("expected a part and the number of parts, such as 1/4 for the first of four".to_string()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Jobs that other processes run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    pub runs: usize,
    /// The machines, in order of their names.
    pub hosts: Vec<String>,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 4;
        write!(f, "{} elsewhere", self.runs)?;
        if self.hosts.is_empty() {
            return Ok(());
        }
        write!(f, " ({}", self.hosts[..self.hosts.len().min(MOST)].join(", "))?;
        if self.hosts.len() > MOST {
            write!(f, " and {} more", self.hosts.len() - MOST)?;
        }
        f.write_str(")")
    }
}

/// Who works in the folder of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepStatus {
    /// Each process, and the time since its last sign of life: by the clock of the file system, which may differ from that
    /// of this machine.
    pub workers: Vec<(Worker, Option<Duration>)>,
    /// Runs that have been claimed and are not done, by their folders.
    pub claims: Vec<(String, ClaimState)>,
    /// Runs that are done.
    pub done: usize,
}

impl SweepStatus {
    /// Looks into the folder of a sweep.
    pub fn read(output: &Path) -> Result<Self> {
        let folder = output.join(CLAIMS);
        let cannot = |error: std::io::Error| ExperimentError::path(output, format!("cannot read: {error}"));
        let done = stamped(output, 3).map_err(cannot)?;
        let (workers, claims) = match Claims::list(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Default::default(),
            other => other.map_err(cannot)?,
        };
        let claims = claims.into_iter().map(|(key, state)| (claimed_folder(&key), state)).collect();
        Ok(Self { workers, claims, done })
    }
}

/// How many complete runs of a sweep are in or below a folder.
fn stamped(folder: &Path, depth: usize) -> std::io::Result<usize> {
    let mut found = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") || !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        if path.join(STAMP).is_file() {
            // One that is being prolonged has no end yet.
            found += usize::from(path.join(names::SUMMARY).is_file());
        } else if depth > 1 {
            found += stamped(&path, depth - 1)?;
        }
    }
    Ok(found)
}

impl Sharing {
    /// How long a process may be silent, if nothing else is said.
    pub const PATIENCE: Duration = Duration::from_secs(60);

    /// Whether a job, by its place in the list, may run in this process.
    pub(super) fn includes(&self, at: usize) -> bool {
        match self {
            Self::Claims { .. } => true,
            Self::Shard(shard) => at % shard.of == shard.number - 1,
        }
    }

    pub(super) fn claims(&self) -> bool {
        matches!(self, Self::Claims { .. })
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Claims { wait: true, .. })
    }

    fn patience(&self) -> Duration {
        match self {
            Self::Claims { patience, .. } => *patience,
            Self::Shard(_) => Self::PATIENCE,
        }
    }

    fn note(&self) -> String {
        match self {
            Self::Claims { .. } => String::new(),
            Self::Shard(shard) => format!("shard {shard}"),
        }
    }

    /// Takes part in the sweep of a folder. Processes that divide the jobs in other ways are an error.
    pub(super) fn join(&self, output: &Path, sign: &StopSign) -> Result<Claims> {
        let folder = output.join(CLAIMS);
        let cannot = |error| ExperimentError::path(&folder, format!("cannot share the runs: {error}"));
        let claims = Claims::join(&folder, &self.note(), self.patience()).map_err(cannot)?;
        loop {
            let others = claims.others();
            let mut against =
                others.iter().filter_map(|(other, sure)| Some((other, *sure, self.conflict(&other.note)?)));
            // One that is certain to live, or any that may.
            let found = against.clone().find(|(_, sure, _)| *sure).or_else(|| against.next());
            let Some((other, sure, why)) = found else { return Ok(claims) };
            if sure || sign.is_asked() {
                return Err(ExperimentError::path(output, format!("{} {why}", other.holder)));
            }
            thread::sleep(SHORTEST / 2);
            claims.beat().and_then(|()| claims.look(SHORTEST)).map_err(cannot)?;
        }
    }

    /// Why another process, with this note, cannot work in the same folder, if it cannot.
    fn conflict(&self, note: &str) -> Option<String> {
        let theirs = note.strip_prefix("shard ");
        match (self, theirs, theirs.and_then(|shard| shard.parse::<Shard>().ok())) {
            (Self::Claims { .. }, None, _) => None,
            (Self::Claims { .. }, Some(shard), _) => {
                Some(format!("runs shard {shard} of this sweep: wait for it, or use --shard in all processes"))
            }
            (Self::Shard(_), None, _) => {
                Some("shares the runs of this sweep without --shard: wait for it, or leave out --shard".to_string())
            }
            (Self::Shard(own), _, Some(shard)) if shard.of == own.of && shard.number != own.number => None,
            (Self::Shard(_), Some(shard), _) => Some(format!("already runs shard {shard} in this folder: wait for it")),
        }
    }

    /// Shows signs of life and looks at those of others, until the sender of `end` is gone.
    pub(super) fn watch(&self, claims: &Claims, queue: &Queue<'_>, observer: &dyn SweepObserver, end: &Receiver<()>) {
        loop {
            let others = u32::try_from(claims.others().len()).unwrap_or(u32::MAX);
            let beat = self.patience() / BEATS;
            // Nobody waits for a shard.
            let every = if self.claims() { PER_OTHER.saturating_mul(others).max(SHORTEST).min(beat) } else { beat };
            if !matches!(end.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
                return;
            }
            // What fails now may succeed the next time.
            let _ = claims.beat();
            if self.claims() && claims.look(2 * every).is_ok() {
                let elsewhere = queue.update();
                observer.others(&elsewhere, queue.here());
            }
        }
    }

    /// What a failure elsewhere is called here.
    pub(super) fn failed_there(holder: &Holder, reason: &str) -> String {
        format!("{reason} ({holder})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_read_and_cover_every_job_once() {
        for wrong in ["", "1", "0/2", "3/2", "1/0", "a/2", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
        let shards: Vec<Sharing> = (1..=3).map(|n| Sharing::Shard(format!("{n}/3").parse().unwrap())).collect();
        for at in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.includes(at)).count(), 1);
        }
    }

    #[test]
    fn only_processes_that_divide_alike_work_together() {
        let shard = Sharing::Shard("1/3".parse().unwrap());
        let found = ["", "shard 2/3", "shard 1/3", "shard 2/4", "shard x"]
            .map(|note| (Sharing::default().conflict(note).is_some(), shard.conflict(note).is_some()));
        assert_eq!(found, [(false, true), (true, false), (true, true), (true, true), (true, true)]);
    }

    #[test]
    fn where_the_others_are() {
        let hosts = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        assert_eq!(Elsewhere { runs: 7, hosts: hosts.clone() }.to_string(), "7 elsewhere (a, b, c, d and 1 more)");
        assert_eq!(Elsewhere { runs: 2, hosts: hosts[..2].to_vec() }.to_string(), "2 elsewhere (a, b)");
        assert_eq!(Elsewhere::default().to_string(), "0 elsewhere");
    }
}
