//! The clients of one round on worker threads.
//!
//! Workers take clients in schedule order. A finished client waits until all earlier ones are folded, and the worker
//! that delivers the missing one does the folding. So sums follow the schedule regardless of which client finishes
//! first, and no thread is reserved for folding. A worker does not start a client too far ahead of the folding, so the
//! memory of waiting uploads is bounded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fedelity_fl::observe::Diversity;
use fedelity_fl::{
    Broadcast, Coordinator, Finished, FlError, Memories, Payload, Rejection, Samples, TermMeans, Trainer, client,
};
use fedelity_nn::Params;
use fedelity_record::{Incident, IncidentKind};

use crate::faults::{Fault, FaultPlan, Sent};
use crate::observe::{Observed, Seen, look};
use crate::{Absent, Experiment, Keeper};

/// Maximum bytes of weights waiting to be folded; every worker may always have two uploads.
const WAITING_BYTES: usize = 64 << 20;
/// Maximum number of uploads waiting to be folded, however small.
const WAITING_MOST: usize = 64;

/// The combined result of a round's clients.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) terms: TermMeans,
    /// Clients whose uploads counted.
    pub(crate) accepted: usize,
    /// Clients that received the broadcast.
    pub(crate) reached: usize,
    /// What went wrong, in folding order.
    pub(crate) incidents: Vec<Incident>,
    /// Why training failed, where it did.
    pub(crate) failures: Vec<FlError>,
    pub(crate) bytes_up: u64,
    /// The size of the largest upload.
    largest: u64,
    pub(crate) folding: Duration,
    /// What clients will remember, in folding order, once the round is closed.
    pub(crate) memories: Vec<(usize, Payload)>,
    pub(crate) teacher_passes: u64,
    /// Measurements of each client, in folding order.
    pub(crate) seen: Vec<Seen>,
    pub(crate) diversity: Option<f64>,
    /// Total time that all workers spent on training and measuring.
    pub(crate) busy: Duration,
    pub(crate) looking: Duration,
}

impl Tally {
    /// Clients whose uploads are sent too late to count. They travel all the same, with the size of the others.
    fn late(&self) -> u64 {
        self.incidents.iter().filter(|one| one.kind == IncidentKind::Late).count() as u64
    }
}

/// What all clients of a round have in common.
pub(crate) struct Clients<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) broadcast: &'a Broadcast,
    /// The whole training split; clients take their part.
    pub(crate) train: Samples<'a>,
    /// The clients, in starting and folding order.
    pub(crate) schedule: &'a [usize],
    /// What local models are compared with, if they are evaluated in this round.
    pub(crate) observed: Option<&'a Observed<'a>>,
    pub(crate) keeper: &'a dyn Keeper,
    /// What goes wrong on purpose. Without it, an upload that the server refuses is an error.
    pub(crate) faults: Option<&'a FaultPlan>,
    /// Clients elsewhere of which nothing has arrived.
    pub(crate) absent: &'a Absent,
    /// How often the round has been repeated.
    pub(crate) attempt: usize,
}

impl<'a> Clients<'a> {
    /// The samples that a client trains on.
    fn samples(&self, id: usize) -> Samples<'a> {
        let own = self.train.at(&self.experiment.partition.clients[id]);
        self.faults.map_or(own, |plan| plan.samples(id, own, self.train.scaling))
    }

    /// The largest upload that the method declares.
    fn most_bytes(&self) -> u64 {
        let federation = &self.experiment.federation;
        let arrays = federation.method.sends(&federation.model).iter().map(|extra| extra.len).sum::<usize>();
        4 * (federation.model.layout().len() + arrays) as u64
    }

    fn fault(&self, id: usize) -> Option<Fault> {
        let samples = self.experiment.partition.clients[id].len();
        self.faults.and_then(|plan| plan.fault(self.broadcast.round, self.attempt, id, samples))
    }

    /// What a finished client sends, after a look at its model.
    fn send(&self, trainer: &mut Trainer, mut done: Finished, samples: Samples<'_>) -> Arrival {
        let (global, fault) = (&self.broadcast.global[..], self.fault(done.upload.client));
        if let Some(plan) = self.faults {
            plan.forge(global, &mut done.upload);
        }
        let whole = fault.is_none_or(|fault| fault == Fault::Twice);
        let seen = whole.then(|| look(trainer, global, &done, samples, self.observed));
        let Finished { upload, memory, teacher_passes } = done;
        let bytes = upload.bytes();
        let sent = match self.faults {
            Some(plan) => plan.damage(fault, self.attempt, global, upload),
            None => Sent::Upload(upload),
        };
        Arrival::Sent(Box::new(Delivery { sent, bytes, memory, teacher_passes, seen }))
    }
}

