//! Sums of products of transformed patches, which the gradient of the weights is made of.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed in registers")]

use super::super::pass::blocks;
use super::patches::{Filling, Strip};
use super::product::ProductSizes;
use crate::simd::{HALF, Kernel, LANES, Simd, load, load_pair, sum_each};

/// sums `[part][tap][in][out]` += u `[part][out][patch]` * v `[part][in][patch]`, over patches and lanes.
pub(super) struct GatherProducts<'a> {
    pub(super) sums: &'a mut [f32],
    pub(super) u: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) before: Strip<'a>,
    pub(super) after: Strip<'a>,
}

impl Kernel for GatherProducts<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { sums, u, v, before, after } = self;
        let (outputs, job) = (after.channels, ProductSizes::new(&before, &after));
        let wide = S::REGISTERS > 16;
        // Five taps of two outputs use sixteen registers better than two and three taps of three.
        let narrow = !wide && job.taps == 5 && job.sources < 4 && !outputs.is_multiple_of(OUTPUTS);
        for part in 0..before.shape.parts() {
            // SAFETY: the caller's buffers hold every part of its patches, inputs and outputs.
            unsafe {
                let sums = sums.as_mut_ptr().add(part * outputs * job.taps * job.sources);
                let u = u.as_ptr().add(part * after.step());
                let v = v.as_ptr().add(part * before.step());
                if after.filling == Filling::Channels {
                    half_scalars(simd, sums, (u, v), outputs, job);
                    continue;
                }
                if S::PAIRS && after.filling == Filling::Pairs {
                    paired_scalars(simd, sums, (u, v), outputs, job);
                    continue;
                }
                let mut first = 0;
                for block in blocks(outputs, if narrow { 2 } else { OUTPUTS }) {
                    let (sums, u) = (sums.add(first), u.add(first * job.made * LANES));
                    match block {
                        4 if wide => scalars::<S, 4, 6>(simd, sums, (u, v), outputs, job),
                        4 => scalars::<S, 4, 3>(simd, sums, (u, v), outputs, job),
                        3 if wide => scalars::<S, 3, 6>(simd, sums, (u, v), outputs, job),
                        3 => scalars::<S, 3, 4>(simd, sums, (u, v), outputs, job),
                        2 => scalars::<S, 2, 5>(simd, sums, (u, v), outputs, job),
                        _ => scalars::<S, 1, 5>(simd, sums, (u, v), outputs, job),
                    }
                    first += block;
                }
            }
        }
    }
}

/// Most outputs of a tile of [`GatherProducts`].
const OUTPUTS: usize = 4;

/// The product for OC of the outputs, in tiles of at most MOST inputs of a tap, or taps of an input if there are fewer inputs.
#[inline(always)]
unsafe fn scalars<S: Simd, const OC: usize, const MOST: usize>(
    simd: S,
    sums: *mut f32,
    (u, v): (*const f32, *const f32),
    outputs: usize,
    job: ProductSizes,
) {
    let (inner, outer) = job.loops(job.sources < MOST.min(4).min(job.taps), outputs);
    for i in 0..outer[0] {
        let mut first = 0;
        for block in blocks(inner[0], MOST) {
            // SAFETY: the taps and inputs of each tile exist.
            unsafe {
                let v = v.add(i * outer[1] + first * inner[1]);
                let sums = sums.add(i * outer[2] + first * inner[2]);
                let steps = (inner[1], inner[2]);
                match block {
                    6 => scalars_tile::<S, OC, 6>(simd, sums, u, v, job.made, steps),
                    5 => scalars_tile::<S, OC, 5>(simd, sums, u, v, job.made, steps),
                    4 => scalars_tile::<S, OC, 4>(simd, sums, u, v, job.made, steps),
                    3 => scalars_tile::<S, OC, 3>(simd, sums, u, v, job.made, steps),
                    2 => scalars_tile::<S, OC, 2>(simd, sums, u, v, job.made, steps),
                    _ => scalars_tile::<S, OC, 1>(simd, sums, u, v, job.made, steps),
                }
            }
            first += block;
        }
    }
}

