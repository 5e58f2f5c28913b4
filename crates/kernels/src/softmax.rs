//! Softmax and its cross entropy on rows `[sample][class]`.

use crate::function::exp;

/// The weighted mean loss over `z` `[sample][class]`: `weight * mean(-log softmax(z)[label])`.
///
/// d_z += weight * (softmax(z) - onehot) / samples.
pub fn cross_entropy(z: &[f32], labels: &[u16], classes: usize, weight: f32, d_z: &mut [f32]) -> f32 {
    let samples = labels.len();
    assert!(classes > 0 && z.len() == samples * classes && d_z.len() == z.len());
    if samples == 0 {
        return 0.0;
    }
    let share = weight / samples as f32;
    let mut loss = 0.0;
    for ((z, d_z), &label) in z.chunks_exact(classes).zip(d_z.chunks_exact_mut(classes)).zip(labels) {
        let label = usize::from(label);
        assert!(label < classes, "label {label} of {classes} classes");
        let top = maximum(z);
        let sum: f32 = z.iter().map(|v| exp(v - top)).sum();
        let scale = share / sum;
        for (d_z, v) in d_z.iter_mut().zip(z) {
            *d_z += scale * exp(v - top);
        }
        d_z[label] -= share;
        loss += f64::from(libm::logf(sum) - (z[label] - top));
    }
    (f64::from(weight) * loss / samples as f64) as f32
}

/// p = softmax(z / temperature) on rows `[sample][class]`.
pub fn softmax_rows(p: &mut [f32], z: &[f32], classes: usize, temperature: f32) {
    assert!(classes > 0 && z.len().is_multiple_of(classes) && p.len() == z.len());
    for (p, z) in p.chunks_exact_mut(classes).zip(z.chunks_exact(classes)) {
        let top = maximum(z);
        let mut sum = 0.0;
        for (p, v) in p.iter_mut().zip(z) {
            *p = exp((v - top) / temperature);
            sum += *p;
        }
        p.iter_mut().for_each(|p| *p /= sum);
    }
}

/// out = log softmax(z / temperature) on rows `[sample][class]`.
pub fn log_softmax_rows(out: &mut [f32], z: &[f32], classes: usize, temperature: f32) {
    assert!(classes > 0 && z.len().is_multiple_of(classes) && out.len() == z.len());
    for (out, z) in out.chunks_exact_mut(classes).zip(z.chunks_exact(classes)) {
        let top = maximum(z);
        let mut sum = 0.0;
        for (out, v) in out.iter_mut().zip(z) {
            *out = (v - top) / temperature;
            sum += exp(*out);
        }
        let log = libm::logf(sum);
        out.iter_mut().for_each(|v| *v -= log);
    }
}

/// The largest entry. NaNs are ignored here, but propagate through the subtraction.
fn maximum(z: &[f32]) -> f32 {
    z.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}
