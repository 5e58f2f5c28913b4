//! The account of a run with noise: an upper bound on what all its rounds together reveal about one client.
//!
//! A round reveals the sum of n updates of norm at most C, plus Gaussian noise of standard deviation z * C. Its Rényi
//! differential privacy (RDP) is computed for many orders alpha, RDP adds up over rounds, and the order with the
//! smallest epsilon decides:
//!
//!   epsilon = rdp(alpha) + ln((alpha - 1) / alpha) - (ln delta + ln alpha) / (alpha - 1)
//!
//! (Balle, Barthe, Gaboardi, Hsu, Sato, "Hypothesis Testing Interpretations and Rényi Differential Privacy", AISTATS
//! 2020, arXiv:1905.09982, Theorem 21; Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
//! 2020, arXiv:2004.00010, Proposition 12.)
//!
//! There are two kinds of sampling, each with the neighbours that its theorem is about.
//!
//! [`Accountant::fixed_size`]: m of n clients without replacement, as [`sample_clients`](crate::sample_clients) draws
//! them; the data of one client are replaced by any others. That moves the sum by up to 2 C, so sigma = z / 2 is the
//! noise over the sensitivity. Wang, Balle, Kasiviswanathan, "Subsampled Rényi Differential Privacy and Analytical
//! Moments Accountant", AISTATS 2019, arXiv:1808.00087: (alpha - 1) rdp(alpha) <= ln(1 + sum_{j = 2..alpha} t_j),
//!
//!   t_j = (m / n)^j binomial(alpha, j) min(4 sqrt(B(a) B(b)), 2 exp(j (j - 1) / (2 sigma^2)))
//!
//! where a and b are j rounded down and up to an even number and B(l) = E[(p(x) / q(x) - 1)^l] over q, for Gaussians p
//! and q one sensitivity apart. Fractional orders are interpolated (Corollary 10). A sample is no worse than everyone, so
//! rdp(alpha) <= alpha / (2 sigma^2), too.
//!
//! [`Accountant::poisson`]: each client takes part with probability r, independently; one client is added or removed,
//! which moves the sum by up to C, so sigma = z. Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled
//! Gaussian Mechanism", 2019, arXiv:1908.10530: (alpha - 1) rdp(alpha) = ln E[(1 - r + r p(x) / q(x))^alpha] over q.
//! TensorFlow Privacy and Opacus assume this.
//!
//! Expectations are integrals of positive analytic functions that vanish at both ends, for which the trapezoidal rule
//! converges faster than any power of its step. No series is truncated and nothing large cancels.

use std::f64::consts::{LN_2, PI};

use libm::{exp, expm1, log, log1p};

/// The Rényi differential privacy of one round, by order.
#[derive(Clone, Debug)]
pub struct Accountant {
    rounds: Vec<(f64, f64)>,
}

/// The largest l for which B(l) is computed; beyond it, the other bound is used.
const EXACT: usize = 256;
/// The largest number of points of an integral. Only tiny noise would need more.
const POINTS: f64 = 1e5;
/// Standard deviations beyond the outermost peak of an integrand.
const TAIL: f64 = 12.0;
const STEP: f64 = 0.1;

/// The orders of TensorFlow Privacy: 1.1 to 10.9, 11 to 63, and four large ones.
fn orders() -> impl Iterator<Item = f64> {
    let fractions = (11..110).map(|tenths| f64::from(tenths) / 10.0);
    fractions.chain((11..64).map(f64::from)).chain([128.0, 256.0, 512.0, 1024.0])
}