/// What becomes of a client.
enum Arrival {
    /// Nothing arrives; the reason may be known.
    Nothing(IncidentKind, String),
    /// Training failed.
    Failed(FlError),
    Sent(Box<Delivery>),
}

/// What a client sends, and what is known about it.
struct Delivery {
    sent: Sent,
    bytes: u64,
    memory: Payload,
    teacher_passes: u64,
    /// Nothing if the upload was damaged on its way.
    seen: Option<Seen>,
}

/// State shared by workers.
struct Fold<'a> {
    coordinator: &'a mut Coordinator,
    memories: &'a Memories,
    /// Clients that finished before the round was resumed.
    kept: &'a mut BTreeMap<usize, Finished>,
    faulty: bool,
    attempt: u64,
    spare: &'a mut Vec<Params>,
    broadcast: &'a Broadcast,
    trainable: &'a [Range<usize>],
    diversity: &'a mut Diversity,
    /// By position, with the client.
    waiting: BTreeMap<usize, (usize, Result<Arrival, FlError>)>,
    claimed: usize,
    folded: usize,
    stopped: bool,
    failed: Option<FlError>,
    tally: Tally,
}

impl Fold<'_> {
    /// Accepts a finished client and folds all that are next.
    fn put(&mut self, position: usize, client: usize, done: Result<Arrival, FlError>) {
        // All earlier positions are already claimed, so the first error will be known without starting another client.
        self.stopped |= done.is_err();
        debug_assert!(position >= self.folded, "client {client} is folded twice");
        self.waiting.insert(position, (client, done));
        while self.failed.is_none() {
            let Some((client, done)) = self.waiting.remove(&self.folded) else {
                break;
            };
            if let Err(error) = done.and_then(|done| self.fold(client, done)) {
                self.failed = Some(error);
                self.stopped = true;
            }
            self.folded += 1;
        }
    }

    /// Folds in one client. Its memory is stored at the end of the round: the upload may still be left out.
    fn fold(&mut self, client: usize, arrival: Arrival) -> Result<(), FlError> {
        let start = Instant::now();
        match arrival {
            Arrival::Nothing(kind, reason) => {
                self.tally.reached += usize::from(kind != IncidentKind::DroppedBefore);
                self.note(client, kind, reason);
            }
            Arrival::Failed(error) => {
                self.tally.reached += 1;
                self.note(client, IncidentKind::Failed, error.to_string());
                self.tally.failures.push(error);
            }
            Arrival::Sent(delivery) => {
                self.tally.reached += 1;
                self.deliver(client, *delivery)?;
            }
        }
        self.tally.folding += start.elapsed();
        Ok(())
    }

    fn deliver(&mut self, client: usize, delivery: Delivery) -> Result<(), FlError> {
        let Delivery { sent, bytes, memory, teacher_passes, seen } = delivery;
        self.tally.bytes_up += bytes;
        self.tally.largest = self.tally.largest.max(bytes);
        self.tally.teacher_passes += teacher_passes;
        let (upload, again) = match sent {
            Sent::Upload(upload) => (upload, None),
            Sent::Twice(upload) => (upload.clone(), Some(upload)),
            Sent::Bytes(bytes) => {
                let verdict = self.coordinator.accept_bytes(&bytes)?;
                self.settle(client, verdict.err());
                return Ok(());
            }
        };
        if self.faulty
            && let Err(reason) = self.coordinator.examine(&upload)
        {
            self.settle(client, Some(reason));
            return Ok(());
        }
        if let Some(seen) = seen {
            self.diversity.add(&self.broadcast.global, &upload.params, self.trainable, seen.drift);
            self.tally.seen.push(seen);
        }
        self.tally.terms.merge(&upload.terms);
        let spare = self.coordinator.fold(upload)?;
        self.spare.extend(spare);
        self.tally.memories.push((client, memory));
        self.tally.accepted += 1;
        if let Some(again) = again {
            self.tally.bytes_up += bytes;
            let verdict = self.coordinator.accept(again)?;
            self.settle(client, verdict.err());
        }
        Ok(())
    }

    /// Notes an upload that the server refused.
    fn settle(&mut self, client: usize, refused: Option<Rejection>) {
        if let Some(reason) = refused {
            self.note(client, IncidentKind::Refused, reason.to_string());
        }
    }

    fn note(&mut self, client: usize, kind: IncidentKind, reason: String) {
        self.tally.incidents.push(Incident { client: client as u64, kind, reason, repeat: self.attempt });
    }
}

