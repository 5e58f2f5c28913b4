//! One job: claimed, run in a folder of its own, and given its final name.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedelity_files::{Claim, Claims, Holder, Lock, Taking};
use fedelity_record::{RoundRecord, RunFolder, Status};

use super::share::Sharing;
use super::stamp::{SweepStamp, other_settings};
use super::{Job, JobEnd, JobState, Sweep, SweepObserver};
use crate::assemble::Study;
use crate::checkpoint::{self, Checkpoints};
use crate::error::Result;
use crate::observer::{FrontError, Observer};
use crate::run::{Outcome, Run, still_ours};
use crate::{ExperimentError, Resources, StopSign};

/// Where the jobs of a sweep are run.
pub(super) struct Workbench<'a> {
    pub(super) sweep: &'a Sweep,
    pub(super) claims: &'a Claims,
    pub(super) sharing: &'a Sharing,
    pub(super) resources: &'a Resources,
    pub(super) observer: &'a dyn SweepObserver,
}

/// What became of a job in this process.
pub(super) enum Visit {
    Ended(Box<JobEnd>),
    /// Another process has it.
    Elsewhere,
}

impl Workbench<'_> {
    /// Runs a job unless it is done or another process has it; `again` says that another one had it before.
    pub(super) fn visit(&self, at: usize, again: bool) -> Visit {
        let job = &self.sweep.jobs[at];
        if let Some(end) = self.settled(job, again) {
            return Visit::Ended(Box::new(end));
        }
        if !self.sharing.claims() {
            return Visit::Ended(Box::new(
                self.run(at, None).unwrap_or_else(|error| JobEnd::Failed(error.to_string())),
            ));
        }
        match self.claims.claim(&job.key()) {
            Ok(Taking::Mine(claim)) => self.claimed(at, &Arc::new(claim)),
            Ok(Taking::Held(_)) => Visit::Elsewhere,
            Ok(Taking::Failed(holder, reason)) => {
                Visit::Ended(Box::new(JobEnd::Failed(Sharing::failed_there(&holder, &reason))))
            }
            Err(error) => {
                let folder = self.sweep.folder(job);
                Visit::Ended(Box::new(JobEnd::Failed(format!("{}: cannot claim the run: {error}", folder.display()))))
            }
        }
    }

    fn claimed(&self, at: usize, claim: &Arc<Claim>) -> Visit {
        let job = &self.sweep.jobs[at];
        // Its last holder may have finished it just before. To open a folder makes a network file system ask its server
        // instead of its memory.
        let _ = self.sweep.folder(job).parent().map(File::open);
        if let Some(end) = self.settled(job, true) {
            claim.finish();
            return Visit::Ended(Box::new(end));
        }
        match self.run(at, Some(claim)) {
            // Given back when it is dropped.
            Ok(JobEnd::Interrupted) => Visit::Ended(Box::new(JobEnd::Interrupted)),
            Ok(end) => {
                claim.finish();
                Visit::Ended(Box::new(end))
            }
            Err(_) if !claim.holds() => {
                self.observer.lost(job);
                Visit::Elsewhere
            }
            Err(error) => {
                claim.fail(&error.to_string());
                Visit::Ended(Box::new(JobEnd::Failed(error.to_string())))
            }
        }
    }

    /// How a job has already ended, if it has, or what is in its way.
    fn settled(&self, job: &Job, again: bool) -> Option<JobEnd> {
        let folder = self.sweep.folder(job);
        match self.sweep.state(job) {
            JobState::Done => {
                if let (Some(Ok(found)), Some(sources)) = (SweepStamp::read(&folder), self.sweep.sources_of(job)) {
                    self.renew(&SweepStamp::of(job, sources), &found, &folder);
                }
                let end = if again { JobEnd::Elsewhere } else { JobEnd::Before };
                let gone = || JobEnd::Failed(format!("{} has just changed", folder.display()));
                Some(self.sweep.ended(job).map_or_else(gone, end))
            }
            JobState::Taken => {
                let why = self.sweep.obstacle(job).unwrap_or_default();
                let what = format!("{} already exists, but {why}", folder.display());
                Some(JobEnd::Failed(format!("{what}; choose another folder or remove it")))
            }
            JobState::ToRun => None,
        }
    }

    /// Words the stamp of the same run as this sweep does, which is how its choices are found. Records may be read-only.
    fn renew(&self, stamp: &SweepStamp, found: &SweepStamp, folder: &Path) {
        if found != stamp {
            let _ = stamp.write(folder);
        }
    }

    /// Runs a job in a folder of its own, which gets its final name once the run is complete. A part of it that is already
    /// there is not repeated.
    fn run(&self, at: usize, claim: Option<&Arc<Claim>>) -> Result<JobEnd> {
        let job = &self.sweep.jobs[at];
        let folder = self.sweep.folder(job);
        let aside = self.adopt(job, &folder, claim)?;
        if !aside.exists() && folder.exists() {
            // It went on by itself and was stopped.
            if let Some(holder) = Lock::holder(&folder) {
                return Err(ExperimentError::path(&folder, format!("{holder} is writing to it")));
            }
            fs::rename(&folder, &aside).map_err(|error| ExperimentError::path(&folder, error.to_string()))?;
        }
        let outcome = self.attempt(at, &aside, claim)?;
        if outcome.summary.status == Status::Interrupted {
            return Ok(JobEnd::Interrupted);
        }
        still_ours(claim.map(|claim| &**claim))?;
        if folder.exists() {
            if let Some(end) = self.settled(job, true) {
                let _ = fs::remove_dir_all(&aside);
                return Ok(end);
            }
            let _ = fs::remove_dir_all(&folder);
        }
        // Without what only an unfinished run needs.
        checkpoint::clear(&aside);
        fs::rename(&aside, &folder).map_err(|error| ExperimentError::path(&folder, error.to_string()))?;
        Ok(JobEnd::Now(outcome.summary))
    }

    /// The folder that a claim runs in, with what earlier ones have left. It has another name for every claim, so a process
    /// that wakes up after its run was taken over finds nothing where it wants to write.
    fn adopt(&self, job: &Job, folder: &Path, claim: Option<&Arc<Claim>>) -> Result<PathBuf> {
        let (number, last) = match claim {
            Some(claim) => (claim.number(), claim.number() - 1),
            None => (0, self.claims.number(&job.key())),
        };
        let aside = part(folder, number);
        let earlier = (0..=last).rev().filter(|&other| other != number).map(|number| part(folder, number));
        let found = earlier.map(|earlier| (fs::rename(&earlier, &aside), earlier)).find(|(moved, _)| moved.is_ok());
        if let Some(former) = claim.and_then(|claim| claim.taken_from()).filter(|_| found.is_some()) {
            detach(&aside, former)?;
        }
        Ok(aside)
    }

    fn attempt(&self, at: usize, aside: &Path, claim: Option<&Arc<Claim>>) -> Result<Outcome> {
        let Self { sweep, resources, observer, .. } = self;
        let job = &sweep.jobs[at];
        let study = Study::load_with(&sweep.documents[at], resources)?;
        let sources = sweep.sources_of(job).ok_or_else(|| ExperimentError::path(aside, "its data are not loaded"))?;
        let stamp = SweepStamp::of(job, sources);
        let document = &sweep.documents[at];
        let folder = match SweepStamp::read(aside) {
            Some(Ok(found)) if found.changes(&stamp).is_none() && other_settings(aside, document).is_none() => {
                self.renew(&stamp, &found, aside);
                RunFolder::open(aside)?
            }
            _ => {
                if aside.exists() {
                    fs::remove_dir_all(aside)
                        .map_err(|error| ExperimentError::path(aside, format!("cannot remove: {error}")))?;
                }
                let folder = RunFolder::create(aside)?;
                stamp.write(aside).map_err(|error| ExperimentError::path(aside, format!("cannot write: {error}")))?;
                folder
            }
        };
        let (method, label) = (&study.settings.methods[0], &study.labels()[0]);
        let checkpoints = Checkpoints::default();
        let run = study.one(method, label, job.seed, 1, checkpoints);
        let (rounds, claim) = (study.settings.config.rounds, claim.cloned());
        run.execute(&folder, &mut OneJob { job, rounds, claim, observer: *observer })
    }
}

