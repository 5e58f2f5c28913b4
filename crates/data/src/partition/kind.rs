//! The kinds of partitions and their parameters.

use std::collections::BTreeMap;

use fedelity_keys::{Selected, keys};
use serde::Serialize;

/// How samples are distributed.
#[keys(tag = "kind", default = "dirichlet")]
#[derive(Serialize)]
pub enum Kind {
    /// A random split into equal parts.
    Iid,
    /// Each class is split by its own Dirichlet draw over clients.
    Dirichlet {
        /// Concentration. The smaller, the more skewed: with 0.1, most clients have few classes.
        #[key(default = 0.1, above = 0)]
        alpha: f64,
        /// Fewest samples per client; 10 as in MOON, NIID-Bench and FedNTD. 0 counts as 1.
        #[key(default = 10)]
        min_size: usize,
    },
    /// Dirichlet draws within blocks of clients, then split again into equal parts.
    DirichletEqual {
        /// Concentration.
        #[key(default = 0.1, above = 0)]
        alpha: f64,
    },
    /// Each class is split into equal shards; each client gets some.
    Shards {
        /// Shards per client, an upper bound on its classes.
        #[key(default = 2, min = 1)]
        shards: usize,
    },
    /// Each client holds this many classes; each class is shared equally.
    LabelsPerClient {
        /// Classes per client.
        #[key(default = 2, min = 1)]
        labels: usize,
    },
    /// Each client holds the samples of one natural key, or of several.
    Natural,
    /// Each client is a site with samples of its own, which are not here: for the server of a federation.
    Sites,
}

impl Kind {
    /// The parameters, by the names of their keys.
    pub(super) fn parameters(&self) -> serde_json::Result<BTreeMap<String, serde_json::Number>> {
        let mut all: BTreeMap<String, serde_json::Value> = serde_json::from_value(serde_json::to_value(self)?)?;
        all.remove(Self::SELECTOR.name);
        all.into_iter().map(|(key, value)| Ok((key, serde_json::from_value(value)?))).collect()
    }

    /// A description of the kind over this many clients.
    pub(super) fn describe(&self, clients: usize) -> String {
        match self {
            Self::Iid => format!("IID over {clients} clients"),
            Self::Dirichlet { alpha, min_size } => {
                format!("Dirichlet with alpha {alpha} over {clients} clients, at least {min_size} samples each")
            }
            Self::DirichletEqual { alpha } => {
                format!("Dirichlet with alpha {alpha} over {clients} clients, equal sizes")
            }
            Self::Shards { shards } => format!("{shards} shards for each of {clients} clients"),
            Self::LabelsPerClient { labels } => format!("{labels} labels for each of {clients} clients"),
            Self::Natural => format!("natural keys over {clients} clients"),
            Self::Sites => format!("{clients} sites with their own samples"),
        }
    }
}
