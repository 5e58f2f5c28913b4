//! Partitions: which client holds which training samples.
//!
//! A partition is made from the labels alone, from its own random stream, so it does not depend
//! on the method, the model or the training seed. Only integers and the basic operations of
//! `f64` are used: the same seed gives the same partition on every machine. Every kind gives out
//! every sample once and leaves no client empty. The order inside a client is random, so a
//! prefix of a client's list is a fair sample of the client.

mod dirichlet;
mod dirichlet_equal;
mod file;
mod holdings;
mod iid;
mod labels_per_client;
mod natural;
mod shards;
mod skew;
mod stream;

use std::fmt;

use crate::error::Error;
use crate::fingerprint::Fingerprint;
use stream::Stream;

pub use dirichlet_equal::BLOCK;
pub use file::{FORMAT, PartitionFile, VERSION};
pub use natural::natural;
pub use skew::{Sizes, Skew};

/// The default of `min_size`: the smallest client that MOON, NIID-Bench and FedNTD accept.
pub const DEFAULT_MIN_SIZE: usize = 10;
/// The seed of [`hold_out`]: a data set does not change from run to run.
const HOLD_OUT_SEED: u64 = 0x7e57;
/// The default of `max_draws`.
pub const DEFAULT_MAX_DRAWS: u32 = 2_000;

/// How samples are given out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// A random split into equal parts.
    Iid,
    /// Each class is cut by its own Dirichlet draw over clients.
    Dirichlet {
        /// Concentration, above 0. Small is skewed: 0.1 leaves a client few classes.
        alpha: f64,
        /// The fewest samples of a client. 0 counts as 1.
        min_size: usize,
        /// Draws to try for `min_size` before the best one is repaired.
        max_draws: u32,
    },
    /// Dirichlet draws inside blocks of clients, then cut again into equal parts.
    DirichletEqual {
        /// Concentration, above 0.
        alpha: f64,
        /// Draws to try per block before the best one is taken.
        max_draws: u32,
    },
    /// Each class is cut into equal shards; each client takes some.
    Shards {
        /// Shards per client, an upper bound of its classes.
        per_client: usize,
    },
    /// Each client holds this many classes, each class is shared equally.
    LabelsPerClient {
        /// Classes per client.
        labels: usize,
    },
    /// Each client holds the samples of one natural key, or of several. [`natural`] makes it.
    Natural,
}

impl Kind {
    /// The names of all kinds, as configuration files write them.
    pub const NAMES: [&'static str; 6] =
        ["iid", "dirichlet", "dirichlet-equal", "shards", "labels-per-client", "natural"];

    /// [`Kind::Dirichlet`] with the default minimum size and number of draws.
    pub fn dirichlet(alpha: f64) -> Self {
        Self::Dirichlet { alpha, min_size: DEFAULT_MIN_SIZE, max_draws: DEFAULT_MAX_DRAWS }
    }

    /// [`Kind::DirichletEqual`] with the default number of draws.
    pub fn dirichlet_equal(alpha: f64) -> Self {
        Self::DirichletEqual { alpha, max_draws: DEFAULT_MAX_DRAWS }
    }

    /// The name, one of [`Kind::NAMES`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::Iid => "iid",
            Self::Dirichlet { .. } => "dirichlet",
            Self::DirichletEqual { .. } => "dirichlet-equal",
            Self::Shards { .. } => "shards",
            Self::LabelsPerClient { .. } => "labels-per-client",
            Self::Natural => "natural",
        }
    }

    /// The parameters and their values, by the names that errors use.
    pub fn parameters(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::Iid | Self::Natural => Vec::new(),
            Self::Dirichlet { alpha, min_size, max_draws } => {
                vec![("alpha", alpha), ("min-size", min_size as f64), ("max-draws", f64::from(max_draws))]
            }
            Self::DirichletEqual { alpha, max_draws } => {
                vec![("alpha", alpha), ("max-draws", f64::from(max_draws))]
            }
            Self::Shards { per_client } => vec![("per-client", per_client as f64)],
            Self::LabelsPerClient { labels } => vec![("labels", labels as f64)],
        }
    }
}

/// A kind of partition and the number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How samples are given out.
    pub kind: Kind,
    /// The number of clients.
    pub clients: usize,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.clients;
        match &self.kind {
            Kind::Iid => write!(f, "IID over {clients} clients"),
            Kind::Dirichlet { alpha, min_size, .. } => {
                write!(f, "Dirichlet with alpha {alpha}, {clients} clients of {min_size} samples or more")
            }
            Kind::DirichletEqual { alpha, .. } => {
                write!(f, "Dirichlet with alpha {alpha} over {clients} clients, equal sizes")
            }
            Kind::Shards { per_client } => {
                write!(f, "{per_client} shards each for {clients} clients")
            }
            Kind::LabelsPerClient { labels } => {
                write!(f, "{labels} labels each for {clients} clients")
            }
            Kind::Natural => write!(f, "natural keys over {clients} clients"),
        }
    }
}

