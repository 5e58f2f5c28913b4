//! Weights into parts, and the sums of parts into the gradient of the weights.
#![allow(clippy::needless_range_loop, reason = "weights are indexed in registers")]

use pulp::Simd;

use super::super::pass::blocks;
use super::scheme::Scheme;
use super::{Winograd, with_scheme};
use crate::simd::Kernel;

/// This many weights are transformed side by side.
const WIDE: usize = 8;
type Wide = [f32; WIDE];

/// packed = G g G' of every pair of channels, in the order of the product: part, block of targets, tap, source, target
/// within the block.
pub(in crate::conv) struct Pack<'a> {
    pub(in crate::conv) patches: Winograd,
    pub(in crate::conv) packed: &'a mut [f32],
    pub(in crate::conv) w: &'a [f32],
    /// Weights from one source, and from one target, to the next.
    pub(in crate::conv) steps: (usize, usize),
    /// The kernel turned by half a circle, as the input gradient needs it.
    pub(in crate::conv) turned: bool,
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_scheme!(self.patches.form, self.pack(simd))
    }
}

impl Pack<'_> {
    #[inline(always)]
    fn pack<
        D: Scheme<A, B, C>,
        const A: usize,
        const B: usize,
        const C: usize,
        F: Scheme<P, M, K>,
        const P: usize,
        const M: usize,
        const K: usize,
        S: Simd,
    >(
        self,
        _: S,
    ) {
        let Self { patches: Winograd { sources, targets, .. }, packed, w, steps, turned } = self;
        let (taps, mut first) = (K / C, 0);
        for block in blocks(targets, 6) {
            for (tap, source) in (0..taps).flat_map(|tap| (0..sources).map(move |source| (tap, source))) {
                let mut half = [[[0.0; WIDE]; P]; C];
                for k in 0..C {
                    let mut g = [[0.0; WIDE]; K];
                    for target in 0..block {
                        let w = &w[source * steps.0 + (first + target) * steps.1..][..K * K];
                        for column in 0..K {
                            let at = (tap * C + k) * K + column;
                            g[column][target] = w[if turned { K * K - 1 - at } else { at }];
                        }
                    }
                    half[k] = apply(&F::WEIGHTS, &g);
                }
                for c in 0..P {
                    let column: [Wide; C] = std::array::from_fn(|k| half[k][c]);
                    for (r, values) in apply(&D::WEIGHTS, &column).into_iter().enumerate() {
                        let at = ((r * P + c) * targets + first) * taps * sources + (tap * sources + source) * block;
                        packed[at..at + block].copy_from_slice(&values[..block]);
                    }
                }
            }
            first += block;
        }
    }
}

/// d_w += G' s G for the sums `[part][out][tap][in]` of every weight.
pub(in crate::conv) struct Settle<'a> {
    pub(in crate::conv) patches: Winograd,
    pub(in crate::conv) d_w: &'a mut [f32],
    pub(in crate::conv) sums: &'a [f32],
}

impl Kernel for Settle<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_scheme!(self.patches.form, self.settle(simd))
    }
}

impl Settle<'_> {
    #[inline(always)]
    fn settle<
        D: Scheme<A, B, C>,
        const A: usize,
        const B: usize,
        const C: usize,
        F: Scheme<P, M, K>,
        const P: usize,
        const M: usize,
        const K: usize,
        S: Simd,
    >(
        self,
        _: S,
    ) {
        let Self { patches: Winograd { sources, targets, .. }, d_w, sums } = self;
        let taps = K / C;
        let d_w = d_w[..targets * sources * K * K].chunks_exact_mut(sources * K * K);
        for (target, d_w) in d_w.enumerate() {
            let chunks = d_w.chunks_mut(WIDE * K * K).enumerate();
            for (i, d_w) in chunks {
                for tap in 0..taps {
                    let first = (target * taps + tap) * sources + i * WIDE;
                    let count = d_w.len() / (K * K);
                    let mut half = [[[0.0; WIDE]; K]; A];
                    for r in 0..A {
                        let mut s = [[0.0; WIDE]; P];
                        for c in 0..P {
                            let at = (r * P + c) * targets * taps * sources + first;
                            s[c][..count].copy_from_slice(&sums[at..at + count]);
                        }
                        half[r] = apply_transposed(&F::WEIGHTS, &s);
                    }
                    for c in 0..K {
                        let column: [Wide; A] = std::array::from_fn(|r| half[r][c]);
                        for (r, values) in apply_transposed(&D::WEIGHTS, &column).into_iter().enumerate() {
                            for (d_w, value) in d_w.chunks_exact_mut(K * K).zip(values) {
                                d_w[(tap * C + r) * K + c] += value;
                            }
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn apply<const I: usize, const J: usize>(matrix: &[[f32; J]; I], v: &[Wide; J]) -> [Wide; I] {
    let mut out = [[0.0; WIDE]; I];
    for i in 0..I {
        for j in 0..J {
            for lane in 0..WIDE {
                out[i][lane] += matrix[i][j] * v[j][lane];
            }
        }
    }
    out
}

#[inline(always)]
fn apply_transposed<const I: usize, const J: usize>(matrix: &[[f32; J]; I], v: &[Wide; I]) -> [Wide; J] {
    let mut out = [[0.0; WIDE]; J];
    for j in 0..J {
        for i in 0..I {
            for lane in 0..WIDE {
                out[j][lane] += matrix[i][j] * v[i][lane];
            }
        }
    }
    out
}
