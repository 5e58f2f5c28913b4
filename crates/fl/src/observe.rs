//! What local training does to a model, measured on common test samples: what it forgets and learns, how far it drifts.
//!
//! Nothing here changes a weight. All results depend only on weights and samples, never on the number of threads.

use std::ops::Range;

use crate::evaluation::largest;
use crate::metrics::in_out_local;
use crate::rng::{Purpose, shuffle, stream};
use crate::{CHUNK, Evaluation, Samples, Trainer};

/// The prediction of a model with NaN logits.
pub const NO_CLASS: u16 = u16::MAX;

/// About `n` samples, in ascending order, with each class in proportion and at least once. Depends only on the seed.
pub fn subset(labels: &[u16], classes: usize, n: usize, seed: u64) -> Vec<u32> {
    if n >= labels.len() {
        return (0..labels.len() as u32).collect();
    }
    let mut by_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
    for (i, &label) in labels.iter().enumerate() {
        by_class[usize::from(label)].push(i as u32);
    }
    let mut chosen = Vec::with_capacity(n + classes);
    for (class, own) in by_class.iter_mut().enumerate().filter(|(_, own)| !own.is_empty()) {
        let share = (n as f64 * own.len() as f64 / labels.len() as f64).round() as usize;
        shuffle(&mut stream(seed, Purpose::Observe, 0, class as u64, 0), own);
        chosen.extend_from_slice(&own[..share.clamp(1, own.len())]);
    }
    chosen.sort_unstable();
    chosen
}

/// A model's predictions on samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Portrait {
    /// The predicted class of each; [`NO_CLASS`] if its logits are NaN.
    pub predictions: Vec<u16>,
    pub evaluation: Evaluation,
    /// With two classes, the second one's logit minus the first's, for each sample; otherwise empty.
    pub margins: Vec<f32>,
    /// For each layer, by name, the class that each unit prefers: the one with the largest mean activation. Empty
    /// unless requested.
    pub preferences: Vec<(String, Vec<u16>)>,
}

impl Trainer {
    /// A model's predictions with these weights; with `layers`, also what each unit prefers.
    pub fn portrait(&mut self, params: &[f32], samples: Samples<'_>, layers: bool) -> Portrait {
        let classes = self.model.classes();
        let mut sums: Vec<(String, Vec<f64>)> = Vec::new();
        let mut all = Portrait { evaluation: Evaluation::new(classes), ..Portrait::default() };
        for indices in samples.indices.chunks(CHUNK) {
            let chunk = samples.at(indices);
            self.labels.clear();
            self.labels.extend(chunk.labels());
            let (outputs, found) = if layers {
                self.session.evaluate_layers(params, &chunk.batch())
            } else {
                (self.session.evaluate(params, &chunk.batch()), Vec::new())
            };
            all.evaluation.add(&outputs, &self.labels);
            all.predictions.extend(outputs.logits.chunks_exact(classes).map(predicted));
            if classes == 2 {
                all.margins.extend(outputs.logits.as_chunks::<2>().0.iter().map(|[first, second]| second - first));
            }
            for (layer, (name, rows)) in found.into_iter().enumerate() {
                let width = rows.len() / self.labels.len();
                if sums.len() == layer {
                    sums.push((name.to_string(), vec![0.0; classes * width]));
                }
                for (row, &label) in rows.chunks_exact(width).zip(&self.labels) {
                    let sum = &mut sums[layer].1[usize::from(label) * width..][..width];
                    sum.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
                }
            }
        }
        let totals = &all.evaluation.totals;
        all.preferences = sums.into_iter().map(|(name, sums)| (name, preferred(&sums, totals))).collect();
        all
    }
}

/// The class of the largest logit.
pub fn predicted(logits: &[f32]) -> u16 {
    let best = largest(logits);
    let sound = logits[best].is_finite() && !logits.iter().any(|logit| logit.is_nan());
    if sound { best as u16 } else { NO_CLASS }
}

/// For each unit the class with the largest mean activation, from sums `[class][unit]`. Ties go to the lower class.
fn preferred(sums: &[f64], totals: &[u64]) -> Vec<u16> {
    let width = sums.len() / totals.len();
    let mean = |class: usize, unit: usize| sums[class * width + unit] / totals[class] as f64;
    let seen: Vec<usize> = (0..totals.len()).filter(|&class| totals[class] > 0).collect();
    (0..width)
        .map(|unit| {
            let means: Vec<f64> = seen.iter().map(|&class| mean(class, unit)).collect();
            seen[largest(&means)] as u16
        })
        .collect()
}

