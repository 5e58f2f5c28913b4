//! The error function, for tests here and in `src/function.rs`.

/// The error function, by Simpson's rule on 2 / sqrt(pi) * e^-t^2.
pub(crate) fn erf(x: f64) -> f64 {
    let steps = 2000;
    let width = x / f64::from(steps);
    let f = |i: i32| (-(f64::from(i) * width).powi(2)).exp();
    let sum: f64 = (1..steps).map(|i| if i % 2 == 1 { 4.0 } else { 2.0 } * f(i)).sum();
    2.0 / std::f64::consts::PI.sqrt() * width / 3.0 * (f(0) + sum + f(steps))
}
