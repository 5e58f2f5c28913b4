//! Local models: after training, before aggregation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scores::Scores;

/// What local models are measured on, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LocalEvaluation {
    /// `all`, `standard` or `fast`.
    pub metrics: String,
    /// Number of test samples: all of them, or a stratified subset. 0 if local models are not measured.
    pub samples: u64,
    /// Number of all test samples.
    pub of: u64,
    /// Rounds between measurements.
    pub every: u64,
    /// Rounds between comparisons of layers. Older records lack it.
    pub alignment_every: u64,
    pub class_samples: Vec<u64>,
}

/// Statistics of a per-client number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Spread {
    pub mean: f64,
    /// The standard deviation over clients, with divisor n - 1; 0 for one client.
    pub sd: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Statistics of these numbers; `None` if there are none or one is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (mean, sd) = mean_and_sd(values).filter(|_| values.iter().all(|value| value.is_finite()))?;
        let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(min, max), &x| (min.min(x), max.max(x)));
        Some(Self { mean, sd: sd.unwrap_or(0.0), min, max })
    }
}

/// The mean and standard deviation of a sample, with divisor n - 1; no deviation for one number, `None` for none.
pub fn mean_and_sd(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    (n > 0).then(|| (mean, (n > 1).then(|| (squares / (n - 1) as f64).sqrt())))
}

/// The local models of one round, on the samples described by [`LocalEvaluation`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LocalRecord {
    /// Test samples each model was measured on.
    pub samples: u64,
    /// The accuracy of the model that all clients started from.
    pub accuracy_before: f64,
    pub accuracy: Spread,
    /// Per class, the test samples that the model before training predicted correctly. Older records lack it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_correct_before: Vec<u64>,
    /// Accuracy on the clients' own distributions before training: the mean over clients.
    pub in_before: Option<f64>,
    /// After training.
    pub in_after: Option<f64>,
    /// Accuracy outside the clients' own distributions before training: the mean over clients.
    pub out_before: Option<f64>,
    /// After training.
    pub out_after: Option<f64>,
    /// Per class, the share of test samples that clients forgot: the mean over clients. `null` without samples.
    pub class_forgot: Vec<Option<f64>>,
    /// Per class, the share of test samples that clients learnt: the mean over clients. `null` without samples.
    pub class_learnt: Vec<Option<f64>>,
    /// The share of units that prefer the same class as in the model before, per layer: the mean over clients.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alignment: BTreeMap<String, f64>,
    /// Each client individually.
    pub clients: Vec<ClientRecord>,
    /// One client in detail, in the round chosen for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<FocusRecord>,
}

/// The local model of one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ClientRecord {
    pub client: u64,
    /// Its training samples.
    pub samples: u64,
    pub accuracy: f64,
    /// The distance of its weights from those it started from.
    pub drift: f64,
    /// Accuracy on its own distribution before training, if known.
    pub in_before: Option<f64>,
    /// After training.
    pub in_after: Option<f64>,
    /// Accuracy on everything else before training, if known.
    pub out_before: Option<f64>,
    /// After training.
    pub out_after: Option<f64>,
    /// How good its model is: on its own test samples if there are any, otherwise on those of all clients. Older records
    /// lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<Scores>,
    /// On its own test samples, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<ClientOwn>,
    /// Per class, test samples predicted correctly before training but not after. Omitted if a round has very many
    /// clients and classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forgot: Vec<u64>,
    /// Per class, test samples predicted correctly after training but not before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learnt: Vec<u64>,
}

/// The accuracy on test samples of the client's own site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ClientOwn {
    /// How many of them were used.
    pub samples: u64,
    /// The model it started from. Absent if that was not tested on all of these samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// Its own model.
    pub after: f64,
}

/// One client in detail: all test samples, `[true class][predicted class]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct FocusRecord {
    pub client: u64,
    /// The model it started from.
    pub before: Vec<Vec<u64>>,
    /// Its own model.
    pub after: Vec<Vec<u64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!(Spread::of(&[2.0]), Some(Spread { mean: 2.0, sd: 0.0, min: 2.0, max: 2.0 }));
        assert_eq!(Spread::of(&[1.0, 3.0, 2.0]), Some(Spread { mean: 2.0, sd: 1.0, min: 1.0, max: 3.0 }));
    }
}
