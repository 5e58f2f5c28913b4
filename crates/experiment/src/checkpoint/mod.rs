//! The work of an unfinished run, in the folder `checkpoint` of its run folder.
//!
//! `round-N.state` is the federation after N rounds, `client-C-N.memory` what client C has remembered since round N, and
//! `round-N.clients` the clients that have finished round N before it was closed, one frame each. The newest state is
//! kept, and one or two before it that are certainly on disk, with what they refer to. The records of the rounds are in `rounds.jsonl`.

mod frame;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use fedelity_files::WEIGHTS;
use fedelity_fl::wire::Wire;
use fedelity_fl::{ClientMemory, Finished, Memories, Payload, ServerState};
use fedelity_sim::Progress;
use serde::{Deserialize, Serialize};

use crate::{ExperimentError, Result};
use frame::{Damage, Frames};

pub(crate) use frame::Identity;
pub(crate) use writer::{ClosedRound, Writer};

pub(crate) const FOLDER: &str = "checkpoint";
/// The array that holds features in a state.
const FEATURES: &str = "features";

/// How much of an unfinished run is kept on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoints {
    /// The state after every round, and within a round every client that has finished, unless training it again takes
    /// hardly longer than writing it.
    #[default]
    Clients,
    /// Nothing new: a run that is stopped starts over, or goes back to the checkpoint that it went on from. When it ends,
    /// that is removed.
    Off,
}

/// The checkpoint folder of a run.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointFolder {
    path: PathBuf,
    identity: Identity,
}

/// Since which round each client has remembered what it remembers.
type Remembered = BTreeMap<usize, usize>;

/// The part of a state that is not numbers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    memories: Vec<(usize, usize)>,
    /// The round of each client's last upload that counted, if clients remember elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<(usize, usize)>,
}

/// Where a run goes on.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Nothing before the first round.
    pub(crate) progress: Option<Progress>,
    pub(crate) remembered: Remembered,
    /// The round of each client's last upload that counted, counted from 0, if clients remember elsewhere.
    pub(crate) accepted: BTreeMap<usize, usize>,
    /// Clients that have finished the next round.
    pub(crate) finished: Vec<Finished>,
    /// What could not be used, and why.
    pub(crate) notes: Vec<String>,
}

/// A file of the folder, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    State { rounds: usize },
    Memory { client: usize, round: usize },
    Clients { round: usize },
}

impl Part {
    fn name(self) -> String {
        match self {
            Self::State { rounds } => format!("round-{rounds}.state"),
            Self::Memory { client, round } => format!("client-{client}-{round}.memory"),
            Self::Clients { round } => format!("round-{round}.clients"),
        }
    }

    fn of(name: &str) -> Option<Self> {
        let (stem, end) = name.rsplit_once('.')?;
        let number = |text: &str| text.parse().ok();
        let part = match end {
            "state" => Self::State { rounds: number(stem.strip_prefix("round-")?)? },
            "clients" => Self::Clients { round: number(stem.strip_prefix("round-")?)? },
            "memory" => {
                let (client, round) = stem.strip_prefix("client-")?.split_once('-')?;
                Self::Memory { client: number(client)?, round: number(round)? }
            }
            _ => return None,
        };
        // A name has one spelling.
        (part.name() == name).then_some(part)
    }
}

impl CheckpointFolder {
    pub(crate) fn of(run: &Path, identity: Identity) -> Self {
        Self { path: run.join(FOLDER), identity }
    }

    fn file(&self, part: Part) -> PathBuf {
        self.path.join(part.name())
    }

