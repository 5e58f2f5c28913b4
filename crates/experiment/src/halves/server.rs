//! The server's half.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fedelity_fl::wire::Wire;
use fedelity_fl::{
    Broadcast, Coordinator, Evaluation, Federation, FlError, Rejection, Samples, Scaling, ServerState, Trainer, Upload,
    longest_first, sample_clients, sample_others,
};
use fedelity_nn::{Model, Params};

use super::Agreement;
use super::envelope::{ExchangeError, seal, unseal};
use crate::ExperimentError;
use crate::assemble::Study;
use crate::error::Result;

/// A server that gets its messages from outside.
pub struct Server {
    study: Study,
    agreement: Agreement,
    digest: [u8; 32],
    coordinator: Coordinator,
    open: Option<OpenRound>,
    /// The last round in which an upload of a client counted.
    accepted: BTreeMap<usize, usize>,
    /// How often the next round has been given up, and the clients that were tried.
    attempt: usize,
    tried: BTreeSet<usize>,
}

struct OpenRound {
    clients: Vec<usize>,
    /// The broadcast, encoded once for all of them.
    message: Vec<u8>,
    /// Uploads that have arrived and been checked.
    waiting: BTreeMap<usize, Upload>,
}

/// How a round ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    /// The weights are new.
    Closed {
        /// Clients whose uploads counted.
        counted: Vec<usize>,
        /// Clients whose uploads the aggregation rule left out.
        left_out: Vec<usize>,
    },
    /// Too few uploads arrived; nothing has changed, and the next one has other clients.
    Repeated { arrived: usize, needed: usize },
}

impl Server {
    /// A server before its first round. The study has one method and one seed.
    pub fn new(study: Study) -> Result<Self> {
        let (agreement, federation) = begin(&study)?;
        Ok(Self::with(study, agreement, Coordinator::new(federation)?, BTreeMap::new()))
    }

    /// A server as it was when it was [saved](Self::save).
    pub fn restore(study: Study, saved: &[u8]) -> Result<Self, ExchangeError> {
        let broken = |error: ExperimentError| match error {
            ExperimentError::Federation(error) => ExchangeError::Round(error),
            _ => ExchangeError::Agreement,
        };
        let (agreement, federation) = begin(&study).map_err(broken)?;
        let ([clients], mut rest) = unseal::<1>(&agreement.digest(), saved)?;
        let mut accepted = BTreeMap::new();
        for _ in 0..clients.unwrap_or(0) {
            let (pair, after) = rest.split_at_checked(16).ok_or(ExchangeError::Foreign)?;
            let number = |at: usize| u64::from_le_bytes(pair.as_chunks::<8>().0[at]) as usize;
            accepted.insert(number(0), number(1));
            rest = after;
        }
        let coordinator = Coordinator::resume(federation, ServerState::from_bytes(rest)?)?;
        Ok(Self::with(study, agreement, coordinator, accepted))
    }

    fn with(study: Study, agreement: Agreement, coordinator: Coordinator, accepted: BTreeMap<usize, usize>) -> Self {
        let digest = agreement.digest();
        Self { study, agreement, digest, coordinator, open: None, accepted, attempt: 0, tried: BTreeSet::new() }
    }

    /// What clients need to know before they start.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// The number of closed rounds.
    pub fn rounds(&self) -> usize {
        self.coordinator.rounds()
    }

    pub fn weights(&self) -> &Params {
        self.coordinator.global()
    }

    /// The model that is trained: its layout names the weights.
    pub fn model(&self) -> &Arc<Model> {
        &self.study.model
    }

    /// Its state between rounds, as bytes. An open round is not part of it.
    pub fn save(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (&client, &round) in &self.accepted {
            body.extend((client as u64).to_le_bytes());
            body.extend((round as u64).to_le_bytes());
        }
        body.extend(self.coordinator.kept().to_bytes());
        seal(&self.digest, &[Some(self.accepted.len())], &body)
    }

