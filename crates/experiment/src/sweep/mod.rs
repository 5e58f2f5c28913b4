//! A sweep: many settings over many seeds, in one process.

mod file;
mod job;
mod stamp;
mod tune;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fedelity_keys::{Keys, Schema};
use fedelity_record::{RoundRecord, RunFolder, Status, Summary};
use fedelity_report::LoadedRun;

pub(crate) use file::SweepFile;
pub use job::Job;
use job::SweepKeys;
pub(crate) use job::{Assignment, assignments, flat};
pub use stamp::is_sweep;
use stamp::{SweepSources, SweepStamp};
pub use tune::Chosen;

use crate::assemble::Study;
use crate::checkpoint::{self, Checkpoints};
use crate::config::{Config, Document, Settings};
use crate::error::Result;
use crate::run::{FrontError, Observer, Outcome, Run, lock};
use crate::{ExperimentError, Resources, StopSign};

/// A sweep that is ready to run: every run's configuration has been checked.
pub struct Sweep {
    pub jobs: Vec<Job>,
    documents: Vec<Document>,
    /// SHA-256 of the shared configuration.
    config_sha256: String,
    output: PathBuf,
    /// What each job reads, once it has been loaded.
    sources: OnceLock<Vec<SweepSources>>,
    /// If the jobs only choose settings, all that may be compared afterwards.
    compared: Option<Box<Sweep>>,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Done,
    /// Its folder contains a finished run of something else: see [`Sweep::obstacle`].
    Taken,
    ToRun,
}

/// How a job ended.
pub enum JobEnd {
    /// It had already finished.
    Before(Summary),
    Now(Summary),
    Failed(String),
    Interrupted,
}

/// A front end's view of a sweep. Runs are parallel, so calls come from any worker.
pub trait SweepObserver: Sync {
    fn round(&self, _job: &Job, _record: &RoundRecord, _rounds: usize) {}

    /// A job ended. An error stops the sweep.
    fn end(&self, _job: &Job, _end: &JobEnd) -> Result<(), FrontError> {
        Ok(())
    }

    /// A sign that is asked when the sweep should stop: those clients that are training finish first.
    fn stop(&self) -> StopSign {
        StopSign::default()
    }
}

impl Sweep {
    /// The keys of a sweep file.
    pub const KEYS: &'static Schema = SweepKeys::SCHEMA;

    /// Reads a sweep file and checks the configuration of every run. `prepare` makes final changes to each, such as
    /// those from the command line.
    pub fn read(file: &Path, output: &Path, prepare: impl Fn(&mut Document) -> Result<()>) -> Result<Self> {
        let file = SweepFile::read(file, output)?;
        let wrong = |error| file.document.key_error(&error);
        let Some(tune) = &file.keys.tune else {
            return file.sweep(file.keys.jobs().map_err(wrong)?, &prepare);
        };
        let [choosing, compared] = file.keys.stages(tune).map_err(wrong)?;
        let compared = file.sweep(compared, &prepare)?;
        for document in &compared.documents {
            if Settings::read(document)?.config.evaluation.held_out > 0.0 {
                let message = "evaluation.held-out: not allowed together with [tune], which compares on the test data";
                return Err(document.error("evaluation.held-out", message));
            }
        }
        Ok(Self { compared: Some(Box::new(compared)), ..file.sweep(choosing, &prepare)? })
    }

    pub fn folder(&self, job: &Job) -> PathBuf {
        self.output.join(&job.folder)
    }

    /// The folder with the runs to compare.
    pub fn results(&self) -> PathBuf {
        let below =
            self.jobs.first().and_then(|job| job.folder.strip_suffix(&format!("/{}/seed-{}", job.setting(), job.seed)));
        below.map_or_else(|| self.output.clone(), |below| self.output.join(below))
    }

