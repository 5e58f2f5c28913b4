//! Functions of one number: exp, erf, tanh and the logistic function.
//!
//! Branchless arithmetic, so that loops vectorise, and nothing fused, so that every instruction set gives the same
//! bits. An element's result does not depend on its position in a slice.

/// Adding and subtracting this rounds to an integer; after the addition, the low bits of the sum hold that integer.
const ROUND: f32 = 12_582_912.0;

/// e^x, to two units in the last place. Below -87.3, where results are no longer normal numbers, it is 0; above 88.3 it is
/// infinite. NaN stays NaN.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    const LOW: f32 = -87.3;
    const HIGH: f32 = 88.3;
    let inside = if x < LOW { LOW } else { x };
    let inside = if inside > HIGH { HIGH } else { inside };
    let shifted = inside * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // ln 2 in two parts, the first one short enough for exact products.
    let rest = (inside - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    let mut sum = 1.987_569_2e-4;
    for term in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        sum = sum * rest + term;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    let value = (sum * rest * rest + rest + 1.0) * power;
    let value = if x < LOW { 0.0 } else { value };
    if x > HIGH { f32::INFINITY } else { value }
}

/// The error function, accurate to 4e-7: a quotient of polynomials for |x| up to 4, and 1 beyond.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let x = if x < -4.0 { -4.0 } else { x };
    let x = if x > 4.0 { 4.0 } else { x };
    let square = x * x;
    let mut above = -2.726_142_3e-10;
    for term in [2.770_681_5e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906e-4, -2.954_6e-3, -1.609_603_3e-2] {
        above = above * square + term;
    }
    let mut below = -1.456_607_2e-5;
    for term in [-2.133_740_5e-4, -1.682_827e-3, -7.373_329_3e-3, -1.426_473_9e-2] {
        below = below * square + term;
    }
    x * above / below
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent: a polynomial near 0, where a quotient of exponentials would lose digits.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let mut sum = -5.704_988_6e-3;
    for term in [2.063_909e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8] {
        sum = sum * square + term;
    }
    let near = sum * square * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
    if x.abs() < 0.625 { near } else { far }
}

#[cfg(test)]
#[path = "../tests/it/reference/erf.rs"]
mod exact;

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(limit: f32) -> impl Iterator<Item = f32> {
        (-20_000..=20_000).map(move |i| i as f32 / 20_000.0 * limit)
    }

    #[test]
    fn close_to_the_exact_functions() {
        for x in grid(86.0) {
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 2.4e-7 * exact, "exp({x}) is {}, not {exact}", exp(x));
        }
        for x in grid(20.0) {
            let (t, s) = (f64::from(x).tanh(), 1.0 / (1.0 + (-f64::from(x)).exp()));
            assert!((f64::from(tanh(x)) - t).abs() <= 3e-7 * t.abs(), "tanh({x}) is {}, not {t}", tanh(x));
            assert!((f64::from(logistic(x)) - s).abs() <= 3e-7 * s, "logistic({x}) is {}, not {s}", logistic(x));
        }
        for x in grid(6.0).step_by(20) {
            let exact = exact::erf(f64::from(x));
            assert!((f64::from(erf(x)) - exact).abs() <= 4e-7, "erf({x}) is {}, not {exact}", erf(x));
        }
    }

    #[test]
    fn the_ends_and_nan() {
        assert_eq!((exp(0.0), tanh(0.0), erf(0.0), logistic(0.0)), (1.0, 0.0, 0.0, 0.5));
        assert_eq!((tanh(100.0), tanh(-100.0), tanh(f32::INFINITY)), (1.0, -1.0, 1.0));
        assert_eq!(
            (exp(f32::NEG_INFINITY), exp(-88.0), exp(89.0), exp(f32::INFINITY)),
            (0.0, 0.0, f32::INFINITY, f32::INFINITY)
        );
        assert_eq!((logistic(-100.0), logistic(100.0)), (0.0, 1.0));
        assert!([exp(f32::NAN), tanh(f32::NAN), erf(f32::NAN), logistic(f32::NAN)].iter().all(|v| v.is_nan()));
    }
}
