use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::incident::{Incident, is_zero};
use crate::local::{LocalRecord, Spread};
use crate::notice::Notice;
use crate::protection::ProtectionRecord;
use crate::scores::Scores;

/// The results of one round: one line of `rounds.jsonl`.
///
/// Unmeasured numbers are absent: not every round is evaluated, and a non-finite loss cannot be written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RoundRecord {
    /// Counted from 1.
    pub round: u64,
    /// The accuracy of the global model on the test samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The mean cross-entropy of the global model on the test samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Accuracy per class; `null` for a class without test samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_accuracy: Option<Vec<Option<f64>>>,
    /// The same predictions in other measures, with intervals. Older records lack them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<Scores>,
    /// The accuracy of the global model on each client's own test samples, by client; `null` for a client without any.
    /// Absent if test samples do not say where they come from and, with very many clients, before the last round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_accuracy: Option<Vec<Option<f64>>>,
    /// The global model on the validation part, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<ValidationRecord>,
    /// Set if the model of this round is the best so far and was kept: what it was chosen by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<ChosenBy>,
    /// Set if early stopping ended the run after this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStop>,
    /// Forgetting so far, from the second evaluation on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgetting: Option<f64>,
    /// Forgetting so far, per class: how far its accuracy is below its best in earlier rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_forgetting: Option<Vec<Option<f64>>>,
    /// The cosine between the class accuracies of this evaluation and the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_cosine: Option<f64>,
    /// Confusion matrix of the global model on the test samples, `[true class][predicted class]`, in the rounds chosen
    /// for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
    /// The share of units that prefer the same class as in the global model before the round, per layer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub alignment: BTreeMap<String, f64>,
    /// Local models after training and before aggregation. Absent in rounds that do not evaluate them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalRecord>,
    /// The distance of the clients' weights from the global ones they started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Spread>,
    /// The mean squared norm of the clients' updates over the squared norm of their mean: 1 if all agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_diversity: Option<f64>,
    /// The mean loss of local training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// The terms of that loss, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub train_terms: BTreeMap<String, f64>,
    /// Samples that clients trained on, counted once per epoch.
    #[serde(default)]
    pub trained_samples: u64,
    /// Samples that went through teachers, counted once per teacher.
    #[serde(default)]
    pub teacher_samples: u64,
    /// Bytes from the server to all clients of the round.
    pub bytes_down: u64,
    /// Bytes from all clients of the round to the server.
    pub bytes_up: u64,
    /// Bytes in both directions, relative to FedAvg's, which sends the weights down and up. Older records lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<f64>,
    /// Time spent, by phase.
    pub seconds: Seconds,
    /// The clients of the round, in ascending order.
    pub clients: Vec<u64>,
    /// Clients of the round whose uploads were lost, late or refused, and late uploads of the round before. Absent if there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<Incident>,
    /// How many uploads counted; absent if all did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// How often the round was repeated with other clients, because too few uploads counted; absent if it was not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u64,
    /// The global weights after the round. Older records lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightHashes>,
    /// What needs attention. Absent if nothing does; older records lack it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// What was done so that uploads reveal little and harm little. Absent if there is neither a limit nor noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<ProtectionRecord>,
}

/// What identifies a model's weights, bit for bit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct WeightHashes {
    /// SHA-256 of all weights, as hex.
    pub sha256: String,
    /// The first eight digits of each tensor's, in the order of the model file.
    pub tensors: Vec<String>,
}

/// The global model on the validation part: training samples that no client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ValidationRecord {
    pub accuracy: f64,
    /// The mean cross-entropy; absent if it is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// The samples on which the best round is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChosenBy {
    /// The validation part.
    Validation,
    /// The test samples, on which its accuracy is then too high.
    Test,
}

/// Why a run was stopped early: the accuracy on the validation part has not improved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EarlyStop {
    /// The round of the last improvement.
    pub best: u64,
    /// Rounds without improvement that were allowed.
    pub patience: u64,
}

/// Time spent in a round, by phase, in seconds. The sum is the time of the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Seconds {
    /// Training on clients.
    pub train: f64,
    /// Preparing broadcasts and folding in uploads.
    pub aggregate: f64,
    /// Evaluation of the global model.
    pub evaluate: f64,
    /// Evaluation of local models.
    pub observe: f64,
}

impl Seconds {
    /// The whole round.
    pub fn total(&self) -> f64 {
        self.train + self.aggregate + self.evaluate + self.observe
    }
}