    /// The state of a job. What it reads counts once [`Sweep::check`] or [`Sweep::run`] has loaded it.
    pub fn state(&self, job: &Job) -> JobState {
        let folder = self.folder(job);
        let finished = self.ended(job).is_some_and(|found| found.status != Status::Interrupted);
        match SweepStamp::read(&folder) {
            // A folder without a stamp is not of a sweep.
            None if folder.exists() => JobState::Taken,
            _ if !finished => JobState::ToRun,
            Some(_) if self.obstacle(job).is_none() => JobState::Done,
            _ => JobState::Taken,
        }
    }

    /// Why what is in a job's folder is not this job, if it is not.
    pub fn obstacle(&self, job: &Job) -> Option<String> {
        let folder = self.folder(job);
        match SweepStamp::read(&folder) {
            None => folder.exists().then(|| "it is not of a sweep".to_string()),
            Some(Err(reason)) => Some(reason),
            Some(Ok(found)) => found.changes(&self.stamp(job, found.sources())),
        }
    }

    /// Loads everything that the runs need, and rejects a run that cannot start. Nothing is written.
    pub fn check(&self, resources: &Resources) -> Result<()> {
        [Some(self), self.compared.as_deref()].into_iter().flatten().try_for_each(|sweep| sweep.load(resources))
    }

