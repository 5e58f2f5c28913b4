//! 3x3 convolutions with fewer multiplications (Lavin and Gray 2016, F(2x2, 3x3)).
//!
//! Four neighbouring outputs come from a 4x4 patch of the input: y = A' [(G g G') * (B' d B)] A, with 16 products where the
//! plain sum has 36. The coefficients are 0, 1, -1 and 1/2, so little accuracy is lost. The same patches give the gradient
//! of the weights: G' [sum over patches of (A dy A') * (B' d B)] G.
#![allow(clippy::needless_range_loop, reason = "patches and tiles are indexed in registers")]

use std::ops::Range;

use pulp::Simd;

use super::correlate::Start;
use super::{Walk, blocks};
use crate::simd::{Kernel, fma, load, store};

/// Numbers of a transformed patch.
pub(super) const PARTS: usize = 16;
/// Bytes of transformed patches that are worked on at a time, and how many patches at least.
const STRIP_BYTES: usize = 320 << 10;
const STRIP_PATCHES: usize = 8;
/// Floats between the parts of a strip, so that they do not share the same few places of the cache.
const SKEW: usize = 16;
/// Below this many channels on either side, transforming costs more than it saves.
const MIN_CHANNELS: usize = 12;
/// Above this many weights the transformed ones would come from memory.
const MAX_WEIGHTS: usize = 256 * 256 * 9;

/// A convolution that is done by patches: 3x3, stride 1, padding 1, even sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winograd {
    /// Rows and columns of patches.
    rows: usize,
    columns: usize,
    lanes: usize,
    in_channels: usize,
    out_channels: usize,
}

impl Winograd {
    pub(super) fn new(
        (in_channels, out_channels): (usize, usize),
        (kernel, stride, pad): (usize, usize, usize),
        (height, width): (usize, usize),
        lanes: usize,
    ) -> Option<Self> {
        let fits = (kernel, stride, pad) == (3, 1, 1) && height.is_multiple_of(2) && width.is_multiple_of(2);
        let pays = in_channels.min(out_channels) >= MIN_CHANNELS && in_channels * out_channels * 9 <= MAX_WEIGHTS;
        (fits && pays).then_some(Self { rows: height / 2, columns: width / 2, lanes, in_channels, out_channels })
    }

    /// Floats of the transformed weights, and of the sums of their gradient.
    pub(super) fn weights(&self) -> usize {
        PARTS * self.in_channels * self.out_channels
    }

    /// Floats of memory that a pass works in.
    pub(super) fn scratch(&self) -> usize {
        PARTS * ((self.in_channels + self.out_channels) * self.strip_rows() * self.columns * self.lanes + 2 * SKEW)
    }

    /// Rows of patches that are worked on at a time; they may belong to several groups.
    fn strip_rows(&self) -> usize {
        let patch = PARTS * (self.in_channels + self.out_channels) * self.lanes * size_of::<f32>();
        (STRIP_BYTES / patch).max(STRIP_PATCHES).div_ceil(self.columns).max(1)
    }

    fn strips(&self, groups: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (all, step) = (groups * self.rows, self.strip_rows());
        (0..all).step_by(step).map(move |first| first..(first + step).min(all))
    }

    /// Where a row of patches starts.
    #[inline(always)]
    fn at(&self, walk: &Walk, row: usize) -> usize {
        walk.base + row / self.rows * walk.group + row % self.rows * 2 * walk.row
    }

    /// Transformed weights in the order of the product: part, block of targets, source, target within the block.
    pub(super) fn pack(
        packed: &mut [f32],
        (sources, targets): (usize, usize),
        weight: impl Fn(usize, usize, usize) -> f32,
    ) {
        let mut first = 0;
        for block in blocks(targets, 6) {
            for source in 0..sources {
                for target in first..first + block {
                    let g = std::array::from_fn(|tap| weight(target, source, tap));
                    for (part, value) in transform_weights(g).into_iter().enumerate() {
                        packed[(part * targets + first) * sources + source * block + target - first] = value;
                    }
                }
            }
            first += block;
        }
    }

