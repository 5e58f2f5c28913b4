//! Runs a study into run folders: every method with every seed.

use std::path::{Path, PathBuf};

use fedelity_nn::{Card, checkpoint};
use fedelity_record::{ChosenBy, Header, Holdings, RoundRecord, RunFolder, Status, Summary, client_name, names};
use fedelity_report::LoadedRun;
use fedelity_sim::Simulation;

use crate::assemble::Study;
use crate::best::RoundJudge;
use crate::config::MethodChoice;
use crate::error::Result;
use crate::saved::POSITIVE;
use crate::{ExperimentError, features, machine};

/// The default folder for results.
const RUNS: &str = "runs";

/// The error of a front end.
pub type FrontError = Box<dyn std::error::Error + Send + Sync>;

/// A front end's view of runs, and its decisions about them. `()` ignores everything and never stops.
pub trait Observer {
    /// A run starts, in an existing folder.
    fn start(&mut self, _run: &Run<'_>, _folder: &RunFolder) -> Result<(), FrontError> {
        Ok(())
    }

    /// A round has been recorded. If this fails, the record is completed before the error is returned.
    fn round(&mut self, _run: &Run<'_>, _record: &RoundRecord) -> Result<(), FrontError> {
        Ok(())
    }

    /// A run ended.
    fn end(&mut self, _run: &Run<'_>, _outcome: &Outcome) {}

    /// Whether to stop after this round.
    fn stop(&self) -> bool {
        false
    }
}

impl Observer for () {}

/// One method with one seed.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub study: &'a Study,
    pub method: &'a MethodChoice,
    /// The method's name in this study.
    pub label: &'a str,
    pub seed: u64,
    pub threads: usize,
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
    /// A name for each method: its ID, with a number if it occurs again with other keys.
    pub fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for method in &self.settings.methods {
            let mut label = method.name.to_string();
            let mut n = 1;
            while labels.contains(&label) {
                n += 1;
                label = format!("{}-{n}", method.name);
            }
            labels.push(label);
        }
        labels
    }

    /// Creates the folder for the results: `output`, which must not exist yet, or a new one in `runs` named after the
    /// time and the study.
    pub fn folder(&self, output: Option<&Path>) -> Result<RunFolder> {
        if let Some(path) = output {
            return Ok(RunFolder::create(path)?);
        }
        let methods = match &self.labels()[..] {
            [one] => one.clone(),
            several => format!("{}-methods", several.len()),
        };
        let time = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S");
        let base = Path::new(RUNS).join(format!("{time}-{methods}-{}", self.pool.dataset.name));
        // Two runs may start in the same second.
        let numbered = |n: usize| match n {
            1 => base.clone(),
            n => PathBuf::from(format!("{}-{n}", base.display())),
        };
        let mut n = 1;
        loop {
            match RunFolder::create(&numbered(n)) {
                Err(fedelity_record::RecordError::Exists { .. }) if n < 1_000 => n += 1,
                other => return Ok(other?),
            }
        }
    }

    /// Runs every method with every seed, one after the other, and returns the results. If there are several runs, each
    /// gets its own subfolder.
    pub fn run(
        &self,
        folder: &RunFolder,
        threads: usize,
        observer: &mut dyn Observer,
    ) -> Result<fedelity_report::Results> {
        let (methods, seeds) = (&self.settings.methods, &self.settings.config.seeds);
        let several = methods.len() * seeds.len() > 1;
        if several {
            folder.write_config(&self.settings.resolved_for(methods, seeds, names::PARTITION, Some(names::LAYERS)))?;
            self.write_layers(folder)?;
            self.pool.partition.write(&folder.file(names::PARTITION), false)?;
        }
        let labels = self.labels();
        let mut groups = Vec::new();
        for (method, label) in methods.iter().zip(&labels) {
            let mut runs = Vec::new();
            for &seed in seeds {
                if observer.stop() {
                    break;
                }
                let own = if several {
                    RunFolder::create(&folder.path().join(label).join(format!("seed-{seed}")))?
                } else {
                    folder.clone()
                };
                let ended = Run { study: self, method, label, seed, threads }.execute(&own, observer)?;
                let mut run = LoadedRun::of(seed, ended.summary, &ended.accuracies);
                run.header.classes = self.pool.dataset.classes.clone();
                run.header.client_names = self.pool.partition.names.clone();
                run.header.rounds = self.settings.config.rounds as u64;
                runs.push(run);
            }
            if !runs.is_empty() {
                groups.push((label.clone(), runs));
            }
        }
        Ok(fedelity_report::Results::of(groups))
    }

    /// Writes the layers of a model of one's own, so that the folder reproduces the run.
    fn write_layers(&self, folder: &RunFolder) -> Result<()> {
        Ok(self.card.layers.as_ref().map_or(Ok(()), |text| folder.write(names::LAYERS, text.as_bytes()))?)
    }

    /// Rejects invalid runs before anything is written.
    pub fn check(&self, threads: usize) -> Result<()> {
        for method in &self.settings.methods {
            Simulation::new(self.experiment(method, self.settings.config.seeds[0], threads))?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Runs all rounds and writes them into the folder.
    pub fn execute(&self, folder: &RunFolder, observer: &mut dyn Observer) -> Result<Outcome> {
        let stopped = |error: FrontError| ExperimentError::Stopped(error);
        let study = self.study;
        let mut simulation = Simulation::new(study.experiment(self.method, self.seed, self.threads))?;
        let method = std::slice::from_ref(self.method);
        let config = study.settings.resolved_for(method, &[self.seed], names::PARTITION, Some(names::LAYERS));
        folder.write_config(&config)?;
        study.write_layers(folder)?;
        study.pool.partition.write(&folder.file(names::PARTITION), false)?;
        folder.write_holdings(&Holdings::new(study.holdings.clone()))?;
        let header = Header { local_evaluation: Some(simulation.local_evaluation()), ..self.header() };
        let mut rounds = folder.start_rounds(&header)?;
        observer.start(self, folder).map_err(stopped)?;
        let (mut summary, mut accuracies) = (Summary::default(), Vec::new());
        let (mut divergence, mut failed) = (None, None);
        let mut judge = RoundJudge::new(&study.settings.config);
        while !simulation.done() {
            if observer.stop() {
                summary.status = Status::Interrupted;
                break;
            }
            let mut record = match simulation.step() {
                Ok(record) => record,
                Err(error) => {
                    let Some((round, client)) = error.divergence() else { return Err(error.into()) };
                    let client = client.map(|client| client as u64);
                    summary.status = Status::Diverged { round: round as u64, client };
                    divergence = Some(self.named(error.to_string(), client));
                    break;
                }
            };
            judge.judge(&mut record, &simulation);
            if let Some(chosen_by) = record.kept {
                let card = self.best_card(record.round, chosen_by);
                checkpoint::save_model(&folder.file(names::BEST), &study.model, simulation.global(), Some(&card))?;
            }
            rounds.append(&record)?;
            summary.add(&record);
            accuracies.extend(record.accuracy.map(|accuracy| (record.round, accuracy)));
            if let Err(error) = observer.round(self, &record) {
                summary.status = Status::Interrupted;
                failed = Some(error);
                break;
            }
            if record.early_stop.is_some() {
                break;
            }
        }
        rounds.finish()?;
        checkpoint::save_model(&folder.file(names::MODEL), &study.model, simulation.global(), Some(&self.card()))?;
        folder.write_summary(&summary)?;
        if let Some(clients) = simulation.clients() {
            folder.write_clients(&clients)?;
        }
        if let Some(found) = simulation.features() {
            let path = folder.file(names::FEATURES);
            let bytes = features::bytes(&found).map_err(|error| ExperimentError::path(&path, error.to_string()))?;
            folder.write(names::FEATURES, &bytes)?;
        }
        if let Some(error) = failed {
            return Err(stopped(error));
        }
        let outcome = Outcome { summary, accuracies, divergence };
        observer.end(self, &outcome);
        Ok(outcome)
    }

    fn header(&self) -> Header {
        let Study { settings, pool, model, per_round, card, .. } = self.study;
        let as_json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
        Header {
            fedelity: env!("CARGO_PKG_VERSION").to_string(),
            method: self.method.name.to_string(),
            method_settings: self.method.keys.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
            dataset: pool.dataset.name.clone(),
            dataset_fingerprint: pool.fingerprint.clone(),
            partition: pool.partition.spec.clone(),
            model: card.model.clone(),
            parameters: model.layout().trainable_len() as u64,
            seed: self.seed,
            rounds: settings.config.rounds as u64,
            clients: pool.partition.clients.len() as u64,
            per_round: *per_round as u64,
            threads: self.threads as u64,
            isa: model.engine().name().to_string(),
            classes: pool.dataset.classes.clone(),
            client_names: pool.partition.names.clone(),
            positive: self.study.positive.map(|class| class as u64),
            validation_samples: pool.held_out.validation.len() as u64,
            partition_fingerprint: self.study.partition_fingerprint.clone(),
            left_out: pool.skipped.count as u64,
            machine: machine::describe(),
            command: format!("fedelity run {}", names::CONFIG),
            ..Header::default()
        }
    }

    /// A message about a client, with its name if it has one.
    fn named(&self, message: String, client: Option<u64>) -> String {
        let names = &self.study.pool.partition.names;
        let of = |client: u64| message.replacen(&format!("client {client}"), &client_name(names, client), 1);
        client.map_or_else(|| message.clone(), of)
    }

    /// The description of the model of the best round: the round, and how it was chosen.
    fn best_card(&self, round: u64, chosen_by: ChosenBy) -> Card {
        let mut card = self.card();
        let how = match chosen_by {
            ChosenBy::Validation => {
                format!("accuracy on {} validation samples", self.study.pool.held_out.validation.len())
            }
            ChosenBy::Test => "accuracy on the test samples".to_string(),
        };
        card.origin.insert("round".to_string(), round.to_string());
        card.origin.insert("chosen-by".to_string(), how);
        card
    }

    /// The model file's description of itself. It is the same in every repetition.
    fn card(&self) -> Card {
        let mut card = self.study.card.clone();
        card.origin.insert("method".to_string(), self.method.name.to_string());
        card.origin.insert("seed".to_string(), self.seed.to_string());
        if let Some(name) = &self.study.settings.config.evaluation.positive {
            card.origin.insert(POSITIVE.to_string(), name.clone());
        }
        card
    }
}