impl Accountant {
    /// Rounds with `chosen` of `of` clients, drawn without replacement, and noise of `noise` times the norm of an update.
    pub fn fixed_size(noise: f64, chosen: usize, of: usize) -> Self {
        let sigma = noise / 2.0;
        let rate = chosen as f64 / of.max(1) as f64;
        let all = |order: f64| order / (2.0 * sigma * sigma);
        if chosen >= of {
            return Self { rounds: orders().map(|order| (order, all(order))).collect() };
        }
        let moments: Vec<f64> = (1..=EXACT / 2).map(|half| log_moment(sigma, 2 * half)).collect();
        let sampled = |order: f64| {
            let below = order.floor();
            let [at, above] = [below, below + 1.0].map(|order| log_fixed_size(sigma, rate, order as usize, &moments));
            let share = order - below;
            let log = if share == 0.0 { at } else { (1.0 - share) * at + share * above };
            (log / (order - 1.0)).min(all(order))
        };
        Self { rounds: orders().map(|order| (order, sampled(order))).collect() }
    }

    /// Rounds in which each client takes part with probability `rate`, and noise of `noise` times the norm of an update.
    pub fn poisson(noise: f64, rate: f64) -> Self {
        let all = |order: f64| order / (2.0 * noise * noise);
        let sampled = |order: f64| log_poisson(noise, rate, order).map_or(all(order), |log| log / (order - 1.0));
        let one = |order: f64| (order, if rate < 1.0 { sampled(order).min(all(order)) } else { all(order) });
        Self { rounds: orders().map(one).collect() }
    }

    /// Epsilon at this delta after some rounds.
    pub fn epsilon(&self, rounds: usize, delta: f64) -> f64 {
        let of_order = |(order, rdp): &(f64, f64)| {
            let rdp = rdp * rounds as f64;
            // The two outcomes then differ by less than delta in total variation.
            if -expm1(-rdp) < delta * delta {
                return 0.0;
            }
            rdp + log1p(-1.0 / order) - (log(delta) + log(*order)) / (order - 1.0)
        };
        self.rounds.iter().map(of_order).fold(f64::INFINITY, f64::min).max(0.0)
    }

    /// The orders, and the Rényi differential privacy of one round at each.
    pub fn rdp(&self) -> &[(f64, f64)] {
        &self.rounds
    }
}

/// (alpha - 1) times the bound on rdp(alpha), for a whole order.
fn log_fixed_size(sigma: f64, rate: f64, order: usize, moments: &[f64]) -> f64 {
    let plain = |j: usize| (j * (j - 1)) as f64 / (2.0 * sigma * sigma);
    let even = |l: usize| moments.get((l / 2).wrapping_sub(1)).copied().unwrap_or(f64::INFINITY);
    let (mut sum, mut choose) = (f64::NEG_INFINITY, log(order as f64));
    for j in 2..=order {
        choose += log((order + 1 - j) as f64 / j as f64);
        let term = (2.0 * LN_2 + (even(j) + even(j + 1)) / 2.0).min(LN_2 + plain(j));
        sum = log_add(sum, choose + j as f64 * log(rate) + term);
    }
    log_add(0.0, sum)
}

/// ln B(l) for an even l, or infinity where the other bound is the smaller one anyway: there, p(x) / q(x) is so large where
/// it matters that subtracting 1 changes nothing.
fn log_moment(sigma: f64, l: usize) -> f64 {
    let power = l as f64;
    if power > 10.0 * sigma * sigma {
        return f64::INFINITY;
    }
    let (low, high) = (-power.sqrt() - TAIL, power / sigma + power.sqrt() + 1.0 / sigma + TAIL);
    log_mean_exp(low, high, STEP, |x| power * log(expm1((x - 0.5 / sigma) / sigma).abs()))
}

