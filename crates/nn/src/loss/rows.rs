//! Log-space sums of exponentials over the entries of a row.

use fedelity_kernels::function;

/// log(sum of exp(value / tau)) over all values; minus infinity if there are none.
pub(super) fn log_sum_exp(values: impl Iterator<Item = f32> + Clone, tau: f64) -> f64 {
    let top = values.clone().fold(f32::NEG_INFINITY, f32::max);
    if top == f32::NEG_INFINITY {
        return top.into();
    }
    let (top, scale) = (f64::from(top), 1.0 / tau);
    top * scale + libm::log(values.map(|value| exp((f64::from(value) - top) * scale)).sum::<f64>())
}

/// exp(x) for x up to 0, rounded to f32: faster, and as accurate as an f32 gradient.
pub(super) fn exp(x: f64) -> f64 {
    f64::from(function::exp(x as f32))
}

/// log(1 + exp(x)), without overflow, and accurate if the exponential is small.
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}
