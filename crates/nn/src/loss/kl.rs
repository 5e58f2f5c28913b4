//! KL divergence between the class distributions of a teacher and a student.

use super::rows::{exp, log_sum_exp};

/// Options of [`kl`].
///
/// `Kl { weight: 0.1, ..Kl::default() }` is a tenth of the plain divergence at temperature 1.
#[derive(Clone, Copy, Debug)]
pub struct Kl<'a> {
    /// Factor on the whole term.
    pub weight: f32,
    /// Temperature of both, above 0.
    pub tau: f32,
    /// Whether to multiply by `tau * tau`, which keeps the scale of the gradients independent of the temperature.
    pub tau_squared: bool,
    /// Additional factor per sample.
    pub weights: Option<&'a [f32]>,
    /// A class per sample to remove from both before the softmax: the true one in FedNTD.
    pub exclude: Option<&'a [u16]>,
    /// The row of `teacher` for each sample: a table by label in FedDistill+. Without it, row i is for sample i.
    pub rows: Option<&'a [u16]>,
}

impl Default for Kl<'_> {
    fn default() -> Self {
        Self { weight: 1.0, tau: 1.0, tau_squared: false, weights: None, exclude: None, rows: None }
    }
}

/// mean_i(weight * weights_i * tau^2 * sum_k p_k log(p_k / q_k)), p = softmax(teacher_i / tau), q = softmax(z_i / tau),
/// over `z` `[sample][class]`; tau^2 only with `tau_squared`.
///
/// d_z_i += weight * weights_i * tau^2 / tau * (q - p) / samples. The excluded class gets no gradient at all.
pub fn kl(z: &[f32], teacher: &[f32], classes: usize, how: &Kl<'_>, d_z: &mut [f32]) -> f32 {
    assert!(classes > 0 && z.len().is_multiple_of(classes) && d_z.len() == z.len());
    assert!(if how.rows.is_some() { teacher.len().is_multiple_of(classes) } else { teacher.len() == z.len() });
    let samples = z.len() / classes;
    let per_sample = |given: Option<usize>| given.is_none_or(|given| given == samples);
    assert!(per_sample(how.weights.map(<[f32]>::len)));
    assert!(per_sample(how.exclude.map(<[u16]>::len)) && per_sample(how.rows.map(<[u16]>::len)));

    let tau = f64::from(how.tau);
    let scale = 1.0 / tau;
    let power = if how.tau_squared { tau * tau } else { 1.0 };
    let mut loss = 0.0;
    for (i, (z, d_z)) in z.chunks_exact(classes).zip(d_z.chunks_exact_mut(classes)).enumerate() {
        let weight = f64::from(how.weight) * how.weights.map_or(1.0, |weights| f64::from(weights[i]));
        let row = how.rows.map_or(i, |rows| usize::from(rows[i]));
        let teacher = &teacher[row * classes..][..classes];
        let out = how.exclude.map_or(classes, |exclude| usize::from(exclude[i]));
        if weight == 0.0 {
            continue;
        }
        let share = weight * power / samples as f64;
        let all_t = log_sum_exp(without(teacher, out), tau);
        let all_z = log_sum_exp(without(z, out), tau);
        for (class, ((d_z, &v), &t)) in d_z.iter_mut().zip(z).zip(teacher).enumerate() {
            if class == out {
                continue;
            }
            let (log_q, log_p) = (f64::from(v) * scale - all_z, f64::from(t) * scale - all_t);
            let p = exp(log_p);
            *d_z += (share * scale * (exp(log_q) - p)) as f32;
            loss += share * p * (log_p - log_q);
        }
    }
    loss as f32
}

/// All entries of a row except this one.
fn without(row: &[f32], class: usize) -> impl Iterator<Item = f32> + Clone + '_ {
    let (before, after) = row.split_at(class.min(row.len()));
    before.iter().chain(after.get(1..).unwrap_or_default()).copied()
}
