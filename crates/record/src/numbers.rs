//! Which numbers the record of a round can have.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::local::{LocalRecord, Spread};
use crate::protection::{PrivacySpent, ProtectionRecord};
use crate::round::{ChosenBy, EarlyStop, RoundRecord, Seconds, ValidationRecord, WeightHashes};
use crate::scores::{Ranged, Scores};

/// The names of all numbers that the record of a round can have, whether or not a run measures them; parts of parts have
/// dots. Terms of the loss and layers, whose names depend on the run, are not among them.
pub fn round_numbers() -> Vec<String> {
    let mut names = Vec::new();
    // A record without lists is small, and always JSON.
    collect(&serde_json::to_value(everything()).unwrap_or_default(), "", &mut names);
    names
}

/// Numbers by name. The only lists that are not empty are numbers with an interval.
fn collect(value: &Value, name: &str, names: &mut Vec<String>) {
    match value {
        Value::Object(parts) => {
            for (part, value) in parts {
                let name = if name.is_empty() { part.clone() } else { format!("{name}.{part}") };
                collect(value, &name, names);
            }
        }
        Value::Number(_) => names.push(name.to_string()),
        Value::Array(items) if !items.is_empty() => names.push(name.to_string()),
        _ => {}
    }
}

/// A record in which everything is measured, except lists. Every field is named, so that a new one cannot be forgotten.
fn everything() -> RoundRecord {
    let (number, ranged, spread) = (Some(0.0), Some(Ranged::default()), Spread::default());
    RoundRecord {
        round: 1,
        accuracy: number,
        loss: number,
        class_accuracy: None,
        scores: Some(Scores {
            samples: 1,
            accuracy: ranged,
            balanced_accuracy: number,
            macro_f1: number,
            auc: ranged,
            sensitivity: ranged,
            specificity: ranged,
            f1: ranged,
            class_samples: Vec::new(),
            class_correct: Vec::new(),
        }),
        client_accuracy: None,
        validation: Some(ValidationRecord { accuracy: 0.0, loss: number }),
        kept: Some(ChosenBy::Validation),
        early_stop: Some(EarlyStop { best: 1, patience: 1 }),
        forgetting: number,
        class_forgetting: None,
        class_cosine: number,
        confusion: None,
        alignment: BTreeMap::new(),
        local: Some(LocalRecord {
            samples: 1,
            accuracy_before: 0.0,
            accuracy: spread,
            class_correct_before: Vec::new(),
            in_before: number,
            in_after: number,
            out_before: number,
            out_after: number,
            class_forgot: Vec::new(),
            class_learnt: Vec::new(),
            alignment: BTreeMap::new(),
            clients: Vec::new(),
            focus: None,
        }),
        drift: Some(spread),
        gradient_diversity: number,
        train_loss: number,
        train_terms: BTreeMap::new(),
        trained_samples: 1,
        teacher_samples: 1,
        bytes_down: 1,
        bytes_up: 1,
        traffic: number,
        seconds: Seconds::default(),
        clients: Vec::new(),
        incidents: Vec::new(),
        accepted: Some(1),
        repeats: 1,
        weights: Some(WeightHashes::default()),
        notices: Vec::new(),
        protection: Some(ProtectionRecord {
            clipped: Some(1),
            privacy: Some(PrivacySpent { epsilon: 0.0, delta: 0.0 }),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_named_and_lists_are_not() {
        let names = round_numbers();
        for name in [
            "round",
            "accuracy",
            "scores.auc",
            "validation.loss",
            "local.accuracy.sd",
            "seconds.train",
            "protection.privacy.epsilon",
        ] {
            assert!(names.contains(&name.to_string()), "{name}");
        }
        for name in ["class-accuracy", "clients", "kept", "weights.sha256", "local.clients", "train-terms"] {
            assert!(!names.contains(&name.to_string()), "{name}");
        }
    }
}