    /// d_w `[out][in][3][3]` += the gradient whose transformed sums are `sums` `[part][out][in]`.
    pub(super) fn settle(&self, d_w: &mut [f32], sums: &[f32]) {
        let weights = self.in_channels * self.out_channels;
        for (i, d_w) in d_w.chunks_exact_mut(9).take(weights).enumerate() {
            // G' s G, one side after the other.
            let s: [f32; PARTS] = std::array::from_fn(|part| sums[part * weights + i]);
            let mut half = [[0.0; 4]; 3];
            for c in 0..4 {
                let (plus, minus) = (0.5 * (s[4 + c] + s[8 + c]), 0.5 * (s[4 + c] - s[8 + c]));
                (half[0][c], half[1][c], half[2][c]) = (s[c] + plus, minus, plus + s[12 + c]);
            }
            for (row, d_w) in half.iter().zip(d_w.chunks_exact_mut(3)) {
                let (plus, minus) = (0.5 * (row[1] + row[2]), 0.5 * (row[1] - row[2]));
                d_w[0] += row[0] + plus;
                d_w[1] += minus;
                d_w[2] += plus + row[3];
            }
        }
    }
}

/// Floats from one part of some transformed patches to the next.
#[inline(always)]
fn part_step(channels: usize, patches: usize, lanes: usize) -> usize {
    channels * patches * lanes + SKEW
}

/// G g G'.
fn transform_weights(g: [f32; 9]) -> [f32; PARTS] {
    let mut half = [[0.0; 3]; 4];
    for c in 0..3 {
        let (a, b, d) = (g[c], g[3 + c], g[6 + c]);
        (half[0][c], half[1][c], half[2][c], half[3][c]) = (a, 0.5 * (a + b + d), 0.5 * (a - b + d), d);
    }
    let mut out = [0.0; PARTS];
    for (row, out) in half.iter().zip(out.chunks_exact_mut(4)) {
        let [a, b, d] = *row;
        out.copy_from_slice(&[a, 0.5 * (a + b + d), 0.5 * (a - b + d), d]);
    }
    out
}

/// The forward pass, or the input gradient with the sides swapped.
pub(super) struct Correlate<'a> {
    pub(super) shape: &'a Winograd,
    pub(super) target: &'a mut [f32],
    pub(super) to: Walk,
    pub(super) targets: usize,
    pub(super) source: &'a [f32],
    /// From the pixel above and left of the first one.
    pub(super) from: Walk,
    pub(super) sources: usize,
    pub(super) packed: &'a [f32],
    pub(super) start: Start<'a>,
    pub(super) groups: usize,
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { shape, target, to, targets, source, from, sources, packed, start, groups, scratch } = self;
        for strip in shape.strips(groups) {
            let patches = strip.len() * shape.columns;
            let v_step = part_step(sources, patches, S::F32_LANES);
            let m_step = part_step(targets, patches, S::F32_LANES);
            let (v, m) = scratch.split_at_mut(PARTS * v_step);
            // SAFETY: the caller checked that source and target hold `groups` groups with the border a patch reads, and
            // that `packed` and `scratch` are whole.
            unsafe {
                patches_in(simd, shape, v.as_mut_ptr(), source.as_ptr(), &from, sources, strip.clone());
                for part in 0..PARTS {
                    let (mut w, mut first) = (packed.as_ptr().add(part * sources * targets), 0);
                    let v = v.as_ptr().add(part * v_step);
                    for block in blocks(targets, 6) {
                        let m = m.as_mut_ptr().add(part * m_step + first * patches * S::F32_LANES);
                        match block {
                            6 => product::<S, 6>(simd, m, v, w, sources, patches),
                            5 => product::<S, 5>(simd, m, v, w, sources, patches),
                            4 => product::<S, 4>(simd, m, v, w, sources, patches),
                            3 => product::<S, 3>(simd, m, v, w, sources, patches),
                            2 => product::<S, 2>(simd, m, v, w, sources, patches),
                            _ => product::<S, 1>(simd, m, v, w, sources, patches),
                        }
                        w = w.add(sources * block);
                        first += block;
                    }
                }
                patches_out(simd, shape, target.as_mut_ptr(), &to, targets, m.as_ptr(), start, strip);
            }
        }
    }
}

