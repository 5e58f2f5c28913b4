//! Vectors in plain Rust.

use super::{Arithmetic, HALF, LANES, Simd};

#[derive(Clone, Copy)]
pub(super) struct Plain;

type Lanes = [f32; LANES];

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Lanes {
    std::array::from_fn(f)
}

impl Arithmetic for Plain {
    const PLAIN: bool = true;

    type Vector = Lanes;

    #[inline(always)]
    fn splat(self, x: f32) -> Lanes {
        [x; LANES]
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn fma(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            each(|i| a[i].mul_add(b[i], c[i]))
        } else {
            let mut sum = c;
            fuse(&a, &b, &mut sum);
            sum
        }
    }

    relu_by_masks!();
}

impl Simd for Plain {
    const REGISTERS: usize = 16;
    const PAIRS: bool = true;

    type Pair = [Lanes; 2];
    type Mask = [bool; LANES];

    #[inline(always)]
    fn div(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn sqrt(self, a: Lanes) -> Lanes {
        a.map(f32::sqrt)
    }

    pairs_of_two!();

    #[inline(always)]
    fn sums(self, all: [Lanes; 4]) -> [f32; 4] {
        all.map(|a| self.sum(a))
    }

    #[inline(always)]
    fn sum(self, a: Lanes) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }

    #[inline(always)]
    fn less(self, a: Lanes, b: Lanes) -> Self::Mask {
        std::array::from_fn(|i| a[i] < b[i])
    }

    #[inline(always)]
    fn equal(self, a: Lanes, b: Lanes) -> Self::Mask {
        std::array::from_fn(|i| a[i] == b[i])
    }

    #[inline(always)]
    fn or(self, a: Self::Mask, b: Self::Mask) -> Self::Mask {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn not(self, a: Self::Mask) -> Self::Mask {
        a.map(|a| !a)
    }

    #[inline(always)]
    fn select(self, mask: Self::Mask, a: Lanes, b: Lanes) -> Lanes {
        each(|i| if mask[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn join(self, low: *const f32, high: *const f32) -> Lanes {
        // SAFETY: by the contract.
        let (low, high) = unsafe { (low.cast::<[f32; HALF]>().read(), high.cast::<[f32; HALF]>().read()) };
        each(|i| if i < HALF { low[i] } else { high[i - HALF] })
    }

    #[inline(always)]
    fn split(self, a: Lanes) -> [Lanes; 2] {
        [each(|i| if i < HALF { a[i] } else { 0.0 }), each(|i| if i < HALF { a[i + HALF] } else { 0.0 })]
    }

    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> Lanes {
        let mut all = [0.0; LANES];
        all[..from.len()].copy_from_slice(from);
        all
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], a: Lanes) {
        to.copy_from_slice(&a[..to.len()]);
    }
}

/// c = a * b + c, rounded once, for processors without such an instruction: a function of its own, because it is long.
///
/// The product is exact in f64. Rounding the sum twice, to f64 and to f32, is the same as rounding it once, unless the
/// first rounding lands on a tie of the second: halfway between two neighbours, which are further apart below the normal
/// numbers. Those are rare, and go the long way.
#[inline(never)]
fn fuse(a: &Lanes, b: &Lanes, c: &mut Lanes) {
    /// The bits of an f64 that an f32 drops, and their value in a tie.
    const DROPPED: u64 = (1 << 29) - 1;
    const TIE: u64 = 1 << 28;
    let sums: [f64; LANES] = std::array::from_fn(|i| f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i]));
    let mut doubtful = false;
    for sum in sums {
        let small = sum.abs() < f64::from(f32::MIN_POSITIVE) && sum != 0.0;
        doubtful |= (sum.to_bits() & DROPPED == TIE) | small;
    }
    if doubtful {
        for i in 0..LANES {
            c[i] = fused(a[i], b[i], c[i]);
        }
    } else {
        *c = sums.map(|sum| sum as f32);
    }
}

/// a * b + c, rounded once, for any numbers. The sum is rounded to odd in f64: inexact sums get an odd last bit, which
/// keeps the rounding to f32 from mistaking them for a tie (Boldo and Melquiond 2008).
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // What the sum lost (Knuth's two-sum). NaN if the sum is infinite or NaN, which then stays.
    let kept = sum - product;
    let lost = (product - (sum - kept)) + (c - kept);
    if lost.abs() > 0.0 {
        let too_far = (lost > 0.0) != (sum > 0.0);
        f64::from_bits((sum.to_bits() - u64::from(too_far)) | 1) as f32
    } else {
        sum as f32
    }
}
