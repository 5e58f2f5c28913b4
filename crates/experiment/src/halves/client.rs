//! A client's half.

use std::sync::Arc;

use fedelity_data::{Normalisation, Part, Split};
use fedelity_fl::wire::Wire;
use fedelity_fl::{Broadcast, Federation, Payload, Samples, Scaling, ServerData, Trainer, client};
use fedelity_nn::{Model, Params};

use super::Agreement;
use super::envelope::{ExchangeError, seal, unseal};
use crate::assemble::Study;
use crate::error::Result;
use crate::saved::fit_samples;
use crate::{Document, ExperimentError, Resources, Settings};

/// A client that gets its messages from outside.
#[derive(Debug)]
pub struct Client {
    digest: [u8; 32],
    id: usize,
    federation: Federation,
    trainer: Trainer,
    split: Arc<Split>,
    indices: Vec<u32>,
    scaling: Scaling,
    memory: TwoMemories,
}

/// What a client remembers: what the server is known to have accepted, and what it may have.
#[derive(Clone, Debug, Default, PartialEq)]
struct TwoMemories {
    kept: Payload,
    /// The round of `kept`.
    round: Option<usize>,
    pending: Payload,
    /// The round of `pending`, until the server says whether it was accepted.
    pending_round: Option<usize>,
}

impl TwoMemories {
    /// Settles what is pending, now that the server has said which round it last accepted.
    fn settle(&mut self, accepted: Option<usize>) {
        if accepted.is_some() && self.pending_round == accepted {
            (self.kept, self.round) = (std::mem::take(&mut self.pending), accepted);
        }
        (self.pending, self.pending_round) = (Payload::new(), None);
    }
}

impl Client {
    /// A client of the partition: it has all data of the study and takes its part.
    pub fn of_partition(study: &Study, agreement: &Agreement, id: usize) -> Result<Self> {
        let (_, method) = agreement.settings()?;
        let own = Agreement::of(study, &method, agreement.seed);
        if let Some((what, server, here)) = agreement.first_difference(&own) {
            let message = format!("server and client do not agree: the {what} is {server} there and {here} here");
            return Err(ExperimentError::Config(message));
        }
        let Some(indices) = study.pool.partition.clients.get(id) else { return Err(no_such_client(agreement, id)) };
        let federation = study.federation(&method, agreement.seed);
        let split = Arc::new(study.pool.dataset.train.clone());
        let scaling = Scaling::from(&study.pool.dataset.normalisation);
        Ok(Self::with(agreement, id, federation, split, indices.clone(), scaling))
    }

    /// A site with data of its own: `[data]` of its configuration, read as the agreement says. Classes, normalisation,
    /// columns, image size and vocabulary are those of the agreement. Samples that are marked for testing are not used.
    pub fn of_site(agreement: &Agreement, id: usize, site: &Document, resources: &Resources) -> Result<Self> {
        let keys = Settings::read(site)?.config.data;
        let data = resources.load_new(site, &keys, &agreement.card, None)?;
        let part = if data.part == Part::Test { Part::Train } else { data.part };
        let data = fedelity_data::NewData { part, ..data };
        if let Some(class) = data.dataset.classes.iter().find(|class| !agreement.card.classes.contains(class)) {
            let known = agreement.card.classes.join(", ");
            let message = format!("the class '{class}' is not part of the federation, which has {known}");
            return Err(ExperimentError::Config(message));
        }
        let (split, _) = fit_samples(&agreement.card, std::path::Path::new("the agreement"), &data)?;
        Self::of_samples(agreement, id, split, resources)
    }