/// v `[part][channel][patch]` = B' d B of every patch of some rows.
#[inline(always)]
unsafe fn patches_in<S: Simd>(
    simd: S,
    shape: &Winograd,
    v: *mut f32,
    source: *const f32,
    from: &Walk,
    channels: usize,
    strip: Range<usize>,
) {
    let lanes = S::F32_LANES;
    let step = part_step(channels, strip.len() * shape.columns, lanes);
    for channel in 0..channels {
        for (i, row) in strip.clone().enumerate() {
            // SAFETY: the caller's rows, channels and border exist; `v` holds PARTS numbers of every patch.
            unsafe {
                let mut d = source.add(shape.at(from, row) + channel * from.channel);
                let mut v = v.add((channel * strip.len() + i) * shape.columns * lanes);
                for _ in 0..shape.columns {
                    // One column of the patch at a time, then the rows of the half-done patch.
                    let mut half = [[simd.splat_f32s(0.0); 4]; 4];
                    for c in 0..4 {
                        let d = d.add(c * lanes);
                        let d0 = load::<S>(d);
                        let d1 = load::<S>(d.add(from.row));
                        let d2 = load::<S>(d.add(2 * from.row));
                        let d3 = load::<S>(d.add(3 * from.row));
                        half[0][c] = simd.sub_f32s(d0, d2);
                        half[1][c] = simd.add_f32s(d1, d2);
                        half[2][c] = simd.sub_f32s(d2, d1);
                        half[3][c] = simd.sub_f32s(d1, d3);
                    }
                    for r in 0..4 {
                        let [a, b, c, d] = half[r];
                        let v = v.add(4 * r * step);
                        store::<S>(v, simd.sub_f32s(a, c));
                        store::<S>(v.add(step), simd.add_f32s(b, c));
                        store::<S>(v.add(2 * step), simd.sub_f32s(c, b));
                        store::<S>(v.add(3 * step), simd.sub_f32s(b, d));
                    }
                    d = d.add(2 * lanes);
                    v = v.add(lanes);
                }
            }
        }
    }
}

/// m `[target][patch]` = w * v `[source][patch]` for OC targets of one part.
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

/// target = start + A' m A of every patch of some rows, m `[part][channel][patch]`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two buffers, each with its layout")]
unsafe fn patches_out<S: Simd>(
    simd: S,
    shape: &Winograd,
    target: *mut f32,
    to: &Walk,
    channels: usize,
    m: *const f32,
    start: Start<'_>,
    strip: Range<usize>,
) {
    let lanes = S::F32_LANES;
    let step = part_step(channels, strip.len() * shape.columns, lanes);
    for channel in 0..channels {
        let bias = if let Start::Bias(bias) = start { bias[channel] } else { 0.0 };
        let bias = simd.splat_f32s(bias);
        for (i, row) in strip.clone().enumerate() {
            // SAFETY: the caller's rows and channels exist; `m` holds PARTS numbers of every patch.
            unsafe {
                let mut y = target.add(shape.at(to, row) + channel * to.channel);
                let mut m = m.add((channel * strip.len() + i) * shape.columns * lanes);
                for _ in 0..shape.columns {
                    let mut half = [[simd.splat_f32s(0.0); 4]; 2];
                    for c in 0..4 {
                        let m = m.add(c * step);
                        let (m0, m1) = (load::<S>(m), load::<S>(m.add(4 * step)));
                        let (m2, m3) = (load::<S>(m.add(8 * step)), load::<S>(m.add(12 * step)));
                        half[0][c] = simd.add_f32s(m0, simd.add_f32s(m1, m2));
                        half[1][c] = simd.sub_f32s(simd.sub_f32s(m1, m2), m3);
                    }
                    for r in 0..2 {
                        let [a, b, c, d] = half[r];
                        let y = y.add(r * to.row);
                        let mut out = [simd.add_f32s(a, simd.add_f32s(b, c)), simd.sub_f32s(simd.sub_f32s(b, c), d)];
                        for p in 0..2 {
                            out[p] = match start {
                                Start::Zero => out[p],
                                Start::Bias(_) => simd.add_f32s(out[p], bias),
                                Start::Target => simd.add_f32s(out[p], load::<S>(y.add(p * lanes))),
                            };
                            store::<S>(y.add(p * lanes), out[p]);
                        }
                    }
                    y = y.add(2 * lanes);
                    m = m.add(lanes);
                }
            }
        }
    }
}

