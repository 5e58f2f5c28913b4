//! Passes over whole parameter vectors: optimiser steps and norms.
//!
//! Plain loops that the compiler vectorises, with nothing fused and sums in a fixed order, so every instruction set
//! gives the same bits.

use crate::simd::{Isa, Loops};

/// Partial sums of a reduction.
const SUMS: usize = 16;

/// y += a * x.
pub fn axpy(isa: Isa, y: &mut [f32], a: f32, x: &[f32]) {
    assert_eq!(y.len(), x.len());
    isa.run(Loops(
        #[inline(always)]
        move || {
            for (y, x) in y.iter_mut().zip(x) {
                *y += a * x;
            }
        },
    ));
}

/// The sum of x^2, in f64.
#[must_use]
pub fn squared_norm(isa: Isa, x: &[f32]) -> f64 {
    let mut norm = 0.0;
    isa.run(Loops(
        #[inline(always)]
        || {
            let (blocks, rest) = x.as_chunks::<SUMS>();
            let mut sums = [0.0f64; SUMS];
            for x in blocks {
                for i in 0..SUMS {
                    sums[i] += f64::from(x[i]) * f64::from(x[i]);
                }
            }
            let rest: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            norm = sums.iter().sum::<f64>() + rest;
        },
    ));
    norm
}

/// SGD with momentum as in PyTorch: g += weight_decay * w; v = g in the first step, else momentum * v + g; w -= lr * v.
#[derive(Debug)]
pub struct SgdStep<'a> {
    pub w: &'a mut [f32],
    /// Unused without momentum; may then be empty.
    pub v: &'a mut [f32],
    pub g: &'a [f32],
    pub lr: f32,
    pub momentum: f32,
    pub weight_decay: f32,
    pub first: bool,
}

pub fn sgd_step(isa: Isa, SgdStep { w, v, g, lr, momentum, weight_decay, first }: SgdStep<'_>) {
    assert!(w.len() == g.len() && (momentum == 0.0 || w.len() == v.len()));
    isa.run(Loops(
        #[inline(always)]
        move || {
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
        },
    ));
}

/// Adam as in PyTorch, with weight decay added to the gradient.
#[derive(Debug)]
pub struct AdamStep<'a> {
    pub w: &'a mut [f32],
    pub m: &'a mut [f32],
    pub v: &'a mut [f32],
    pub g: &'a [f32],
    pub lr: f32,
    pub betas: (f32, f32),
    pub eps: f32,
    pub weight_decay: f32,
    /// Number of steps so far, including this one.
    pub t: i32,
}

pub fn adam_step(isa: Isa, AdamStep { w, m, v, g, lr, betas, eps, weight_decay, t }: AdamStep<'_>) {
    assert!(t >= 1, "step {t}: steps count from 1");
    assert!(w.len() == g.len() && w.len() == m.len() && w.len() == v.len());
    let (beta1, beta2) = betas;
    let step = (f64::from(lr) / (1.0 - libm::pow(beta1.into(), t.into()))) as f32;
    let root_scale = (1.0 - libm::pow(beta2.into(), t.into())).sqrt().recip() as f32;
    isa.run(Loops(
        #[inline(always)]
        move || {
            for (((w, m), v), g) in w.iter_mut().zip(m).zip(v).zip(g) {
                let g = g + weight_decay * *w;
                *m += (1.0 - beta1) * (g - *m);
                *v = beta2 * *v + (1.0 - beta2) * (g * g);
                *w -= step * (*m / (v.sqrt() * root_scale + eps));
            }
        },
    ));
}