    /// A client with these samples, as the agreement's model reads them.
    pub fn of_samples(agreement: &Agreement, id: usize, split: Split, resources: &Resources) -> Result<Self> {
        let (settings, method) = agreement.settings()?;
        let card = &agreement.card;
        let classes = card.classes.len();
        if id >= agreement.clients {
            return Err(no_such_client(agreement, id));
        }
        if let Some(label) = split.labels.iter().find(|label| usize::from(**label) >= classes) {
            return Err(ExperimentError::Config(format!(
                "a sample has label {label}, but there are {classes} classes"
            )));
        }
        if !agreement.frozen.is_empty() {
            let message = "the model has frozen weights, which do not travel: use a client with the study's own data";
            return Err(ExperimentError::Config(message.to_string()));
        }
        let model = Arc::new(Model::compile(&card.architecture()?, resources.engine.clone())?);
        let federation = Federation {
            model,
            method: method.method,
            training: settings.training(),
            weighting: settings.config.clients.weighting,
            clients: agreement.clients,
            seed: agreement.seed,
            server_data: ServerData::default(),
        };
        let scaling = Scaling::from(&Normalisation { mean: card.mean.clone(), std: card.std.clone() });
        let indices = (0..split.len() as u32).collect();
        Ok(Self::with(agreement, id, federation, Arc::new(split), indices, scaling))
    }

    fn with(
        agreement: &Agreement,
        id: usize,
        federation: Federation,
        split: Arc<Split>,
        indices: Vec<u32>,
        scaling: Scaling,
    ) -> Self {
        let (digest, trainer) = (agreement.digest(), Trainer::new(federation.model.clone()));
        Self { digest, id, federation, trainer, split, indices, scaling, memory: TwoMemories::default() }
    }

    pub fn id(&self) -> usize {
        self.id
    }

    /// Its number of samples.
    pub fn samples(&self) -> usize {
        self.indices.len()
    }

    /// Trains for one round, given the server's message. Returns what to send.
    ///
    /// The client keeps two memories, because it does not know yet whether this upload will count: the server's next message
    /// says so. [`memory`](Self::memory) is what must survive a restart.
    pub fn train(&mut self, message: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        let ([accepted], body) = unseal::<1>(&self.digest, message)?;
        let broadcast = Broadcast::from_bytes(body)?;
        let mut memory = self.memory.clone();
        memory.settle(accepted);
        if memory.round != accepted && self.federation.method.needs().client_memory {
            let (client, found) = (self.id, memory.round.map(|round| round + 1));
            return Err(ExchangeError::Memory { client, expected: accepted.map_or(0, |round| round + 1), found });
        }
        let samples = Samples { split: &self.split, indices: &self.indices, scaling: &self.scaling };
        let task = self.federation.task(self.id, samples, &broadcast, &memory.kept);
        let done = client(&mut self.trainer, &task, Params::default())?;
        (memory.pending, memory.pending_round) = (done.memory, Some(broadcast.round));
        self.memory = memory;
        Ok(seal(&self.digest, &[], &done.upload.to_bytes()))
    }

    /// What it remembers, as bytes.
    pub fn memory(&self) -> Vec<u8> {
        let TwoMemories { kept, round, pending, pending_round } = &self.memory;
        let kept = kept.to_bytes();
        let mut body = kept.clone();
        body.extend(pending.to_bytes());
        seal(&self.digest, &[Some(self.id), *round, *pending_round, Some(kept.len())], &body)
    }

    /// Remembers what was [saved](Self::memory).
    pub fn remember(&mut self, saved: &[u8]) -> Result<(), ExchangeError> {
        let ([id, round, pending_round, kept], body) = unseal::<4>(&self.digest, saved)?;
        if id != Some(self.id) {
            return Err(ExchangeError::Sender { sender: self.id, named: id.unwrap_or(usize::MAX) });
        }
        let (kept, pending) = body.split_at_checked(kept.unwrap_or(0)).ok_or(ExchangeError::Foreign)?;
        let (kept, pending) = (Payload::from_bytes(kept)?, Payload::from_bytes(pending)?);
        self.memory = TwoMemories { kept, round, pending, pending_round };
        Ok(())
    }
}

fn no_such_client(agreement: &Agreement, id: usize) -> ExperimentError {
    let most = agreement.clients.saturating_sub(1);
    ExperimentError::Config(format!("client {id}: the agreement has clients 0 to {most}; give this node one of them"))
}