/// sums `[part][out][in]` += the transformed gradient of the weights, over all groups.
pub(super) struct WeightGradient<'a> {
    pub(super) shape: &'a Winograd,
    pub(super) sums: &'a mut [f32],
    pub(super) x: &'a [f32],
    /// From the pixel above and left of the first one.
    pub(super) from: Walk,
    pub(super) d_y: &'a [f32],
    pub(super) gradient: Walk,
    pub(super) groups: usize,
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { shape, sums, x, from, d_y, gradient, groups, scratch } = self;
        let (inputs, outputs) = (shape.in_channels, shape.out_channels);
        for strip in shape.strips(groups) {
            let patches = strip.len() * shape.columns;
            let v_step = part_step(inputs, patches, S::F32_LANES);
            let u_step = part_step(outputs, patches, S::F32_LANES);
            let (v, u) = scratch.split_at_mut(PARTS * v_step);
            // SAFETY: as for `Correlate`; `sums` holds PARTS numbers of every weight.
            unsafe {
                patches_in(simd, shape, v.as_mut_ptr(), x.as_ptr(), &from, inputs, strip.clone());
                gradients_in(simd, shape, u.as_mut_ptr(), d_y.as_ptr(), &gradient, outputs, strip);
                for part in 0..PARTS {
                    let v = v.as_ptr().add(part * v_step);
                    let u = u.as_ptr().add(part * u_step);
                    let sums = sums.as_mut_ptr().add(part * outputs * inputs);
                    let mut first = 0;
                    for block in blocks(outputs, 4) {
                        let u = u.add(first * patches * S::F32_LANES);
                        let sums = sums.add(first * inputs);
                        match block {
                            4 => scalars::<S, 4>(simd, sums, u, v, inputs, patches),
                            3 => scalars::<S, 3>(simd, sums, u, v, inputs, patches),
                            2 => scalars::<S, 2>(simd, sums, u, v, inputs, patches),
                            _ => scalars::<S, 1>(simd, sums, u, v, inputs, patches),
                        }
                        first += block;
                    }
                }
            }
        }
    }
}

/// u `[part][channel][patch]` = A dy A' of every patch of some rows.
#[inline(always)]
unsafe fn gradients_in<S: Simd>(
    simd: S,
    shape: &Winograd,
    u: *mut f32,
    d_y: *const f32,
    from: &Walk,
    channels: usize,
    strip: Range<usize>,
) {
    let lanes = S::F32_LANES;
    let step = part_step(channels, strip.len() * shape.columns, lanes);
    let zero = simd.splat_f32s(0.0);
    for channel in 0..channels {
        for (i, row) in strip.clone().enumerate() {
            // SAFETY: the caller's rows and channels exist; `u` holds PARTS numbers of every patch.
            unsafe {
                let mut d = d_y.add(shape.at(from, row) + channel * from.channel);
                let mut u = u.add((channel * strip.len() + i) * shape.columns * lanes);
                for _ in 0..shape.columns {
                    let mut half = [[zero; 2]; 4];
                    for c in 0..2 {
                        let (d0, d1) = (load::<S>(d.add(c * lanes)), load::<S>(d.add(from.row + c * lanes)));
                        half[0][c] = d0;
                        half[1][c] = simd.add_f32s(d0, d1);
                        half[2][c] = simd.sub_f32s(d0, d1);
                        half[3][c] = simd.sub_f32s(zero, d1);
                    }
                    for r in 0..4 {
                        let [a, b] = half[r];
                        let u = u.add(4 * r * step);
                        store::<S>(u, a);
                        store::<S>(u.add(step), simd.add_f32s(a, b));
                        store::<S>(u.add(2 * step), simd.sub_f32s(a, b));
                        store::<S>(u.add(3 * step), simd.sub_f32s(zero, b));
                    }
                    d = d.add(2 * lanes);
                    u = u.add(lanes);
                }
            }
        }
    }
}

/// sums `[out][in]` += u `[out][patch]` * v `[in][patch]` for OC outputs of one part, over patches and lanes.
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