/// (alpha - 1) times rdp(alpha) with Poisson sampling; nothing if the integral is too long.
fn log_poisson(sigma: f64, rate: f64, order: f64) -> Option<f64> {
    // The integrand is analytic only within pi * sigma of the real line.
    let step = STEP.min(sigma / 4.0);
    let high = order / sigma + TAIL;
    if (high + TAIL) / step > POINTS {
        return None;
    }
    // The mean of (1 + u)^alpha - 1 - alpha u, u = r (p / q - 1): u has mean 0, and without it, nothing is lost where the
    // mean is close to 1.
    let excess = log_mean_exp(-TAIL, high, step, |x| {
        let t = (x - 0.5 / sigma) / sigma;
        // ln(1 + u)
        let l = if t > 30.0 { log(rate) + t + log1p((1.0 - rate) / rate * exp(-t)) } else { log1p(rate * expm1(t)) };
        if order * l < 1.0 {
            return log((expm1(order * l) - order * expm1(l)).max(0.0));
        }
        let rest = 1.0 - exp(-order * l) - order * (exp((1.0 - order) * l) - exp(-order * l));
        order * l + log(rest.max(0.0))
    });
    Some(log_add(0.0, excess))
}

/// ln E[exp(f(x))] for a standard normal x, where f(x) - x^2 / 2 is small outside of `low` and `high`.
fn log_mean_exp(low: f64, high: f64, step: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut top, mut sum) = (f64::MIN, 0.0);
    for k in 0..=((high - low) / step) as usize {
        let x = low + step * k as f64;
        let value = f(x) - x * x / 2.0;
        if value > top {
            sum = sum * exp(top - value) + 1.0;
            top = value;
        } else {
            sum += exp(value - top);
        }
    }
    top + log(sum * step / (2.0 * PI).sqrt())
}

