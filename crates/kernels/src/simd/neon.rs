//! Vectors of NEON: two registers each.

use std::arch::aarch64::*;

use super::{Arithmetic, Kernel, LANES, Simd};

/// Proof that the machine has NEON: only [`run`] makes one.
#[derive(Clone, Copy)]
struct Neon(());

pub(super) fn is_present() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

/// # Safety
/// Only where [`is_present`].
#[target_feature(enable = "neon")]
pub(super) unsafe fn run(kernel: impl Kernel) {
    kernel.run(Neon(()));
}

type Two = [float32x4_t; 2];

/// Methods that are one instruction for each half.
macro_rules! instructions {
    ($($name:ident($($x:ident: $type:ty),+) -> $result:ty = $value:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($x: $type),+) -> $result {
            // SAFETY: a value of this type is proof that the machine has the instruction.
            let half = |i: usize| unsafe {
                $(let $x = $x[i];)+
                $value
            };
            [half(0), half(1)]
        }
    )+};
}

impl Arithmetic for Neon {
    const PLAIN: bool = false;

    type Vector = Two;

    instructions! {
        add(a: Two, b: Two) -> Two = vaddq_f32(a, b);
        sub(a: Two, b: Two) -> Two = vsubq_f32(a, b);
        mul(a: Two, b: Two) -> Two = vmulq_f32(a, b);
        fma(a: Two, b: Two, c: Two) -> Two = vfmaq_f32(c, a, b);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Two {
        // SAFETY: as for the other instructions.
        unsafe { [vdupq_n_f32(x); 2] }
    }

    relu_by_masks!();
}

impl Simd for Neon {
    const REGISTERS: usize = 16;
    const PAIRS: bool = false;

    type Pair = [Two; 2];
    /// All bits of a lane are set, or none.
    type Mask = [uint32x4_t; 2];

    instructions! {
        div(a: Two, b: Two) -> Two = vdivq_f32(a, b);
        sqrt(a: Two) -> Two = vsqrtq_f32(a);
        less(a: Two, b: Two) -> Self::Mask = vcltq_f32(a, b);
        equal(a: Two, b: Two) -> Self::Mask = vceqq_f32(a, b);
        or(a: Self::Mask, b: Self::Mask) -> Self::Mask = vorrq_u32(a, b);
        not(a: Self::Mask) -> Self::Mask = vmvnq_u32(a);
        select(mask: Self::Mask, a: Two, b: Two) -> Two = vbslq_f32(mask, a, b);
    }

    pairs_of_two!();

    #[inline(always)]
    fn sums(self, all: [Two; 4]) -> [f32; 4] {
        all.map(|a| self.sum(a))
    }

    #[inline(always)]
    fn sum(self, [low, high]: Two) -> f32 {
        // SAFETY: as for the other instructions.
        unsafe {
            let four = vaddq_f32(low, high);
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }

    #[inline(always)]
    unsafe fn join(self, low: *const f32, high: *const f32) -> Two {
        // SAFETY: by the contract, and as for the other instructions.
        unsafe { [vld1q_f32(low), vld1q_f32(high)] }
    }

    #[inline(always)]
    fn split(self, [low, high]: Two) -> [Two; 2] {
        // SAFETY: as for the other instructions.
        let zero = unsafe { vdupq_n_f32(0.0) };
        [[low, zero], [high, zero]]
    }

    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> Two {
        let mut all = [0.0; LANES];
        all[..from.len()].copy_from_slice(from);
        // SAFETY: the array is one vector long.
        unsafe { [vld1q_f32(all.as_ptr()), vld1q_f32(all.as_ptr().add(LANES / 2))] }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], [low, high]: Two) {
        let mut all = [0.0; LANES];
        // SAFETY: the array is one vector long.
        unsafe {
            vst1q_f32(all.as_mut_ptr(), low);
            vst1q_f32(all.as_mut_ptr().add(LANES / 2), high);
        }
        to.copy_from_slice(&all[..to.len()]);
    }
}
