//! How good predictions are: rates with intervals, for two classes and for any number. `docs/metrics.md` has the formulas.

use crate::observe::NO_CLASS;

/// The 97.5 % point of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;
/// Halvings of an interval in which a limit is searched for.
const HALVINGS: usize = 60;

/// A number between 0 and 1, and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Predictions of samples, counted by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Samples of each class.
    pub actual: Vec<u64>,
    /// Samples predicted to be of each class.
    pub predicted: Vec<u64>,
    /// Samples of each class that are predicted correctly.
    pub correct: Vec<u64>,
}

impl ClassCounts {
    /// Counts samples by their labels and predictions. [`NO_CLASS`] is wrong for every class.
    pub fn of(pairs: impl IntoIterator<Item = (u16, u16)>, classes: usize) -> Self {
        let mut counts = Self { actual: vec![0; classes], predicted: vec![0; classes], correct: vec![0; classes] };
        for (label, prediction) in pairs {
            counts.actual[usize::from(label)] += 1;
            if prediction != NO_CLASS {
                counts.predicted[usize::from(prediction)] += 1;
                counts.correct[usize::from(label)] += u64::from(label == prediction);
            }
        }
        counts
    }

    pub fn samples(&self) -> u64 {
        self.actual.iter().sum()
    }

    /// The share of correct predictions, with Wilson's interval; `None` without samples.
    pub fn accuracy(&self) -> Option<Rate> {
        wilson(self.correct.iter().sum(), self.samples())
    }

    /// The mean over classes of the share of correct predictions. Classes without samples are left out.
    pub fn balanced_accuracy(&self) -> Option<f64> {
        let shares = self.actual.iter().zip(&self.correct).filter(|(n, _)| **n > 0);
        mean(shares.map(|(&n, &correct)| correct as f64 / n as f64))
    }

    /// The mean over classes of F1. Classes without samples count, with 0, if they are predicted; else they are left out.
    pub fn macro_f1(&self) -> Option<f64> {
        let classes = (0..self.actual.len()).map(|class| (self.actual[class] + self.predicted[class], class));
        mean(classes.filter(|(all, _)| *all > 0).map(|(all, class)| 2.0 * self.correct[class] as f64 / all as f64))
    }

    /// The share of a class's samples that are predicted correctly, with Wilson's interval: the sensitivity for the
    /// positive of two classes, the specificity for the other one.
    pub fn recall(&self, class: usize) -> Option<Rate> {
        wilson(*self.correct.get(class)?, *self.actual.get(class)?)
    }