/// How many uploads of this many weights may exist at once. A single worker folds each before it starts the next.
fn window(threads: usize, weights: usize) -> usize {
    let fits = WAITING_BYTES / (4 * weights).max(1);
    if threads == 1 { 1 } else { fits.min(WAITING_MOST).max(2 * threads) }
}

/// Maximum bytes of a round's uploads that exist at once.
pub fn waiting_bytes(threads: usize, clients: usize, weights: usize) -> u64 {
    4 * (window(threads.min(clients).max(1), weights).min(clients) * weights) as u64
}

/// The server's side of a round, and memory that rounds reuse.
pub(crate) struct Folding<'a> {
    pub(crate) coordinator: &'a mut Coordinator,
    pub(crate) memories: &'a Memories,
    pub(crate) spare: &'a mut Vec<Params>,
    pub(crate) diversity: &'a mut Diversity,
}

/// Runs all clients of a round that are not among `kept`, one per worker, and folds all of them. Returns the first
/// error in schedule order; nothing if the keeper stopped the round.
pub(crate) fn run(
    clients: &Clients<'_>,
    trainers: &mut [Trainer],
    folding: Folding<'_>,
    kept: &mut BTreeMap<usize, Finished>,
) -> Result<Option<Tally>, FlError> {
    let Folding { coordinator, memories, spare, diversity } = folding;
    let threads = trainers.len().min(clients.schedule.len()).max(1);
    let window = window(threads, clients.broadcast.global.len());
    // The first round allocates all the memory a round can need, so that later ones do not grow by chance.
    let here = |id: &&usize| !kept.contains_key(*id) && !clients.absent.contains_key(*id);
    let here = clients.schedule.iter().filter(here).count();
    while spare.len() < window.min(here) {
        spare.push(Params(clients.broadcast.global.to_vec()));
    }
    let shared = Shared {
        window,
        wake: Condvar::new(),
        fold: Mutex::new(Fold {
            coordinator,
            memories,
            kept,
            faulty: clients.faults.is_some(),
            attempt: clients.attempt as u64,
            spare,
            broadcast: clients.broadcast,
            trainable: clients.experiment.federation.model.layout().trainable(),
            diversity,
            waiting: BTreeMap::new(),
            claimed: 0,
            folded: 0,
            stopped: false,
            failed: None,
            tally: Tally::default(),
        }),
    };
    let (first, others) = trainers[..threads].split_at_mut(1);
    thread::scope(|scope| {
        for trainer in others {
            let started = thread::Builder::new().spawn_scoped(scope, || shared.work(clients, trainer));
            // If no more threads can be started, the others do the work.
            if started.is_err() {
                break;
            }
        }
        shared.work(clients, &mut first[0]);
    });
    let fold = shared.fold.into_inner().unwrap_or_else(PoisonError::into_inner);
    let diversity = fold.diversity.take();
    match fold.failed {
        Some(error) => Err(error),
        None if fold.folded < clients.schedule.len() => Ok(None),
        None => {
            let mut tally = Tally { diversity, ..fold.tally };
            tally.bytes_up += tally.late() * if tally.largest > 0 { tally.largest } else { clients.most_bytes() };
            Ok(Some(tally))
        }
    }
}

