//! How good a model is on some samples. `docs/metrics.md` has the formulas.

use serde::{Deserialize, Serialize};

/// A number between 0 and 1 with its 95 % interval, written as `[value, low, high]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 3]", into = "[f64; 3]")]
pub struct Ranged {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl From<[f64; 3]> for Ranged {
    fn from([value, low, high]: [f64; 3]) -> Self {
        Self { value, low, high }
    }
}

impl From<Ranged> for [f64; 3] {
    fn from(Ranged { value, low, high }: Ranged) -> Self {
        [value, low, high]
    }
}

/// What a model's predictions are worth. What cannot be measured is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Scores {
    /// The number of samples.
    pub samples: u64,
    /// The share of correct predictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Ranged>,
    /// The mean of the class accuracies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balanced_accuracy: Option<f64>,
    /// The mean of the classes' F1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macro_f1: Option<f64>,
    /// The area under the ROC curve, for two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auc: Option<Ranged>,
    /// The share of the positive class that is found, for two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Ranged>,
    /// The share of the other class that is found, for two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub specificity: Option<Ranged>,
    /// The F1 of the positive class, for two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f1: Option<Ranged>,
    /// Samples of each class. Absent where they are recorded elsewhere, or too many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_samples: Vec<u64>,
    /// Samples of each class that are predicted correctly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_correct: Vec<u64>,
}

impl Scores {
    /// Per class, the share of correct predictions; `None` for a class without samples.
    pub fn class_accuracy(&self) -> Vec<Option<f64>> {
        let share = |(&n, &correct): (&u64, &u64)| (n > 0).then(|| correct as f64 / n as f64);
        self.class_samples.iter().zip(&self.class_correct).map(share).collect()
    }

    /// The numbers with an interval that there are, by name.
    pub fn ranged(&self) -> Vec<(&'static str, Ranged)> {
        let all = [
            ("accuracy", self.accuracy),
            ("AUC", self.auc),
            ("sensitivity", self.sensitivity),
            ("specificity", self.specificity),
            ("F1", self.f1),
        ];
        all.into_iter().filter_map(|(name, found)| Some((name, found?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_written_without_what_is_unknown() {
        let scores = Scores {
            samples: 3,
            accuracy: Some(Ranged { value: 0.5, low: 0.25, high: 0.75 }),
            class_samples: vec![2, 1, 0],
            class_correct: vec![1, 1, 0],
            ..Scores::default()
        };
        let text = serde_json::to_string(&scores).unwrap();
        assert_eq!(text, r#"{"samples":3,"accuracy":[0.5,0.25,0.75],"class-samples":[2,1,0],"class-correct":[1,1,0]}"#);
        assert_eq!(serde_json::from_str::<Scores>(&text).unwrap(), scores);
        assert_eq!(scores.class_accuracy(), [Some(0.5), Some(1.0), None]);
        assert_eq!(scores.ranged().len(), 1);
    }
}
