//! A run's header.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::guessing::Guessing;
use crate::incident::is_zero;
use crate::local::LocalEvaluation;
use crate::notice::client_name;
use crate::protection::Leaves;

/// The name of the format in every file of a run.
pub const FORMAT: &str = "fedelity-run";
/// The version of the format that is written and read.
pub const VERSION: u32 = 1;

/// The beginning of every file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stamp {
    pub format: String,
    pub version: u32,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { format: FORMAT.to_string(), version: VERSION }
    }
}

/// A description of a run: the first line of `rounds.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Header {
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The version of the program.
    pub fedelity: String,
    pub method: String,
    /// The method's hyper-parameters, by configuration key.
    pub method_settings: BTreeMap<String, serde_json::Value>,
    pub dataset: String,
    /// The fingerprint of the data, as hex. Empty if it was not computed.
    pub dataset_fingerprint: String,
    /// What the data lack: some samples of an official set, all of a class, or a second class. Absent if
    /// nothing is known to be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_gaps: Vec<String>,
    /// A description of the partition.
    pub partition: String,
    pub model: String,
    /// The trainable parameters of the model.
    pub parameters: u64,
    pub seed: u64,
    /// The planned number of rounds.
    pub rounds: u64,
    pub clients: u64,
    pub per_round: u64,
    /// Worker threads. Results do not depend on them.
    pub threads: u64,
    /// The names of the classes. Older records lack them.
    pub classes: Vec<String>,
    /// The names of the clients, by number: their sites, writers or users. Empty if they have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_names: Vec<String>,
    /// The positive class, if there are two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positive: Option<u64>,
    /// What guessing gives on the test samples. Older records lack it, and so do test samples of one class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guessing: Option<Guessing>,
    /// Samples of the validation part; 0 if there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub validation_samples: u64,
    /// The clients that attack, because the configuration says so; empty if none do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attackers: Vec<u64>,
    /// What local models are measured on. Older records lack it.
    pub local_evaluation: Option<LocalEvaluation>,
    /// SHA-256 of the assignment of samples to clients, as hex. Older records lack it.
    pub partition_fingerprint: String,
    /// SHA-256 of the run's configuration file, as hex. Older records lack it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config_sha256: String,
    /// Unusable samples that were left out, as the configuration allowed. Older records lack it.
    pub left_out: u64,
    /// A description of the computer: its processor and system.
    pub machine: String,
    /// The command that reproduces the run, in its folder.
    pub command: String,
    /// The instruction set of the kernels. Results do not depend on it.
    pub isa: String,
    /// What leaves a client. Older records lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Leaves>,
    /// Whether the clients ran as programs of their own. Absent if they were simulated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub federated: bool,
}

impl Header {
    /// What a client is called in a sentence.
    pub fn client(&self, client: u64) -> String {
        client_name(&self.client_names, client)
    }

    /// The first thing that makes this another run than that of `other`, with both values. The number of rounds, the
    /// program and the machine do not.
    pub fn first_difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let pairs = [
            ("method", self.method.clone(), other.method.clone()),
            ("data", self.dataset_fingerprint.clone(), other.dataset_fingerprint.clone()),
            ("partition", self.partition_fingerprint.clone(), other.partition_fingerprint.clone()),
            ("model", self.model.clone(), other.model.clone()),
            ("number of weights", self.parameters.to_string(), other.parameters.to_string()),
            ("seed", self.seed.to_string(), other.seed.to_string()),
            ("clients per round", self.per_round.to_string(), other.per_round.to_string()),
        ];
        let settings = || {
            let differs = |(key, value): &(&String, &serde_json::Value)| other.method_settings.get(*key) != Some(value);
            let (key, value) = self.method_settings.iter().find(differs)?;
            let now = other.method_settings.get(key).map_or("absent".to_string(), ToString::to_string);
            Some(("method's settings", format!("{key} = {value}"), format!("{key} = {now}")))
        };
        pairs.into_iter().find(|(_, then, now)| then != now).or_else(settings).map(in_lines)
    }

    /// The first thing that follows from what the run is made from and is said otherwise in `other`, with both values. What an older
    /// record lacks is no difference.
    pub fn first_contradiction(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let (lacks_classes, lacks_guessing, lacks_leaves) =
            (self.classes.is_empty(), self.guessing.is_none(), self.leaves.is_none());
        let pairs = [
            ("number of clients", false, json(&self.clients), json(&other.clients)),
            ("names of the clients", false, json(&self.client_names), json(&other.client_names)),
            ("partition's description", false, self.partition.clone(), other.partition.clone()),
            ("list of classes", lacks_classes, json(&self.classes), json(&other.classes)),
            ("positive class", false, json(&self.positive), json(&other.positive)),
            ("number of validation samples", false, json(&self.validation_samples), json(&other.validation_samples)),
            ("number of samples left out", self.left_out == 0, json(&self.left_out), json(&other.left_out)),
            ("gaps of the data", false, json(&self.data_gaps), json(&other.data_gaps)),
            ("list of attackers", self.federated, json(&self.attackers), json(&other.attackers)),
            ("account of what leaves a client", lacks_leaves, json(&self.leaves), json(&other.leaves)),
            ("accuracy of guessing", lacks_guessing, json(&self.guessing), json(&other.guessing)),
        ];
        let mut pairs = pairs.into_iter();
        let (what, _, then, now) = pairs.find(|(_, lacks, then, now)| !lacks && then != now)?;
        Some(in_lines((what, then, now)))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A name from a file must not look like a line of its own.
fn in_lines((what, then, now): (&'static str, String, String)) -> (&'static str, String, String) {
    let line = |text: String| text.replace('\n', "\\n");
    (what, line(then), line(now))
}
