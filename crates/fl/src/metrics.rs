//! Metrics of a federation, computed from accuracies.

/// Forgetting (FedNTD): the mean over classes of how far the accuracy is below its best in earlier rounds.
///
/// F = 1/C sum_c max_{t < T} (A_c^t - A_c^T), over the rounds pushed so far. It is not clipped: a class at a new best
/// counts as negative. Classes without test samples are left out. The model before the first round must not be pushed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forgetting {
    best: Vec<Option<f64>>,
    by_class: Vec<Option<f64>>,
    rounds: usize,
}

impl Forgetting {
    /// Adds the class accuracies of one round; returns the forgetting so far, from the second round on.
    pub fn push(&mut self, class_accuracy: &[Option<f64>]) -> Option<f64> {
        self.best.resize(self.best.len().max(class_accuracy.len()), None);
        self.by_class.clear();
        let (mut sum, mut classes) = (0.0, 0u32);
        for (best, now) in self.best.iter_mut().zip(class_accuracy) {
            let forgot = best.zip(*now).map(|(best, now)| best - now);
            self.by_class.push(forgot);
            if let Some(forgot) = forgot {
                sum += forgot;
                classes += 1;
            }
            *best = match (*best, *now) {
                (Some(best), Some(now)) => Some(best.max(now)),
                (best, now) => best.or(now),
            };
        }
        self.rounds += 1;
        (self.rounds > 1 && classes > 0).then(|| sum / f64::from(classes))
    }

    /// Per class, how far the accuracy in the last round pushed is below its earlier best.
    pub fn by_class(&self) -> &[Option<f64>] {
        &self.by_class
    }
}

/// Accuracy of a local model inside and outside its own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct InOut {
    /// Class weights of the client's own distribution.
    pub in_local: Vec<f64>,
    /// Class weights of everything else: (1 - p) / (C - 1).
    pub out_local: Vec<f64>,
    /// Accuracy on the client's own distribution.
    pub in_accuracy: f64,
    /// Accuracy on everything else.
    pub out_accuracy: f64,
}

/// In- and out-of-local-distribution accuracy (FedNTD) from a client's label counts and its class accuracies on
/// common test data; `None` without samples, with fewer than two classes or if the lengths differ.
pub fn in_out_local(label_counts: &[usize], class_accuracy: &[f64]) -> Option<InOut> {
    let (classes, total) = (label_counts.len(), label_counts.iter().sum::<usize>());
    if classes < 2 || total == 0 || class_accuracy.len() != classes {
        return None;
    }
    let in_local: Vec<f64> = label_counts.iter().map(|&n| n as f64 / total as f64).collect();
    let out_local: Vec<f64> = in_local.iter().map(|p| (1.0 - p) / (classes - 1) as f64).collect();
    let mean = |weights: &[f64]| dot(weights, class_accuracy);
    Some(InOut { in_accuracy: mean(&in_local), out_accuracy: mean(&out_local), in_local, out_local })
}

/// The cosine of two vectors of class accuracies; `None` if one of them is zero everywhere.
pub fn class_accuracy_cosine(a: &[f64], b: &[f64]) -> Option<f64> {
    let length = (dot(a, a) * dot(b, b)).sqrt();
    (length > 0.0).then(|| dot(a, b) / length)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgetting_of_progress_is_negative_and_absent_classes_do_not_count() {
        let mut so_far = Forgetting::default();
        assert_eq!(so_far.push(&[Some(0.25), None, Some(0.5)]), None);
        assert_eq!(so_far.push(&[Some(0.5), None, Some(0.75)]), Some(-0.25));
        let mut nothing = Forgetting::default();
        assert_eq!((nothing.push(&[None]), nothing.push(&[None])), (None, None));
    }

    #[test]
    fn nothing_to_divide_by() {
        assert_eq!(in_out_local(&[0, 0], &[0.5, 0.5]), None);
        assert_eq!(in_out_local(&[1], &[0.5]), None);
        assert_eq!(class_accuracy_cosine(&[0.0], &[1.0]), None);
    }
}
