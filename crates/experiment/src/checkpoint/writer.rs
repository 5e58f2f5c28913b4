//! Writes checkpoints on a thread of its own, so that training does not wait for the disk.
//!
//! If the disk is slower than the rounds, states are left out rather than waited for: the newest one is written as soon
//! as the one before it is on disk, and clients of a round whose turn has passed are dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fedelity_files::{Atomic, Claim};
use fedelity_fl::wire::Wire;
use fedelity_fl::{ClientMemory, Finished, Payload, ServerState};

use super::frame::{write_frame, write_head};
use super::{CheckpointFolder, FEATURES, Index, Part, Remembered, Restored};
use crate::run::still_ours;
use crate::{ExperimentError, Result};

/// Maximum bytes of finished clients that wait to be written; two may always wait.
const WAITING: usize = 64 << 20;

/// A round that has been closed and recorded.
pub(crate) struct ClosedRound {
    pub(crate) server: ServerState,
    /// What the round's clients remember now.
    pub(crate) changed: Vec<(usize, Payload)>,
    /// The round of each client's last upload that counted, if clients remember elsewhere.
    pub(crate) accepted: Vec<(usize, usize)>,
    pub(crate) features: Option<Vec<f32>>,
    /// `rounds.jsonl`: it must be on disk before the state.
    pub(crate) records: File,
}

/// Writes to a checkpoint folder.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// Wakes those who wait for the disk.
    done: Condvar,
    failed: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// How often everything was asked to be on disk, and how often it was.
    asked: u64,
    synced: u64,
    round: Option<ClosedRound>,
    /// Clients of one round, as frames.
    clients: Vec<Vec<u8>>,
    /// Their round, counted from 1.
    of_round: usize,
    ended: bool,
    error: Option<(PathBuf, io::Error)>,
}

