//! Everything a configuration names: the data, their partition, the model and the methods.

mod columns;
mod model;
mod own;
mod pool;
pub(crate) mod text;

use std::sync::Arc;

use fedelity_fl::{Federation, ServerData};
use fedelity_nn::{Card, Input, Model};
use fedelity_sim::{Experiment, Observation};

use crate::config::{Document, MethodChoice, Settings};
use crate::error::Result;
use crate::resources::Resources;

pub use columns::table_form;
pub use own::model_file;
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
        if let Some(client) = settings.config.evaluation.client.filter(|client| *client >= clients) {
            let expected = format!("a client of the partition, 0 to {}", clients - 1);
            return Err(document.expected("evaluation.client", client, expected));
        }
        let rule = settings.config.server.rule;
        rule.check_uploads(per_round)
            .map_err(|reason| document.error("server.rule", format!("server.rule: {reason}")))?;
        let fitted = fit(document, &settings.config.model, &pool.dataset, &resources.engine)?;
        pool.dataset = fitted.dataset;
        if settings.config.model.file.is_some() && !matches!(fitted.card.input, Input::Tokens { .. }) {
            settings.forget_texts();
        }
        Ok(Self {
            per_round,
            partition_fingerprint: pool.partition.fingerprint(),
            holdings: pool.holdings(),
            server_data: pool.held_out.server_data(&pool.dataset),
            model: Arc::new(fitted.model),
            card: fitted.card,
            settings,
            pool,
        })
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
                client: evaluation.client,
            },
        }
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