/// `steps`: the strides in v and in the sums.
#[inline(always)]
unsafe fn scalars_tile<S: Simd, const OC: usize, const IC: usize>(
    simd: S,
    sums: *mut f32,
    u: *const f32,
    v: *const f32,
    patches: usize,
    steps: (usize, usize),
) {
    let mut sum = [[simd.splat(0.0); IC]; OC];
    // SAFETY: the caller's channels hold `patches` patches.
    unsafe {
        let (mut v, mut u, channel) = (v, u, patches * LANES);
        for _ in 0..patches {
            // The shorter side of the tile stays in registers.
            if IC <= OC {
                let x: [S::Vector; IC] = std::array::from_fn(|i| load::<S>(v.add(i * steps.0)));
                for o in 0..OC {
                    let g = load::<S>(u.add(o * channel));
                    for i in 0..IC {
                        sum[o][i] = simd.fma(g, x[i], sum[o][i]);
                    }
                }
            } else {
                let g: [S::Vector; OC] = std::array::from_fn(|o| load::<S>(u.add(o * channel)));
                for i in 0..IC {
                    let x = load::<S>(v.add(i * steps.0));
                    for o in 0..OC {
                        sum[o][i] = simd.fma(g[o], x, sum[o][i]);
                    }
                }
            }
            (v, u) = (v.add(LANES), u.add(LANES));
        }
        for i in 0..IC {
            let found = sum_each::<S, OC>(simd, std::array::from_fn(|o| sum[o][i]));
            for o in 0..OC {
                *sums.add(i * steps.1 + o) += found[o];
            }
        }
    }
}

/// Most pairs of outputs, and most inputs, of a tile of [`paired_scalars`].
const PAIRS: usize = 4;
const PAIR_INPUTS: usize = 6;

/// The sums of one part for pairs of outputs: a vector of `v` is multiplied with both.
#[inline(always)]
unsafe fn paired_scalars<S: Simd>(
    simd: S,
    sums: *mut f32,
    (u, v): (*const f32, *const f32),
    outputs: usize,
    job: ProductSizes,
) {
    let mut first = 0;
    for pairs in blocks(outputs.div_ceil(2), PAIRS) {
        // SAFETY: the outputs of each tile exist, the second of a last pair perhaps only in `u`.
        unsafe {
            let (u, sums) = (u.add(first * job.made * 2 * LANES), sums.add(2 * first));
            let count = (2 * pairs).min(outputs - 2 * first);
            match pairs {
                4 => paired_inputs::<S, 4>(simd, (sums, count), (u, v), outputs, job),
                3 => paired_inputs::<S, 3>(simd, (sums, count), (u, v), outputs, job),
                2 => paired_inputs::<S, 2>(simd, (sums, count), (u, v), outputs, job),
                _ => paired_inputs::<S, 1>(simd, (sums, count), (u, v), outputs, job),
            }
        }
        first += pairs;
    }
}

/// `to`: the first sum and the number of outputs.
#[inline(always)]
unsafe fn paired_inputs<S: Simd, const P: usize>(
    simd: S,
    (to, count): (*mut f32, usize),
    (u, v): (*const f32, *const f32),
    outputs: usize,
    job: ProductSizes,
) {
    let (inner, outer) = job.loops(job.sources < job.taps.min(4), outputs);
    for i in 0..outer[0] {
        let mut first = 0;
        for inputs in blocks(inner[0], PAIR_INPUTS) {
            // SAFETY: the taps and inputs of each tile exist.
            unsafe {
                let from = (u, v.add(i * outer[1] + first * inner[1]));
                let to = (to.add(i * outer[2] + first * inner[2]), count);
                let steps = (inner[1], inner[2]);
                match inputs {
                    6 => paired_tile::<S, P, 6>(simd, to, from, job.made, steps),
                    5 => paired_tile::<S, P, 5>(simd, to, from, job.made, steps),
                    4 => paired_tile::<S, P, 4>(simd, to, from, job.made, steps),
                    3 => paired_tile::<S, P, 3>(simd, to, from, job.made, steps),
                    2 => paired_tile::<S, P, 2>(simd, to, from, job.made, steps),
                    _ => paired_tile::<S, P, 1>(simd, to, from, job.made, steps),
                }
            }
            first += inputs;
        }
    }
}

/// `steps`: the strides in v and in the sums.
#[inline(always)]
unsafe fn paired_tile<S: Simd, const P: usize, const IC: usize>(
    simd: S,
    (to, count): (*mut f32, usize),
    (u, v): (*const f32, *const f32),
    patches: usize,
    steps: (usize, usize),
) {
    let mut sum = [[simd.splat_pair(0.0); IC]; P];
    // SAFETY: the caller's channels hold `patches` patches.
    unsafe {
        let (mut v, mut u) = (v, u);
        for _ in 0..patches {
            let g: [S::Pair; P] = std::array::from_fn(|p| load_pair::<S>(u.add(p * patches * 2 * LANES)));
            for i in 0..IC {
                let x = simd.twice(load::<S>(v.add(i * steps.0)));
                for p in 0..P {
                    sum[p][i] = simd.fma_pair(g[p], x, sum[p][i]);
                }
            }
            (v, u) = (v.add(LANES), u.add(2 * LANES));
        }
        for i in 0..IC {
            for first in (0..P).step_by(2) {
                let mut all = [simd.splat(0.0); 4];
                [all[0], all[1]] = simd.parted(sum[first][i]);
                if first + 1 < P {
                    [all[2], all[3]] = simd.parted(sum[first + 1][i]);
                }
                let found = simd.sums(all);
                for (o, found) in found.into_iter().enumerate().take(count.saturating_sub(2 * first)) {
                    *to.add(i * steps.1 + 2 * first + o) += found;
                }
            }
        }
    }
}

