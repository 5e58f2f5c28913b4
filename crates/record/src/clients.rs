//! Each client at the end of a run.

use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use crate::folder::{RunFolder, names};
use crate::header::Stamp;
use crate::scores::Scores;

/// Which test samples tell how good a model is for a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestedOn {
    /// The client's own: test samples that come from the same site.
    Own,
    /// The same for all clients: test samples do not say where they come from.
    #[default]
    Common,
}

/// Each client at the end of a run: `clients.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClientsReport {
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The round after which the global model was tested.
    pub round: u64,
    pub tested_on: TestedOn,
    /// The positive class, if there are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positive: Option<u64>,
    /// The global model on the common test samples on which local models are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common: Option<Scores>,
    pub clients: Vec<ClientReport>,
}

/// One client at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ClientReport {
    pub client: u64,
    /// Its site, writer or user, if known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its training samples of each class. Absent if there are very many clients and classes, as `holdings.json` has them, and
    /// if the client is a site, which keeps them to itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<u64>,
    /// Its training samples; 0 if they are not known.
    pub samples: u64,
    /// The global model on the client's own test samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<Scores>,
    /// The accuracy of the global model, by class weighted as the client's training samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_in: Option<f64>,
    /// The client's own model, when it was last measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<LocalScores>,
}

/// A client's own model: after its training in a round, before aggregation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LocalScores {
    /// The last round in which the client took part and local models were measured.
    pub round: u64,
    /// On the samples that [`ClientsReport::tested_on`] names.
    pub scores: Scores,
    /// Its accuracy on common test samples, by class weighted as the client's training samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_in: Option<f64>,
}

impl RunFolder {
    /// Writes how good the models are for each client.
    pub fn write_clients(&self, report: &ClientsReport) -> Result<(), RecordError> {
        self.write_json(names::CLIENTS, serde_json::to_vec(report))
    }
}
