//! Whether a model has learnt anything: is it better than guessing? `docs/notices.md` has the rule.

use serde::{Deserialize, Serialize};

use crate::round::RoundRecord;

/// The model has learnt something once a measure has come this share of the way from guessing to 1.
pub const LEARNT: f64 = 0.15;

/// What always naming the most frequent class of the test samples gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Guessing {
    /// The share of that class.
    pub accuracy: f64,
    /// Classes that have test samples.
    pub classes: u64,
    /// Test samples.
    pub samples: u64,
}

impl Guessing {
    /// From the test samples of each class. With samples of fewer than two classes, every guess is right, and nothing can be
    /// said.
    pub fn of(actual: &[usize]) -> Option<Self> {
        let (samples, most): (usize, usize) = (actual.iter().sum(), actual.iter().max().copied()?);
        let classes = actual.iter().filter(|&&count| count > 0).count();
        (classes > 1).then(|| Self {
            accuracy: most as f64 / samples as f64,
            classes: classes as u64,
            samples: samples as u64,
        })
    }

    /// The highest accuracy that is no better than guessing: two standard deviations above it on so many samples. On few
    /// samples luck reaches far, and a part of the way to 1 is enough.
    pub fn limit(&self) -> f64 {
        let chance = self.accuracy;
        let luck = chance + 2.0 * (chance * (1.0 - chance) / self.samples.max(1) as f64).sqrt();
        luck.min(some_way(chance))
    }

    /// Whether an evaluated model is better than guessing by any measure. Where one class is frequent, a model may be worth
    /// something although its accuracy is that of guessing.
    fn is_beaten(&self, accuracy: f64, record: &RoundRecord) -> bool {
        let classes: Vec<f64> = record.class_accuracy.iter().flatten().flatten().copied().collect();
        let balanced = classes.iter().sum::<f64>() / classes.len().max(1) as f64;
        let auc = record.scores.as_ref().and_then(|scores| scores.auc);
        accuracy > self.limit()
            || balanced > some_way(1.0 / self.classes.max(1) as f64)
            || auc.is_some_and(|auc| auc.low > 0.5)
    }
}

/// A share between a share and 1 that only a model has reached that learnt something.
fn some_way(from: f64) -> f64 {
    from + LEARNT * (1.0 - from)
}

/// Whether a model was ever better than guessing. It follows from the records of the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learning {
    guessing: Guessing,
    evaluations: u64,
    last: f64,
    has_begun: bool,
}

impl Learning {
    pub fn new(guessing: Guessing) -> Self {
        Self { guessing, evaluations: 0, last: 0.0, has_begun: false }
    }

    /// The same after the next round.
    #[must_use]
    pub fn after(self, record: &RoundRecord) -> Self {
        let Some(last) = record.accuracy else { return self };
        let has_begun = self.has_begun || self.guessing.is_beaten(last, record);
        Self { evaluations: self.evaluations + 1, last, has_begun, ..self }
    }

    /// That the model never was better than guessing, if it was tested and never was.
    pub fn unlearnt(&self) -> Option<Unlearnt> {
        let Self { guessing, evaluations, last: accuracy, has_begun } = *self;
        (evaluations > 0 && !has_begun).then_some(Unlearnt { accuracy, chance: guessing.accuracy, evaluations })
    }
}

/// A global model that has never been better than guessing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Unlearnt {
    /// At the last evaluation.
    pub accuracy: f64,
    /// The accuracy of always guessing the most frequent class.
    pub chance: f64,
    /// How often it was tested.
    pub evaluations: u64,
}

impl Unlearnt {
    /// What goes after `learnt nothing` or `nothing has been learnt`.
    pub(crate) fn details(&self) -> String {
        let Self { accuracy, chance, evaluations } = self;
        let times = if *evaluations == 1 { "evaluation" } else { "evaluations" };
        let [accuracy, chance] = [accuracy, chance].map(|share| format!("{:.1} %", 100.0 * share));
        format!("in {evaluations} {times}: accuracy {accuracy}; guessing gives {chance}")
    }

    /// What the run came to, as a clause.
    pub fn describe(&self) -> String {
        format!("learnt nothing {}", self.details())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::{Ranged, Scores};

    fn after(guessing: Guessing, records: &[RoundRecord]) -> Option<Unlearnt> {
        records.iter().fold(Learning::new(guessing), |learning, record| learning.after(record)).unlearnt()
    }

    fn at(accuracy: f64, classes: &[f64]) -> RoundRecord {
        let class_accuracy = Some(classes.iter().copied().map(Some).collect());
        RoundRecord { accuracy: Some(accuracy), class_accuracy, ..RoundRecord::default() }
    }

    #[test]
    fn guessing_names_the_most_frequent_class() {
        let even = Guessing::of(&[100; 4]).unwrap();
        assert_eq!((even.accuracy, even.classes, even.samples), (0.25, 4, 400));
        assert!((even.limit() - 0.293_301).abs() < 1e-6);
        assert_eq!(Guessing::of(&[30, 0, 70]).unwrap().classes, 2);
        // One class, or nothing at all: nothing can be said.
        assert_eq!((Guessing::of(&[0, 9]), Guessing::of(&[0, 0]), Guessing::of(&[])), (None, None, None));
    }

    #[test]
    fn a_model_that_never_was_better_than_guessing() {
        let even = Guessing::of(&[100; 4]).unwrap();
        assert_eq!(after(even, &[]), None);
        assert_eq!(after(even, &[RoundRecord::default()]), None, "it was not tested");
        let found = after(even, &[at(0.29, &[1.0, 0.16, 0.0, 0.0]), RoundRecord::default(), at(0.25, &[0.25; 4])]);
        assert_eq!(found, Some(Unlearnt { accuracy: 0.25, chance: 0.25, evaluations: 2 }));
        assert_eq!(
            found.unwrap().describe(),
            "learnt nothing in 2 evaluations: accuracy 25.0 %; guessing gives 25.0 %"
        );
        let once = after(even, &[at(0.25, &[0.25; 4])]).unwrap().describe();
        assert!(once.contains("in 1 evaluation:"), "{once}");
        // Once is enough to have begun, even if it falls back.
        assert_eq!(after(even, &[at(0.30, &[0.3; 4]), at(0.25, &[0.25; 4])]), None);
    }

    #[test]
    fn a_rare_class_that_is_found_is_something_learnt() {
        let rare = Guessing::of(&[900, 100]).unwrap();
        assert!(after(rare, &[at(0.90, &[1.0, 0.0])]).is_some());
        // Half of the rare class is found, at the price of as many false alarms.
        assert_eq!(after(rare, &[at(0.90, &[0.945, 0.5])]), None);
        let auc = |low| Some(Ranged { value: 0.8, low, high: 0.9 });
        let scored =
            |low| RoundRecord { scores: Some(Scores { auc: auc(low), ..Scores::default() }), ..at(0.9, &[1.0, 0.0]) };
        assert_eq!(after(rare, &[scored(0.7)]), None);
        assert!(after(rare, &[scored(0.45)]).is_some());
    }

    #[test]
    fn on_few_samples_some_way_is_enough() {
        let few = Guessing::of(&[5, 5]).unwrap();
        assert!((few.limit() - 0.575).abs() < 1e-12);
        assert_eq!(after(few, &[at(0.6, &[0.6, 0.6])]), None);
        assert!(after(few, &[at(0.5, &[1.0, 0.0])]).is_some());
    }
}