/// Most inputs of a tile of [`half_scalars`], which is two pairs of outputs wide.
const HALF_INPUTS: usize = 6;

/// The sums of one part for four samples: a vector of `u` has two outputs, and those of `v` are read into both halves. The
/// order of each sum is that of eight samples, of which four are zero.
#[inline(always)]
unsafe fn half_scalars<S: Simd>(
    simd: S,
    sums: *mut f32,
    (u, v): (*const f32, *const f32),
    outputs: usize,
    job: ProductSizes,
) {
    let (inner, outer) = job.loops(job.sources < job.taps.min(4), outputs);
    for output in (0..outputs).step_by(OUTPUTS) {
        let count = OUTPUTS.min(outputs - output);
        // SAFETY: the taps and inputs of each tile exist.
        unsafe {
            let u = u.add(output / 2 * job.made * LANES);
            for i in 0..outer[0] {
                let mut first = 0;
                for inputs in blocks(inner[0], HALF_INPUTS) {
                    let v = v.add(i * outer[1] + first * inner[1]);
                    let to = (sums.add(i * outer[2] + first * inner[2] + output), count);
                    let steps = (inner[1], inner[2]);
                    match (count > 2, inputs) {
                        (true, 6) => half_tile::<S, 2, 6>(simd, to, (u, v), job.made, steps),
                        (true, 5) => half_tile::<S, 2, 5>(simd, to, (u, v), job.made, steps),
                        (true, 4) => half_tile::<S, 2, 4>(simd, to, (u, v), job.made, steps),
                        (true, 3) => half_tile::<S, 2, 3>(simd, to, (u, v), job.made, steps),
                        (true, 2) => half_tile::<S, 2, 2>(simd, to, (u, v), job.made, steps),
                        (true, _) => half_tile::<S, 2, 1>(simd, to, (u, v), job.made, steps),
                        (false, 6) => half_tile::<S, 1, 6>(simd, to, (u, v), job.made, steps),
                        (false, 5) => half_tile::<S, 1, 5>(simd, to, (u, v), job.made, steps),
                        (false, 4) => half_tile::<S, 1, 4>(simd, to, (u, v), job.made, steps),
                        (false, 3) => half_tile::<S, 1, 3>(simd, to, (u, v), job.made, steps),
                        (false, 2) => half_tile::<S, 1, 2>(simd, to, (u, v), job.made, steps),
                        (false, _) => half_tile::<S, 1, 1>(simd, to, (u, v), job.made, steps),
                    }
                    first += inputs;
                }
            }
        }
    }
}

/// `to`: the first sum and the number of outputs. `steps`: the strides in v and in the sums.
#[inline(always)]
unsafe fn half_tile<S: Simd, const PAIRS: usize, const IC: usize>(
    simd: S,
    (to, count): (*mut f32, usize),
    (u, v): (*const f32, *const f32),
    patches: usize,
    steps: (usize, usize),
) {
    let mut sum = [[simd.splat(0.0); IC]; PAIRS];
    // SAFETY: the caller's channels hold `patches` patches.
    unsafe {
        let (mut v, mut u) = (v, u);
        for _ in 0..patches {
            let g: [S::Vector; PAIRS] = std::array::from_fn(|pair| load::<S>(u.add(pair * patches * LANES)));
            for i in 0..IC {
                let x = v.add(i * steps.0);
                let x = simd.join(x, x);
                for pair in 0..PAIRS {
                    sum[pair][i] = simd.fma(g[pair], x, sum[pair][i]);
                }
            }
            (v, u) = (v.add(HALF), u.add(LANES));
        }
        for i in 0..IC {
            let mut all = [simd.splat(0.0); OUTPUTS];
            for pair in 0..PAIRS {
                [all[2 * pair], all[2 * pair + 1]] = simd.split(sum[pair][i]);
            }
            let found = simd.sums(all);
            for (o, found) in found[..count].iter().enumerate() {
                *to.add(i * steps.1 + o) += found;
            }
        }
    }
}
