//! The server's half.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fedelity_files::Lock;
use fedelity_fl::wire::Wire;
use fedelity_fl::{Evaluation, Finished, FlError, Payload, Rejection, ServerState, Upload};
use fedelity_nn::checkpoint::model_bytes;
use fedelity_nn::{Model, Params};
use fedelity_record::{IncidentKind, RecordError, RoundRecord, RunFolder, Status, names};
use fedelity_sim::{Absent, Closing, OpenRound, Progress, Simulation};

use super::Agreement;
use super::envelope::{ExchangeError, seal, unseal};
use crate::ExperimentError;
use crate::assemble::Study;
use crate::checkpoint::{self, CheckpointFolder, Checkpoints};
use crate::error::Result;
use crate::progress::RunProgress;
use crate::run::{Outcome, Run, lock};

/// How many refused messages of one client are recorded in a round.
const REFUSALS: usize = 5;
/// The features of the closely examined client in a saved server.
const FEATURES: &str = "features";

/// A server that gets its messages from outside.
///
/// Its rounds are those of a simulation whose clients are elsewhere: evaluation, records, notices, early stopping and
/// checkpoints are the same. What only a client knows is absent from its records.
pub struct Server {
    study: Study,
    agreement: Agreement,
    digest: [u8; 32],
    threads: usize,
    progress: RunProgress,
    /// All rounds so far.
    records: Vec<RoundRecord>,
    /// The last round in which an upload of a client counted.
    accepted: BTreeMap<usize, usize>,
    open: Option<Exchange>,
    /// While it records in a folder.
    lock: Option<Lock>,
}

/// The messages of an open round.
struct Exchange {
    round: OpenRound,
    /// The broadcast, encoded once for all clients.
    message: Vec<u8>,
    /// Clients that it was made for.
    told: BTreeSet<usize>,
    /// Uploads that have arrived and been checked.
    arrived: BTreeMap<usize, Finished>,
    /// Clients that will not send one.
    absent: Absent,
    /// How many messages of each client were refused.
    refused: BTreeMap<usize, usize>,
}

impl Exchange {
    fn of(round: OpenRound) -> Self {
        let message = round.broadcast().to_bytes();
        let (told, arrived, absent, refused) = Default::default();
        Self { round, message, told, arrived, absent, refused }
    }
}

/// How a round ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    /// The weights are new.
    Closed {
        /// Clients whose uploads counted.
        counted: Vec<usize>,
        /// Clients whose uploads the aggregation rule left out.
        left_out: Vec<usize>,
    },
    /// Too few uploads arrived; nothing has changed, and the round is open again for other clients.
    Repeated { arrived: usize, needed: usize },
    /// The global model diverged: no round follows.
    Diverged { reason: String },
}

impl Server {
    /// A server before its first round, which records nothing. The study has one method and one seed.
    pub fn new(study: Study, threads: usize) -> Result<Self> {
        let run = run_of(&study, threads)?;
        let simulation = Simulation::new(study.experiment(run.method, run.seed, threads))?;
        let progress = RunProgress::new(&run, simulation, &[]);
        let agreement = Agreement::of(&study, run.method, run.seed);
        Ok(Self::with(study, threads, agreement, progress))
    }

    /// A server that records its rounds in a run folder. If the folder has a part of this federation, it goes on from there,
    /// with the same results, whenever it was stopped.
    pub fn in_folder(study: Study, threads: usize, path: &Path) -> Result<Self> {
        let run = run_of(&study, threads)?;
        let folder = match RunFolder::create(path) {
            Err(RecordError::Exists { .. }) => RunFolder::open(path)?,
            other => other?,
        };
        let lock = lock(folder.path())?;
        let place = CheckpointFolder::of(folder.path(), run.identity());
        let mut earlier = run.earlier(&folder, &place)?;
        if earlier.header.is_none() && !is_fresh(folder.path()) {
            let reason = "it has other files than those of a federation; choose another folder";
            return Err(ExperimentError::path(path, reason));
        }
        let records = earlier.rounds.clone();
        let agreement = Agreement::of(&study, run.method, run.seed);
        let (progress, accepted) = match earlier.ended.take() {
            None => {
                let accepted = earlier.restored.accepted.clone();
                (run.begin(&folder, earlier, place, None)?, accepted)
            }
            // Nothing is written to a folder that is complete.
            Some((outcome, against)) => {
                let restored = place.restore(records.len())?;
                let Some(progress) = restored.progress.filter(|progress| progress.server.round == records.len()) else {
                    return Err(ExperimentError::path(path, "its federation has ended; choose another folder"));
                };
                let experiment = study.experiment(run.method, run.seed, threads);
                let mut ended = RunProgress::new(&run, Simulation::resume(experiment, progress, &records)?, &records);
                ended.summary = outcome.summary;
                ended.notes = against;
                (ended, restored.accepted)
            }
        };
        Ok(Self { records, accepted, lock: Some(lock), ..Self::with(study, threads, agreement, progress) })
    }

