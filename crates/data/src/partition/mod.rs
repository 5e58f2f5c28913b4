//! Partitions: which client holds which training samples.
//!
//! A partition depends only on labels or keys and has its own random stream, so it is independent of the method, the
//! model and the training seed. Only integers and the basic operations of `f64` are used: the same seed gives the same
//! partition on every machine. Every kind but `sites` assigns every sample once and leaves no client empty. The order within a
//! client is random, so a prefix of a client's list is a fair sample of the client.

mod dirichlet;
mod dirichlet_equal;
mod file;
mod iid;
mod kind;
mod labels_per_client;
mod natural;
mod owners;
mod shards;
mod shares;
mod skew;
mod stream;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, NaturalKeys};
use crate::error::DataError;
use crate::fingerprint::Fingerprint;
use stream::Stream;

pub use kind::Kind;
pub use skew::{ClientSizes, Skew};

/// The seed of [`hold_out`]: a data set does not change between runs.
const HOLD_OUT_SEED: u64 = 0x7e57;
/// Draws attempted for a minimum size before the best one is repaired.
const MAX_DRAWS: u32 = 2_000;

/// Which client holds which samples, and how they were assigned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    format: String,
    version: u32,
    /// The data set it was made for.
    pub dataset: String,
    /// The number of training samples of that set.
    pub samples: usize,
    pub classes: usize,
    /// Their names. Files from other tools may lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// The name of the kind. Files from other tools may have names unknown to this crate.
    pub kind: String,
    pub parameters: BTreeMap<String, serde_json::Number>,
    /// A description of the kind, its parameters and the number of clients.
    pub spec: String,
    pub seed: u64,
    /// Number of random draws, including the accepted one. 1 for kinds that never redraw; summed over blocks for
    /// [`Kind::DirichletEqual`].
    pub draws: u32,
    /// SHA-256 of the labels in order.
    pub labels_sha256: String,
    /// Adjustments beyond the kind's definition: a lowered minimum, a repair.
    pub notes: Vec<String>,
    /// The natural keys of each client, if any; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The sample indices of each client, in random order: in range, disjoint, none empty.
    #[serde(skip_serializing)]
    pub clients: Vec<Vec<u32>>,
}

impl Partition {
    /// A partition of which only the samples are known.
    pub fn of(clients: Vec<Vec<u32>>) -> Self {
        Self { clients, ..Self::default() }
    }

    /// Whether its clients are sites whose samples are not here.
    pub fn is_of_sites(&self) -> bool {
        self.given() == 0
    }

    /// The number of assigned samples.
    pub fn given(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }

    /// SHA-256 over the number of samples of each client and their indices.
    pub fn fingerprint(&self) -> String {
        let mut print = Fingerprint::new();
        self.clients.iter().for_each(|samples| print.words(samples.iter().copied()));
        print.hex()
    }

    /// Removes samples from their clients, and returns how many.
    ///
    /// # Errors
    /// If a client is left with none.
    pub fn withhold(&mut self, withheld: &[bool]) -> Result<usize, DataError> {
        let before = self.given();
        for (client, samples) in self.clients.iter_mut().enumerate() {
            samples.retain(|&i| !withheld[i as usize]);
            if samples.is_empty() {
                return Err(DataError::NothingKept { client });
            }
        }
        Ok(before - self.given())
    }
}

/// Splits the training samples of a data set over clients, except the withheld ones.
///
/// Without a number of clients, there is one per key; only [`Kind::Natural`] allows that.
pub fn partition(
    dataset: &Dataset,
    withheld: &[bool],
    kind: &Kind,
    clients: Option<usize>,
    seed: u64,
) -> Result<Partition, DataError> {
    let (labels, classes) = (&dataset.train.labels, dataset.classes.len());
    let rest: Vec<u32> = (0..).zip(withheld).filter(|(_, gone)| !**gone).map(|(i, _)| i).collect();
    let keys = match (kind, &dataset.train.keys) {
        (Kind::Natural, None) => return Err(DataError::NoKeys { dataset: dataset.name.clone() }),
        (_, keys) => keys.as_ref().map(|keys| NaturalKeys { of: pick(&keys.of, &rest), names: keys.names.clone() }),
    };
    if rest.is_empty() && !labels.is_empty() {
        return Err(DataError::NothingLeft { samples: labels.len() });
    }
    let mut made = make(&pick(labels, &rest), classes, keys.as_ref(), kind, clients, &mut Stream::new(seed))?;
    made.clients.iter_mut().flatten().for_each(|i| *i = rest[*i as usize]);
    let parameters = kind.parameters().map_err(|error| {
        let (value, allowed) = (kind.name().to_string(), format!("a kind whose parameters are numbers: {error}"));
        DataError::Parameter { parameter: "kind", value, allowed }
    })?;
    Ok(Partition {
        format: file::FORMAT.to_string(),
        version: file::VERSION,
        dataset: dataset.name.clone(),
        samples: labels.len(),
        classes,
        class_names: dataset.classes.clone(),
        kind: kind.name().to_string(),
        parameters,
        spec: kind.describe(made.clients.len()),
        seed,
        labels_sha256: labels_fingerprint(labels),
        ..made
    })
}

