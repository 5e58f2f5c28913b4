//! Contrast of features with those of two frozen models.

use super::rows::softplus;

/// A vector shorter than this has no direction: its similarity is 0 and has no gradient.
const SHORTEST: f64 = 1e-8;

/// weight * mean_i(-log(exp(s_g) / (exp(s_g) + exp(s_p)))), where s_g and s_p are the cosine similarities of
/// `features_i` with `global_i` and `previous_i`, divided by `tau`; rows `[sample][width]`.
///
/// With u = features / |features| and r the other vector over its length: d(cos) / d(features) = (r - cos * u) /
/// |features|; the two similarities contribute it with the factors -/+ sigmoid(s_p - s_g) / tau.
pub fn contrast(
    features: &[f32],
    global: &[f32],
    previous: &[f32],
    width: usize,
    tau: f32,
    weight: f32,
    d_features: &mut [f32],
) -> f32 {
    assert!(width > 0 && features.len().is_multiple_of(width) && d_features.len() == features.len());
    assert!(global.len() == features.len() && previous.len() == features.len());
    let samples = (features.len() / width) as f64;
    let (tau, share) = (f64::from(tau), f64::from(weight) / samples);
    let mut loss = 0.0;
    let rows = features.chunks_exact(width).zip(global.chunks_exact(width)).zip(previous.chunks_exact(width));
    for (((z, g), p), d_z) in rows.zip(d_features.chunks_exact_mut(width)) {
        let length = dot(z, z).sqrt();
        let (length_g, length_p) = (dot(g, g).sqrt(), dot(p, p).sqrt());
        // The reciprocal of the product of both lengths, or 0 if there is no direction.
        let both = |other: f64| if length.min(other) < SHORTEST { 0.0 } else { 1.0 / (length * other) };
        let (scale_g, scale_p) = (both(length_g), both(length_p));
        let (cos_g, cos_p) = (dot(z, g) * scale_g, dot(z, p) * scale_p);
        let gap = (cos_p - cos_g) / tau;
        loss += share * softplus(gap);
        if length < SHORTEST {
            continue;
        }
        let pull = share / tau / (1.0 + libm::exp(-gap));
        let along = (cos_p - cos_g) / (length * length);
        for (((d_z, &z), &g), &p) in d_z.iter_mut().zip(z).zip(g).zip(p) {
            let across = f64::from(p) * scale_p - f64::from(g) * scale_g;
            *d_z += (pull * (across - along * f64::from(z))) as f32;
        }
    }
    loss as f32
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}
