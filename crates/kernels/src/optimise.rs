//! Passes over whole parameter vectors: optimiser steps, norms and the weighted sum of the aggregation.
//!
//! They are plain loops that the compiler turns into vector code, with nothing fused and sums in a fixed order, so
//! every instruction set gives the same bits.

#![allow(clippy::too_many_arguments, reason = "an optimiser has many settings")]

use pulp::Simd;

use crate::simd::{Isa, Kernel};

/// Partial sums of a reduction.
const SUMS: usize = 16;

struct Axpy<'a> {
    y: &'a mut [f32],
    a: f32,
    x: &'a [f32],
}

impl Kernel for Axpy<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y += self.a * x;
        }
    }
}

/// y += a * x.
pub fn axpy(isa: Isa, y: &mut [f32], a: f32, x: &[f32]) {
    assert_eq!(y.len(), x.len());
    isa.run(Axpy { y, a, x });
}

struct SquaredNorm<'a>(&'a [f32]);

impl Kernel for SquaredNorm<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        let (blocks, rest) = self.0.as_chunks::<SUMS>();
        let mut sums = [0.0f64; SUMS];
        for x in blocks {
            for i in 0..SUMS {
                sums[i] += f64::from(x[i]) * f64::from(x[i]);
            }
        }
        let rest: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        sums.iter().sum::<f64>() + rest
    }
}

/// The sum of x^2, in f64.
#[must_use]
pub fn squared_norm(isa: Isa, x: &[f32]) -> f64 {
    isa.run(SquaredNorm(x))
}

struct SquaredDistance<'a>(&'a [f32], &'a [f32]);

impl Kernel for SquaredDistance<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        let ((a, a_rest), (b, b_rest)) = (self.0.as_chunks::<SUMS>(), self.1.as_chunks::<SUMS>());
        let mut sums = [0.0f64; SUMS];
        for (a, b) in a.iter().zip(b) {
            for i in 0..SUMS {
                let d = f64::from(a[i]) - f64::from(b[i]);
                sums[i] += d * d;
            }
        }
        let rest: f64 = a_rest.iter().zip(b_rest).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
        sums.iter().sum::<f64>() + rest
    }
}

/// The sum of (a - b)^2, in f64.
#[must_use]
pub fn squared_distance(isa: Isa, a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    isa.run(SquaredDistance(a, b))
}

struct Dot<'a>(&'a [f32], &'a [f32]);

impl Kernel for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        let ((a, a_rest), (b, b_rest)) = (self.0.as_chunks::<SUMS>(), self.1.as_chunks::<SUMS>());
        let mut sums = [0.0f64; SUMS];
        for (a, b) in a.iter().zip(b) {
            for i in 0..SUMS {
                sums[i] += f64::from(a[i]) * f64::from(b[i]);
            }
        }
        let rest: f64 = a_rest.iter().zip(b_rest).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        sums.iter().sum::<f64>() + rest
    }
}

/// The sum of a * b, in f64.
#[must_use]
pub fn dot(isa: Isa, a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    isa.run(Dot(a, b))
}

struct Accumulate<'a> {
    sum: &'a mut [f64],
    weight: f64,
    x: &'a [f32],
}

impl Kernel for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (sum, &x) in self.sum.iter_mut().zip(self.x) {
            *sum += self.weight * f64::from(x);
        }
    }
}

/// sum += weight * x, in f64.
pub fn accumulate(isa: Isa, sum: &mut [f64], weight: f64, x: &[f32]) {
    assert_eq!(sum.len(), x.len());
    isa.run(Accumulate { sum, weight, x });
}

struct Sgd<'a> {
    w: &'a mut [f32],
    v: &'a mut [f32],
    g: &'a [f32],
    lr: f32,
    momentum: f32,
    weight_decay: f32,
    first: bool,
}

impl Kernel for Sgd<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { w, v, g, lr, momentum, weight_decay, first } = self;
        if momentum == 0.0 {
            for (w, g) in w.iter_mut().zip(g) {
                *w -= lr * (g + weight_decay * *w);
            }
        } else if first {
            for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                *v = g + weight_decay * *w;
                *w -= lr * *v;
            }
        } else {
            for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                *v = momentum * *v + (g + weight_decay * *w);
                *w -= lr * *v;
            }
        }
    }
}

/// SGD with momentum as PyTorch does it: g += weight_decay * w; v = g in the `first` step, else momentum * v + g;
/// w -= lr * v.
///
/// Without momentum `v` is neither read nor written and may be empty.
pub fn sgd_step(
    isa: Isa,
    w: &mut [f32],
    v: &mut [f32],
    g: &[f32],
    lr: f32,
    momentum: f32,
    weight_decay: f32,
    first: bool,
) {
    assert!(w.len() == g.len() && (momentum == 0.0 || w.len() == v.len()));
    isa.run(Sgd { w, v, g, lr, momentum, weight_decay, first });
}

struct Adam<'a> {
    w: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    g: &'a [f32],
    step: f32,
    betas: (f32, f32),
    root_scale: f32,
    eps: f32,
    weight_decay: f32,
}

impl Kernel for Adam<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { w, m, v, g, step, betas: (beta1, beta2), root_scale, eps, weight_decay } = self;
        for (((w, m), v), g) in w.iter_mut().zip(m).zip(v).zip(g) {
            let g = g + weight_decay * *w;
            *m += (1.0 - beta1) * (g - *m);
            *v = beta2 * *v + (1.0 - beta2) * (g * g);
            *w -= step * (*m / (v.sqrt() * root_scale + eps));
        }
    }
}

/// Adam as PyTorch does it, with the weight decay added to the gradient. `t` counts the steps from 1.
pub fn adam_step(
    isa: Isa,
    w: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    g: &[f32],
    lr: f32,
    betas: (f32, f32),
    eps: f32,
    weight_decay: f32,
    t: i32,
) {
    assert!(t >= 1, "step {t}: steps count from 1");
    assert!(w.len() == g.len() && w.len() == m.len() && w.len() == v.len());
    let step = (f64::from(lr) / (1.0 - f64::from(betas.0).powi(t))) as f32;
    let root_scale = (1.0 - f64::from(betas.1).powi(t)).sqrt().recip() as f32;
    isa.run(Adam { w, m, v, g, step, betas, root_scale, eps, weight_decay });
}
