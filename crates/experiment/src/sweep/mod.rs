//! A sweep: many settings over many seeds, in one process or in several that share a folder.

mod attempt;
mod file;
mod job;
mod queue;
mod share;
mod stamp;
mod tune;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, mpsc};
use std::thread;

use fedelity_keys::{Keys, Schema};
use fedelity_record::{RoundRecord, Status, Summary, last_round, names, read_summary};
use fedelity_report::LoadedRun;

use attempt::{Visit, Workbench};
pub(crate) use file::SweepFile;
pub use job::Job;
use job::SweepKeys;
pub(crate) use job::{Assignment, assignments, flat};
use queue::Queue;
pub use share::{Elsewhere, Shard, Sharing, SweepStatus};
pub use stamp::is_sweep;
use stamp::{SweepSources, SweepStamp, other_settings};
pub use tune::Chosen;

use crate::assemble::Study;
use crate::config::{Config, Document, Settings};
use crate::error::Result;
use crate::observer::FrontError;
use crate::{ExperimentError, Resources, StopSign};

/// A sweep that is ready to run: every run's configuration has been checked.
pub struct Sweep {
    pub jobs: Vec<Job>,
    documents: Vec<Document>,
    output: PathBuf,
    /// What each job reads, once it has been loaded; none if all have finished and it cannot be.
    sources: OnceLock<Option<Vec<SweepSources>>>,
    /// If the jobs only choose settings, all that may be compared afterwards.
    compared: Option<Box<Sweep>>,
    /// The place of each job by its folder.
    places: OnceLock<HashMap<String, usize>>,
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
    /// Another process has finished it meanwhile.
    Elsewhere(Summary),
    Failed(String),
    Interrupted,
}

impl JobEnd {
    fn is_done(&self) -> bool {
        matches!(self, Self::Before(_) | Self::Now(_) | Self::Elsewhere(_))
    }
}

/// A front end's view of a sweep. Runs are parallel, so calls come from any worker.
pub trait SweepObserver: Sync {
    fn round(&self, _job: &Job, _record: &RoundRecord, _rounds: usize) {}

    /// A job ended. An error stops the sweep.
    fn end(&self, _job: &Job, _end: &JobEnd) -> Result<(), FrontError> {
        Ok(())
    }

    /// A job that ran here belongs to another process now.
    fn lost(&self, _job: &Job) {}

    /// What other processes run, and how many jobs this one runs.
    fn others(&self, _elsewhere: &Elsewhere, _here: usize) {}

    /// How the jobs are shared with other processes.
    fn sharing(&self) -> Sharing {
        Sharing::default()
    }

    /// A sign that is asked when the sweep should stop: those clients that are training finish first.
    fn stop(&self) -> StopSign {
        StopSign::default()
    }
}

impl Sweep {
    /// The keys of a sweep file.
    pub const KEYS: &'static Schema = SweepKeys::SCHEMA;

    /// Reads a sweep file and checks the configuration of every run. `set` are assignments that are the same in all runs,
    /// as in `[set]`, or of the seeds; `prepare` makes final changes to each run, such as where its data are.
    pub fn read(
        file: &Path,
        output: &Path,
        set: &[String],
        prepare: impl Fn(&mut Document) -> Result<()>,
    ) -> Result<Self> {
        let file = SweepFile::read(file, output, set)?;
        let wrong = |error| file.document.key_error(&error);
        let Some(tune) = &file.plan.keys.tune else {
            return file.sweep(file.plan.jobs().map_err(wrong)?, &prepare);
        };
        let [choosing, compared] = file.plan.stages(tune).map_err(wrong)?;
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
        if !self.folder(job).exists() {
            JobState::ToRun
        } else if self.obstacle(job).is_some() {
            JobState::Taken
        } else if self.finished(job).is_some() {
            JobState::Done
        } else {
            JobState::ToRun
        }
    }

    /// Why what is in a job's folder is not this job, if it is not.
    pub fn obstacle(&self, job: &Job) -> Option<String> {
        let folder = self.folder(job);
        match SweepStamp::read(&folder) {
            None => folder.exists().then(|| "it has no sweep.json, so it is not of a sweep".to_string()),
            Some(Err(reason)) => Some(reason),
            Some(Ok(found)) => {
                let changes = found.changes(&self.stamp(job, found.sources()));
                let settings = || other_settings(&folder, self.document(self.place(&job.folder)?));
                changes.or_else(settings)
            }
        }
    }

    /// Loads everything that the runs need, and rejects a run that cannot start. Nothing is written.
    pub fn check(&self, resources: &Resources) -> Result<()> {
        [Some(self), self.compared.as_deref()].into_iter().flatten().try_for_each(|sweep| sweep.load(resources))
    }

