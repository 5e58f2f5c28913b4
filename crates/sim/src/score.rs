//! Predictions in the measures of a record.

use fedelity_fl::{ClassCounts, Rate, auc};
use fedelity_record::{Ranged, Scores};

/// How good predictions are. With two classes, `margins` are the second class's logit minus the first's, and `positive` is
/// the class to be found.
pub fn scores(pairs: &[(u16, u16)], margins: &[f32], classes: usize, positive: Option<usize>) -> Scores {
    let ranged = |rate: Rate| Ranged { value: rate.value, low: rate.low, high: rate.high };
    let counts = ClassCounts::of(pairs.iter().copied(), classes);
    let two = positive.filter(|_| classes == 2);
    let scored = |positive: usize| {
        let sign = if positive == 1 { 1.0 } else { -1.0 };
        let whole = margins.len() == pairs.len();
        let each =
            pairs.iter().zip(margins).map(move |((label, _), margin)| (sign * margin, usize::from(*label) == positive));
        whole.then(|| auc(each)).flatten()
    };
    Scores {
        samples: counts.samples(),
        accuracy: counts.accuracy().map(ranged),
        balanced_accuracy: counts.balanced_accuracy(),
        macro_f1: counts.macro_f1(),
        auc: two.and_then(scored).map(ranged),
        sensitivity: two.and_then(|positive| counts.recall(positive)).map(ranged),
        specificity: two.and_then(|positive| counts.recall(1 - positive)).map(ranged),
        f1: two.and_then(|positive| counts.f1(positive)).map(ranged),
        class_samples: counts.actual,
        class_correct: counts.correct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_positive_class_is_found_by_its_margin() {
        let pairs = [(0, 0), (0, 1), (1, 1), (1, 1)];
        let margins = [-1.0, 0.5, 0.25, 2.0];
        let second = scores(&pairs, &margins, 2, Some(1));
        let first = scores(&pairs, &margins, 2, Some(0));
        let value = |found: Option<Ranged>| found.map(|found| found.value);
        // Of four pairs, only 0.25 is below 0.5; turned around, it is the same.
        assert_eq!((value(second.auc), value(first.auc)), (Some(0.75), Some(0.75)));
        assert_eq!((value(second.sensitivity), value(second.specificity)), (Some(1.0), Some(0.5)));
        assert_eq!((value(first.sensitivity), value(first.specificity)), (Some(0.5), Some(1.0)));
        assert_eq!((value(second.f1), value(first.f1)), (Some(0.8), Some(2.0 / 3.0)));
        let more = scores(&pairs, &[], 3, Some(1));
        assert_eq!((more.auc, more.f1, more.accuracy.map(|found| found.value)), (None, None, Some(0.75)));
        assert_eq!(more.macro_f1, Some((0.8 + 2.0 / 3.0) / 2.0));
        assert_eq!(scores(&[], &[], 2, Some(1)).accuracy, None);
    }
}
