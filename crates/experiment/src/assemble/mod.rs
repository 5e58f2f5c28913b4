//! Everything a configuration names: the data, their partition, the model and the methods.

mod columns;
mod model;
mod own;
mod pool;
pub(crate) mod text;

use std::sync::Arc;

use fedelity_fl::{Federation, ServerData};
use fedelity_keys::nearest;
use fedelity_nn::{Card, Input, Model};
use fedelity_sim::{Experiment, Observation};

use crate::config::{ClientChoice, Document, MethodChoice, Settings};
use crate::error::Result;
use crate::resources::Resources;

pub use columns::table_form;
pub use own::{model_file, own_architecture};
pub use pool::Pool;

pub(crate) use model::fit;
pub(crate) use own::OwnModel;

/// Everything shared by the runs of one configuration.
pub struct Study {
    pub settings: Settings,
    pub pool: Pool,
    pub model: Arc<Model>,
    /// The description of the model in its files.
    pub card: Card,
    pub per_round: usize,
    /// SHA-256 of the assignment of samples to clients.
    pub partition_fingerprint: String,
    /// Samples, `[client][class]`.
    pub holdings: Vec<Vec<u64>>,
    pub server_data: ServerData,
    /// The client to examine closely, if the configuration names one.
    pub client: Option<usize>,
    /// The class to be found, if there are two.
    pub positive: Option<usize>,
}

impl Study {
    /// Checks a configuration and loads everything it names.
    pub fn load(document: &Document) -> Result<Self> {
        Self::load_with(document, &Resources::default())
    }

    /// As [`Self::load`], on a given engine, reusing data that have already been read.
    pub fn load_with(document: &Document, resources: &Resources) -> Result<Self> {
        let mut settings = Settings::read(document)?;
        let mut pool = Pool::load(document, &settings, resources)?;
        let clients = pool.partition.clients.len();
        let per_round = settings.settle_per_round(document, clients).map_err(|error| document.key_error(&error))?;
        let client = chosen_client(document, &settings, &pool)?;
        let positive = positive_class(document, &settings, &pool)?;
        let rule = settings.config.server.rule;
        rule.check_uploads(per_round)
            .map_err(|reason| document.error("server.rule", format!("server.rule: {reason}")))?;
        let fitted = fit(document, &settings.config.model, &pool.dataset, &resources.engine)?;
        pool.dataset = fitted.dataset;
        if settings.config.model.file.is_some() && !matches!(fitted.card.input, Input::Tokens { .. }) {
            settings.forget_texts();
        }
        let mut study = Self {
            per_round,
            partition_fingerprint: pool.partition.fingerprint(),
            holdings: pool.holdings(),
            server_data: pool.held_out.server_data(&pool.dataset),
            model: Arc::new(fitted.model),
            card: fitted.card,
            client,
            positive,
            settings,
            pool,
        };
        study.check_privacy(document)?;
        study.pool.notes.extend(study.of_delta());
        study.pool.notes.extend(study.of_idle_methods());
        Ok(study)
    }

    /// Notes on methods that are FedAvg with as few classes, or with such a model, as there are.
    fn of_idle_methods(&self) -> Vec<String> {
        let (classes, model) = (self.pool.dataset.classes.len(), &self.model);
        let notes = |MethodChoice { name, method, .. }: &MethodChoice| {
            let needs = method.needs();
            let few = (needs.classes > classes).then(|| {
                let least = needs.classes;
                format!("{name} is FedAvg with {classes} classes: it differs only with {least} or more")
            });
            let fixed = (needs.trained_features && !model.trains_features()).then(|| {
                let model = model.name();
                format!(
                    "{name} is FedAvg with {model}, which trains no layer before its classifier: use another model, or \
                     model.projection = true"
                )
            });
            few.into_iter().chain(fixed)
        };
        self.settings.methods.iter().flat_map(notes).collect()
    }

    pub fn experiment(&self, method: &MethodChoice, seed: u64, threads: usize) -> Experiment {
        let evaluation = &self.settings.config.evaluation;
        Experiment {
            federation: self.federation(method, seed),
            data: Arc::clone(&self.pool.dataset),
            partition: Arc::clone(&self.pool.partition),
            per_round: self.per_round,
            rounds: self.settings.config.rounds,
            evaluate_every: evaluation.every,
            threads,
            observation: Observation {
                metrics: evaluation.metrics,
                confusion: evaluation.confusion.clone(),
                client: self.client,
                positive: self.positive,
            },
            faults: self.settings.config.faults,
            needed: self.needed(),
        }
    }

    /// How many uploads close a round.
    pub fn needed(&self) -> usize {
        let server = &self.settings.config.server;
        // The tolerance is for shares such as 0.7 of 10, which may be a little more than 7.
        let quorum = (server.quorum * self.per_round as f64 - 1e-9).ceil() as usize;
        quorum.max(server.rule.least_uploads()).clamp(1, self.per_round)
    }

    /// The settings that server and clients agree on for one method and seed.
    pub fn federation(&self, method: &MethodChoice, seed: u64) -> Federation {
        Federation {
            model: Arc::clone(&self.model),
            method: Arc::clone(&method.method),
            training: self.settings.training(),
            weighting: self.settings.config.clients.weighting,
            clients: self.pool.partition.clients.len(),
            seed,
            server_data: self.server_data.clone(),
        }
    }
}

/// The number of the client to examine closely.
fn chosen_client(document: &Document, settings: &Settings, pool: &Pool) -> Result<Option<usize>> {
    let (clients, names) = (pool.partition.clients.len(), &pool.partition.names);
    let key = "evaluation.client";
    match &settings.config.evaluation.client {
        None => Ok(None),
        Some(ClientChoice::Number(number)) if *number < clients => Ok(Some(*number)),
        Some(ClientChoice::Number(number)) => {
            Err(document.expected(key, number, format!("a client of the partition, 0 to {}", clients - 1)))
        }
        Some(ClientChoice::Name(name)) => {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let guess = nearest(name, &known).map_or(String::new(), |name| format!("; did you mean '{name}'?"));
            let expected = match known.len() {
                0 => format!("the number of a client, 0 to {}: clients of this partition have no names", clients - 1),
                _ => format!("the name of a client{guess}"),
            };
            let place = names.iter().position(|known| known == name);
            place.map(Some).ok_or_else(|| document.expected(key, format!("\"{name}\""), expected))
        }
    }
}

/// The class to be found, if there are two.
fn positive_class(document: &Document, settings: &Settings, pool: &Pool) -> Result<Option<usize>> {
    let (classes, key) = (&pool.dataset.classes, "evaluation.positive");
    match &settings.config.evaluation.positive {
        None => Ok((classes.len() == 2).then_some(1)),
        Some(_) if classes.len() != 2 => {
            let message = format!("{key}: only with two classes, but the data have {}", classes.len());
            Err(document.error(key, message))
        }
        Some(name) => {
            let place = classes.iter().position(|known| known == name);
            let expected = format!("'{}'", classes.join("' or '"));
            place.map(Some).ok_or_else(|| document.expected(key, format!("\"{name}\""), expected))
        }
    }
}
