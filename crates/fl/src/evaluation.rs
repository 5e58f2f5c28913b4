//! How good a model is on labelled samples.

use fedelity_nn::Outputs;

/// Number of samples evaluated together. Chunk boundaries are fixed, so the number of threads cannot change a sum.
pub const CHUNK: usize = 128;

/// The index of the largest value; the first one in a tie.
pub fn largest<T: PartialOrd>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, at| if values[at] > values[best] { at } else { best })
}

/// Counts and sums over labelled samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// The sum of the cross-entropies.
    pub loss_sum: f64,
    /// Correct predictions per true class.
    pub correct: Vec<u64>,
    /// Samples per true class.
    pub totals: Vec<u64>,
}

impl Evaluation {
    /// An empty result for this many classes.
    pub fn new(classes: usize) -> Self {
        Self { loss_sum: 0.0, correct: vec![0; classes], totals: vec![0; classes] }
    }

    /// Resets to this many classes and keeps the memory.
    pub fn clear(&mut self, classes: usize) {
        self.loss_sum = 0.0;
        for counts in [&mut self.correct, &mut self.totals] {
            counts.clear();
            counts.resize(classes, 0);
        }
    }

    /// Adds samples with their labels. Ties go to the lower class; NaN logits count as wrong.
    pub fn add(&mut self, outputs: &Outputs<'_>, labels: &[u16]) {
        let classes = self.totals.len();
        for (logits, &label) in outputs.logits.chunks_exact(classes).zip(labels) {
            let label = usize::from(label);
            let best = largest(logits);
            let top = f64::from(logits[best]);
            let sum: f64 = logits.iter().map(|&logit| libm::exp(f64::from(logit) - top)).sum();
            self.loss_sum += top + libm::log(sum) - f64::from(logits[label]);
            self.totals[label] += 1;
            self.correct[label] += u64::from(best == label && sum.is_finite());
        }
    }

    /// Adds the results of other samples.
    pub fn merge(&mut self, other: &Self) {
        self.loss_sum += other.loss_sum;
        for (sums, parts) in [(&mut self.correct, &other.correct), (&mut self.totals, &other.totals)] {
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
    }

    pub fn samples(&self) -> u64 {
        self.totals.iter().sum()
    }

    /// The share of correct predictions; 0 without samples.
    pub fn accuracy(&self) -> f64 {
        self.correct.iter().sum::<u64>() as f64 / self.samples().max(1) as f64
    }

    /// The mean cross-entropy; `None` without samples or if it is not finite.
    pub fn loss(&self) -> Option<f64> {
        let mean = self.loss_sum / self.samples() as f64;
        mean.is_finite().then_some(mean)
    }

    /// Per class, the share of correct predictions (recall); `None` for a class without samples.
    pub fn class_accuracy(&self) -> Vec<Option<f64>> {
        let share = |(&correct, &total)| (total > 0).then(|| correct as f64 / total as f64);
        self.correct.iter().zip(&self.totals).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<'a>(logits: &'a [f32], samples: usize) -> Outputs<'a> {
        Outputs { features: &[], logits, samples }
    }

    #[test]
    fn counts_losses_and_ties() {
        let mut all = Evaluation::new(3);
        all.add(&rows(&[0.0, 0.0, 0.0, 1.0, 5.0, 2.0], 2), &[0, 2]);
        assert_eq!((all.samples(), all.accuracy()), (2, 0.5));
        assert_eq!(all.class_accuracy(), [Some(1.0), None, Some(0.0)]);
        let expected = (3f64.ln() + (1f64.exp() + 5f64.exp() + 2f64.exp()).ln() - 2.0) / 2.0;
        assert!((all.loss().unwrap() - expected).abs() < 1e-12);
        let mut parts = Evaluation::new(3);
        for (logits, label) in [([0.0, 0.0, 0.0], 0), ([1.0, 5.0, 2.0], 2)] {
            let mut part = Evaluation::new(3);
            part.add(&rows(&logits, 1), &[label]);
            parts.merge(&part);
        }
        assert_eq!(parts.class_accuracy(), all.class_accuracy());
    }

    #[test]
    fn results_are_never_nan() {
        let mut odd = Evaluation::new(2);
        assert_eq!((odd.accuracy(), odd.loss()), (0.0, None));
        odd.add(&rows(&[f32::NAN, f32::NAN], 1), &[0]);
        assert_eq!((odd.accuracy(), odd.loss()), (0.0, None));
    }
}