/// What a worker does next.
enum Claim {
    /// The client sends nothing in time, so it need not train.
    Silent(IncidentKind, String),
    /// The client finished before the round was resumed.
    Kept(Box<Finished>),
    /// The client trains, with its memory and a buffer for its weights.
    Train { memory: Payload, buffer: Params },
}

struct Shared<'a> {
    window: usize,
    wake: Condvar,
    fold: Mutex<Fold<'a>>,
}

impl<'a> Shared<'a> {
    fn work(&self, clients: &Clients<'_>, trainer: &mut Trainer) {
        let _guard = StopOnPanic(self);
        let (experiment, schedule) = (clients.experiment, clients.schedule);
        while let Some((position, claim)) = self.claim(clients) {
            let id = schedule[position];
            let samples = clients.samples(id);
            let start = Instant::now();
            let done = match claim {
                Claim::Silent(kind, reason) => {
                    let mut fold = self.lock();
                    fold.put(position, id, Ok(Arrival::Nothing(kind, reason)));
                    drop(fold);
                    self.wake.notify_all();
                    continue;
                }
                Claim::Kept(done) => Ok(*done),
                Claim::Train { memory, buffer } => {
                    let task = experiment.federation.task(id, samples, clients.broadcast, &memory);
                    client(trainer, &task, buffer).inspect(|done| clients.keeper.finished(done, start.elapsed()))
                }
            };
            let trained = start.elapsed();
            let done = match done {
                Ok(done) => Ok(clients.send(trainer, done, samples)),
                Err(error) if clients.faults.is_some() && error.is_divergence() => Ok(Arrival::Failed(error)),
                Err(error) => Err(error),
            };
            let mut fold = self.lock();
            fold.tally.busy += trained;
            fold.tally.looking += start.elapsed() - trained;
            fold.put(position, id, done);
            drop(fold);
            self.wake.notify_all();
        }
    }

    /// The next position of the schedule, and its work.
    fn claim(&self, clients: &Clients<'_>) -> Option<(usize, Claim)> {
        let mut fold = self.lock();
        loop {
            let position = fold.claimed;
            if fold.stopped || position == clients.schedule.len() || clients.keeper.stop() {
                return None;
            }
            if position < fold.folded + self.window {
                fold.claimed += 1;
                let id = clients.schedule[position];
                if let Some(kind) = clients.fault(id).and_then(Fault::silence) {
                    return Some((position, Claim::Silent(kind, String::new())));
                }
                if let Some((kind, reason)) = clients.absent.get(&id).cloned() {
                    return Some((position, Claim::Silent(kind, reason)));
                }
                if let Some(done) = fold.kept.remove(&id) {
                    return Some((position, Claim::Kept(Box::new(done))));
                }
                let memory = fold.memories.get(&id).cloned().unwrap_or_default();
                return Some((position, Claim::Train { memory, buffer: fold.spare.pop().unwrap_or_default() }));
            }
            fold = self.wake.wait(fold).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Fold<'a>> {
        self.fold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the others when a worker panics, so that the panic propagates instead of a deadlock.
struct StopOnPanic<'a, 'b>(&'a Shared<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().stopped = true;
            self.0.wake.notify_all();
        }
    }
}
