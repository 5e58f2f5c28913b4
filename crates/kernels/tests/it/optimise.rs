//! Optimiser steps and reductions against scalar f64 formulas.

use fedelity_kernels::{AdamStep, Isa, SgdStep, elementwise, measure};
use proptest::prelude::*;

use crate::common::*;

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn reductions_and_sums(len in 0usize..2000, weight in -2.0f32..2.0, seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let (a, b) = (random.vector(len), random.vector(len));
        let (x, y) = (single(&a), single(&b));
        let near = |found: f64, expected: f64| (found - expected).abs() <= 1e-12 * (len as f64 + 1.0);
        let mut bits = Vec::new();
        for isa in Isa::available() {
            let norm = elementwise::squared_norm(isa, &x);
            prop_assert!(near(norm, a.iter().map(|v| v * v).sum()));
            let mut found = y.clone();
            elementwise::axpy(isa, &mut found, weight, &x);
            let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b + f64::from(weight) * a).collect();
            close(&double(&found), &expected, "axpy")?;
            bits.push((norm.to_bits(), found));
        }
        prop_assert!(bits.iter().all(|other| *other == bits[0]), "instruction sets disagree");
    }

    #[test]
    fn stochastic_gradient_descent(
        len in 1usize..500, lr in 0.001f32..0.5, momentum in prop::sample::select(vec![0.0f32, 0.5, 0.9]),
        decay in prop::sample::select(vec![0.0f32, 0.01]), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let start = random.vector(len);
        let gradients: Vec<Vec<f64>> = (0..4).map(|_| random.vector(len)).collect();
        let (lr64, mu, wd) = (f64::from(lr), f64::from(momentum), f64::from(decay));
        let (mut w, mut v) = (start.clone(), vec![0.0; len]);
        for (t, g) in gradients.iter().enumerate() {
            for i in 0..len {
                let g = g[i] + wd * w[i];
                v[i] = if t == 0 { g } else { mu * v[i] + g };
                w[i] -= lr64 * v[i];
            }
        }
        for isa in Isa::available() {
            // The first step must not read the old momentum.
            let (mut found, mut velocity) = (single(&start), vec![f32::NAN; len]);
            for (t, g) in gradients.iter().enumerate() {
                let (w, v, g) = (&mut found[..], &mut velocity[..], &single(g)[..]);
                let step = SgdStep { w, v, g, lr, momentum, weight_decay: decay, first: t == 0 };
                elementwise::sgd_step(isa, step);
            }
            close(&double(&found), &w, "weights")?;
            if momentum > 0.0 {
                close(&double(&velocity), &v, "momentum")?;
            }
        }
    }

    #[test]
    fn adam(
        len in 1usize..500, lr in 0.001f32..0.1, betas in (0.5f32..0.95, 0.9f32..0.999),
        decay in prop::sample::select(vec![0.0f32, 0.01]), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let start = random.vector(len);
        let gradients: Vec<Vec<f64>> = (0..5).map(|_| random.vector(len)).collect();
        let (b1, b2, wd) = (f64::from(betas.0), f64::from(betas.1), f64::from(decay));
        let (mut w, mut m, mut v) = (start.clone(), vec![0.0; len], vec![0.0; len]);
        for (t, g) in gradients.iter().enumerate() {
            let t = t as i32 + 1;
            for i in 0..len {
                let g = g[i] + wd * w[i];
                m[i] = b1 * m[i] + (1.0 - b1) * g;
                v[i] = b2 * v[i] + (1.0 - b2) * g * g;
                let (m_hat, v_hat) = (m[i] / (1.0 - b1.powi(t)), v[i] / (1.0 - b2.powi(t)));
                w[i] -= f64::from(lr) * m_hat / (v_hat.sqrt() + 1e-8);
            }
        }
        for isa in Isa::available() {
            let (mut found, mut own_m, mut own_v) = (single(&start), vec![0.0; len], vec![0.0; len]);
            for (t, g) in gradients.iter().enumerate() {
                let (w, m, v, g) = (&mut found[..], &mut own_m[..], &mut own_v[..], &single(g)[..]);
                let step = AdamStep { w, m, v, g, lr, betas, eps: 1e-8, weight_decay: decay, t: t as i32 + 1 };
                elementwise::adam_step(isa, step);
            }
            close(&double(&found), &w, "weights")?;
            close(&double(&own_m), &m, "first moment")?;
            close(&double(&own_v), &v, "second moment")?;
        }
    }
}

#[test]
fn the_peak_is_a_number() {
    let peak = measure::peak(Isa::detect().name(), 0.02).unwrap();
    assert!(peak.gflops.is_finite() && peak.gflops > 0.0, "{} GFLOP/s", peak.gflops);
    assert!(measure::peak("nothing", 0.02).is_none());
}
