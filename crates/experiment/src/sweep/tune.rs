//! The choice of the best setting of each method, before methods are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use fedelity_record::names::CHOSEN;
use fedelity_report::{MeanSd, config_values};
use serde::Serialize;

use super::job::is_task;
use super::{Job, JobState, Sweep};
use crate::ExperimentError;
use crate::config::Settings;
use crate::error::Result;

/// The setting that was chosen for a method, and from what.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Chosen {
    /// The method, with the data and the model if the sweep has several.
    pub task: String,
    /// What was chosen; `run` if there was nothing to choose.
    pub setting: String,
    /// Its assignments, as for `--set`.
    pub set: Vec<String>,
    /// The keys that its settings give or differ in: they belong to the choice, so runs that differ in them are compared.
    pub tuned: Vec<String>,
    /// Its final accuracy on the held-out samples: the mean over seeds.
    pub accuracy: f64,
    /// The standard deviation over seeds, if there are several.
    pub sd: Option<f64>,
    /// How many settings there were.
    pub of: usize,
    /// Settings that diverged with a seed, which cannot be chosen.
    pub diverged: usize,
    /// The second-best setting and its accuracy.
    pub next: Option<(String, f64)>,
}

/// A setting with its accuracies; none if it diverged.
struct Candidate<'a> {
    job: &'a Job,
    accuracies: Option<Vec<f64>>,
}

impl Candidate<'_> {
    fn mean(&self) -> Option<f64> {
        Some(MeanSd::of(self.accuracies.as_ref()?)?.mean)
    }
}

impl Sweep {
    /// Whether the runs choose settings that another sweep compares.
    pub fn chooses(&self) -> bool {
        self.compared.is_some()
    }

    /// How many runs follow once the settings are chosen.
    pub fn runs_after(&self) -> usize {
        let Some(compared) = &self.compared else { return 0 };
        let mut tasks: Vec<(&str, u64)> = compared.jobs.iter().map(|job| (&*job.task, job.seed)).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks.len()
    }

    /// Chooses the setting with the best mean final accuracy on the held-out samples, for each method and whatever it is
    /// compared on; the first of equals. Returns the choices, which are also written to a file, and the sweep that
    /// compares them on the test data with seeds that did not choose.
    pub fn choose(&self) -> Result<(Vec<Chosen>, Self)> {
        let (chosen, next) = self.chosen()?;
        let path = self.output.join(CHOSEN);
        let json = serde_json::to_vec_pretty(&chosen).unwrap_or_default();
        // Processes that share the sweep choose the same.
        let is_there = || fedelity_files::read(&path, fedelity_files::TEXT).is_ok_and(|found| found == json);
        match fedelity_files::write(&path, &json) {
            Err(error) if !is_there() => Err(ExperimentError::path(&path, format!("cannot write: {error}"))),
            _ => Ok((chosen, next)),
        }
    }

    /// What the runs that have finished choose.
    pub(super) fn chosen(&self) -> Result<(Vec<Chosen>, Self)> {
        let Some(compared) = &self.compared else {
            return Err(ExperimentError::Config("the sweep has no [tune]: there is nothing to choose".to_string()));
        };
        let mut chosen: Vec<Chosen> = Vec::new();
        let mut tasks: Vec<&str> = Vec::new();
        for job in &self.jobs {
            if !tasks.contains(&&*job.task) {
                tasks.push(&job.task);
            }
        }
        let mut next = Self {
            jobs: Vec::new(),
            documents: Vec::new(),
            output: compared.output.clone(),
            // What could not be read for these cannot be read for those.
            sources: match self.sources.get() {
                Some(None) => OnceLock::from(None),
                Some(Some(_)) | None => OnceLock::new(),
            },
            compared: None,
            places: OnceLock::new(),
        };
        for task in tasks {
            let (choice, job) = self.best_of(task)?;
            for (other, document) in compared.with_documents().filter(|(other, _)| other.setting() == job.setting()) {
                next.jobs.push(other.clone());
                next.documents.push(document.clone());
            }
            let set = next.jobs.last().map_or(Vec::new(), |job| job.set.clone());
            chosen.push(Chosen { set, tuned: compared.tuned(task)?, ..choice });
        }
        Ok((chosen, next))
    }

    /// The keys that the settings of a task give, and those that they change: a server optimiser has keys of its own.
    fn tuned(&self, task: &str) -> Result<Vec<String>> {
        let mut tuned = BTreeSet::new();
        let (mut first, mut last): (Option<BTreeMap<String, String>>, _) = (None, None);
        for (job, document) in self.with_documents().filter(|(job, _)| job.task == task) {
            // Runs that differ only in their seed follow each other.
            if last.replace(job.setting()) == Some(job.setting()) {
                continue;
            }
            tuned.extend(job.chosen.iter().cloned());
            let mut values = config_values(&Settings::read(document)?.resolved(""));
            values.remove("seeds");
            let first = first.get_or_insert_with(|| values.clone());
            let names: BTreeSet<&String> = first.keys().chain(values.keys()).collect();
            let differ = names.into_iter().filter(|key| first.get(*key) != values.get(*key) && !is_task(key));
            tuned.extend(differ.cloned().collect::<Vec<_>>());
        }
        Ok(tuned.into_iter().collect())
    }

    /// The best setting of a task, and one of its runs.
    fn best_of(&self, task: &str) -> Result<(Chosen, &Job)> {
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for job in self.jobs.iter().filter(|job| job.task == task) {
            let summary = self.ended(job).filter(|_| self.state(job) == JobState::Done);
            let Some(summary) = summary else {
                let message = "the run has not finished, so no setting can be chosen";
                return Err(ExperimentError::path(&self.folder(job), message));
            };
            let accuracy = summary.final_accuracy.filter(|_| summary.status.is_complete());
            if candidates.last().is_none_or(|last| last.job.setting() != job.setting()) {
                candidates.push(Candidate { job, accuracies: Some(Vec::new()) });
            }
            if let Some(last) = candidates.last_mut() {
                last.accuracies = last.accuracies.take().zip(accuracy).map(|(mut all, new)| {
                    all.push(new);
                    all
                });
            }
        }
        let of = candidates.len();
        let diverged = candidates.iter().filter(|candidate| candidate.accuracies.is_none()).count();
        // A stable sort: the first of equals stays first.
        candidates.sort_by(|a, b| b.mean().unwrap_or(-1.0).total_cmp(&a.mean().unwrap_or(-1.0)));
        let best = candidates.first().and_then(|best| Some((best, MeanSd::of(best.accuracies.as_ref()?)?)));
        let Some((best, MeanSd { mean, sd, .. })) = best else {
            let message = format!("{task}: every setting diverged, so none can be chosen");
            return Err(ExperimentError::Config(message));
        };
        let next = candidates.get(1).and_then(|next| Some((next.job.choice.clone(), next.mean()?)));
        let (task, setting) = (task.to_string(), best.job.choice.clone());
        Ok((
            Chosen { task, setting, set: Vec::new(), tuned: Vec::new(), accuracy: mean, sd, of, diverged, next },
            best.job,
        ))
    }
}
