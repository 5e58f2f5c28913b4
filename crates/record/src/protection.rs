//! What leaves a client, and what is done so that it reveals little and harms little.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What leaves a client in a round in which it takes part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Leaves {
    /// Weights of the model, running statistics included.
    pub weights: u64,
    /// Further arrays of the method, by name: the most numbers of each. Some are not sent in every round.
    pub arrays: BTreeMap<String, u64>,
    /// Whether they tell how many samples of each class a client holds.
    pub label_counts: bool,
    /// Whether its numbers of samples and of steps and its mean loss leave, too.
    pub counts_and_loss: bool,
    /// The largest norm of the update that the weights contain, if the client limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// The standard deviation of the noise that the client adds to every weight, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
}

impl Leaves {
    /// In words.
    pub fn describe(&self) -> String {
        let arrays: Vec<&str> = self.arrays.keys().map(String::as_str).collect();
        let mut weights = "the client's weights".to_string();
        if let Some((norm, noise)) = self.clip.zip(self.noise) {
            // Products of what was configured, without the digits of their rounding.
            let noise = format!("{noise:.5e}").parse().unwrap_or(noise);
            weights += &format!(" (update of norm at most {norm}, noise of standard deviation {noise})");
        }
        what_leaves(&weights, &arrays, self.counts_and_loss)
    }
}

/// What leaves a client, in words.
pub fn what_leaves(weights: &str, arrays: &[&str], counts_and_loss: bool) -> String {
    let more = if counts_and_loss { &["its numbers of samples and steps", "its mean loss"][..] } else { &[] };
    match [arrays, more].concat().split_last() {
        Some((last, rest)) => format!("{}, and {last}; nothing else", [&[weights], rest].concat().join(", ")),
        None => format!("{weights}; nothing else"),
    }
}

/// What was done to the uploads of a round, and what the run has revealed after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ProtectionRecord {
    /// Uploads that the server scaled down to the largest norm of an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clipped: Option<u64>,
    /// What all rounds so far reveal about one client at most, if there is noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacySpent>,
}

/// A bound on what a run reveals about one client: (epsilon, delta)-differential privacy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PrivacySpent {
    pub epsilon: f64,
    pub delta: f64,
}

impl PrivacySpent {
    /// From here on, an outcome may be e^100 times as likely with the data of a client as without them.
    const MEANINGLESS: f64 = 100.0;

    /// In words: `epsilon 2.13 at delta 1e-5`.
    pub fn describe(&self) -> String {
        let Self { epsilon, delta } = self;
        let worth = if *epsilon < Self::MEANINGLESS { "" } else { " (no protection)" };
        format!("epsilon {}{worth} at delta {delta:e}", shown_epsilon(*epsilon))
    }
}

/// An epsilon with as many digits as matter.
pub fn shown_epsilon(epsilon: f64) -> String {
    match epsilon {
        _ if epsilon < 10.0 => format!("{epsilon:.2}"),
        _ if epsilon < 1_000.0 => format!("{epsilon:.1}"),
        _ => format!("{epsilon:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        let plain = Leaves { weights: 10, counts_and_loss: true, ..Leaves::default() };
        let counts = "its numbers of samples and steps, and its mean loss; nothing else";
        assert_eq!(plain.describe(), format!("the client's weights, {counts}"));
        let arrays = BTreeMap::from([("control-change".to_string(), 7)]);
        let more = Leaves { arrays, ..plain.clone() };
        assert_eq!(more.describe(), format!("the client's weights, control-change, {counts}"));
        let noisy = Leaves { counts_and_loss: false, clip: Some(0.3), noise: Some(0.3 * 3.0), ..plain };
        assert_eq!(
            noisy.describe(),
            "the client's weights (update of norm at most 0.3, noise of standard deviation 0.9); nothing else"
        );
        assert_eq!(PrivacySpent { epsilon: 2.1349, delta: 1e-5 }.describe(), "epsilon 2.13 at delta 1e-5");
        assert_eq!(PrivacySpent { epsilon: 21.349, delta: 0.01 }.describe(), "epsilon 21.3 at delta 1e-2");
        let none = "epsilon 1.2e19 (no protection) at delta 1e-2";
        assert_eq!(PrivacySpent { epsilon: 1.2345e19, delta: 0.01 }.describe(), none);
    }
}