    /// A server as it was when it was [saved](Self::save), which records nothing.
    pub fn restore(study: Study, threads: usize, saved: &[u8]) -> Result<Self, ExchangeError> {
        Self::read_saved(study, threads, saved).map_err(ExchangeError::of_saved)
    }

    fn read_saved(study: Study, threads: usize, saved: &[u8]) -> Result<Self, ExchangeError> {
        let broken = |error: ExperimentError| match error {
            ExperimentError::Federation(error) => ExchangeError::Round(error),
            error => ExchangeError::Study(error.to_string()),
        };
        let run = run_of(&study, threads).map_err(broken)?;
        let agreement = Agreement::of(&study, run.method, run.seed);
        let ([clients, state, features], mut rest) = unseal::<3>(&agreement.digest(), saved)?;
        let mut take = |bytes: usize| -> Result<&[u8], ExchangeError> {
            let (taken, left) = rest.split_at_checked(bytes).ok_or(ExchangeError::Foreign)?;
            rest = left;
            Ok(taken)
        };
        let mut accepted = BTreeMap::new();
        for _ in 0..clients.unwrap_or(0) {
            let pair = take(16)?.as_chunks::<8>().0;
            let [client, round] = [0, 1].map(|at| u64::from_le_bytes(pair[at]) as usize);
            accepted.insert(client, round);
        }
        let server = ServerState::from_bytes(take(state.unwrap_or(0))?)?;
        let features = Payload::from_bytes(take(features.unwrap_or(0))?)?.opt(FEATURES).map(|found| found.to_vec());
        let records: Vec<RoundRecord> = serde_json::from_slice(rest).map_err(|_| ExchangeError::Foreign)?;
        let progress = Progress { server, memories: BTreeMap::new(), features };
        let simulation = Simulation::resume(study.experiment(run.method, run.seed, threads), progress, &records)?;
        let progress = RunProgress::new(&run, simulation, &records);
        Ok(Self { records, accepted, ..Self::with(study, threads, agreement, progress) })
    }

    fn with(study: Study, threads: usize, agreement: Agreement, progress: RunProgress) -> Self {
        let (digest, records, accepted) = (agreement.digest(), Vec::new(), BTreeMap::new());
        Self { study, agreement, digest, threads, progress, records, accepted, open: None, lock: None }
    }