/// Weight alignment (FedNTD): the share of units that prefer the same class in both models, per layer.
pub fn alignment(a: &Portrait, b: &Portrait) -> Vec<(String, f64)> {
    let layers = a.preferences.iter().zip(&b.preferences).filter(|((_, a), _)| !a.is_empty());
    layers
        .map(|((name, a), (_, b))| {
            let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
            (name.clone(), same as f64 / a.len() as f64)
        })
        .collect()
}

/// A confusion matrix: counts, `[true class][predicted class]`. [`NO_CLASS`] predictions are left out.
pub fn confusion(labels: impl Iterator<Item = u16>, predictions: &[u16], classes: usize) -> Vec<Vec<u64>> {
    let mut counts = vec![vec![0; classes]; classes];
    for (label, &prediction) in labels.zip(predictions).filter(|&(_, &prediction)| prediction != NO_CLASS) {
        counts[usize::from(label)][usize::from(prediction)] += 1;
    }
    counts
}

/// What one client's training changed on test samples.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalChange {
    /// Per class: samples predicted correctly before, but not after.
    pub forgot: Vec<u64>,
    /// Per class: samples predicted correctly after, but not before.
    pub learnt: Vec<u64>,
    /// Accuracy on the client's own distribution, before and after.
    pub inside: Option<(f64, f64)>,
    /// Accuracy on everything else, before and after.
    pub outside: Option<(f64, f64)>,
}

/// Compares a local model with the one it started from, on the same samples. `counts` are the client's label counts.
pub fn change(samples: Samples<'_>, before: &[u16], after: &Portrait, counts: &[usize]) -> LocalChange {
    let classes = counts.len();
    let (mut forgot, mut learnt) = (vec![0; classes], vec![0; classes]);
    for ((label, &before), &after) in samples.labels().zip(before).zip(&after.predictions) {
        let class = usize::from(label);
        forgot[class] += u64::from(before == label && after != label);
        learnt[class] += u64::from(before != label && after == label);
    }
    let totals = &after.evaluation.totals;
    // A class without test samples has no accuracy and is left out.
    let seen: Vec<usize> = (0..classes).filter(|&class| totals[class] > 0).collect();
    let own: Vec<usize> = seen.iter().map(|&class| counts[class]).collect();
    let accuracies = |correct: &dyn Fn(usize) -> u64| -> Vec<f64> {
        seen.iter().map(|&class| correct(class) as f64 / totals[class] as f64).collect()
    };
    let now = &after.evaluation.correct;
    let before = accuracies(&|class| now[class] + forgot[class] - learnt[class]);
    let after = accuracies(&|class| now[class]);
    let pair = in_out_local(&own, &before).zip(in_out_local(&own, &after));
    LocalChange {
        inside: pair.as_ref().map(|(before, after)| (before.in_accuracy, after.in_accuracy)),
        outside: pair.as_ref().map(|(before, after)| (before.out_accuracy, after.out_accuracy)),
        forgot,
        learnt,
    }
}

/// The distance between two sets of weights, over their trainable parts.
pub fn drift(a: &[f32], b: &[f32], trainable: &[Range<usize>]) -> f64 {
    let square = |a: f32, b: f32| (f64::from(a) - f64::from(b)) * (f64::from(a) - f64::from(b));
    // Eight sums, so that additions need not wait for each other.
    let mut sums = [0.0; 8];
    for range in trainable {
        let (a, a_rest) = a[range.clone()].as_chunks::<8>();
        let (b, b_rest) = b[range.clone()].as_chunks::<8>();
        for (a, b) in a.iter().zip(b) {
            for i in 0..8 {
                sums[i] += square(a[i], b[i]);
            }
        }
        a_rest.iter().zip(b_rest).zip(&mut sums).for_each(|((&a, &b), sum)| *sum += square(a, b));
    }
    sums.iter().sum::<f64>().sqrt()
}

/// Gradient diversity of a round, with the clients' updates in place of gradients, accumulated client by client.
#[derive(Clone, Debug, Default)]
pub struct Diversity {
    sum: Vec<f64>,
    squares: f64,
    clients: usize,
}

impl Diversity {
    /// Adds a client that moved from `global` to `params`, a distance of [`drift`]. Clients are summed in call order.
    pub fn add(&mut self, global: &[f32], params: &[f32], trainable: &[Range<usize>], drift: f64) {
        self.sum.resize(trainable.iter().map(ExactSizeIterator::len).sum(), 0.0);
        let mut at = 0;
        for range in trainable {
            let changes = global[range.clone()].iter().zip(&params[range.clone()]);
            changes.zip(&mut self.sum[at..]).for_each(|((&from, &to), sum)| *sum += f64::from(to) - f64::from(from));
            at += range.len();
        }
        self.squares += drift * drift;
        self.clients += 1;
    }

