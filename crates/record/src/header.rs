//! What a run was.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::local::LocalEvaluation;

/// The name of the format in every file of a run.
pub const FORMAT: &str = "fedelity-run";
/// The version of the format that is written and read.
pub const VERSION: u32 = 1;

/// What a run was: the first line of `rounds.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The version of the program.
    pub fedelity: String,
    /// The method's id.
    pub method: String,
    /// The method's hyper-parameters, by name, as the configuration writes them.
    pub method_settings: BTreeMap<String, serde_json::Value>,
    /// The data set's name.
    pub dataset: String,
    /// The fingerprint of the data, as hex. Empty if it was not taken.
    pub dataset_fingerprint: String,
    /// The partition in words.
    pub partition: String,
    /// The model's name.
    pub model: String,
    /// The trainable parameters of the model.
    pub parameters: u64,
    /// The seed of the run.
    pub seed: u64,
    /// The rounds that were planned.
    pub rounds: u64,
    /// The clients of the federation.
    pub clients: u64,
    /// The clients a round.
    pub per_round: u64,
    /// Worker threads. They do not change results.
    pub threads: u64,
    /// The names of the classes. Older records lack them.
    pub classes: Vec<String>,
    /// On what local models are measured. Older records lack it.
    pub local_evaluation: Option<LocalEvaluation>,
    /// SHA-256 of who holds which samples, as hex. Older records lack it.
    pub partition_fingerprint: String,
    /// Samples that could not be used and were left out, as the configuration allowed. Older records lack it.
    pub left_out: u64,
    /// The computer: its processor and system in words.
    pub machine: String,
    /// The command that repeats the run, in its folder.
    pub command: String,
    /// The instruction set of the kernels. It can change the last bits of results.
    pub isa: String,
}

impl Default for Header {
    /// Format and version are set, the rest is empty.
    fn default() -> Self {
        Self {
            format: FORMAT.to_string(),
            version: VERSION,
            fedelity: String::new(),
            method: String::new(),
            method_settings: BTreeMap::new(),
            dataset: String::new(),
            dataset_fingerprint: String::new(),
            partition: String::new(),
            model: String::new(),
            parameters: 0,
            seed: 0,
            rounds: 0,
            clients: 0,
            per_round: 0,
            threads: 0,
            classes: Vec::new(),
            local_evaluation: None,
            partition_fingerprint: String::new(),
            left_out: 0,
            machine: String::new(),
            command: String::new(),
            isa: String::new(),
        }
    }
}