    /// What clients need to know before they start.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.study.model
    }

    /// The names of the clients, by number; empty if they have none.
    pub fn names(&self) -> &[String] {
        &self.study.pool.partition.names
    }

    /// The number of closed rounds.
    pub fn rounds(&self) -> usize {
        self.progress.simulation.rounds()
    }

    /// The records of all rounds so far.
    pub fn records(&self) -> &[RoundRecord] {
        &self.records
    }

    /// What the user should know about a folder that it goes on with.
    pub fn notes(&self) -> &[String] {
        &self.progress.notes
    }

    /// Whether no round follows: all have been run, the run stopped early, or it diverged.
    pub fn is_done(&self) -> bool {
        self.progress.is_done() || matches!(self.progress.summary.status, Status::Diverged { .. })
    }

    pub fn weights(&self) -> &Params {
        self.progress.simulation.global()
    }

    /// The global model as a file of its own, with its description.
    pub fn model_file(&self) -> Result<Vec<u8>> {
        let run = run_of(&self.study, self.threads)?;
        Ok(model_bytes(&self.study.model, self.weights(), Some(&run.card()))?)
    }

    /// How many uploads a round needs.
    pub fn needed(&self) -> usize {
        self.study.needed()
    }

    /// The last round, counted from 0, in which an upload of a client counted.
    pub fn accepted(&self, client: usize) -> Option<usize> {
        self.accepted.get(&client).copied()
    }

    /// Its state between rounds, as bytes. An open round is not part of it.
    pub fn save(&self) -> Vec<u8> {
        let simulation = &self.progress.simulation;
        let state = simulation.server().to_bytes();
        let features = simulation.local_features().map(|found| Payload::new().with(FEATURES, found.to_vec()));
        let features = features.unwrap_or_default().to_bytes();
        let mut body = Vec::new();
        for (&client, &round) in &self.accepted {
            body.extend((client as u64).to_le_bytes());
            body.extend((round as u64).to_le_bytes());
        }
        body.extend(&state);
        body.extend(&features);
        body.extend(serde_json::to_vec(&self.records).unwrap_or_default());
        seal(&self.digest, &[Some(self.accepted.len()), Some(state.len()), Some(features.len())], &body)
    }

    /// Opens the next round, if none is open, and returns its clients: those of the simulation or, if the round is
    /// repeated, others.
    pub fn open(&mut self) -> Result<Vec<usize>> {
        if self.open.is_none() {
            if self.is_done() {
                let rounds = self.rounds();
                let message = format!("the federation has ended after round {rounds}: no other can be opened");
                return Err(ExperimentError::Config(message));
            }
            let mut open = Exchange::of(self.progress.simulation.open()?);
            // What had arrived when the server was stopped.
            for done in std::mem::take(&mut self.progress.finished) {
                if self.progress.simulation.examine(&done.upload).is_ok() {
                    open.arrived.insert(done.upload.client, done);
                }
            }
            self.open = Some(open);
        }
        Ok(self.open.iter().flat_map(|open| open.round.clients()).copied().collect())
    }

    /// What a client of the open round is sent; nothing for others.
    pub fn message(&mut self, client: usize) -> Option<Vec<u8>> {
        let accepted = self.accepted(client);
        let open = self.open.as_mut().filter(|open| open.round.clients().contains(&client))?;
        open.told.insert(client);
        Some(seal(&self.digest, &[Some(client), accepted], &open.message))
    }

    /// Takes in what a client sent. What is refused does not count, and the error says why.
    pub fn accept(&mut self, sender: usize, bytes: &[u8]) -> Result<(), ExchangeError> {
        let done = self.read(sender, bytes);
        let Some(open) = &mut self.open else { return done.map(|_| ()) };
        match done {
            Ok(done) => {
                if let Some(writer) = self.progress.writer() {
                    writer.client(&done);
                }
                open.absent.remove(&sender);
                open.arrived.insert(sender, done);
                Ok(())
            }
            Err(error) => {
                let before = open.refused.entry(sender).or_insert(0);
                *before += 1;
                if *before <= REFUSALS && sender < self.agreement.clients {
                    open.round.refuse(sender, error.to_string());
                }
                Err(error)
            }
        }
    }

    /// An upload that counts, if the round ends with it.
    fn read(&self, sender: usize, bytes: &[u8]) -> Result<Finished, ExchangeError> {
        let ([_, teacher_passes], body) = unseal::<2>(&self.digest, bytes)?;
        let upload = Upload::from_bytes(body)?;
        if upload.client != sender {
            return Err(ExchangeError::Sender { sender, named: upload.client });
        }
        self.progress.simulation.examine(&upload)?;
        if self.open.as_ref().is_some_and(|open| open.arrived.contains_key(&sender)) {
            return Err(Rejection::Twice { client: sender }.into());
        }
        let teacher_passes = teacher_passes.unwrap_or(0) as u64;
        Ok(Finished { upload, memory: Payload::new(), teacher_passes })
    }

    /// Notes that a client of the open round will send nothing: it cannot be reached, has dropped out after its message was
    /// made or, with a reason, has failed. Of others, there is nothing to note.
    pub fn absent(&mut self, client: usize, reason: Option<&str>) {
        let Some(open) = self.open.as_mut() else { return };
        if open.arrived.contains_key(&client) || !open.round.clients().contains(&client) {
            return;
        }
        let why = match reason {
            None if open.told.contains(&client) => (IncidentKind::DroppedDuring, String::new()),
            None => (IncidentKind::DroppedBefore, String::new()),
            Some(reason) => (IncidentKind::Failed, reason.to_string()),
        };
        open.absent.insert(client, why);
    }

    /// The clients of the open round that may still send their uploads.
    pub fn missing(&self) -> Vec<usize> {
        let Some(open) = &self.open else { return Vec::new() };
        let missing = |client: &&usize| !open.arrived.contains_key(client) && !open.absent.contains_key(client);
        open.round.clients().iter().filter(missing).copied().collect()
    }

    /// Ends the round with what has arrived, and records it. It is on disk when this returns.
    pub fn close(&mut self) -> Result<RoundEnd> {
        let round = self.rounds();
        let Some(Exchange { round: open, arrived, absent, .. }) = self.open.take() else {
            return Err(FlError::Order { what: "closing a round", round: round + 1, state: "not open" }.into());
        };
        let run = run_of(&self.study, self.threads)?;
        let sent: Vec<usize> = arrived.keys().copied().collect();
        let record = match self.progress.simulation.close(open, arrived.into_values().collect(), absent) {
            Ok(Closing::Closed(record)) => record,
            Ok(Closing::Repeated { round, accepted, needed }) => {
                self.open = Some(Exchange::of(*round));
                return Ok(RoundEnd::Repeated { arrived: accepted, needed });
            }
            Err(error) => {
                self.progress.fail(&run, error)?;
                let reason = self.progress.divergence.clone().unwrap_or_default();
                return Ok(RoundEnd::Diverged { reason });
            }
        };
        let counted = self.progress.simulation.counted().to_vec();
        self.accepted.extend(counted.iter().map(|&client| (client, round)));
        self.records.push(self.progress.keep(&run, *record, &self.accepted)?);
        self.progress.wait()?;
        let left_out = sent.into_iter().filter(|client| !counted.contains(client)).collect();
        Ok(RoundEnd::Closed { counted, left_out })
    }

    /// Gives the open round up: everything is as it was before it.
    pub fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            self.progress.simulation.abandon(open.round);
        }
    }

    /// Completes the record, if there is one. If rounds are left, the federation is interrupted, and
    /// [goes on](Self::in_folder) later.
    pub fn finish(&mut self) -> Result<Outcome> {
        self.abandon();
        let run = run_of(&self.study, self.threads)?;
        if !self.progress.is_done() && !matches!(self.progress.summary.status, Status::Diverged { .. }) {
            self.progress.summary.status = Status::Interrupted;
        }
        let notes = &mut Vec::new();
        let outcome = self.progress.end(&run, &mut |note| notes.push(note.to_string()))?;
        self.progress.notes.append(notes);
        self.lock = None;
        Ok(outcome)
    }

    /// The global model on the test samples.
    pub fn evaluate(&mut self) -> Evaluation {
        self.progress.simulation.evaluate()
    }
}

/// The one method with the one seed of a study, with clients elsewhere.
fn run_of(study: &Study, threads: usize) -> Result<Run<'_>> {
    let ([method], [seed]) = (&study.settings.methods[..], &study.settings.config.seeds[..]) else {
        return Err(ExperimentError::Config("a federation has one method and one seed".to_string()));
    };
    if !study.settings.config.faults.is_none() {
        let message = "[faults] is for simulations: leave it out of the configuration of a federation";
        return Err(ExperimentError::Config(message.to_string()));
    }
    let checkpoints = Checkpoints::Clients;
    Ok(Run { federated: true, ..study.one(method, method.name, *seed, threads, checkpoints) })
}

/// Whether a folder has nothing but what a server writes before its first round.
fn is_fresh(folder: &Path) -> bool {
    let ours = [names::CONFIG, names::PARTITION, names::HOLDINGS, names::LAYERS, names::ROUNDS, checkpoint::FOLDER];
    let known = |name: &str| ours.contains(&name) || name.starts_with('.');
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().all(|entry| entry.file_name().to_str().is_some_and(known))
}
