//! Group distillation: the divergence split by how many samples of each class a client holds.

use super::rows::{exp, log_sum_exp, softplus};

/// The weight of one part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alpha {
    Fixed(f32),
    /// The teacher's probability mass on all classes but the true one, per sample.
    NotTrue,
}

impl Alpha {
    fn of(self, not_true: f64) -> f64 {
        match self {
            Self::Fixed(value) => f64::from(value),
            Self::NotTrue => not_true,
        }
    }
}

/// Weights of [`group_distillation`].
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    /// Factor on the whole term.
    pub weight: f32,
    /// Weight of the true class against all others.
    pub alpha_true: Alpha,
    /// Weight of the rich classes.
    pub alpha_rich: Alpha,
    /// Weight of the few classes.
    pub alpha_few: Alpha,
    /// Whether to subtract the rich/few split, which both parts contain, once, with the smaller weight.
    pub exact: bool,
    pub rich: &'a [bool],
}

/// One row, split into the true class and, among the others, the rich and few classes. All values are logarithms.
struct GroupSplit {
    /// Of the true class and of all others.
    is_true: f64,
    not_true: f64,
    /// Of the two groups among the others; minus infinity for an empty group.
    rich: f64,
    few: f64,
    /// The sums of exponentials that normalise a logit among the others, or within its group.
    sum_others: f64,
    sum_rich: f64,
    sum_few: f64,
}

impl GroupSplit {
    /// `None` if there is no class but the true one.
    fn new(row: &[f32], label: usize, rich: &[bool]) -> Option<Self> {
        let others = |of_rich: bool| {
            let classes = row.iter().zip(rich).enumerate();
            let chosen = classes.filter(move |&(class, (_, &rich))| class != label && rich == of_rich);
            chosen.map(|(_, (&logit, _))| logit)
        };
        let (sum_rich, sum_few) = (log_sum_exp(others(true), 1.0), log_sum_exp(others(false), 1.0));
        let top = sum_rich.max(sum_few);
        if top == f64::NEG_INFINITY {
            return None;
        }
        let sum_others = top + softplus(sum_rich.min(sum_few) - top);
        let logit = f64::from(row[label]);
        Some(Self {
            is_true: -softplus(sum_others - logit),
            not_true: -softplus(logit - sum_others),
            rich: -softplus(sum_few - sum_rich),
            few: -softplus(sum_rich - sum_few),
            sum_others,
            sum_rich,
            sum_few,
        })
    }
}

/// weight * mean_i(a_t TC + a_r RC + a_f FC) over `z` `[sample][class]`, a divergence of the student from the teacher.
///
/// With q the probabilities of all classes, r those among the classes other than the true one (q_i / (1 - q_t)), R and
/// F the sums of r over the rich and few classes without the true one, and primes for the teacher:
///
///   TC = q'_t log(q'_t / q_t) + (1 - q'_t) log((1 - q'_t) / (1 - q_t))
///   RC = sum_{i rich} r'_i log(r'_i / r_i) + F' log(F' / F)
///   FC = sum_{i few}  r'_i log(r'_i / r_i) + R' log(R' / R)
///   D  = R' log(R' / R) + F' log(F' / F), contained in both RC and FC; `exact` subtracts min(a_r, a_f) * D
///
/// The gradients are differences of probabilities, because every part is a divergence of a coarser softmax:
///
///   TC: q_t - q'_t on the true logit, r_j (q'_t - q_t) on the others
///   RC: r_j - r'_j on rich logits, (r_j / F) (F - F') on few ones; FC vice versa
///   D:  (r_j / R) (R - R') on rich logits, (r_j / F) (F - F') on few ones
///
/// An empty group has no mass and adds nothing.
pub fn group_distillation(
    z: &[f32],
    teacher: &[f32],
    labels: &[u16],
    classes: usize,
    how: &Groups<'_>,
    d_z: &mut [f32],
) -> f32 {
    let samples = labels.len();
    assert!(classes > 0 && z.len() == samples * classes && teacher.len() == z.len() && d_z.len() == z.len());
    assert!(how.rich.len() == classes);
    let share = f64::from(how.weight) / samples.max(1) as f64;
    let mut loss = 0.0;
    let rows = z.chunks_exact(classes).zip(teacher.chunks_exact(classes)).zip(d_z.chunks_exact_mut(classes));
    for (((z, teacher), d_z), &label) in rows.zip(labels) {
        let label = usize::from(label);
        assert!(label < classes, "label {label} of {classes} classes");
        let (Some(from), Some(to)) = (GroupSplit::new(teacher, label, how.rich), GroupSplit::new(z, label, how.rich))
        else {
            continue;
        };
        let not_true = libm::exp(from.not_true);
        let (a_true, a_rich, a_few) =
            (how.alpha_true.of(not_true), how.alpha_rich.of(not_true), how.alpha_few.of(not_true));
        let twice = if how.exact { a_rich.min(a_few) } else { 0.0 };

        let true_class = part(from.is_true, to.is_true) + part(from.not_true, to.not_true);
        let (split_rich, split_few) = (part(from.rich, to.rich), part(from.few, to.few));
        let mut value = a_true * true_class + (a_rich - twice) * split_few + (a_few - twice) * split_rich;

        let excess_true = libm::exp(to.is_true) - libm::exp(from.is_true);
        let excess_others = libm::exp(to.not_true) - not_true;
        let (excess_rich, excess_few) =
            (libm::exp(to.rich) - libm::exp(from.rich), libm::exp(to.few) - libm::exp(from.few));
        d_z[label] += (share * a_true * excess_true) as f32;
        for (class, ((d_z, &v), &t)) in d_z.iter_mut().zip(z).zip(teacher).enumerate() {
            if class == label {
                continue;
            }
            let (v, t) = (f64::from(v), f64::from(t));
            let (log_to, log_from) = (v - to.sum_others, t - from.sum_others);
            // The weight of the part that sees this class individually, and of the part that sees only its group.
            let (own, other, in_group, excess) = if how.rich[class] {
                (a_rich, a_few, v - to.sum_rich, excess_rich)
            } else {
                (a_few, a_rich, v - to.sum_few, excess_few)
            };
            let (r, r_from) = (exp(log_to), exp(log_from));
            value += own * r_from * (log_from - log_to);
            let slope = a_true * r * excess_others + own * (r - r_from) + (other - twice) * exp(in_group) * excess;
            *d_z += (share * slope) as f32;
        }
        loss += share * value;
    }
    loss as f32
}

/// p log(p / q) from the logarithms; 0 where p is 0.
fn part(log_p: f64, log_q: f64) -> f64 {
    let p = libm::exp(log_p);
    if p == 0.0 { 0.0 } else { p * (log_p - log_q) }
}
