//! Products of transformed patches, part by part.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed in registers")]

use std::ops::Range;

use super::super::pass::blocks;
use super::patches::{Filling, Strip};
use crate::simd::{Kernel, LANES, Simd, load, load_pair, store, store_pair};

/// m `[part][target][patch]` = w * v `[part][source][patch]`. `w` is ordered by part, block of targets, tap, source,
/// target within the block. Each further tap reads one row of patches further down.
pub(super) struct Multiply<'a> {
    pub(super) m: &'a mut [f32],
    pub(super) v: &'a [f32],
    pub(super) w: &'a [f32],
    pub(super) before: Strip<'a>,
    pub(super) after: Strip<'a>,
}

impl Kernel for Multiply<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { m, v, w, before, after } = self;
        let (sources, targets, taps) = (before.channels, after.channels, before.shape.taps());
        let job = ProductSizes::new(&before, &after);
        // Whether every patch needs every tap.
        let whole = before.inside == (0, before.rows);
        for part in 0..before.shape.parts() {
            let mut first = 0;
            for block in blocks(targets, 6) {
                // SAFETY: the caller's buffers hold every part of its patches, sources and targets.
                unsafe {
                    let m = m.as_mut_ptr().add(part * after.step() + first * job.made * LANES);
                    let v = v.as_ptr().add(part * before.step());
                    let w = w.as_ptr().add((part * targets + first) * taps * sources);
                    let inside = if whole { None } else { Some(before.inside) };
                    match block {
                        6 => product::<S, 6>(simd, m, v, w, job, inside),
                        5 => product::<S, 5>(simd, m, v, w, job, inside),
                        4 => product::<S, 4>(simd, m, v, w, job, inside),
                        3 => product::<S, 3>(simd, m, v, w, job, inside),
                        2 => product::<S, 2>(simd, m, v, w, job, inside),
                        _ => product::<S, 1>(simd, m, v, w, job, inside),
                    }
                }
                first += block;
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct ProductSizes {
    pub(super) sources: usize,
    pub(super) taps: usize,
    /// Floats from one tap to the next: a row of patches.
    tap: usize,
    /// Floats from one patch to the next.
    patch: usize,
    /// Vectors per source and per target, or pairs of vectors per pair of targets.
    read: usize,
    pub(super) made: usize,
}

impl ProductSizes {
    pub(super) fn new(before: &Strip<'_>, after: &Strip<'_>) -> Self {
        Self {
            sources: before.channels,
            taps: before.shape.taps(),
            tap: before.shape.columns * before.patch(),
            patch: before.patch(),
            read: before.vectors(),
            made: if after.filling == Filling::Pairs { after.patches() } else { after.vectors() },
        }
    }

    /// The inner and the outer loop of a gradient's sums, over the taps and the inputs: the count, the stride in v, and the
    /// stride in the sums `[tap][in][out]`.
    #[inline(always)]
    pub(super) fn loops(&self, taps_inside: bool, outputs: usize) -> ([usize; 3], [usize; 3]) {
        let inputs = [self.sources, self.read * LANES, outputs];
        let taps = [self.taps, self.tap, self.sources * outputs];
        if taps_inside { (taps, inputs) } else { (inputs, taps) }
    }

    /// The taps that any of the vectors `first..first + n` needs, given the range of rows outside the border.
    #[inline(always)]
    fn needed(&self, inside: Option<(usize, usize)>, first: usize, n: usize) -> Range<usize> {
        let Some((start, end)) = inside else { return 0..self.taps };
        let (top, bottom) = (first * LANES / self.tap, ((first + n) * LANES - self.patch) / self.tap);
        let first = start.saturating_sub(bottom).min(self.taps);
        first..end.saturating_sub(top).clamp(first, self.taps)
    }
}

/// The product for OC targets. A tile needs the taps that any of a pair of vectors needs; wider tiles are made only where
/// all their pairs need the same, so that their width changes no sum.
#[inline(always)]
unsafe fn product<S: Simd, const OC: usize>(
    simd: S,
    m: *mut f32,
    v: *const f32,
    w: *const f32,
    job: ProductSizes,
    inside: Option<(usize, usize)>,
) {
    const WIDE: usize = 4;
    let mut patch = 0;
    // SAFETY: the patches of each tile exist.
    unsafe {
        while patch + 2 <= job.made {
            let taps = job.needed(inside, patch, 2);
            let wide = S::REGISTERS > 16 && patch + 2 * WIDE <= job.made;
            if wide && (inside.is_none() || (1..WIDE).all(|i| job.needed(inside, patch + 2 * i, 2) == taps)) {
                product_pairs::<S, OC, WIDE>(simd, (m, v, w), job, taps, patch);
                patch += 2 * WIDE;
            } else {
                product_pairs::<S, OC, 1>(simd, (m, v, w), job, taps, patch);
                patch += 2;
            }
        }
        if patch < job.made {
            product_last::<S, OC>(simd, (m, v, w), job, job.needed(inside, patch, 1), patch);
        }
    }
}

#[inline(always)]
unsafe fn product_pairs<S: Simd, const OC: usize, const PAIRS: usize>(
    simd: S,
    (m, v, w): (*mut f32, *const f32, *const f32),
    job: ProductSizes,
    taps: Range<usize>,
    patch: usize,
) {
    let mut sum = [[simd.splat_pair(0.0); PAIRS]; OC];
    // SAFETY: the caller's patches exist in every source and target, as do those below that its taps need.
    unsafe {
        let mut w = w.add(taps.start * job.sources * OC);
        for tap in taps {
            let mut v = v.add(patch * LANES + tap * job.tap);
            for _ in 0..job.sources {
                let x: [S::Pair; PAIRS] = std::array::from_fn(|p| load_pair::<S>(v.add(2 * p * LANES)));
                for o in 0..OC {
                    let w = simd.splat_pair(*w.add(o));
                    for p in 0..PAIRS {
                        sum[o][p] = simd.fma_pair(w, x[p], sum[o][p]);
                    }
                }
                v = v.wrapping_add(job.read * LANES);
                w = w.wrapping_add(OC);
            }
        }
        for o in 0..OC {
            for p in 0..PAIRS {
                store_pair::<S>(m.add((o * job.made + patch + 2 * p) * LANES), sum[o][p]);
            }
        }
    }
}

/// The last patch of an odd number.
#[inline(always)]
unsafe fn product_last<S: Simd, const OC: usize>(
    simd: S,
    (m, v, w): (*mut f32, *const f32, *const f32),
    job: ProductSizes,
    taps: Range<usize>,
    patch: usize,
) {
    let mut sum = [simd.splat(0.0); OC];
    // SAFETY: as for pairs.
    unsafe {
        let mut w = w.add(taps.start * job.sources * OC);
        for tap in taps {
            let mut v = v.add(patch * LANES + tap * job.tap);
            for _ in 0..job.sources {
                let x = load::<S>(v);
                for o in 0..OC {
                    sum[o] = simd.fma(simd.splat(*w.add(o)), x, sum[o]);
                }
                v = v.wrapping_add(job.read * LANES);
                w = w.wrapping_add(OC);
            }
        }
        for o in 0..OC {
            store::<S>(m.add((o * job.made + patch) * LANES), sum[o]);
        }
    }
}
