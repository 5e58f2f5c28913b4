//! The products of transformed patches, one part at a time.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed in registers")]

use pulp::Simd;

use super::super::pass::blocks;
use crate::simd::{Kernel, fma, load, store};

/// m `[part][target][patch]` = w * v `[part][source][patch]`. `w` is `[part]`, blocks of targets, source, target in the block.
pub(super) struct Multiply<'a> {
    pub(super) m: &'a mut [f32],
    pub(super) v: &'a [f32],
    pub(super) w: &'a [f32],
    pub(super) parts: usize,
    pub(super) sources: usize,
    pub(super) targets: usize,
    pub(super) patches: usize,
    /// Floats from one part to the next, of m and v.
    pub(super) steps: (usize, usize),
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { m, v, w, parts, sources, targets, patches, steps } = self;
        for part in 0..parts {
            let mut first = 0;
            for block in blocks(targets, 6) {
                // SAFETY: the caller's buffers hold every part of its patches, sources and targets.
                unsafe {
                    let m = m.as_mut_ptr().add(part * steps.0 + first * patches * S::F32_LANES);
                    let v = v.as_ptr().add(part * steps.1);
                    let w = w.as_ptr().add((part * targets + first) * sources);
                    match block {
                        6 => product::<S, 6>(simd, m, v, w, sources, patches),
                        5 => product::<S, 5>(simd, m, v, w, sources, patches),
                        4 => product::<S, 4>(simd, m, v, w, sources, patches),
                        3 => product::<S, 3>(simd, m, v, w, sources, patches),
                        2 => product::<S, 2>(simd, m, v, w, sources, patches),
                        _ => product::<S, 1>(simd, m, v, w, sources, patches),
                    }
                }
                first += block;
            }
        }
    }
}

/// The same for OC targets.
#[inline(always)]
unsafe fn product<S: Simd, const OC: usize>(
    simd: S,
    m: *mut f32,
    v: *const f32,
    w: *const f32,
    sources: usize,
    patches: usize,
) {
    let mut patch = 0;
    // SAFETY: the patches of each tile exist.
    unsafe {
        if S::REGISTER_COUNT >= 32 {
            while patch + 4 <= patches {
                product_tile::<S, OC, 4>(simd, m, v, w, sources, (patch, patches));
                patch += 4;
            }
        }
        while patch + 2 <= patches {
            product_tile::<S, OC, 2>(simd, m, v, w, sources, (patch, patches));
            patch += 2;
        }
        if patch < patches {
            product_tile::<S, OC, 1>(simd, m, v, w, sources, (patch, patches));
        }
    }
}

#[inline(always)]
unsafe fn product_tile<S: Simd, const OC: usize, const PX: usize>(
    simd: S,
    m: *mut f32,
    v: *const f32,
    w: *const f32,
    sources: usize,
    (patch, patches): (usize, usize),
) {
    let lanes = S::F32_LANES;
    let mut sum = [[simd.splat_f32s(0.0); PX]; OC];
    // SAFETY: the caller's patches exist in every source and target.
    unsafe {
        let (mut v, mut w) = (v.add(patch * lanes), w);
        for _ in 0..sources {
            let mut x = [simd.splat_f32s(0.0); PX];
            for p in 0..PX {
                x[p] = load::<S>(v.add(p * lanes));
            }
            for o in 0..OC {
                let w = simd.splat_f32s(*w.add(o));
                for p in 0..PX {
                    sum[o][p] = fma(simd, w, x[p], sum[o][p]);
                }
            }
            v = v.wrapping_add(patches * lanes);
            w = w.wrapping_add(OC);
        }
        for o in 0..OC {
            for p in 0..PX {
                store::<S>(m.add((o * patches + patch + p) * lanes), sum[o][p]);
            }
        }
    }
}

/// sums `[part][out][in]` += u `[part][out][patch]` * v `[part][in][patch]`, over patches and lanes.
pub(super) struct Gather<'a> {
    pub(super) sums: &'a mut [f32],
    pub(super) u: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) parts: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) patches: usize,
    /// Floats from one part to the next, of u and v.
    pub(super) steps: (usize, usize),
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { sums, u, v, parts, inputs, outputs, patches, steps } = self;
        for part in 0..parts {
            let mut first = 0;
            for block in blocks(outputs, 4) {
                // SAFETY: the caller's buffers hold every part of its patches, inputs and outputs.
                unsafe {
                    let sums = sums.as_mut_ptr().add((part * outputs + first) * inputs);
                    let u = u.as_ptr().add(part * steps.0 + first * patches * S::F32_LANES);
                    let v = v.as_ptr().add(part * steps.1);
                    match block {
                        4 => scalars::<S, 4>(simd, sums, u, v, inputs, patches),
                        3 => scalars::<S, 3>(simd, sums, u, v, inputs, patches),
                        2 => scalars::<S, 2>(simd, sums, u, v, inputs, patches),
                        _ => scalars::<S, 1>(simd, sums, u, v, inputs, patches),
                    }
                }
                first += block;
            }
        }
    }
}

/// The same for OC outputs.
#[inline(always)]
unsafe fn scalars<S: Simd, const OC: usize>(
    simd: S,
    sums: *mut f32,
    u: *const f32,
    v: *const f32,
    inputs: usize,
    patches: usize,
) {
    let mut first = 0;
    for block in blocks(inputs, 3) {
        // SAFETY: the channels of each tile exist.
        unsafe {
            let (v, sums) = (v.add(first * patches * S::F32_LANES), sums.add(first));
            match block {
                3 => scalars_tile::<S, OC, 3>(simd, sums, u, v, inputs, patches),
                2 => scalars_tile::<S, OC, 2>(simd, sums, u, v, inputs, patches),
                _ => scalars_tile::<S, OC, 1>(simd, sums, u, v, inputs, patches),
            }
        }
        first += block;
    }
}

#[inline(always)]
unsafe fn scalars_tile<S: Simd, const OC: usize, const IC: usize>(
    simd: S,
    sums: *mut f32,
    u: *const f32,
    v: *const f32,
    inputs: usize,
    patches: usize,
) {
    let lanes = S::F32_LANES;
    let mut sum = [[simd.splat_f32s(0.0); IC]; OC];
    // SAFETY: the caller's channels hold `patches` patches.
    unsafe {
        let (mut v, mut u, channel) = (v, u, patches * lanes);
        for _ in 0..patches {
            let mut x = [simd.splat_f32s(0.0); IC];
            for i in 0..IC {
                x[i] = load::<S>(v.add(i * channel));
            }
            for o in 0..OC {
                let g = load::<S>(u.add(o * channel));
                for i in 0..IC {
                    sum[o][i] = fma(simd, g, x[i], sum[o][i]);
                }
            }
            (v, u) = (v.add(lanes), u.add(lanes));
        }
        for o in 0..OC {
            for i in 0..IC {
                *sums.add(o * inputs + i) += simd.reduce_sum_f32s(sum[o][i]);
            }
        }
    }
}
