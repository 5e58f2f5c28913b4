//! A sweep: many settings over many seeds, in one process.

mod file;
mod job;
mod tune;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fedelity_keys::{Keys, Schema};
use fedelity_record::{RoundRecord, RunFolder, Status, Summary, names, read_summary};
use serde_json::json;

use file::SweepFile;
pub use job::Job;
use job::SweepKeys;
pub use tune::Chosen;

use crate::assemble::Study;
use crate::config::{Config, Document, Settings};
use crate::error::Result;
use crate::run::{FrontError, Observer, Outcome, Run};
use crate::{ExperimentError, Resources};

/// The file in a run's folder that identifies its job.
const STAMP: &str = "sweep.json";

/// A sweep that is ready to run: every run's configuration has been checked.
pub struct Sweep {
    pub jobs: Vec<Job>,
    documents: Vec<Document>,
    /// SHA-256 of the shared configuration.
    config_sha256: String,
    output: PathBuf,
    /// If the jobs only choose settings, all that may be compared afterwards.
    compared: Option<Box<Sweep>>,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Done,
    /// Its folder contains a finished run with other settings, or something else.
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

    /// Whether to stop after this round.
    fn stop(&self) -> bool {
        false
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

    pub fn state(&self, job: &Job) -> JobState {
        let folder = self.folder(job);
        let finished =
            read_summary(&folder.join(names::SUMMARY)).is_ok_and(|found| found.status != Status::Interrupted);
        match fs::read_to_string(folder.join(STAMP)) {
            // A folder without a stamp is not of a sweep.
            Err(_) if folder.exists() => JobState::Taken,
            _ if !finished => JobState::ToRun,
            Ok(found) if found == self.stamp(job) => JobState::Done,
            _ => JobState::Taken,
        }
    }

    /// Loads everything that the remaining runs need, and rejects a run that cannot start. Nothing is written.
    pub fn check(&self, resources: &Resources) -> Result<()> {
        // Runs that differ only in their seed, method or training need the same data and the same model.
        let mut alike: BTreeMap<String, Vec<(&Job, &Document, Settings)>> = BTreeMap::new();
        for sweep in [Some(self), self.compared.as_deref()].into_iter().flatten() {
            for (job, document) in sweep.with_documents().filter(|(job, _)| sweep.state(job) != JobState::Done) {
                let settings = Settings::read(document)?;
                let Config { data, partition, clients, model, server, evaluation, .. } = &settings.config;
                let (clients, evaluation) =
                    ((clients.per_round, clients.fraction), (evaluation.held_out, evaluation.client));
                let needs = format!("{data:?} {partition:?} {clients:?} {model:?} {server:?} {evaluation:?}");
                alike.entry(needs).or_default().push((job, document, settings));
            }
        }
        for runs in alike.values() {
            let in_run = |job: &Job, error: ExperimentError| {
                let with = if job.set.is_empty() {
                    String::new()
                } else {
                    format!(" (in the run with {})", job.set.join(" "))
                };
                ExperimentError::Config(format!("{error}{with}"))
            };
            let Some((job, document, _)) = runs.first() else { continue };
            let study = Study::load_with(document, resources).map_err(|error| in_run(job, error))?;
            for (job, _, settings) in runs {
                let experiment = study.experiment(&settings.methods[0], job.seed, 1);
                experiment.check().map_err(|error| in_run(job, error.into()))?;
            }
        }
        Ok(())
    }

    fn with_documents(&self) -> impl Iterator<Item = (&Job, &Document)> {
        self.jobs.iter().zip(&self.documents)
    }

    /// Runs the remaining jobs in parallel, one per worker, each on one thread. Data used by several jobs are read
    /// once.
    pub fn run(&self, workers: usize, resources: &Resources, observer: &dyn SweepObserver) -> Result<()> {
        fs::create_dir_all(&self.output)
            .map_err(|error| ExperimentError::path(&self.output, format!("cannot create: {error}")))?;
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while !observer.stop() {
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
            let running: Vec<_> = (0..workers.clamp(1, self.jobs.len().max(1))).map(|_| scope.spawn(work)).collect();
            running.into_iter().try_for_each(|worker| match worker.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Runs one job in a temporary folder, which gets its final name once the run is complete.
    fn job(&self, job: &Job, document: &Document, resources: &Resources, observer: &dyn SweepObserver) -> JobEnd {
        let folder = self.folder(job);
        match self.state(job) {
            JobState::Done => match read_summary(&folder.join(names::SUMMARY)) {
                Ok(summary) => return JobEnd::Before(summary),
                Err(error) => return JobEnd::Failed(error.to_string()),
            },
            JobState::Taken => {
                let other = "already exists with other settings or other files; choose another folder or remove it";
                return JobEnd::Failed(format!("{} {other}", folder.display()));
            }
            JobState::ToRun => {}
        }
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("run");
        let aside = folder.with_file_name(format!(".{name}.part"));
        let done = self.attempt(job, document, resources, &aside, observer);
        let end = match done {
            Ok(outcome) if outcome.summary.status == Status::Interrupted => JobEnd::Interrupted,
            Ok(outcome) => match self.complete(job, &aside, &folder) {
                Ok(()) => return JobEnd::Now(outcome.summary),
                Err(error) => JobEnd::Failed(format!("{}: {error}", folder.display())),
            },
            Err(error) => JobEnd::Failed(error.to_string()),
        };
        let _ = fs::remove_dir_all(&aside);
        end
    }

    fn attempt(
        &self,
        job: &Job,
        document: &Document,
        resources: &Resources,
        aside: &Path,
        observer: &dyn SweepObserver,
    ) -> Result<Outcome> {
        if aside.exists() {
            fs::remove_dir_all(aside)
                .map_err(|error| ExperimentError::path(aside, format!("cannot remove: {error}")))?;
        }
        let study = Study::load_with(document, resources)?;
        let folder = RunFolder::create(aside)?;
        let (method, label) = (&study.settings.methods[0], &study.labels()[0]);
        let run = Run { study: &study, method, label, seed: job.seed, threads: 1 };
        run.execute(&folder, &mut OneJob { job, rounds: study.settings.config.rounds, observer })
    }

    fn complete(&self, job: &Job, aside: &Path, folder: &Path) -> std::io::Result<()> {
        let _ = fs::remove_dir_all(folder);
        fedelity_files::write(&aside.join(STAMP), self.stamp(job).as_bytes())?;
        fs::rename(aside, folder)
    }

    /// The identity of a finished run of a sweep.
    fn stamp(&self, job: &Job) -> String {
        json!({ "config-sha256": self.config_sha256, "set": job.set, "seed": job.seed }).to_string() + "\n"
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

    fn stop(&self) -> bool {
        self.observer.stop()
    }
}