    /// The mean squared norm over the squared norm of the mean; `None` if the mean is zero. Resets.
    pub fn take(&mut self) -> Option<f64> {
        let clients = self.clients as f64;
        let of_mean = self.sum.iter().map(|sum| sum * sum).sum::<f64>() / (clients * clients);
        let found = (of_mean > 0.0).then(|| self.squares / clients / of_mean);
        self.sum.fill(0.0);
        (self.squares, self.clients) = (0.0, 0);
        found.filter(|found| found.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scaling;
    use fedelity_data::Split;

    #[test]
    fn a_subset_has_its_share_of_every_class() {
        let labels: Vec<u16> = (0..1_000).map(|i| if i < 900 { 0 } else { 1 + (i % 4) as u16 }).collect();
        let chosen = subset(&labels, 6, 100, 1);
        let count = |class| chosen.iter().filter(|&&i| labels[i as usize] == class).count();
        assert_eq!((count(0), count(1), count(2), count(5)), (90, 3, 3, 0));
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(chosen, subset(&labels, 6, 100, 1));
        assert_ne!(chosen, subset(&labels, 6, 100, 2));
        assert_eq!(subset(&labels, 6, 2, 1).len(), 6, "two of the large class, at least one of the others");
        assert_eq!(subset(&labels, 6, 5_000, 1).len(), 1_000);
    }

    #[test]
    fn learnt_minus_forgotten_is_the_change_in_accuracy() {
        let split = Split { labels: vec![0, 0, 0, 0, 1, 1, 1, 1], ..Split::default() };
        let scaling = Scaling { scale: vec![], shift: vec![] };
        let indices: Vec<u32> = (0..8).collect();
        let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
        let before = [0, 0, 0, 1, 1, 0, 0, NO_CLASS];
        let mut after = Portrait { predictions: vec![0, 1, 1, 0, 1, 1, 1, 0], ..Portrait::default() };
        after.evaluation = Evaluation { loss_sum: 0.0, correct: vec![2, 3, 0], totals: vec![4, 4, 0] };
        let found = change(samples, &before, &after, &[3, 1, 0]);
        assert_eq!((&found.forgot[..], &found.learnt[..]), (&[2, 0, 0][..], &[1, 2, 0][..]));
        // Class accuracies go from (3/4, 1/4) to (2/4, 3/4); the client holds 3 : 1.
        assert_eq!(found.inside, Some((0.75 * 0.75 + 0.25 * 0.25, 0.75 * 0.5 + 0.25 * 0.75)));
        assert_eq!(found.outside, Some((0.25 * 0.75 + 0.75 * 0.25, 0.25 * 0.5 + 0.75 * 0.75)));
    }

    #[test]
    fn units_prefer_the_class_that_excites_them_most() {
        // Two classes, three units; the second class has twice the samples.
        let sums = [3.0, 1.0, 2.0, 4.0, 6.0, 4.0];
        assert_eq!(preferred(&sums, &[1, 2]), [0, 1, 0]);
        let with =
            |units: &[u16]| Portrait { preferences: vec![("fc".to_string(), units.to_vec())], ..Portrait::default() };
        assert_eq!(alignment(&with(&[0, 1, 0]), &with(&[0, 0, 0])), [("fc".to_string(), 2.0 / 3.0)]);
    }

    #[test]
    fn distances_are_over_trainable_parts() {
        let (a, b) = ([1.0, 9.0, 2.0, 3.0], [4.0, 0.0, 2.0, 7.0]);
        assert_eq!(drift(&a, &b, &[0..1, 2..4]), 5.0);
        let (from, to) = ([0.0; 43], std::array::from_fn::<f32, 43, _>(|i| i as f32));
        let squares: usize = (3..12).chain(13..41).map(|i| i * i).sum();
        assert_eq!(drift(&from, &to, &[3..12, 13..41]), (squares as f64).sqrt());
        let mut diversity = Diversity::default();
        assert_eq!(diversity.take(), None);
        diversity.add(&a, &b, &[0..1, 2..4], 5.0);
        diversity.add(&a, &b, &[0..1, 2..4], 5.0);
        assert_eq!(diversity.take(), Some(1.0));
        assert_eq!(confusion([0, 1, 1].into_iter(), &[1, 1, NO_CLASS], 2), [[0, 1], [0, 1]]);
    }
}
