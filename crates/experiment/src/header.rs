//! What describes a run: the header of its record, the card of its model, and what tells its checkpoints from others.

use fedelity_nn::Card;
use fedelity_record::{ChosenBy, Header, client_name, names};
use sha2::{Digest, Sha256};

use crate::assemble::Study;
use crate::checkpoint::Identity;
use crate::machine;
use crate::run::Run;
use crate::saved::POSITIVE;

/// The SHA-256 of some bytes, as hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Run<'_> {
    /// What tells its checkpoints from those of other runs.
    pub(crate) fn identity(&self) -> Identity {
        let study = self.study;
        let mut hasher = Sha256::new();
        hasher.update(study.settings.identity(self.method, self.seed));
        for part in [&study.pool.fingerprint, &study.partition_fingerprint] {
            hasher.update(part);
        }
        hasher.update(study.model.layout().len().to_le_bytes());
        if self.federated {
            hasher.update("federated");
        }
        hasher.finalize().into()
    }

    pub(crate) fn header(&self) -> Header {
        let Study { settings, pool, model, per_round, card, .. } = self.study;
        let as_json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_default();
        Header {
            fedelity: env!("CARGO_PKG_VERSION").to_string(),
            method: self.method.name.to_string(),
            method_settings: self.method.keys.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
            dataset: pool.dataset.name.clone(),
            dataset_fingerprint: pool.fingerprint.clone(),
            data_gaps: pool.dataset.gaps(),
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
            command: match pool.partition.is_of_sites() {
                true => String::new(),
                false => format!("fedelity run {}", names::CONFIG),
            },
            leaves: Some(self.study.leaves(self.method)),
            federated: self.federated,
            ..Header::default()
        }
    }

    /// A message about a client, with its name if it has one.
    pub(crate) fn named(&self, message: String, client: Option<u64>) -> String {
        let names = &self.study.pool.partition.names;
        let of = |client: u64| message.replacen(&format!("client {client}"), &client_name(names, client), 1);
        client.map_or_else(|| message.clone(), of)
    }

    /// The description of the model of the best round: the round, and how it was chosen.
    pub(crate) fn best_card(&self, round: u64, chosen_by: ChosenBy) -> Card {
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
    pub(crate) fn card(&self) -> Card {
        let mut card = self.study.card.clone();
        card.origin.insert("method".to_string(), self.method.name.to_string());
        card.origin.insert("seed".to_string(), self.seed.to_string());
        if let Some(name) = &self.study.settings.config.evaluation.positive {
            card.origin.insert(POSITIVE.to_string(), name.clone());
        }
        card
    }
}
