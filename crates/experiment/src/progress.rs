//! A run on its way through its rounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fedelity_files::Claim;
use fedelity_fl::{Finished, FlError};
use fedelity_nn::checkpoint::save_model;
use fedelity_record::{RecordError, RoundRecord, RoundsFile, RunFolder, Status, Summary, names};
use fedelity_sim::{Keeper, Simulation};

use crate::best::RoundJudge;
use crate::checkpoint::{self, CheckpointFolder, Checkpoints, ClosedRound, Writer};
use crate::error::Result;
use crate::features;
use crate::privacy::PrivacyAccount;
use crate::run::{Outcome, Run, still_ours};
use crate::stop::StopSign;

/// A client is kept if it trained at least this many times as long as it takes to write it.
const WORTH: u32 = 30;
/// How long it takes to write a client, apart from its bytes, and per byte.
const WRITE: Duration = Duration::from_micros(50);
const WRITE_NANOS: u64 = 2;

/// A run between two rounds.
pub(crate) struct RunProgress {
    pub(crate) simulation: Simulation,
    /// Where it is recorded, if it is.
    pub(crate) record: Option<RunRecord>,
    /// Clients that finished the next round before the run was stopped.
    pub(crate) finished: Vec<Finished>,
    pub(crate) notes: Vec<String>,
    pub(crate) stopped_early: bool,
    pub(crate) summary: Summary,
    pub(crate) accuracies: Vec<(u64, f64)>,
    pub(crate) divergence: Option<String>,
    pub(crate) judge: RoundJudge,
    /// What the rounds so far reveal, if there is noise.
    pub(crate) account: Option<PrivacyAccount>,
}

/// The folder of a run on its way.
pub(crate) struct RunRecord {
    pub(crate) folder: RunFolder,
    pub(crate) place: CheckpointFolder,
    pub(crate) file: RoundsFile,
    pub(crate) writer: Option<Writer>,
    /// The claim on it, if processes share work.
    pub(crate) claim: Option<Arc<Claim>>,
}

impl RunProgress {
    /// A run after these rounds.
    pub(crate) fn new(run: &Run<'_>, simulation: Simulation, rounds: &[RoundRecord]) -> Self {
        let mut progress = Self {
            simulation,
            record: None,
            finished: Vec::new(),
            notes: Vec::new(),
            stopped_early: rounds.last().is_some_and(|last| last.early_stop.is_some()),
            summary: Summary::default(),
            accuracies: accuracies(rounds),
            divergence: None,
            judge: RoundJudge::new(&run.study.settings.config),
            account: run.study.privacy(run.method).map(PrivacyAccount::new),
        };
        for record in rounds {
            progress.summary.add(record);
            progress.judge.recall(record);
            progress.account.iter_mut().for_each(|account| account.recall(record));
        }
        progress
    }

    /// Whether no round follows.
    pub(crate) fn is_done(&self) -> bool {
        self.simulation.done() || self.stopped_early
    }