    /// Loads what all jobs read, also those that are done: it may have changed since.
    fn load(&self, resources: &Resources) -> Result<()> {
        if self.sources.get().is_some() {
            return Ok(());
        }
        // Runs that differ only in their seed, method or training need the same data and the same model.
        let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, document) in self.documents.iter().enumerate() {
            let Config { data, partition, clients, model, server, evaluation, .. } = Settings::read(document)?.config;
            let (clients, evaluation) = (
                (clients.per_round, clients.fraction),
                (evaluation.held_out, &evaluation.client, &evaluation.positive),
            );
            let needs = format!("{data:?} {partition:?} {clients:?} {model:?} {server:?} {evaluation:?}");
            alike.entry(needs).or_default().push(at);
        }
        let mut sources: Vec<Option<SweepSources>> = vec![None; self.jobs.len()];
        for runs in alike.values() {
            let in_run = |at: usize, error: ExperimentError| {
                let set = &self.jobs[at].set;
                let with = if set.is_empty() { String::new() } else { format!(" (in the run with {})", set.join(" ")) };
                ExperimentError::Config(format!("{error}{with}"))
            };
            let Some(&first) = runs.first() else { continue };
            let study = Study::load_with(&self.documents[first], resources).map_err(|error| in_run(first, error))?;
            let read = SweepSources::of(&study)?;
            for &at in runs {
                // Settings are read again rather than kept: there may be a hundred thousand of them.
                let settings = Settings::read(&self.documents[at])?;
                let experiment = study.experiment(&settings.methods[0], self.jobs[at].seed, 1);
                experiment.check().map_err(|error| in_run(at, error.into()))?;
                sources[at] = Some(read.clone());
            }
        }
        let _ = self.sources.set(sources.into_iter().flatten().collect());
        Ok(())
    }

    /// The configuration of the job at this place.
    pub(crate) fn document(&self, job: usize) -> &Document {
        &self.documents[job]
    }

    fn with_documents(&self) -> impl Iterator<Item = (&Job, &Document)> {
        self.jobs.iter().zip(&self.documents)
    }

    /// Runs the remaining jobs in parallel, one per worker, each on one thread. Data used by several jobs are read
    /// once. One process at a time runs a sweep in a folder.
    pub fn run(&self, workers: usize, resources: &Resources, observer: &dyn SweepObserver) -> Result<()> {
        self.load(resources)?;
        fs::create_dir_all(&self.output)
            .map_err(|error| ExperimentError::path(&self.output, format!("cannot create: {error}")))?;
        let _lock = lock(&self.output)?;
        let (next, sign) = (AtomicUsize::new(0), observer.stop());
        let work = || -> Result<()> {
            while !sign.is_asked() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = self.jobs.get(at) else { return Ok(()) };
                let end = self.job(job, &self.documents[at], resources, observer);
                if let Err(error) = observer.end(job, &end) {
                    // The receiver is gone: no worker takes another job.
                    next.store(self.jobs.len(), Ordering::Relaxed);
                    return Err(ExperimentError::Stopped(error));
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let start = || thread::Builder::new().spawn_scoped(scope, work);
            // If no more threads can be started, the others do the work.
            let running: Vec<_> = (1..workers.min(self.jobs.len())).map_while(|_| start().ok()).collect();
            let ended = work();
            running.into_iter().fold(ended, |all, worker| match worker.join() {
                Ok(ended) => all.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Runs one job in a temporary folder, which gets its final name once the run is complete. A part of it that is
    /// already there is not repeated.
    fn job(&self, job: &Job, document: &Document, resources: &Resources, observer: &dyn SweepObserver) -> JobEnd {
        let folder = self.folder(job);
        match self.state(job) {
            JobState::Done => {
                let gone = || JobEnd::Failed(format!("{} has just changed", folder.display()));
                return self.ended(job).map_or_else(gone, JobEnd::Before);
            }
            JobState::Taken => {
                let why = self.obstacle(job).unwrap_or_default();
                let what = format!("{} already exists, but {why}", folder.display());
                return JobEnd::Failed(format!("{what}; choose another folder or remove it"));
            }
            JobState::ToRun => {}
        }
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("run");
        let aside = folder.with_file_name(format!(".{name}.part"));
        let done = self.attempt(job, document, resources, &aside, observer);
        match done {
            Ok(outcome) if outcome.summary.status == Status::Interrupted => JobEnd::Interrupted,
            Ok(outcome) => match self.complete(&aside, &folder) {
                Ok(()) => JobEnd::Now(outcome.summary),
                Err(error) => JobEnd::Failed(format!("{}: {error}", folder.display())),
            },
            Err(error) => JobEnd::Failed(error.to_string()),
        }
    }

    fn attempt(
        &self,
        job: &Job,
        document: &Document,
        resources: &Resources,
        aside: &Path,
        observer: &dyn SweepObserver,
    ) -> Result<Outcome> {
        let study = Study::load_with(document, resources)?;
        let sources = self.sources_of(job).ok_or_else(|| ExperimentError::path(aside, "its data are not loaded"))?;
        let stamp = SweepStamp::of(self, job, sources);
        let folder = match SweepStamp::read(aside) {
            Some(Ok(found)) if found == stamp => RunFolder::open(aside)?,
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
        run.execute(&folder, &mut OneJob { job, rounds: study.settings.config.rounds, observer })
    }

    /// Gives a finished run its name, without what only an unfinished one needs.
    fn complete(&self, aside: &Path, folder: &Path) -> std::io::Result<()> {
        let _ = fs::remove_dir_all(folder);
        checkpoint::clear(aside);
        fs::rename(aside, folder)
    }

    /// How a run ended, if it did, as its rounds show.
    fn ended(&self, job: &Job) -> Option<Summary> {
        let (run, _) = LoadedRun::read(&self.folder(job)).ok()?;
        run.ended.then_some(run.summary)
    }

    fn sources_of(&self, job: &Job) -> Option<&SweepSources> {
        let at = self.jobs.iter().position(|other| other.folder == job.folder)?;
        self.sources.get()?.get(at)
    }

    /// The stamp that a finished run of a job has, which reads these if nothing else is known.
    fn stamp(&self, job: &Job, otherwise: &SweepSources) -> SweepStamp {
        SweepStamp::of(self, job, self.sources_of(job).unwrap_or(otherwise))
    }
}

/// Adapts a sweep's observer to one run.
struct OneJob<'a> {
    job: &'a Job,
    rounds: usize,
    observer: &'a dyn SweepObserver,
}

impl Observer for OneJob<'_> {
    fn round(&mut self, _: &Run<'_>, record: &RoundRecord) -> Result<(), FrontError> {
        self.observer.round(self.job, record, self.rounds);
        Ok(())
    }

    fn stop(&self) -> StopSign {
        self.observer.stop()
    }
}
