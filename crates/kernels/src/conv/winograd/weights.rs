//! Transforms of the weights, and of the accumulated weight gradients back.

use super::super::pass::blocks;
use super::patch::{Patch, WIDE};
use super::{Winograd, with_patch};
use crate::simd::{Kernel, Simd};

/// packed = G g G' for every pair of channels, in the order the product reads: part, block of targets, tap, source,
/// target within the block.
pub(in crate::conv) struct Pack<'a> {
    pub(in crate::conv) patches: Winograd,
    pub(in crate::conv) packed: &'a mut [f32],
    pub(in crate::conv) w: &'a [f32],
    /// Distances in weights from one source to the next, and from one target to the next.
    pub(in crate::conv) steps: (usize, usize),
    /// Rotates the kernel by 180 degrees, as the input gradient needs it.
    pub(in crate::conv) turned: bool,
}

impl Kernel for Pack<'_> {
    const NARROW: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_patch!(self.patches.form, self.pack(simd))
    }
}

impl Pack<'_> {
    #[inline(always)]
    fn pack<P: Patch, S: Simd>(self, _: S) {
        let Self { patches: Winograd { sources, targets, .. }, packed, w, steps, turned } = self;
        let (rows, side) = P::WEIGHTS;
        let (taps, mut first) = (side / rows, 0);
        for block in blocks(targets, 6) {
            for (tap, source) in (0..taps).flat_map(|tap| (0..sources).map(move |source| (tap, source))) {
                P::weights(
                    #[inline(always)]
                    |r, c| {
                        let at = (tap * rows + r) * side + c;
                        let at = source * steps.0 + if turned { side * side - 1 - at } else { at };
                        let mut wide = [0.0; WIDE];
                        for (target, weight) in wide[..block].iter_mut().enumerate() {
                            *weight = w[at + (first + target) * steps.1];
                        }
                        wide
                    },
                    #[inline(always)]
                    |part, values| {
                        let at = (part * targets + first) * taps * sources + (tap * sources + source) * block;
                        let to = &mut packed[at..at + block];
                        // Copies of a known length, because most are short.
                        match to.len() {
                            6 => copy::<6>(to, &values),
                            5 => copy::<5>(to, &values),
                            4 => copy::<4>(to, &values),
                            _ => to.copy_from_slice(&values[..block]),
                        }
                    },
                );
            }
            first += block;
        }
    }
}

#[inline(always)]
fn copy<const N: usize>(to: &mut [f32], from: &[f32; WIDE]) {
    to[..N].copy_from_slice(&from[..N]);
}

/// d_w += G' s G for the accumulated sums s `[part][tap][source][target]`.
pub(in crate::conv) struct Settle<'a> {
    pub(in crate::conv) patches: Winograd,
    pub(in crate::conv) d_w: &'a mut [f32],
    pub(in crate::conv) sums: &'a [f32],
}

impl Kernel for Settle<'_> {
    const NARROW: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_patch!(self.patches.form, self.settle(simd))
    }
}

impl Settle<'_> {
    #[inline(always)]
    fn settle<P: Patch, S: Simd>(self, _: S) {
        let Self { patches: Winograd { sources, targets, .. }, d_w, sums } = self;
        let (rows, side) = P::WEIGHTS;
        let (taps, area) = (side / rows, side * side);
        for first in (0..targets).step_by(WIDE) {
            let block = WIDE.min(targets - first);
            for (tap, source) in (0..taps).flat_map(|tap| (0..sources).map(move |source| (tap, source))) {
                let at = (tap * sources + source) * targets + first;
                P::weight_gradients(
                    #[inline(always)]
                    |part| {
                        let mut wide = [0.0; WIDE];
                        wide[..block].copy_from_slice(&sums[part * targets * taps * sources + at..][..block]);
                        wide
                    },
                    #[inline(always)]
                    |r, c, values| {
                        let to = (first * sources + source) * area + (tap * rows + r) * side + c;
                        for (target, value) in values[..block].iter().enumerate() {
                            d_w[to + target * sources * area] += value;
                        }
                    },
                );
            }
        }
    }
}
