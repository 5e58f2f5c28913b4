//! A run on its way through its rounds.

use std::time::Duration;

use fedelity_fl::Finished;
use fedelity_nn::checkpoint::save_model;
use fedelity_record::{RecordError, RoundRecord, RoundsFile, RunFolder, Status, Summary, names};
use fedelity_sim::{Keeper, Simulation};

use crate::best::RoundJudge;
use crate::checkpoint::{self, CheckpointFolder, Checkpoints, ClosedRound, Writer};
use crate::error::Result;
use crate::features;
use crate::privacy::PrivacyAccount;
use crate::run::{Outcome, Run};
use crate::stop::StopSign;

/// A client is kept if it trained at least this many times as long as it takes to write it.
const WORTH: u32 = 30;
/// How long it takes to write a client, apart from its bytes, and per byte.
const WRITE: Duration = Duration::from_micros(50);
const WRITE_NANOS: u64 = 2;

/// A run between two rounds.
pub(crate) struct RunProgress {
    pub(crate) simulation: Simulation,
    pub(crate) file: RoundsFile,
    pub(crate) writer: Option<Writer>,
    /// Clients that finished the next round before the run was stopped.
    pub(crate) finished: Vec<Finished>,
    pub(crate) notes: Vec<String>,
    pub(crate) judge: RoundJudge,
    /// What the rounds so far reveal, if there is noise.
    pub(crate) account: Option<PrivacyAccount>,
    pub(crate) stopped_early: bool,
    pub(crate) summary: Summary,
    pub(crate) accuracies: Vec<(u64, f64)>,
    pub(crate) divergence: Option<String>,
}

impl RunProgress {
    /// Whether no round follows.
    pub(crate) fn is_done(&self) -> bool {
        self.simulation.done() || self.stopped_early
    }

    /// Runs the next round and records it. Nothing if the run stops here.
    pub(crate) fn step(&mut self, run: &Run<'_>, folder: &RunFolder, sign: &StopSign) -> Result<Option<RoundRecord>> {
        let keeper = RunKeeper { writer: self.writer.as_ref(), sign };
        if keeper.stop() {
            return self.interrupted();
        }
        let mut record = match self.simulation.step_from(std::mem::take(&mut self.finished), &keeper) {
            Ok(Some(record)) => record,
            Ok(None) => return self.interrupted(),
            Err(error) => {
                let Some((round, client)) = error.divergence() else { return Err(error.into()) };
                let client = client.map(|client| client as u64);
                self.summary.status = Status::Diverged { round: round as u64, client };
                self.divergence = Some(run.named(error.to_string(), client));
                return Ok(None);
            }
        };
        self.judge.judge(&mut record, &self.simulation);
        self.account.iter_mut().for_each(|account| account.add(&mut record));
        self.stopped_early = record.early_stop.is_some();
        if let Some(chosen_by) = record.kept {
            let card = run.best_card(record.round, chosen_by);
            save_model(&folder.file(names::BEST), &run.study.model, self.simulation.global(), Some(&card))?;
        }
        self.file.append(&record)?;
        if let Some(writer) = &self.writer {
            let memories = self.simulation.memories();
            let changed = record.clients.iter().map(|&client| client as usize);
            writer.round(ClosedRound {
                server: self.simulation.server().clone(),
                changed: changed.map(|id| (id, memories.get(&id).cloned().unwrap_or_default())).collect(),
                features: self.simulation.local_features().map(<[f32]>::to_vec),
                records: self.file.handle()?,
            });
        }
        self.summary.add(&record);
        self.accuracies.extend(record.accuracy.map(|accuracy| (record.round, accuracy)));
        Ok(Some(record))
    }

    fn interrupted(&mut self) -> Result<Option<RoundRecord>> {
        self.summary.status = Status::Interrupted;
        // A checkpoint that cannot be written stops the run too.
        match self.writer.take_if(|writer| writer.has_failed()) {
            Some(writer) => writer.finish().map(|()| None),
            None => Ok(None),
        }
    }

    /// Writes what a run leaves behind.
    pub(crate) fn end(
        mut self,
        run: &Run<'_>,
        folder: &RunFolder,
        place: &CheckpointFolder,
        note: &mut dyn FnMut(&str),
    ) -> Result<Outcome> {
        self.file.finish()?;
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
        self.writer.map_or(Ok(()), Writer::finish)?;
        folder.write_summary(&self.summary)?;
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
        Ok(Outcome { summary: self.summary, accuracies: self.accuracies, divergence: self.divergence })
    }
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
