//! What a folder already has of a run.

use std::io::ErrorKind;
use std::path::Path;

use fedelity_record::{
    Header, RecordError, RoundRecord, RoundsFile, RunFolder, Salvage, Status, names, read_summary, salvage_rounds_of,
};
use fedelity_report::settled;

use crate::ExperimentError;
use crate::checkpoint::{CheckpointFolder, Restored};
use crate::error::Result;
use crate::progress::accuracies;
use crate::run::{Outcome, Run};

/// What a folder already has of a run.
#[derive(Default)]
pub(crate) struct Earlier {
    pub(crate) header: Option<Header>,
    /// The rounds before it goes on.
    pub(crate) rounds: Vec<RoundRecord>,
    /// How many more were recorded, and are run again.
    pub(crate) again: usize,
    pub(crate) restored: Restored,
    /// How it ended, if it did, and what its summary claims against that.
    pub(crate) ended: Option<(Outcome, Vec<String>)>,
}

impl Run<'_> {
    /// The record in a folder, if there is one with a header: an error if it is that of another run, or is longer than this.
    /// Rounds that follow a missing one are left out; the number of those that were recorded is returned, too.
    pub(crate) fn recorded(&self, folder: &RunFolder) -> Result<Option<(Salvage, usize)>> {
        let path = folder.file(names::ROUNDS);
        let planned = self.study.settings.config.rounds as u64;
        let mut salvage = match salvage_rounds_of(&path, &self.header()) {
            Ok(salvage) => salvage,
            // The run was stopped before its first round.
            Err(RecordError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
            Err(RecordError::NoHeader { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.belongs(&salvage.header, &path)?;
        let recorded = salvage.rounds.len();
        let whole = (1..).zip(&salvage.rounds).take_while(|(n, round)| *n == round.round).count();
        salvage.rounds.truncate(whole);
        if whole as u64 > planned {
            let more = format!("rounds = {planned}: the run already has {whole} rounds; rounds may be {whole} or more");
            return Err(ExperimentError::path(folder.path(), more));
        }
        Ok(Some((salvage, recorded)))
    }

    /// What the folder already has of this run.
    pub(crate) fn earlier(&self, folder: &RunFolder, place: &CheckpointFolder) -> Result<Earlier> {
        let path = folder.file(names::ROUNDS);
        let Some((Salvage { header, headless, mut rounds, problems }, recorded)) = self.recorded(folder)? else {
            // One without a header is of no use.
            let mut restored = Restored::default();
            if path.exists() {
                folder.remove(names::ROUNDS)?;
                if place.has_states() {
                    let what = "is empty or has no line that can be read: the run starts over, with the same results";
                    restored.notes.push(format!("{}: {what}", path.display()));
                }
            }
            return Ok(Earlier { restored, ..Earlier::default() });
        };
        let (whole, planned) = (rounds.len(), self.study.settings.config.rounds);
        // The rounds count, not what the summary makes of them.
        let summary = read_summary(&folder.file(names::SUMMARY)).ok().map(|claimed| settled(claimed, &header, &rounds));
        let ended = summary.filter(|(summary, _)| match summary.status {
            Status::Finished => whole == planned,
            Status::Diverged { .. } | Status::StoppedEarly { .. } => true,
            Status::Interrupted => false,
        });
        let ended = ended.map(|(summary, against)| {
            (Outcome { summary, accuracies: accuracies(&rounds), divergence: None }, against)
        });
        let model = folder.file(names::MODEL);
        let gone = ended.is_some() && !self.federated && !model.exists();
        let mut restored = if ended.is_some() && !gone { Restored::default() } else { place.restore(whole)? };
        // From the last state, a model that is gone is written again.
        let ended = ended.filter(|_| !gone || restored.rounds() < whole);
        if gone && ended.is_none() {
            restored.notes.push(format!("{}: was missing, and is written again", model.display()));
        }
        let mut again = 0;
        if ended.is_none() {
            rounds.truncate(restored.rounds());
            again = recorded - rounds.len();
        }
        if headless && ended.is_some() {
            RoundsFile::resume(&path, &header, whole)?;
        }
        if whole < recorded || headless {
            restored.notes.extend(problems.iter().map(|problem| format!("{}: {problem}", path.display())));
        }
        Ok(Earlier { header: Some(header), rounds, again, restored, ended })
    }

    /// Rejects a record of another run.
    fn belongs(&self, header: &Header, path: &Path) -> Result<()> {
        if header.federated != self.federated {
            let reason = match header.federated {
                true => "it is the record of a federation whose clients ran elsewhere: its server goes on with it",
                false => {
                    "it is the record of a simulation, which 'fedelity resume' goes on with; choose another folder"
                }
            };
            return Err(ExperimentError::path(path, reason));
        }
        if let Some((what, then, now)) = header.first_difference(&self.header()) {
            let reason = format!("the run cannot be resumed: its {what} was {then} and is now {now}");
            return Err(ExperimentError::path(path, reason));
        }
        Ok(())
    }
}
