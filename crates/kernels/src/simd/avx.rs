//! Vectors of AVX2, which AVX-512 machines use too; only pairs of them differ.

use std::arch::x86_64::*;

use super::{Arithmetic, Kernel, LANES, Simd};

/// Proof that the machine has AVX2 and FMA: only [`run_avx2`] makes one.
#[derive(Clone, Copy)]
struct Avx2(());

/// Proof that the machine has AVX-512 too: only [`run_avx512`] makes one.
#[derive(Clone, Copy)]
struct Avx512(());

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
}

pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// # Safety
/// Only where [`has_avx2`].
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
pub(super) unsafe fn run_avx2(kernel: impl Kernel) {
    kernel.run(Avx2(()));
}

/// # Safety
/// Only where [`has_avx512`].
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
pub(super) unsafe fn run_avx512(kernel: impl Kernel) {
    kernel.run(Avx512(()));
}

/// Methods that are one instruction.
macro_rules! instructions {
    ($($name:ident($($x:ident),+) = $value:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($x: __m256),+) -> __m256 {
            // SAFETY: a value of this type is proof that the machine has the instruction.
            unsafe { $value }
        }
    )+};
}

/// The operations that both have; `own` are those that differ.
macro_rules! vectors {
    ($type:ident { $($own:item)+ }) => {
        impl Arithmetic for $type {
            const PLAIN: bool = false;

            type Vector = __m256;

            instructions! {
                add(a, b) = _mm256_add_ps(a, b);
                sub(a, b) = _mm256_sub_ps(a, b);
                mul(a, b) = _mm256_mul_ps(a, b);
                fma(a, b, c) = _mm256_fmadd_ps(a, b, c);
            }

            #[inline(always)]
            fn splat(self, x: f32) -> __m256 {
                // SAFETY: as for the other instructions.
                unsafe { _mm256_set1_ps(x) }
            }

            relu_by_masks!();
        }

        impl Simd for $type {
            $($own)+

            /// All bits of a lane are set, or none.
            type Mask = __m256;

            instructions! {
                div(a, b) = _mm256_div_ps(a, b);
                sqrt(a) = _mm256_sqrt_ps(a);
                less(a, b) = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
                equal(a, b) = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
                or(a, b) = _mm256_or_ps(a, b);
                not(a) = _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
                select(mask, a, b) = _mm256_blendv_ps(b, a, mask);
            }

            #[inline(always)]
            fn sums(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
                // SAFETY: as for the other instructions.
                unsafe {
                    // Lanes 0 + 4, 1 + 5, 2 + 6 and 3 + 7 of two vectors each, then the first and the last two of those.
                    let halves = |a, b| _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
                    let (ab, cd) = (halves(a, b), halves(c, d));
                    let two = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0xee>(ab, cd));
                    let one = _mm256_hadd_ps(two, two);
                    let all = _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps::<1>(one));
                    std::mem::transmute(all)
                }
            }

            #[inline(always)]
            fn sum(self, a: __m256) -> f32 {
                // SAFETY: as for the other instructions.
                unsafe {
                    let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
                }
            }

            #[inline(always)]
            unsafe fn join(self, low: *const f32, high: *const f32) -> __m256 {
                // SAFETY: by the contract, and as for the other instructions.
                unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high)) }
            }

            #[inline(always)]
            fn split(self, a: __m256) -> [__m256; 2] {
                // SAFETY: as for the other instructions.
                unsafe { [_mm256_zextps128_ps256(_mm256_castps256_ps128(a)), _mm256_permute2f128_ps::<0x81>(a, a)] }
            }

            #[inline(always)]
            fn prefetch(self, p: *const f32) {
                // SAFETY: a hint never faults.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
            }

            #[inline(always)]
            fn load_part(self, from: &[f32]) -> __m256 {
                // SAFETY: only the lanes of the slice are read.
                unsafe { _mm256_maskload_ps(from.as_ptr(), first(from.len())) }
            }

            #[inline(always)]
            fn store_part(self, to: &mut [f32], a: __m256) {
                // SAFETY: only the lanes of the slice are written.
                unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), first(to.len()), a) }
            }
        }
    };
}

vectors!(Avx2 {
    const REGISTERS: usize = 16;
    const PAIRS: bool = false;

    type Pair = [__m256; 2];

    pairs_of_two!();
});

/// Methods on pairs that are one instruction.
macro_rules! wide_instructions {
    ($($name:ident($($x:ident),+) = $value:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($x: __m512),+) -> __m512 {
            // SAFETY: a value of this type is proof that the machine has the instruction.
            unsafe { $value }
        }
    )+};
}

vectors!(Avx512 {
    const REGISTERS: usize = 32;
    const PAIRS: bool = true;

    type Pair = __m512;

    wide_instructions! {
        add_pair(a, b) = _mm512_add_ps(a, b);
        sub_pair(a, b) = _mm512_sub_ps(a, b);
        mul_pair(a, b) = _mm512_mul_ps(a, b);
        fma_pair(a, b, c) = _mm512_fmadd_ps(a, b, c);
        relu_pair(a) = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(a, _mm512_setzero_ps()), a);
        masked_pair(a, b) = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_setzero_ps(), b), a);
    }

    #[inline(always)]
    fn splat_pair(self, x: f32) -> __m512 {
        // SAFETY: as for the other instructions.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn couple(self, first: __m256, second: __m256) -> __m512 {
        // SAFETY: as for the other instructions.
        unsafe { _mm512_insertf32x8::<1>(_mm512_castps256_ps512(first), second) }
    }

    #[inline(always)]
    fn twice(self, a: __m256) -> __m512 {
        // SAFETY: as for the other instructions.
        unsafe { _mm512_broadcast_f32x8(a) }
    }

    #[inline(always)]
    fn parted(self, a: __m512) -> [__m256; 2] {
        // SAFETY: as for the other instructions.
        unsafe { [_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)] }
    }
});

/// A mask of the first `count` lanes.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn first(count: usize) -> __m256i {
    static STEP: [i32; 2 * LANES] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    let from = &STEP[LANES - count..][..LANES];
    // SAFETY: the slice is one vector long.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}
