//! Squared differences of logits.

/// weight * mean((z - teacher)^2) over samples and classes.
///
/// d_z += weight * 2 (z - teacher) / entries.
pub fn mse(z: &[f32], teacher: &[f32], weight: f32, d_z: &mut [f32]) -> f32 {
    assert!(teacher.len() == z.len() && d_z.len() == z.len());
    let share = f64::from(weight) / z.len().max(1) as f64;
    let mut loss = 0.0;
    for ((d_z, &v), &t) in d_z.iter_mut().zip(z).zip(teacher) {
        let difference = f64::from(v) - f64::from(t);
        *d_z += (2.0 * share * difference) as f32;
        loss += share * difference * difference;
    }
    loss as f32
}

/// mean_i(sum_k weights_ik * (z_ik - teacher_ik)^2) over `z` and `weights` `[sample][class]`.
///
/// d_z_ik += weights_ik * 2 (z_ik - teacher_ik) / samples.
pub fn squares(z: &[f32], teacher: &[f32], classes: usize, weights: &[f32], d_z: &mut [f32]) -> f32 {
    assert!(classes > 0 && z.len().is_multiple_of(classes) && d_z.len() == z.len());
    assert!(teacher.len() == z.len() && weights.len() == z.len());
    let samples = (z.len() / classes) as f64;
    let mut loss = 0.0;
    for (((d_z, &v), &t), &weight) in d_z.iter_mut().zip(z).zip(teacher).zip(weights) {
        if weight != 0.0 {
            let (share, difference) = (f64::from(weight) / samples, f64::from(v) - f64::from(t));
            *d_z += (2.0 * share * difference) as f32;
            loss += share * difference * difference;
        }
    }
    loss as f32
}
