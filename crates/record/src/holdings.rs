use serde::{Deserialize, Serialize};

use crate::header::Stamp;

/// How many samples of each class each client holds: `holdings.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Holdings {
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Samples, `[client][class]`.
    pub counts: Vec<Vec<u64>>,
}

impl Holdings {
    /// These samples, `[client][class]`.
    pub fn new(counts: Vec<Vec<u64>>) -> Self {
        Self { stamp: Stamp::default(), counts }
    }
}