/// Parts a folder from a process that may still have files of it open.
fn detach(aside: &Path, former: &Holder) -> Result<()> {
    let cannot = |reason: String| ExperimentError::path(aside, format!("cannot be taken over: {reason}"));
    let is_other =
        |holder: &Holder| former.process.is_some() && (holder.process, &holder.host) != (former.process, &former.host);
    if let Some(holder) = Lock::holder(aside).filter(is_other) {
        return Err(cannot(format!("{holder} is writing to it")));
    }
    let detached = fedelity_files::detach(aside).and_then(|()| checkpoint::detach(aside));
    detached.map_err(|error| cannot(error.to_string()))
}

/// The folder of an unfinished run under a claim; 0 is without one.
fn part(folder: &Path, number: u64) -> PathBuf {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("run");
    match number {
        0 => folder.with_file_name(format!(".{name}.part")),
        number => folder.with_file_name(format!(".{name}.{number}.part")),
    }
}

/// Adapts a sweep's observer to one run.
struct OneJob<'a> {
    job: &'a Job,
    rounds: usize,
    claim: Option<Arc<Claim>>,
    observer: &'a dyn SweepObserver,
}

impl Observer for OneJob<'_> {
    fn round(&mut self, _: &Run<'_>, record: &RoundRecord) -> Result<(), FrontError> {
        self.observer.round(self.job, record, self.rounds);
        Ok(())
    }

    fn claim(&self) -> Option<Arc<Claim>> {
        self.claim.clone()
    }

    fn stop(&self) -> StopSign {
        self.observer.stop()
    }
}