    /// What keeps its work on disk, if anything does.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.record.as_ref()?.writer.as_ref()
    }

    /// Waits until what is recorded is on disk.
    pub(crate) fn wait(&mut self) -> Result<()> {
        if let Some(writer) = self.writer() {
            writer.wait();
        }
        self.failed_writer().map_or(Ok(()), Writer::finish)
    }

    /// The writer, if it could not write something.
    fn failed_writer(&mut self) -> Option<Writer> {
        self.record.as_mut()?.writer.take_if(|writer| writer.has_failed())
    }

    /// Runs the next round and records it. Nothing if the run stops here.
    pub(crate) fn step(&mut self, run: &Run<'_>, sign: &StopSign) -> Result<Option<RoundRecord>> {
        let finished = std::mem::take(&mut self.finished);
        let keeper = RunKeeper { writer: self.record.as_ref().and_then(|record| record.writer.as_ref()), sign };
        if keeper.stop() {
            return self.interrupted();
        }
        match self.simulation.step_from(finished, &keeper) {
            Ok(Some(record)) => self.keep(run, record, &BTreeMap::new()).map(Some),
            Ok(None) => self.interrupted(),
            Err(error) => self.fail(run, error).map(|()| None),
        }
    }

    /// Judges a round that was closed, and records it. `accepted` are the rounds of the last uploads that counted, by
    /// client, where clients keep their memory themselves.
    pub(crate) fn keep(
        &mut self,
        run: &Run<'_>,
        mut record: RoundRecord,
        accepted: &BTreeMap<usize, usize>,
    ) -> Result<RoundRecord> {
        self.judge.judge(&mut record, &self.simulation);
        self.account.iter_mut().for_each(|account| account.add(&mut record));
        self.stopped_early = record.early_stop.is_some();
        if let Some(on) = &mut self.record {
            still_ours(on.claim.as_deref())?;
            if let Some(chosen_by) = record.kept {
                let card = run.best_card(record.round, chosen_by);
                save_model(&on.folder.file(names::BEST), &run.study.model, self.simulation.global(), Some(&card))?;
            }
            on.file.append(&record)?;
            if let Some(writer) = &on.writer {
                let memories = self.simulation.memories();
                let changed = record.clients.iter().map(|&client| client as usize);
                writer.round(ClosedRound {
                    server: self.simulation.server().clone(),
                    changed: changed.map(|id| (id, memories.get(&id).cloned().unwrap_or_default())).collect(),
                    accepted: accepted.iter().map(|(&client, &round)| (client, round)).collect(),
                    features: self.simulation.local_features().map(<[f32]>::to_vec),
                    records: on.file.handle()?,
                });
            }
        }
        self.summary.add(&record);
        self.accuracies.extend(record.accuracy.map(|accuracy| (record.round, accuracy)));
        Ok(record)
    }

    /// Notes that training diverged; any other error is returned.
    pub(crate) fn fail(&mut self, run: &Run<'_>, error: FlError) -> Result<()> {
        let Some((round, client)) = error.divergence() else { return Err(error.into()) };
        let client = client.map(|client| client as u64);
        self.summary.status = Status::Diverged { round: round as u64, client };
        self.divergence = Some(run.named(error.to_string(), client));
        Ok(())
    }

    fn interrupted(&mut self) -> Result<Option<RoundRecord>> {
        self.summary.status = Status::Interrupted;
        // A checkpoint that cannot be written stops the run too.
        self.failed_writer().map_or(Ok(()), Writer::finish).map(|()| None)
    }

    /// Writes what a run leaves behind, if it is recorded.
    pub(crate) fn end(&mut self, run: &Run<'_>, note: &mut dyn FnMut(&str)) -> Result<Outcome> {
        if self.summary.status.is_complete() {
            self.summary.unlearnt = self.simulation.unlearnt();
        }
        if let Some(RunRecord { folder, place, file, writer, claim }) = self.record.take() {
            still_ours(claim.as_deref())?;
            file.finish()?;
            save_model(&folder.file(names::MODEL), &run.study.model, self.simulation.global(), Some(&run.card()))?;
            if let Some(clients) = self.simulation.clients() {
                folder.write_clients(&clients)?;
            }
            if let Some(found) = self.simulation.features() {
                // Only a figure is made from them: the runs that follow matter more.
                let bytes = features::bytes(&found).map_err(|error| error.to_string());
                let written = bytes.and_then(|bytes| {
                    folder.write(names::FEATURES, &bytes).map_err(|error: RecordError| error.to_string())
                });
                if let Err(reason) = written {
                    let (label, seed) = (run.label, run.seed);
                    note(&format!("{label}, seed {seed}: {reason}; the report will have no map of features"));
                }
            }
            writer.map_or(Ok(()), Writer::finish)?;
            still_ours(claim.as_deref())?;
            folder.write_summary(&self.summary)?;
            if self.summary.status != Status::Interrupted {
                folder.remove(names::BEFORE)?;
            }
            match (self.summary.status, run.checkpoints) {
                (Status::Interrupted, _) => {}
                // It can still be prolonged.
                (Status::Finished | Status::StoppedEarly { .. }, Checkpoints::Clients) => {
                    place.settle(self.simulation.rounds());
                }
                // What it went on from is not its last state.
                (Status::Finished | Status::StoppedEarly { .. }, Checkpoints::Off) | (Status::Diverged { .. }, _) => {
                    checkpoint::clear(folder.path());
                }
            }
        }
        let (summary, accuracies) = (self.summary.clone(), self.accuracies.clone());
        Ok(Outcome { summary, accuracies, divergence: self.divergence.clone() })
    }
}

pub(crate) fn accuracies(rounds: &[RoundRecord]) -> Vec<(u64, f64)> {
    rounds.iter().filter_map(|record| Some((record.round, record.accuracy?))).collect()
}

/// Keeps the clients of a round, and stops it on demand or when nothing can be kept.
struct RunKeeper<'a> {
    writer: Option<&'a Writer>,
    sign: &'a StopSign,
}

impl Keeper for RunKeeper<'_> {
    fn finished(&self, done: &Finished, took: Duration) {
        let arrays = done.upload.extra.bytes() + done.memory.bytes();
        let bytes = 4 * done.upload.params.len() as u64 + arrays;
        let worth = took >= WORTH * (WRITE + Duration::from_nanos(bytes * WRITE_NANOS));
        if let Some(writer) = self.writer.filter(|_| worth) {
            writer.client(done);
        }
    }

    fn stop(&self) -> bool {
        self.sign.is_asked() || self.writer.is_some_and(Writer::has_failed)
    }
}