/// The clients, their names, the draws and the notes of a partition.
fn make(
    labels: &[u16],
    classes: usize,
    keys: Option<&NaturalKeys>,
    kind: &Kind,
    clients: Option<usize>,
    stream: &mut Stream,
) -> Result<Partition, DataError> {
    let count = clients.unwrap_or(0);
    match *kind {
        Kind::Natural => {}
        Kind::Sites if count == 0 => return Err(refuse("clients", count, "the number of sites, at least 1")),
        Kind::Sites => {}
        Kind::Iid
        | Kind::Dirichlet { .. }
        | Kind::DirichletEqual { .. }
        | Kind::Shards { .. }
        | Kind::LabelsPerClient { .. } => check(labels, classes, kind, count)?,
    }
    let mut made = match *kind {
        Kind::Iid => iid::make(labels.len(), count, stream),
        Kind::Dirichlet { alpha, min_size } => dirichlet::make(labels, count, alpha, min_size, MAX_DRAWS, stream),
        Kind::DirichletEqual { alpha } => dirichlet_equal::make(labels, count, alpha, MAX_DRAWS, stream),
        Kind::Shards { shards } => shards::make(labels, classes, count, shards, stream)?,
        Kind::LabelsPerClient { labels: held } => labels_per_client::make(labels, count, held, stream)?,
        Kind::Natural => natural::make(keys.unwrap_or(&NaturalKeys::default()), clients, stream)?,
        Kind::Sites => Partition { clients: vec![Vec::new(); count], draws: 1, ..Partition::default() },
    };
    // A site that reads its own samples has them in the order of the data.
    if *kind != Kind::Natural {
        made.clients.iter_mut().for_each(|client| stream.shuffle(client));
    }
    Ok(made)
}

/// Which samples are kept for testing: a random share of each class, but never a class's only sample.
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

/// SHA-256 of the labels in order, as hex, which ties a partition file to its labels.
fn labels_fingerprint(labels: &[u16]) -> String {
    let mut print = Fingerprint::new();
    print.labels(labels);
    print.hex()
}

fn refuse(parameter: &'static str, value: impl fmt::Display, allowed: impl Into<String>) -> DataError {
    DataError::Parameter { parameter, value: value.to_string(), allowed: allowed.into() }
}

fn check(labels: &[u16], classes: usize, kind: &Kind, clients: usize) -> Result<(), DataError> {
    let samples = labels.len();
    const MOST_CLASSES: usize = u16::MAX as usize + 1;
    if classes == 0 || classes > MOST_CLASSES {
        return Err(refuse("classes", classes, format!("1 to {MOST_CLASSES}")));
    }
    if samples > u32::MAX as usize {
        return Err(refuse("samples", samples, format!("at most {}", u32::MAX)));
    }
    if clients == 0 || clients > samples {
        return Err(refuse("clients", clients, format!("1 to {samples}, the number of samples")));
    }
    if let Some(index) = labels.iter().position(|&l| usize::from(l) >= classes) {
        return Err(DataError::LabelRange { index, label: labels[index], classes });
    }
    if let Kind::Dirichlet { alpha, .. } | Kind::DirichletEqual { alpha } = *kind
        && !(alpha.is_finite() && alpha > 0.0)
    {
        return Err(refuse("alpha", alpha, "a finite number above 0"));
    }
    Ok(())
}

fn pick<T: Copy>(all: &[T], indices: &[u32]) -> Vec<T> {
    indices.iter().map(|&i| all[i as usize]).collect()
}

/// Groups indices by label, in label order. Classes without samples do not appear.
fn by_class(mut indices: Vec<u32>, labels: &[u16]) -> Vec<Vec<u32>> {
    let label = |&i: &u32| labels[i as usize];
    indices.sort_by_key(label);
    indices.chunk_by(|a, b| label(a) == label(b)).map(<[u32]>::to_vec).collect()
}

/// All indices of a set. [`check`] has verified that they fit.
fn all(samples: usize) -> Vec<u32> {
    (0..samples as u32).collect()
}

/// The start of part `i` when `n` items are cut into `parts` parts whose sizes differ by at most one, larger ones
/// first.
fn cut(n: usize, parts: usize, i: usize) -> usize {
    (n / parts) * i + i.min(n % parts)
}

#[cfg(test)]
mod tests;