    fn parts(&self) -> Vec<Part> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(|entry| Part::of(entry.file_name().to_str()?)).collect()
    }

    /// Whether some round has left a state.
    pub(crate) fn has_states(&self) -> bool {
        self.parts().iter().any(|part| matches!(part, Part::State { .. }))
    }

    /// The newest state with at most this many rounds that can be read, and the clients that went further. The state of
    /// another run is an error.
    pub(crate) fn restore(&self, recorded: usize) -> Result<Restored> {
        let state = |part: &Part| match part {
            Part::State { rounds } if *rounds <= recorded => Some(*rounds),
            Part::State { .. } | Part::Memory { .. } | Part::Clients { .. } => None,
        };
        let mut states: Vec<usize> = self.parts().iter().filter_map(state).collect();
        states.sort_unstable_by(|a, b| b.cmp(a));
        let mut restored = Restored::default();
        for rounds in states {
            match self.read_state(rounds) {
                Ok((progress, index)) => {
                    restored.progress = Some(progress);
                    restored.remembered = index.memories.into_iter().collect();
                    restored.accepted = index.accepted.into_iter().collect();
                    break;
                }
                Err((path, damage @ Damage::Foreign)) => return Err(ExperimentError::path(&path, damage.to_string())),
                Err((path, damage)) => restored.notes.push(format!("{}: {damage}", path.display())),
            }
        }
        if restored.progress.is_some() {
            restored.notes.iter_mut().for_each(|note| note.push_str("; an earlier checkpoint is used"));
        }
        let (finished, note) = self.read_finished(restored.rounds() + 1);
        restored.finished = finished;
        restored.notes.extend(note);
        if recorded > 0 && restored.rounds() == 0 {
            let none = "no checkpoint can be used: the run starts over, with the same results";
            restored.notes.push(format!("{}: {none}", self.path.display()));
        }
        Ok(restored)
    }

    fn frames(&self, path: &Path) -> Result<Frames<BufReader<File>>, Damage> {
        Frames::of(BufReader::new(fedelity_files::open(path)?), &self.identity)
    }

    fn read_state(&self, rounds: usize) -> Result<(Progress, Index), (PathBuf, Damage)> {
        let path = self.file(Part::State { rounds });
        let of = |damage| (path.clone(), damage);
        let mut frames = self.frames(&path).map_err(of)?;
        let mut frame = || frames.expect().map_err(of);
        let server: ServerState = message(&frame()?).map_err(of)?;
        let features: Payload = message(&frame()?).map_err(of)?;
        let index: Index = serde_json::from_slice(&frame()?).map_err(|error| of(Damage::Content(error.to_string())))?;
        if server.round != rounds {
            return Err(of(Damage::Content(format!("it holds round {}", server.round))));
        }
        let mut memories = Memories::new();
        for &(client, round) in &index.memories {
            memories.insert(client, self.read_memory(client, round)?);
        }
        let features = features.opt(FEATURES).map(|found| found.to_vec());
        Ok((Progress { server, memories, features }, index))
    }

    fn read_memory(&self, client: usize, round: usize) -> Result<Payload, (PathBuf, Damage)> {
        let path = self.file(Part::Memory { client, round });
        let read = || {
            let found: ClientMemory = message(&self.frames(&path)?.expect()?)?;
            match found.client == client {
                true => Ok(found.memory),
                false => Err(Damage::Content(format!("it is client {}'s", found.client))),
            }
        };
        read().map_err(|damage| (path.clone(), damage))
    }

    /// The clients that have finished a round that is not closed. What follows a damaged frame is removed.
    fn read_finished(&self, round: usize) -> (Vec<Finished>, Option<String>) {
        let path = self.file(Part::Clients { round });
        let (mut found, mut good) = (Vec::new(), 0);
        let mut all = || {
            let mut frames = self.frames(&path)?;
            while let Some(frame) = frames.next()? {
                found.push(message(&frame)?);
                good = frames.at();
            }
            Ok(())
        };
        let damage = match all() {
            Ok(()) | Err(Damage::Missing) => return (found, None),
            Err(damage) => damage,
        };
        // The next client must not follow a part of another.
        let trimmed = match good {
            0 => fs::remove_file(&path),
            good => File::options().write(true).open(&path).and_then(|file| file.set_len(good)),
        };
        let note = match (damage, trimmed) {
            // The process was stopped while it wrote.
            (Damage::Short, Ok(())) => None,
            (damage, Ok(())) => Some(format!("{}: {damage}; the clients after that train again", path.display())),
            (damage, Err(error)) => Some(format!("{}: {damage}, and cannot be mended: {error}", path.display())),
        };
        (found, note)
    }

    /// Removes what only an unfinished run needs: all but the state after these rounds.
    pub(crate) fn settle(&self, rounds: usize) {
        if let Ok((_, index)) = self.read_state(rounds) {
            self.remove_but(rounds, &index.memories.into_iter().collect(), usize::MAX);
        }
    }

    /// Removes what a run that goes on from here cannot use.
    pub(crate) fn tidy(&self, from: &Restored) {
        self.remove_but(from.rounds(), &from.remembered, from.rounds() + 1);
    }

    /// Removes all but a state, the memories it refers to and the clients of an open round.
    fn remove_but(&self, state: usize, remembered: &Remembered, open: usize) {
        for part in self.parts() {
            let needed = match part {
                Part::State { rounds } => rounds == state,
                Part::Memory { client, round } => remembered.get(&client) == Some(&round),
                Part::Clients { round } => round == open,
            };
            if !needed {
                let _ = fs::remove_file(self.file(part));
            }
        }
    }
}

impl Restored {
    /// The number of rounds that are done.
    pub(crate) fn rounds(&self) -> usize {
        self.progress.as_ref().map_or(0, |progress| progress.server.round)
    }
}

/// Removes the checkpoints of a run.
pub(crate) fn clear(run: &Path) {
    // A leftover costs space and nothing else.
    let _ = fs::remove_dir_all(run.join(FOLDER));
}

/// Parts the checkpoints of a run from a process that may still have some open: what grows is copied.
pub(crate) fn detach(run: &Path) -> io::Result<()> {
    let folder = run.join(FOLDER);
    if !folder.is_dir() {
        return Ok(());
    }
    fedelity_files::detach(&folder)?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let part = path.file_name().and_then(|name| Part::of(name.to_str()?));
        if matches!(part, Some(Part::Clients { .. })) {
            fedelity_files::write(&path, &fedelity_files::read(&path, WEIGHTS)?)?;
        }
    }
    Ok(())
}

fn message<T: Wire>(bytes: &[u8]) -> Result<T, Damage> {
    T::from_bytes(bytes).map_err(|error| Damage::Content(error.to_string()))
}
