//! One run: a method with a seed, its records and its model.

use anyhow::Result;
use fedelity_fl::Error;
use fedelity_nn::{Card, checkpoint};
use fedelity_record::{Header, Holdings, RoundRecord, RunFolder, Status, Summary, names};
use fedelity_sim::Simulation;

use crate::config::Method;
use crate::features;
use crate::interrupt::Interrupt;
use crate::machine;
use crate::study::Study;

/// One method with one seed.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) study: &'a Study,
    pub(crate) method: &'a Method,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
}

/// How a run ended.
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    /// Rounds that were evaluated, and their accuracy.
    pub(crate) accuracies: Vec<(u64, f64)>,
    /// Why training left the finite numbers, if it did.
    pub(crate) divergence: Option<String>,
}

impl Run<'_> {
    /// Runs all rounds and writes them into the folder. `each` sees every round after it is written; if it fails, what
    /// was recorded is completed before its error is returned.
    pub(crate) fn execute(
        &self,
        folder: &RunFolder,
        interrupt: &Interrupt,
        each: &mut dyn FnMut(&RoundRecord) -> Result<()>,
    ) -> Result<Outcome> {
        let mut simulation = Simulation::new(self.study.experiment(self.method, self.seed, self.threads))?;
        let config =
            self.study.settings.resolved_for(std::slice::from_ref(self.method), &[self.seed], names::PARTITION);
        folder.write_config(&config)?;
        self.study.pool.partition.write(&folder.file(names::PARTITION), false)?;
        folder.write_holdings(&Holdings::new(self.study.holdings.clone()))?;
        let header = Header { local_evaluation: Some(simulation.local_evaluation()), ..self.header() };
        let mut rounds = folder.start_rounds(&header)?;
        let (mut summary, mut accuracies) = (Summary::default(), Vec::new());
        let (mut divergence, mut failed) = (None, None);
        while !simulation.done() {
            if interrupt.is_asked() {
                summary.status = Status::Interrupted;
                break;
            }
            let record = match simulation.step() {
                Ok(round) => round.record(),
                Err(error) if error.is_divergence() => {
                    summary.status = diverged(&error);
                    divergence = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            rounds.append(&record)?;
            summary.add(&record);
            accuracies.extend(record.accuracy.map(|accuracy| (record.round, accuracy)));
            if let Err(error) = each(&record) {
                summary.status = Status::Interrupted;
                failed = Some(error);
                break;
            }
        }
        rounds.finish()?;
        let (path, card) = (folder.file(names::MODEL), self.card());
        checkpoint::save_model(&path, &self.study.model, simulation.global(), Some(&card))?;
        folder.write_summary(&summary)?;
        if let Some(found) = simulation.features() {
            folder.write(names::FEATURES, &features::bytes(&found)?)?;
        }
        failed.map_or(Ok(Outcome { summary, accuracies, divergence }), Err)
    }

    fn header(&self) -> Header {
        let Study { settings, pool, model, per_round, .. } = self.study;
        let as_json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
        Header {
            fedelity: env!("CARGO_PKG_VERSION").to_string(),
            method: self.method.name.to_string(),
            method_settings: self.method.keys.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
            dataset: pool.dataset.name.clone(),
            dataset_fingerprint: self.study.fingerprint.clone(),
            partition: pool.partition.spec.clone(),
            model: settings.model.name.clone(),
            parameters: model.layout().trainable_len() as u64,
            seed: self.seed,
            rounds: settings.rounds as u64,
            clients: pool.partition.clients.len() as u64,
            per_round: *per_round as u64,
            threads: self.threads as u64,
            isa: model.isa().name().to_string(),
            classes: pool.dataset.classes.clone(),
            partition_fingerprint: self.study.partition_fingerprint.clone(),
            left_out: pool.skipped.count as u64,
            machine: machine::describe(),
            command: format!("fedelity run {}", names::CONFIG),
            ..Header::default()
        }
    }

    /// What the model file says about itself. Nothing in it changes from one repetition to the next.
    fn card(&self) -> Card {
        let mut card = self.study.card.clone();
        card.origin.insert("method".to_string(), self.method.name.to_string());
        card.origin.insert("seed".to_string(), self.seed.to_string());
        card
    }
}

fn diverged(error: &Error) -> Status {
    match *error {
        Error::Diverged { round, client, .. } => Status::Diverged { round: round as u64, client: Some(client as u64) },
        Error::ServerDiverged { round, .. } | Error::GlobalDiverged { round } => {
            Status::Diverged { round: round as u64, client: None }
        }
        _ => Status::Finished,
    }
}