/// Which client holds which samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// The sample indices of each client, in random order. They are disjoint.
    pub clients: Vec<Vec<u32>>,
    /// Random draws made, the accepted one included. 1 for kinds that never draw again; summed
    /// over blocks for [`Kind::DirichletEqual`].
    pub draws: u32,
    /// What was done that the specification does not say: a lowered minimum, a repair.
    pub notes: Vec<String>,
    /// What was asked for.
    pub spec: Spec,
    /// The seed it was made from.
    pub seed: u64,
}

impl Partition {
    /// The number of samples given out.
    pub fn samples(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }
}

/// What a kind makes.
struct Made {
    clients: Vec<Vec<u32>>,
    draws: u32,
    notes: Vec<String>,
}

/// Splits samples with these labels over clients.
///
/// `classes` is the number of classes of the data set; every label must be below it.
pub fn partition(labels: &[u16], classes: usize, spec: &Spec, seed: u64) -> Result<Partition, Error> {
    check(labels, classes, spec)?;
    let mut stream = Stream::new(seed);
    let clients = spec.clients;
    let mut made = match spec.kind {
        Kind::Iid => iid::make(labels.len(), clients, &mut stream),
        Kind::Dirichlet { alpha, min_size, max_draws } => {
            dirichlet::make(labels, clients, alpha, min_size, max_draws, &mut stream)
        }
        Kind::DirichletEqual { alpha, max_draws } => {
            dirichlet_equal::make(labels, clients, alpha, max_draws, &mut stream)
        }
        Kind::Shards { per_client } => shards::make(labels, classes, clients, per_client, &mut stream)?,
        Kind::LabelsPerClient { labels: held } => labels_per_client::make(labels, clients, held, &mut stream)?,
        Kind::Natural => return Err(refuse("kind", "natural", "natural keys, which labels are not")),
    };
    for client in &mut made.clients {
        stream.shuffle(client);
    }
    Ok(Partition { clients: made.clients, draws: made.draws, notes: made.notes, spec: spec.clone(), seed })
}

/// Which samples are kept for testing: this share of each class, at random, but never a class's only sample.
pub(crate) fn hold_out(labels: &[u16], fraction: f64) -> Vec<bool> {
    let mut held = vec![false; labels.len()];
    let mut stream = Stream::new(HOLD_OUT_SEED);
    for mut class in by_class(all(labels.len()), labels) {
        stream.shuffle(&mut class);
        let most = class.len() - 1;
        let share = (fraction * class.len() as f64).round() as usize;
        class.iter().take(share.max(1).min(most)).for_each(|&i| held[i as usize] = true);
    }
    held
}

/// SHA-256 of labels in their order, as hex: what a partition file is bound to.
pub fn labels_fingerprint(labels: &[u16]) -> String {
    let mut print = Fingerprint::new();
    print.labels(labels);
    print.hex()
}

fn refuse(parameter: &'static str, value: impl fmt::Display, allowed: impl Into<String>) -> Error {
    Error::Parameter { parameter, value: value.to_string(), allowed: allowed.into() }
}

fn check(labels: &[u16], classes: usize, spec: &Spec) -> Result<(), Error> {
    let samples = labels.len();
    const MOST_CLASSES: usize = u16::MAX as usize + 1;
    if classes == 0 || classes > MOST_CLASSES {
        return Err(refuse("classes", classes, format!("1 to {MOST_CLASSES}")));
    }
    if samples > u32::MAX as usize {
        return Err(refuse("samples", samples, format!("at most {}", u32::MAX)));
    }
    if spec.clients == 0 || spec.clients > samples {
        return Err(refuse("clients", spec.clients, format!("1 to {samples}, the number of samples")));
    }
    if let Some(index) = labels.iter().position(|&l| usize::from(l) >= classes) {
        return Err(Error::LabelRange { index, label: labels[index], classes });
    }
    let (alpha, max_draws) = match spec.kind {
        Kind::Dirichlet { alpha, max_draws, .. } | Kind::DirichletEqual { alpha, max_draws } => (alpha, max_draws),
        _ => return Ok(()),
    };
    if !(alpha.is_finite() && alpha > 0.0) {
        return Err(refuse("alpha", alpha, "a finite number above 0"));
    }
    if max_draws == 0 {
        return Err(refuse("max-draws", max_draws, "1 or more"));
    }
    Ok(())
}

/// Groups indices by label, in label order. Classes without samples do not appear.
fn by_class(mut indices: Vec<u32>, labels: &[u16]) -> Vec<Vec<u32>> {
    let label = |&i: &u32| labels[i as usize];
    indices.sort_by_key(label);
    indices.chunk_by(|a, b| label(a) == label(b)).map(<[u32]>::to_vec).collect()
}

/// All indices of a set. [`check`] has made sure that they fit.
fn all(samples: usize) -> Vec<u32> {
    (0..samples as u32).collect()
}

/// The start of part `i` when `n` things are cut into `parts` parts whose sizes differ by at
/// most one, the larger ones first.
fn cut(n: usize, parts: usize, i: usize) -> usize {
    (n / parts) * i + i.min(n % parts)
}

#[cfg(test)]
mod tests;