/// ln(exp(a) + exp(b))
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = (a.min(b), a.max(b));
    // Beside an infinite term, the other does not matter; their difference may not be a number.
    if low == f64::NEG_INFINITY || high == f64::INFINITY { high } else { high + log1p(exp(low - high)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() <= share, "{found} instead of {expected}");
    }

    #[test]
    fn noise_that_is_next_to_nothing_hides_nothing() {
        for noise in [1e-5, 1e-100, 1e-153, 1e-160, 1e-300, f64::MIN_POSITIVE] {
            assert!(Accountant::fixed_size(noise, 2, 5).epsilon(2, 0.01) > 1e9, "{noise}");
            assert!(Accountant::fixed_size(noise, 5, 5).epsilon(2, 0.01) > 1e9, "{noise}");
            assert!(Accountant::poisson(noise, 0.4).epsilon(2, 0.01) > 1e9, "{noise}");
        }
    }

    #[test]
    fn published_values_with_poisson_sampling() {
        // Tests of TensorFlow Privacy (compute_dp_sgd_privacy_test.py): samples, batch, noise, epochs, delta, epsilon.
        let of = |n: f64, batch: f64, noise, epochs: f64, delta| {
            Accountant::poisson(noise, batch / n).epsilon((epochs * n / batch).ceil() as usize, delta)
        };
        close(of(60_000.0, 150.0, 1.3, 15.0, 1e-5), 0.7242234026109595, 1e-9);
        close(of(100_000.0, 100.0, 1.0, 30.0, 1e-7), 1.4154988495444845, 1e-9);
        // Opacus 1.6.0, with the same orders: noise, rate, rounds, delta, epsilon.
        for (noise, rate, rounds, delta, expected) in [
            (3.0, 0.2, 20, 1e-4, 1.2143588652453485),
            (0.6, 0.5, 100, 1e-5, 104.01923980367934),
            (4.0, 0.05, 10_000, 1e-5, 6.26445604343163),
            (1.1, 256.0 / 60_000.0, 14_062, 1e-5, 2.5965558689607486),
        ] {
            close(Accountant::poisson(noise, rate).epsilon(rounds, delta), expected, 1e-8);
        }
        // Tutorials of TensorFlow Privacy on MNIST, by the older conversion rdp + ln(1 / delta) / (alpha - 1): noise, batch, epochs, epsilon.
        for (noise, batch, epochs, expected) in
            [(1.3, 250.0, 15.0, 1.18), (1.12, 256.0, 60.0, 2.92), (0.6, 256.0, 30.0, 9.74), (1.2, 256.0, 10.0, 1.20)]
        {
            let rounds = epochs * (60_000.0_f64 / batch).floor();
            let accountant = Accountant::poisson(noise, batch / 60_000.0);
            let older = accountant.rdp().iter().map(|(order, rdp)| rounds * rdp - log(1e-5) / (order - 1.0));
            let found = older.fold(f64::INFINITY, f64::min);
            assert!((found - expected).abs() < 0.01, "{noise} {batch} {epochs}: {found} instead of {expected}");
        }
    }

    #[test]
    fn moments_and_sums_by_hand() {
        // B(2) = exp(1 / sigma^2) - 1; B(4) is an alternating sum of exp(i (i - 1) / (2 sigma^2)).
        for sigma in [1.0, 2.5, 7.0] {
            let square = sigma * sigma;
            close(log_moment(sigma, 2), log(expm1(1.0 / square)), 1e-12);
            let by_hand = 1.0 - 4.0 + 6.0 * exp(1.0 / square) - 4.0 * exp(3.0 / square) + exp(6.0 / square);
            close(exp(log_moment(sigma, 4)), by_hand, 1e-9);
        }
        // A whole order of the Poisson integral is a sum of binomial terms.
        for (sigma, rate, order) in [(1.3, 0.01, 3), (0.8, 0.3, 5), (4.0, 0.9, 12)] {
            let mut sum = 0.0;
            let mut choose = 1.0;
            for k in 0..=order {
                let power = |base: f64, n: i32| base.powi(n);
                let weight = choose * power(rate, k) * power(1.0 - rate, order - k);
                sum += weight * exp(f64::from(k * (k - 1)) / (2.0 * sigma * sigma));
                choose *= f64::from(order - k) / f64::from(k + 1);
            }
            close(log_poisson(sigma, rate, order.into()).unwrap(), log(sum), 1e-11);
        }
    }

    #[test]
    fn everyone_is_the_plain_gaussian() {
        // Ten rounds with sensitivity 2 C: rdp(alpha) = 10 alpha / (2 (z / 2)^2) = 5 alpha for z = 2; the best alpha by hand.
        let found = Accountant::fixed_size(2.0, 7, 7).epsilon(10, 1e-5);
        let at = |alpha: f64| 5.0 * alpha + log1p(-1.0 / alpha) - (log(1e-5) + log(alpha)) / (alpha - 1.0);
        assert!((0..1_000).all(|k| found <= at(1.1 + 0.1 * f64::from(k)) + 1e-9));
        close(found, at(2.5), 1e-9);
        // Adding or removing a client moves the sum half as far as replacing one.
        close(Accountant::poisson(1.0, 1.0).epsilon(10, 1e-5), found, 1e-12);
    }

    #[test]
    fn less_sampling_fewer_rounds_and_more_noise_cost_less() {
        let of = |noise, chosen, rounds| Accountant::fixed_size(noise, chosen, 1_000).epsilon(rounds, 1e-5);
        let base = of(4.0, 20, 50);
        assert!(base > 0.0);
        for other in [of(4.0, 10, 50), of(4.0, 20, 25), of(8.0, 20, 50)] {
            assert!(other < base, "{other} {base}");
        }
        assert_eq!(of(4.0, 20, 0), 0.0);
        // Where the theorem says less than nothing, the sample is still no worse than everyone.
        for noise in [0.5, 1.0, 5.0, 30.0] {
            assert!(of(noise, 999, 10) <= of(noise, 1_000, 10));
        }
    }

    #[test]
    fn any_noise_has_an_account() {
        for noise in [1e-300, 1e-9, 0.01, 0.3, 100.0, 1e9, 1e300] {
            for (chosen, of) in [(1, 1), (1, 2), (10, 20), (1, usize::MAX)] {
                let found = Accountant::fixed_size(noise, chosen, of).epsilon(1_000_000, 1e-5);
                assert!(found >= 0.0, "{noise} {chosen} {of} {found}");
            }
            assert!(Accountant::poisson(noise, 1e-6).epsilon(1_000, 1e-5) >= 0.0);
        }
    }
}
