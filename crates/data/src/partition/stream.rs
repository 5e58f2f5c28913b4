//! The random stream of partitions.
//!
//! Logarithm and exponential are implemented here: those of the system's maths library may differ in the last bit, and
//! one bit can move a sample to another client.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::shuffle;

/// Separates this stream from every other one with the same seed.
const DOMAIN: &[u8; 24] = b"fedelity partition v1\0\0\0";

pub(super) struct Stream {
    rng: ChaCha8Rng,
    /// The second value of the last pair of normal values.
    spare: Option<f64>,
}

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..].copy_from_slice(DOMAIN);
        Self { rng: ChaCha8Rng::from_seed(key), spare: None }
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        shuffle::below(&mut self.rng, bound)
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        shuffle::shuffle(&mut self.rng, items);
    }

    /// Uniform in (0, 1], in steps of 2^-53.
    fn unit(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) + 1) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Standard normal, by Marsaglia's polar method.
    fn normal(&mut self) -> f64 {
        if let Some(value) = self.spare.take() {
            return value;
        }
        loop {
            let x = 2.0 * self.unit() - 1.0;
            let y = 2.0 * self.unit() - 1.0;
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * ln(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// The logarithm of a Gamma(shape) value, up to a constant depending on the shape, which is at least 1. Marsaglia
    /// and Tsang, 2000.
    fn ln_gamma_value(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            let u = self.unit();
            let square = x * x;
            if u < 1.0 - 0.0331 * square * square || ln(u) < 0.5 * square + d * (1.0 - v + ln(v)) {
                return ln(v);
            }
        }
    }

    /// Fills `weights` with a symmetric Dirichlet draw, up to a common factor. The largest is 1, so the sum is never 0,
    /// however small alpha is.
    pub(super) fn dirichlet(&mut self, alpha: f64, weights: &mut [f64]) {
        // Below 1: G(alpha) = G(alpha + 1) * U^(1 / alpha). Logarithms are multiplied by alpha, so that they stay
        // finite.
        let small = alpha < 1.0;
        let mut largest = f64::NEG_INFINITY;
        for weight in weights.iter_mut() {
            *weight = if small {
                alpha * self.ln_gamma_value(alpha + 1.0) + ln(self.unit())
            } else {
                self.ln_gamma_value(alpha)
            };
            largest = largest.max(*weight);
        }
        for weight in weights.iter_mut() {
            let below = *weight - largest;
            *weight = exp(if small { below / alpha } else { below });
        }
    }
}

/// Natural logarithm of a positive finite value; smaller values count as the smallest normal one.
pub(super) fn ln(x: f64) -> f64 {
    const FACTORS: [f64; 10] = {
        let mut factors = [1.0; 10];
        let mut k = 1;
        while k < 10 {
            factors[k] = 1.0 / (2 * k + 1) as f64;
            k += 1;
        }
        factors
    };
    let bits = x.max(f64::MIN_POSITIVE).to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh s, and |s| is at most 0.172.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for factor in FACTORS.iter().rev() {
        sum = sum * square + factor;
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * sum
}

/// Exponential of a value that is not positive; 0 where the result would be below 2^-1021.
fn exp(x: f64) -> f64 {
    const FACTORS: [f64; 14] = {
        let mut factors = [1.0; 14];
        let mut k = 1;
        while k < 14 {
            factors[k] = factors[k - 1] / k as f64;
            k += 1;
        }
        factors
    };
    if x.is_nan() || x < -707.0 {
        return 0.0;
    }
    let x = x.min(0.0);
    let n = (x * std::f64::consts::LOG2_E - 0.5) as i64;
    let r = x - n as f64 * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for factor in FACTORS.iter().rev() {
        sum = sum * r + factor;
    }
    sum * f64::from_bits(((n + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_the_library() {
        for i in 1..20_000 {
            let x = f64::from(i) * f64::from(i) * 1e-7;
            assert!((ln(x) - x.ln()).abs() < 1e-14 * (1.0 + x.ln().abs()), "{x}");
            let y = -f64::from(i) * 0.0353;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-12, "{y}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert!(ln(0.0).is_finite());
    }

    #[test]
    fn below_is_uniform() {
        let mut stream = Stream::new(1);
        let mut counts = [0; 7];
        for _ in 0..70_000 {
            counts[stream.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)));
        assert_eq!(stream.below(1), 0);
        assert_eq!(stream.below(0), 0);
    }

    /// Mean 1/n and variance (1/n)(1 - 1/n) / (n alpha + 1) of one component.
    #[test]
    fn dirichlet_has_the_right_moments() {
        let mut stream = Stream::new(2);
        for alpha in [0.05, 0.3, 1.0, 4.0, 100.0] {
            let (mut sum, mut squares) = (0.0, 0.0);
            let rounds = 40_000;
            let mut weights = [0.0; 5];
            for _ in 0..rounds {
                stream.dirichlet(alpha, &mut weights);
                let part = weights[0] / weights.iter().sum::<f64>();
                sum += part;
                squares += part * part;
            }
            let mean = sum / f64::from(rounds);
            let variance = squares / f64::from(rounds) - mean * mean;
            let expected = 0.2 * 0.8 / (5.0 * alpha + 1.0);
            assert!((mean - 0.2).abs() < 0.01, "{alpha}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "{alpha}: {variance}");
        }
    }

    #[test]
    fn extreme_alphas_stay_finite() {
        let mut stream = Stream::new(3);
        for alpha in [f64::MIN_POSITIVE, 5e-324, 1e-12, 1e12, f64::MAX] {
            let mut weights = [0.0; 8];
            stream.dirichlet(alpha, &mut weights);
            assert!(weights.iter().all(|w| (0.0..=1.0).contains(w)), "{alpha}");
            assert!(weights.contains(&1.0), "{alpha}");
        }
    }

    /// The stream is part of the file format: changing it gives other partitions for old seeds.
    #[test]
    fn stream_is_fixed() {
        let mut stream = Stream::new(42);
        let mut items: Vec<u32> = (0..8).collect();
        stream.shuffle(&mut items);
        assert_eq!(items, [5, 0, 4, 7, 6, 1, 3, 2]);
        let mut weights = [0.0; 3];
        stream.dirichlet(0.5, &mut weights);
        assert_eq!(weights.map(f64::to_bits), [0x3ff0000000000000, 0x3fa9caf6e10252b6, 0x3fef7c4b8b9c4a51]);
    }
}
