//! The kinds of partitions and their parameters.

use fedelity_keys::keys;
use serde::Serialize;

/// How samples are given out.
#[keys(tag = "kind", default = "dirichlet")]
#[derive(Serialize)]
pub enum Kind {
    /// A random split into equal parts.
    Iid,
    /// Each class is cut by its own Dirichlet draw over clients.
    Dirichlet {
        /// Concentration, above 0. Small is skewed: 0.1 leaves a client few classes.
        #[key(default = 0.1, above = 0)]
        alpha: f64,
        /// The fewest samples of a client, 10 as in MOON, NIID-Bench and FedNTD. 0 counts as 1.
        #[key(default = 10)]
        min_size: usize,
    },
    /// Dirichlet draws inside blocks of clients, then cut again into equal parts.
    DirichletEqual {
        /// Concentration, above 0.
        #[key(default = 0.1, above = 0)]
        alpha: f64,
    },
    /// Each class is cut into equal shards; each client takes some.
    Shards {
        /// Shards per client, an upper bound of its classes.
        #[key(default = 2, min = 1)]
        shards: usize,
    },
    /// Each client holds this many classes, each class is shared equally.
    LabelsPerClient {
        /// Classes per client.
        #[key(default = 2, min = 1)]
        labels: usize,
    },
    /// Each client holds the samples of one natural key, or of several.
    Natural,
}

impl Kind {
    /// The kind over this many clients, in words.
    pub(super) fn describe(&self, clients: usize) -> String {
        match self {
            Self::Iid => format!("IID over {clients} clients"),
            Self::Dirichlet { alpha, min_size } => {
                format!("Dirichlet with alpha {alpha}, {clients} clients of {min_size} samples or more")
            }
            Self::DirichletEqual { alpha } => {
                format!("Dirichlet with alpha {alpha} over {clients} clients, equal sizes")
            }
            Self::Shards { shards } => format!("{shards} shards each for {clients} clients"),
            Self::LabelsPerClient { labels } => format!("{labels} labels each for {clients} clients"),
            Self::Natural => format!("natural keys over {clients} clients"),
        }
    }
}
