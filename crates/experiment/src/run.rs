//! Runs one method with one seed into a run folder, or goes on with what the folder has.

use std::path::Path;
use std::sync::Arc;

use fedelity_files::{Claim, Lock, LockError};
use fedelity_fl::FlError;
use fedelity_record::{Header, Holdings, RunFolder, Status, Summary, names};
use fedelity_sim::Simulation;

use crate::ExperimentError;
use crate::assemble::Study;
use crate::best::RoundJudge;
use crate::checkpoint::{CheckpointFolder, Checkpoints, Restored, Writer};
use crate::config::MethodChoice;
use crate::earlier::Earlier;
use crate::error::Result;
use crate::header::sha256;
use crate::observer::{FrontError, Observer};
use crate::progress::{RunProgress, RunRecord};

/// As many rounds as may have no state on disk when a process is killed or its newest state is damaged.
const FEW: usize = 3;

/// One method with one seed.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub study: &'a Study,
    pub method: &'a MethodChoice,
    /// The method's name in this study.
    pub label: &'a str,
    pub seed: u64,
    pub threads: usize,
    pub checkpoints: Checkpoints,
    /// Whether clients run elsewhere and keep their memory themselves.
    pub federated: bool,
}

/// How a run ended.
pub struct Outcome {
    pub summary: Summary,
    /// Evaluated rounds, and their accuracy.
    pub accuracies: Vec<(u64, f64)>,
    /// Why training diverged, if it did.
    pub divergence: Option<String>,
}

impl Study {
    /// One method with one seed, in one process.
    pub(crate) fn one<'a>(
        &'a self,
        method: &'a MethodChoice,
        label: &'a str,
        seed: u64,
        threads: usize,
        checkpoints: Checkpoints,
    ) -> Run<'a> {
        Run { study: self, method, label, seed, threads, checkpoints, federated: false }
    }
}

impl Run<'_> {
    /// Runs all rounds and writes them into the folder. If the folder has a part of this run, it goes on from there;
    /// the results are the same.
    pub fn execute(&self, folder: &RunFolder, observer: &mut dyn Observer) -> Result<Outcome> {
        self.study.simulates()?;
        let stopped = |error: FrontError| ExperimentError::Stopped(error);
        let claim = observer.claim();
        let _lock = match (lock(folder.path()), &claim) {
            // Some network file systems have no locks; claims need none.
            (Err(ExperimentError::Lock { .. }), Some(_)) => None,
            (locked, _) => Some(locked?),
        };
        still_ours(claim.as_deref())?;
        let place = CheckpointFolder::of(folder.path(), self.identity());
        let earlier = self.earlier(folder, &place)?;
        if let Earlier { ended: Some((outcome, against)), .. } = earlier {
            against.iter().for_each(|what| observer.note(&format!("{}: {what}", folder.path().display())));
            observer.skip(self, &outcome);
            return Ok(outcome);
        }
        let mut progress = self.begin(folder, earlier, place, claim)?;
        observer.start(self, folder, progress.simulation.rounds()).map_err(stopped)?;
        progress.notes.iter().for_each(|note| observer.note(note));
        let sign = observer.stop();
        let (mut failed, mut short) = (None, None);
        while !progress.is_done() {
            let record = match progress.step(self, &sign) {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // What there is stays, and can be resumed with another quorum.
                Err(error @ ExperimentError::Federation(FlError::Quorum { .. })) => {
                    progress.summary.status = Status::Interrupted;
                    short = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            if let Err(error) = observer.round(self, &record) {
                progress.summary.status = Status::Interrupted;
                failed = Some(error);
                break;
            }
        }
        let outcome = progress.end(self, &mut |note| observer.note(note))?;
        if let Some(error) = short.or(failed.map(stopped)) {
            return Err(error);
        }
        observer.end(self, &outcome);
        Ok(outcome)
    }

    /// Writes what describes the run, and goes on from what there is.
    pub(crate) fn begin(
        &self,
        folder: &RunFolder,
        earlier: Earlier,
        place: CheckpointFolder,
        claim: Option<Arc<Claim>>,
    ) -> Result<RunProgress> {
        let study = self.study;
        let Earlier { header, mut rounds, again, restored, .. } = earlier;
        let experiment = study.experiment(self.method, self.seed, self.threads);
        let writer = match self.checkpoints {
            Checkpoints::Clients => Some(Writer::start(&place, &restored, claim.clone())?),
            Checkpoints::Off => {
                place.tidy(&restored);
                None
            }
        };
        let Restored { progress, finished, mut notes, .. } = restored;
        // A run that was as long as planned may have come to the end of its patience just then.
        let ends = rounds.len() < study.settings.config.rounds && RoundJudge::end(&study.settings.config, &mut rounds);
        let simulation = match progress {
            Some(progress) => Simulation::resume(experiment, progress, &rounds)?,
            None => Simulation::new(experiment)?,
        };
        let method = std::slice::from_ref(self.method);
        let config = study.settings.resolved_for(method, &[self.seed], names::PARTITION, Some(names::LAYERS));
        folder.write_config(&config)?;
        let config_sha256 = sha256(config.as_bytes());
        study.write_layers(folder)?;
        if !study.pool.partition.is_of_sites() {
            study.pool.partition.write(&folder.file(names::PARTITION), true)?;
            folder.write_holdings(&Holdings::new(study.holdings.clone()))?;
        }
        folder.remove(names::SUMMARY)?;
        let file = match header {
            // What describes the first part of the run stays.
            Some(header) => {
                if again > FEW {
                    folder.set_aside_rounds()?;
                    let kept = folder.file(names::BEFORE);
                    notes.push(format!(
                        "{} keeps the {again} rounds that are run again, until the run ends",
                        kept.display()
                    ));
                }
                let guessing = header.guessing.or(simulation.experiment().guessing());
                let rounds_now = study.settings.config.rounds as u64;
                let header = Header { rounds: rounds_now, config_sha256, guessing, ..header };
                match rounds.last().filter(|_| ends) {
                    Some(last) => {
                        let mut file = folder.resume_rounds(&header, rounds.len() - 1)?;
                        file.append(last)?;
                        file
                    }
                    None => folder.resume_rounds(&header, rounds.len())?,
                }
            }
            None => {
                let attackers = simulation.attackers().into_iter().map(|client| client as u64).collect();
                let local_evaluation = Some(simulation.local_evaluation());
                let guessing = simulation.experiment().guessing();
                let header = Header { local_evaluation, attackers, config_sha256, guessing, ..self.header() };
                folder.start_rounds(&header)?
            }
        };
        let record = Some(RunRecord { folder: folder.clone(), place, file, writer, claim });
        Ok(RunProgress { record, finished, notes, ..RunProgress::new(self, simulation, &rounds) })
    }
}

/// Makes this process the only one that writes to a folder.
pub(crate) fn lock(folder: &Path) -> Result<Lock> {
    Lock::acquire(folder).map_err(|error| match error {
        LockError::Held(holder) => ExperimentError::path(
            folder,
            format!("{holder} is writing to this folder; wait for it, or choose another folder"),
        ),
        LockError::Io(source) => ExperimentError::Lock { path: folder.to_path_buf(), source },
    })
}

/// An error if another process has taken over what was claimed.
pub(crate) fn still_ours(claim: Option<&Claim>) -> Result<()> {
    if claim.is_none_or(Claim::holds) { Ok(()) } else { Err(ExperimentError::TakenOver) }
}
