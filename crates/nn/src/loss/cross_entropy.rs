//! Cross-entropy with per-sample weights.

use super::rows::{exp, log_sum_exp};

/// mean_i(weights_i * -log softmax(z_i)\[label_i\]) over `z` `[sample][class]`.
///
/// d_z_i += weights_i * (softmax(z_i) - onehot) / samples.
pub fn weighted_cross_entropy(z: &[f32], labels: &[u16], classes: usize, weights: &[f32], d_z: &mut [f32]) -> f32 {
    let samples = labels.len();
    assert!(classes > 0 && z.len() == samples * classes && d_z.len() == z.len() && weights.len() == samples);
    let mut loss = 0.0;
    for (((z, d_z), &label), &weight) in
        z.chunks_exact(classes).zip(d_z.chunks_exact_mut(classes)).zip(labels).zip(weights)
    {
        let label = usize::from(label);
        assert!(label < classes, "label {label} of {classes} classes");
        if weight == 0.0 {
            continue;
        }
        let share = f64::from(weight) / samples as f64;
        let all = log_sum_exp(z.iter().copied(), 1.0);
        for (class, (d_z, &v)) in d_z.iter_mut().zip(z).enumerate() {
            let onehot = if class == label { 1.0 } else { 0.0 };
            *d_z += (share * (exp(f64::from(v) - all) - onehot)) as f32;
        }
        loss += share * (all - f64::from(z[label]));
    }
    loss as f32
}