    /// The F1 of a class. Its interval is Wilson's for `tp / (tp + fp + fn)`, of which F1 is a growing function.
    pub fn f1(&self, class: usize) -> Option<Rate> {
        let hits = *self.correct.get(class)?;
        let share = wilson(hits, self.actual[class] + self.predicted[class] - hits)?;
        let f1 = |share: f64| 2.0 * share / (1.0 + share);
        Some(Rate { value: f1(share.value), low: f1(share.low), high: f1(share.high) })
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// A share of `n` and its score interval (Wilson 1927); `None` if `n` is 0.
pub fn wilson(successes: u64, n: u64) -> Option<Rate> {
    if n == 0 {
        return None;
    }
    let (share, n) = (successes as f64 / n as f64, n as f64);
    let scale = 1.0 + Z * Z / n;
    let centre = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    // At the ends, rounding must not exclude the share itself.
    Some(Rate { value: share, low: (centre - half).clamp(0.0, share), high: (centre + half).clamp(share, 1.0) })
}

/// The area under the ROC curve of scores with whether a sample is positive: the chance that a positive sample has a
/// higher score than a negative one, ties counting half. `None` if there are none of one kind, or a score is NaN.
///
/// The interval is that of DeLong et al. 1988. Where their variance is 0 or undefined (no two samples in the wrong order,
/// or a single one of a kind), it is Newcombe's (2006, method 5).
pub fn auc(scored: impl IntoIterator<Item = (f32, bool)>) -> Option<Rate> {
    let mut scored: Vec<(f32, bool)> = scored.into_iter().collect();
    let positive = scored.iter().filter(|(_, positive)| *positive).count() as f64;
    let negative = scored.len() as f64 - positive;
    if positive == 0.0 || negative == 0.0 || scored.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    // Equal zeros have equal scores.
    scored.iter_mut().for_each(|(score, _)| *score += 0.0);
    scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // For samples with the same score: the share of samples of the other kind that are in the right order with them.
    let mut of_positive: Vec<(f64, f64)> = Vec::new();
    let mut of_negative: Vec<(f64, f64)> = Vec::new();
    let (mut below, mut above) = (0.0, positive);
    for ties in scored.chunk_by(|a, b| a.0 == b.0) {
        let hits = ties.iter().filter(|(_, positive)| *positive).count() as f64;
        let others = ties.len() as f64 - hits;
        above -= hits;
        of_positive.push(((below + others / 2.0) / negative, hits));
        of_negative.push(((above + hits / 2.0) / positive, others));
        below += others;
    }
    let value = of_positive.iter().map(|(share, hits)| share * hits).sum::<f64>() / positive;
    let squares = |all: &[(f64, f64)]| all.iter().map(|(share, n)| n * (share - value) * (share - value)).sum::<f64>();
    let variance =
        squares(&of_positive) / (positive - 1.0) / positive + squares(&of_negative) / (negative - 1.0) / negative;
    if variance.is_finite() && variance > 0.0 {
        let half = Z * variance.sqrt();
        return Some(Rate { value, low: (value - half).max(0.0), high: (value + half).min(1.0) });
    }
    let (low, high) = newcombe(value, positive, negative);
    Some(Rate { value, low, high })
}

/// The values of an AUC from which the found one is less than [`Z`] standard deviations away, if scores are distributed
/// exponentially.
fn newcombe(found: f64, positive: f64, negative: f64) -> (f64, f64) {
    let others = (positive + negative) / 2.0 - 1.0;
    let deviation = |auc: f64| {
        let spread = 1.0 + others * ((1.0 - auc) / (2.0 - auc) + auc / (1.0 + auc));
        (auc * (1.0 - auc) * spread / (positive * negative)).max(0.0).sqrt()
    };
    let limit = |end: f64| {
        let (mut far, mut near) = (end, found);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(far, near);
            let outside = (found - middle).abs() > Z * deviation(middle);
            *(if outside { &mut far } else { &mut near }) = middle;
        }
        far
    };
    (limit(0.0), limit(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(found: Option<Rate>, expected: [f64; 3]) {
        let found = found.unwrap();
        let found = [found.value, found.low, found.high];
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}, expected {expected:?}");
    }

    /// 40 samples of two classes with scores in steps of 1/8, so that there are ties.
    fn scored() -> Vec<(f32, bool)> {
        let score = |i: u32| (i * 7 % 11) as f32 / 8.0 + if i.is_multiple_of(3) { 0.5 } else { 0.0 };
        (0..40).map(|i| (score(i), i.is_multiple_of(3))).collect()
    }

    /// Compared with scikit-learn 1 (`roc_auc_score`, `accuracy_score`, `recall_score`, `f1_score`), with intervals from
    /// statsmodels 0.14 (`proportion_confint(k, n, method="wilson")`) and, for the AUC, the variance of the means over rows
    /// and columns of the matrix `(x[:, None] > y) + 0.5 * (x[:, None] == y)`, with divisor n - 1, in NumPy.
    #[test]
    fn two_classes_as_computed_elsewhere() {
        let scored = scored();
        is(auc(scored.clone()), [0.807_692_307_692_307_7, 0.665_743_922_204_354_6, 0.949_640_693_180_260_8]);
        // The same scores the other way round, and with the classes exchanged.
        is(
            auc(scored.iter().map(|(score, is)| (-score, !is))),
            [0.807_692_307_692_307_7, 0.665_743_922_204_354_6, 0.949_640_693_180_260_8],
        );
        let counts = ClassCounts::of(scored.iter().map(|&(score, is)| (u16::from(is), u16::from(score > 0.8))), 2);
        assert_eq!(
            (&counts.actual[..], &counts.predicted[..], &counts.correct[..]),
            (&[26, 14][..], &[21, 19][..], &[17, 10][..])
        );
        is(counts.accuracy(), [0.675, 0.520_177_461_898_776_7, 0.799_154_977_682_173_1]);
        is(counts.recall(1), [0.714_285_714_285_714_3, 0.453_509_156_701_068_06, 0.882_786_213_554_230_8]);
        is(counts.recall(0), [0.653_846_153_846_153_9, 0.462_205_711_888_108_1, 0.805_877_696_770_594_8]);
        is(counts.f1(1), [0.606_060_606_060_606_1, 0.408_082_297_675_689, 0.774_424_380_962_863_6]);
        assert!((counts.balanced_accuracy().unwrap() - 0.684_065_934_065_934_1).abs() < 1e-12);
        assert!((counts.macro_f1().unwrap() - 0.664_732_430_689_877_5).abs() < 1e-12);
    }

    /// scikit-learn's `balanced_accuracy_score` and `f1_score(average="macro")`: of the classes without samples, those that
    /// are predicted count in F1.
    #[test]
    fn any_number_of_classes_as_computed_elsewhere() {
        let pair = |k: u32| ((k * k % 5 % 4) as u16, ((k * 3 + k / 7) % 5) as u16);
        let counts = ClassCounts::of((0..60).map(pair), 6);
        assert_eq!(counts.actual, [36, 24, 0, 0, 0, 0]);
        assert!((counts.balanced_accuracy().unwrap() - 0.229_166_666_666_666_69).abs() < 1e-12);
        assert!((counts.macro_f1().unwrap() - 0.130_612_244_897_959_2).abs() < 1e-12);
        assert!((counts.accuracy().unwrap().value - 14.0 / 60.0).abs() < 1e-12);
    }

    /// Wilson's interval as in statsmodels; Newcombe's from `scipy.optimize.brentq`, which solves (a - t)² = z² V(t) for
    /// V(t) = t (1 - t) (1 + k (1 - t) / (2 - t) + k t / (1 + t)) / (m n) with k = (m + n) / 2 - 1.
    #[test]
    fn intervals_at_the_ends() {
        is(wilson(0, 7), [0.0, 0.0, 0.354_330_435_066_687_5]);
        is(wilson(7, 7), [1.0, 0.645_669_564_933_312_5, 1.0]);
        is(wilson(81, 263), [0.307_984_790_874_524_74, 0.255_288_519_878_274_2, 0.366_209_576_982_800_04]);
        let apart = |sign: f32| (0..13).map(move |i| (sign * i as f32, i >= 8));
        is(auc(apart(1.0)), [1.0, 0.696_436_381_128_158_8, 1.0]);
        is(auc(apart(-1.0)), [0.0, 0.0, 0.303_563_618_871_841_25]);
        // One positive sample above three of four negative ones.
        let one = [(2.5, true), (0.0, false), (1.0, false), (2.0, false), (3.0, false)];
        is(auc(one), [0.75, 0.203_497_511_246_768_38, 0.970_677_458_379_178_7]);
    }

    #[test]
    fn nothing_to_measure() {
        assert_eq!((wilson(0, 0), auc([]), auc([(1.0, true)])), (None, None, None));
        assert_eq!(auc([(f32::NAN, true), (1.0, false)]), None);
        let none = ClassCounts::of([], 2);
        assert_eq!((none.accuracy(), none.recall(1), none.f1(1)), (None, None, None));
        assert_eq!((none.balanced_accuracy(), none.macro_f1(), none.recall(7)), (None, None, None));
        // A class of which nothing is found, and predictions that are no class.
        let odd = ClassCounts::of([(1, 0), (1, NO_CLASS), (0, 0)], 2);
        assert_eq!((odd.recall(1).unwrap().value, odd.f1(1).unwrap().value), (0.0, 0.0));
        assert_eq!(odd.predicted, [2, 0]);
        // All scores are the same: no better than guessing, whatever their number.
        let same = auc((0..100).map(|i| (0.0, i % 2 == 0))).unwrap();
        assert!(same.value == 0.5 && same.low < 0.5 && same.high > 0.5, "{same:?}");
        assert_eq!(auc([(0.0, true), (-0.0, false)]).unwrap().value, 0.5);
    }
}
