//! What one round did.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one round did: one line of `rounds.jsonl`.
///
/// Numbers that were not measured are absent: evaluation does not happen every round, and a loss that is not finite
/// has no number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RoundRecord {
    /// The round, counted from 1.
    pub round: u64,
    /// The share of test samples that the global model predicts right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The mean cross-entropy of the global model on the test samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The share that is predicted right, by class; `null` for a class without test samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_accuracy: Option<Vec<Option<f64>>>,
    /// Forgetting so far, from the second evaluation on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgetting: Option<f64>,
    /// The mean loss of local training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// The terms of that loss, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub train_terms: BTreeMap<String, f64>,
    /// Bytes from the server to all clients of the round.
    pub bytes_down: u64,
    /// Bytes from all clients of the round to the server.
    pub bytes_up: u64,
    /// Bytes both ways, relative to FedAvg's, which sends the weights down and up. Older records lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<f64>,
    /// Where the time went.
    pub seconds: Seconds,
    /// The clients of the round, in ascending order.
    pub clients: Vec<u64>,
}

/// Where the time of a round went, in seconds. The sum is the time of the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Seconds {
    /// Training on clients.
    pub train: f64,
    /// Making and folding what travels.
    pub aggregate: f64,
    /// Evaluation of the global model.
    pub evaluate: f64,
}

impl Seconds {
    /// The whole round.
    pub fn total(&self) -> f64 {
        self.train + self.aggregate + self.evaluate
    }
}