    /// Opens the next round and returns its clients: those of the simulation or, if the round is repeated, others.
    pub fn open(&mut self) -> Result<Vec<usize>> {
        let (seed, clients, per_round) = (self.agreement.seed, self.agreement.clients, self.study.per_round);
        let chosen = match self.attempt {
            0 => sample_clients(seed, self.rounds(), clients, per_round),
            attempt => sample_others(seed, self.rounds(), attempt, clients, per_round, &self.tried),
        };
        let broadcast: Broadcast = self.coordinator.open(&chosen)?;
        self.open =
            Some(OpenRound { clients: chosen.clone(), message: broadcast.to_bytes(), waiting: BTreeMap::new() });
        Ok(chosen)
    }

    /// What a client of the open round is sent; nothing for others.
    pub fn message(&self, client: usize) -> Option<Vec<u8>> {
        let open = self.open.as_ref().filter(|open| open.clients.contains(&client))?;
        Some(seal(&self.digest, &[self.accepted.get(&client).copied()], &open.message))
    }

    /// Takes in what a client sent. What is refused changes nothing, and the error says why.
    pub fn accept(&mut self, sender: usize, bytes: &[u8]) -> Result<(), ExchangeError> {
        let ([], body) = unseal::<0>(&self.digest, bytes)?;
        let upload = Upload::from_bytes(body)?;
        if upload.client != sender {
            return Err(ExchangeError::Sender { sender, named: upload.client });
        }
        self.coordinator.examine(&upload)?;
        let stranger = Rejection::Stranger { client: sender };
        let open = self.open.as_mut().ok_or(stranger)?;
        if open.waiting.contains_key(&sender) {
            return Err(Rejection::Twice { client: sender }.into());
        }
        open.waiting.insert(sender, upload);
        Ok(())
    }

    /// The clients of the open round whose uploads have not arrived.
    pub fn missing(&self) -> Vec<usize> {
        let open = self.open.iter();
        open.flat_map(|open| open.clients.iter().filter(|client| !open.waiting.contains_key(client)).copied()).collect()
    }

    /// Ends the round with what has arrived.
    pub fn close(&mut self) -> Result<RoundEnd> {
        let round = self.rounds();
        let Some(OpenRound { clients, mut waiting, .. }) = self.open.take() else {
            return Err(FlError::Order { what: "closing a round", round: round + 1, state: "not open" }.into());
        };
        let needed = self.study.needed();
        let arrived: Vec<usize> = waiting.keys().copied().collect();
        if arrived.len() < needed {
            self.coordinator.abandon();
            self.attempt += 1;
            self.tried.extend(clients);
            return Ok(RoundEnd::Repeated { arrived: arrived.len(), needed });
        }
        let sizes = &self.study.pool.partition.clients;
        for client in longest_first(&arrived, |client| sizes[client].len()) {
            if let Some(upload) = waiting.remove(&client) {
                self.coordinator.fold(upload)?;
            }
        }
        let left_out = self.coordinator.close()?;
        let counted: Vec<usize> = arrived.into_iter().filter(|client| !left_out.contains(client)).collect();
        self.accepted.extend(counted.iter().map(|&client| (client, round)));
        (self.attempt, self.tried) = (0, BTreeSet::new());
        Ok(RoundEnd::Closed { counted, left_out })
    }

    /// Gives the open round up: everything is as it was before it.
    pub fn abandon(&mut self) {
        self.coordinator.abandon();
        self.open = None;
    }

    /// The global model on the test samples.
    pub fn evaluate(&self) -> Evaluation {
        let data = &self.study.pool.dataset;
        let indices: Vec<u32> = (0..data.test.len() as u32).collect();
        let scaling = Scaling::from(&data.normalisation);
        let samples = Samples { split: &data.test, indices: &indices, scaling: &scaling };
        let mut trainers = [Trainer::new(self.study.model.clone())];
        fedelity_sim::evaluate(&mut trainers, self.weights(), samples, self.study.model.classes()).evaluation
    }
}

/// The agreement and the federation of a study with one method and one seed.
fn begin(study: &Study) -> Result<(Agreement, Federation)> {
    match (&study.settings.methods[..], &study.settings.config.seeds[..]) {
        ([method], [seed]) => Ok((Agreement::of(study, method, *seed), study.federation(method, *seed))),
        _ => Err(ExperimentError::Config("a federation has one method and one seed".to_string())),
    }
}
