//! GELU in its exact form, x * Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel 2016).

use std::f32::consts::FRAC_1_SQRT_2;

use crate::function::{erf, exp};
use crate::simd::{Isa, Loops};

/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;

#[inline(always)]
fn distribution(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * FRAC_1_SQRT_2)
}

/// y = gelu(x).
pub fn forward(isa: Isa, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len());
    isa.run(Loops(
        #[inline(always)]
        move || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x * distribution(x);
            }
        },
    ));
}

/// Turns the gradient with respect to gelu(x), in `d`, into that with respect to x, and x into gelu(x), which the next
/// layer needs for its own gradient. The forward pass therefore stores only x.
pub fn backward(isa: Isa, x: &mut [f32], d: &mut [f32]) {
    assert_eq!(x.len(), d.len());
    isa.run(Loops(
        #[inline(always)]
        move || {
            for (x, d) in x.iter_mut().zip(d) {
                let phi = distribution(*x);
                *d *= phi + *x * DENSITY * exp(-0.5 * *x * *x);
                *x *= phi;
            }
        },
    ));
}