    /// The same for jobs that may all have finished, which need nothing more: then it returns what is missing or wrong, so
    /// that nobody can tell whether it has changed since.
    pub fn check_unless_done(&self, resources: &Resources) -> Result<Option<ExperimentError>> {
        let checked = self.check(resources);
        let done = |sweep: &Self| sweep.jobs.iter().all(|job| sweep.state(job) == JobState::Done);
        let next_done = || self.compared.is_none() || self.chosen().is_ok_and(|(_, next)| done(&next));
        match checked {
            Err(error) if done(self) && next_done() && self.sources.set(None).is_ok() => Ok(Some(error)),
            other => other.map(|()| None),
        }
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
        let _ = self.sources.set(Some(sources.into_iter().flatten().collect()));
        Ok(())
    }

    /// The configuration of the job at this place.
    pub(crate) fn document(&self, job: usize) -> &Document {
        &self.documents[job]
    }

    fn with_documents(&self) -> impl Iterator<Item = (&Job, &Document)> {
        self.jobs.iter().zip(&self.documents)
    }

    /// Runs the remaining jobs in parallel, one per worker, each on one thread. Data used by several jobs are read once.
    /// Other processes may do the same in the same folder, on any machine: each job runs in one of them. Returns what others
    /// still run.
    pub fn run(&self, workers: usize, resources: &Resources, observer: &dyn SweepObserver) -> Result<Elsewhere> {
        self.load(resources)?;
        fs::create_dir_all(&self.output)
            .map_err(|error| ExperimentError::path(&self.output, format!("cannot create: {error}")))?;
        let (sharing, sign) = (observer.sharing(), observer.stop());
        let claims = sharing.join(&self.output, &sign)?;
        let queue = Queue::new(self, &sharing, &claims);
        let bench = Workbench { sweep: self, claims: &claims, sharing: &sharing, resources, observer };
        let work = || -> Result<()> {
            while let Some((at, again)) = queue.next(&sign) {
                match bench.visit(at, again) {
                    Visit::Elsewhere => queue.elsewhere(at),
                    Visit::Ended(end) => {
                        queue.ended(at, end.is_done());
                        if let Err(error) = observer.end(&self.jobs[at], &end) {
                            // The receiver is gone: no worker takes another job.
                            queue.close();
                            return Err(ExperimentError::Stopped(error));
                        }
                    }
                }
            }
            Ok(())
        };
        let ended = thread::scope(|scope| {
            let (end, ending) = mpsc::channel::<()>();
            let (sharing, claims, queue) = (&sharing, &claims, &queue);
            let watch = move || sharing.watch(claims, queue, observer, &ending);
            let watcher = thread::Builder::new().name("claims".to_string()).spawn_scoped(scope, watch);
            watcher.map_err(|error| ExperimentError::path(&self.output, format!("cannot start a thread: {error}")))?;
            let start = || thread::Builder::new().spawn_scoped(scope, work);
            // If no more threads can be started, the others do the work.
            let running: Vec<_> = (1..workers.min(self.jobs.len())).map_while(|_| start().ok()).collect();
            let ended = work();
            let ended = running.into_iter().fold(ended, |all, worker| match worker.join() {
                Ok(ended) => all.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            });
            drop(end);
            ended
        });
        ended?;
        Ok(queue.leave())
    }

    /// How a run ended, if it did, as its rounds show.
    fn ended(&self, job: &Job) -> Option<Summary> {
        let (run, _) = LoadedRun::read(&self.folder(job)).ok()?;
        run.ended.then_some(run.summary)
    }

    /// How a job's run ended, if it did: quickly, because the runs may be many and on a network.
    fn finished(&self, job: &Job) -> Option<Summary> {
        let folder = self.folder(job);
        let summary = read_summary(&folder.join(names::SUMMARY)).ok()?;
        let rounds = || last_round(&folder.join(names::ROUNDS)) == Some(summary.rounds);
        match summary.status {
            Status::Interrupted => None,
            Status::Diverged { .. } => Some(summary),
            Status::Finished | Status::StoppedEarly { .. } => rounds().then_some(summary),
        }
    }

    fn sources_of(&self, job: &Job) -> Option<&SweepSources> {
        self.sources.get()?.as_ref()?.get(self.place(&job.folder)?)
    }

    /// The stamp that a finished run of a job has, which reads these if nothing else is known.
    fn stamp(&self, job: &Job, otherwise: &SweepSources) -> SweepStamp {
        SweepStamp::of(job, self.sources_of(job).unwrap_or(otherwise))
    }
}
