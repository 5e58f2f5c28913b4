//! Sums of exponentials over some entries of a row, in log space.

/// log(sum of exp(value / tau)) over the entries that `counts` keeps; minus infinity if it keeps none.
pub(super) fn log_sum_exp(row: &[f32], tau: f64, counts: impl Fn(usize) -> bool) -> f64 {
    let kept = || row.iter().enumerate().filter(|&(class, _)| counts(class)).map(|(_, &value)| f64::from(value));
    let top = kept().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        return top;
    }
    top / tau + kept().map(|value| ((value - top) / tau).exp()).sum::<f64>().ln()
}

/// log(1 + exp(x)), without overflow and exact where the exponential is small.
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