impl Writer {
    /// Goes on in a folder from what was restored. Everything else in it is removed. It stops once the claim is lost.
    pub(crate) fn start(folder: &CheckpointFolder, from: &Restored, claim: Option<Arc<Claim>>) -> Result<Self> {
        let path = folder.path.clone();
        let cannot = |error: io::Error| ExperimentError::path(&path, format!("cannot write checkpoints: {error}"));
        fs::create_dir_all(&path).map_err(cannot)?;
        folder.tidy(from);
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
            failed: AtomicBool::new(false),
        });
        let disk = Disk { claim, ..Disk::of(folder, from) };
        let thread = thread::Builder::new().name("checkpoint".to_string()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.work(disk)
        });
        let no_thread = |error: io::Error| ExperimentError::path(&path, format!("cannot start a thread: {error}"));
        Ok(Self { shared, thread: Some(thread.map_err(no_thread)?) })
    }

    /// Whether something could not be written. [`Writer::finish`] says what.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// A client has finished a round.
    pub(crate) fn client(&self, done: &Finished) {
        let (round, bytes) = (done.upload.round + 1, 4 * done.upload.params.len());
        {
            let waiting = self.shared.lock();
            let (many, waits) = (waiting.clients.len() >= 2, waiting.clients.iter().map(Vec::len).sum::<usize>());
            if waiting.of_round == round && many && waits + bytes > WAITING {
                return;
            }
        }
        let frame = done.to_bytes();
        let mut waiting = self.shared.lock();
        if waiting.of_round != round {
            waiting.clients.clear();
            waiting.of_round = round;
        }
        waiting.clients.push(frame);
        self.shared.wake.notify_one();
    }

    /// A round has been closed and recorded.
    pub(crate) fn round(&self, mut round: ClosedRound) {
        let mut waiting = self.shared.lock();
        if let Some(older) = waiting.round.take() {
            let newer: BTreeMap<usize, Payload> = round.changed.into_iter().collect();
            let mut all: BTreeMap<usize, Payload> = older.changed.into_iter().collect();
            all.extend(newer);
            round.changed = all.into_iter().collect();
        }
        waiting.clients.clear();
        waiting.round = Some(round);
        self.shared.wake.notify_one();
    }

    /// Waits until everything so far is on disk, or cannot be written, which [`Writer::finish`] says.
    pub(crate) fn wait(&self) {
        let mut waiting = self.shared.lock();
        waiting.asked += 1;
        let asked = waiting.asked;
        self.shared.wake.notify_one();
        while waiting.synced < asked && !self.has_failed() {
            waiting = self.shared.done.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until everything is on disk, and ends.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.end();
        match self.shared.lock().error.take() {
            None => Ok(()),
            Some((path, error)) => Err(ExperimentError::path(&path, format!("cannot write: {error}"))),
        }
    }

    fn end(&mut self) {
        self.shared.lock().ended = true;
        self.shared.wake.notify_one();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.thread.is_some() && !thread::panicking() {
            self.end();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, mut disk: Disk) {
        loop {
            let mut waiting = self.lock();
            while waiting.round.is_none()
                && waiting.clients.is_empty()
                && waiting.synced == waiting.asked
                && !waiting.ended
            {
                waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            let (round, clients, of_round) =
                (waiting.round.take(), std::mem::take(&mut waiting.clients), waiting.of_round);
            let (ended, asked, synced) = (waiting.ended, waiting.asked, waiting.synced);
            drop(waiting);
            let last = round.is_none() && clients.is_empty() && ended;
            let closed = disk.still_ours().and_then(|()| match round {
                _ if last => disk.sync(),
                Some(round) => disk.write_round(round),
                None => Ok(()),
            });
            let written =
                closed.and_then(|()| if clients.is_empty() { Ok(()) } else { disk.append(of_round, &clients) });
            let written = written.and_then(|()| if asked > synced { disk.sync() } else { Ok(()) });
            if let Err(error) = written {
                let mut waiting = self.lock();
                waiting.error = Some(error);
                self.failed.store(true, Ordering::Relaxed);
                drop(waiting);
                self.done.notify_all();
                return;
            }
            if asked > synced {
                self.lock().synced = asked;
                self.done.notify_all();
            }
            if last {
                return;
            }
        }
    }
}

type Written<T = ()> = Result<T, (PathBuf, io::Error)>;

/// How often the disk is waited for. Between that, files survive the end of the process, but not a power cut.
const SYNC: Duration = Duration::from_secs(1);

/// What has been written.
struct Disk {
    folder: CheckpointFolder,
    claim: Option<Arc<Claim>>,
    remembered: Remembered,
    /// The number of rounds in the newest state, if there is one.
    newest: Option<usize>,
    /// The same for the newest state that is certainly on disk, and when it was written.
    synced: (Option<usize>, Option<Instant>),
    /// Files that are not certainly on disk, and the records of their rounds.
    fresh: Vec<Part>,
    records: Option<File>,
    /// Files that newer ones replace, and those that the synced state before the last one needed.
    replaced: Vec<Part>,
    outdated: Vec<Part>,
    /// The file of the open round's clients.
    open: Option<(usize, File)>,
}

impl Disk {
    fn of(folder: &CheckpointFolder, from: &Restored) -> Self {
        let rounds = from.progress.as_ref().map(|progress| progress.server.round);
        Self {
            folder: folder.clone(),
            claim: None,
            remembered: from.remembered.clone(),
            newest: rounds,
            synced: (rounds, None),
            fresh: Vec::new(),
            records: None,
            replaced: Vec::new(),
            outdated: Vec::new(),
            open: None,
        }
    }

    fn still_ours(&self) -> Written {
        let lost = |error: ExperimentError| (self.folder.path.clone(), io::Error::other(error));
        still_ours(self.claim.as_deref()).map_err(lost)
    }

    fn write_round(&mut self, round: ClosedRound) -> Written {
        let ClosedRound { server, changed, accepted, features, records } = round;
        let rounds = server.round;
        self.replaced.extend(self.newest.map(|rounds| Part::State { rounds }));
        for (client, memory) in changed {
            let before = if memory.is_empty() {
                self.remembered.remove(&client)
            } else {
                let bytes = ClientMemory { client, memory }.to_bytes();
                self.whole(Part::Memory { client, round: rounds }, &[&bytes])?;
                self.remembered.insert(client, rounds)
            };
            self.replaced.extend(before.map(|round| Part::Memory { client, round }));
        }
        let features = features.map_or_else(Payload::new, |found| Payload::new().with(FEATURES, found));
        let memories = self.remembered.iter().map(|(&client, &round)| (client, round)).collect();
        let index = Index { memories, accepted };
        let index =
            serde_json::to_vec(&index).map_err(|error| (self.folder.file(Part::State { rounds }), error.into()))?;
        self.whole(Part::State { rounds }, &[&server.to_bytes(), &features.to_bytes(), &index])?;
        (self.newest, self.records) = (Some(rounds), Some(records));
        let clients = self.open.take().map(|(round, _)| Part::Clients { round });
        self.remove(clients.into_iter().collect());
        self.prune();
        if self.is_due() { self.sync() } else { Ok(()) }
    }

    /// Removes what was replaced, unless the synced state needs it.
    fn prune(&mut self) {
        let synced = self.synced.0;
        let is_needed = |part: &Part| match *part {
            Part::State { rounds } => Some(rounds) == synced,
            Part::Memory { round, .. } => synced.is_some_and(|synced| round <= synced),
            Part::Clients { .. } => false,
        };
        let (needed, unneeded) = std::mem::take(&mut self.replaced).into_iter().partition(is_needed);
        self.replaced = needed;
        self.remove(unneeded);
    }

    fn is_due(&self) -> bool {
        self.synced.1.is_none_or(|last| last.elapsed() >= SYNC)
    }

    /// Waits for the disk. Then only the newest state and the synced one before it are needed.
    fn sync(&mut self) -> Written {
        let Some(rounds) = self.newest.filter(|_| !self.fresh.is_empty()) else { return Ok(()) };
        let path = self.folder.file(Part::State { rounds });
        let paths: Vec<PathBuf> = self.fresh.drain(..).map(|part| self.folder.file(part)).collect();
        let existing = paths.iter().map(PathBuf::as_path).filter(|path| path.exists());
        let records = self.records.take().map_or(Ok(()), |records| records.sync_data());
        records.and_then(|()| fedelity_files::sync(&self.folder.path, existing)).map_err(|error| (path, error))?;
        let outdated = std::mem::replace(&mut self.outdated, std::mem::take(&mut self.replaced));
        self.remove(outdated);
        self.synced = (Some(rounds), Some(Instant::now()));
        Ok(())
    }

    fn remove(&self, parts: Vec<Part>) {
        for part in parts {
            // A leftover costs space and nothing else.
            let _ = fs::remove_file(self.folder.file(part));
        }
    }

    /// Writes a file of some frames, whole or not at all.
    fn whole(&mut self, part: Part, frames: &[&[u8]]) -> Written {
        let path = self.folder.file(part);
        let write = || {
            let mut file = Atomic::create(&path)?;
            write_head(&mut file, &self.folder.identity)?;
            frames.iter().try_for_each(|frame| write_frame(&mut file, frame))?;
            file.commit_unsynced()
        };
        write().map_err(|error| (path.clone(), error))?;
        self.fresh.push(part);
        Ok(())
    }

    /// Appends clients to the file of an open round.
    fn append(&mut self, round: usize, clients: &[Vec<u8>]) -> Written {
        let (path, due) = (self.folder.file(Part::Clients { round }), self.is_due());
        let write = |open: &mut Option<(usize, File)>| {
            let file = match open.take() {
                Some((of, file)) if of == round => file,
                other => {
                    // Its round has been passed over.
                    let passed = other.map(|(round, _)| self.folder.file(Part::Clients { round }));
                    let _ = passed.map(fs::remove_file);
                    let mut file = File::options().append(true).create(true).open(&path)?;
                    if file.metadata()?.len() == 0 {
                        write_head(&mut file, &self.folder.identity)?;
                    }
                    file
                }
            };
            let mut buffered = BufWriter::with_capacity(1 << 20, &file);
            clients.iter().try_for_each(|client| write_frame(&mut buffered, client))?;
            buffered.flush()?;
            drop(buffered);
            if due {
                file.sync_data()?;
            }
            *open = Some((round, file));
            Ok(())
        };
        write(&mut self.open).map_err(|error| (path.clone(), error))?;
        if due {
            self.sync()?;
            self.synced.1 = Some(Instant::now());
        }
        Ok(())
    }
}
