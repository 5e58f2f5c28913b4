//! GELU in its exact form, x * Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel 2016).

use std::f32::consts::FRAC_1_SQRT_2;

use pulp::Simd;

use crate::function::{erf, exp};
use crate::simd::{Isa, Kernel};

/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;

#[inline(always)]
fn distribution(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * FRAC_1_SQRT_2)
}

struct Gelu<'a> {
    y: &'a mut [f32],
    x: &'a [f32],
}

impl Kernel for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = x * distribution(x);
        }
    }
}

/// y = gelu(x).
pub fn forward(isa: Isa, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len());
    isa.run(Gelu { y, x });
}

struct GeluGradient<'a> {
    x: &'a mut [f32],
    d: &'a mut [f32],
}

impl Kernel for GeluGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (x, d) in self.x.iter_mut().zip(self.d) {
            let phi = distribution(*x);
            *d *= phi + *x * DENSITY * exp(-0.5 * *x * *x);
            *x *= phi;
        }
    }
}

/// The gradient with respect to gelu(x) in `d` becomes that with respect to x, and x becomes gelu(x), which the layer
/// after it needs for its own gradient: so the forward pass keeps x alone.
pub fn backward(isa: Isa, x: &mut [f32], d: &mut [f32]) {
    assert_eq!(x.len(), d.len());
    isa.run(GeluGradient { x, d });
}
