//! The gradients of weights and bias.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed by channel and weight, in registers")]

use std::ops::Range;

use super::Conv;
use super::pass::{blocks, walk};
use crate::lines::four;
use crate::plane::Plane;
use crate::simd::{Apart, Kernel, LANES, Paired, Simd, load, sum_each};

/// Output channels of a tile of pairs, and its weights if it is two tiles.
const PAIRED: usize = 8;
const WIDE_TAPS: usize = 6;

/// Pixels that a tile sums before reducing its lanes; its operands then fit into the L1 cache.
const SUM_PIXELS: usize = 128;
/// Bytes of input per block, chosen to stay in the L2 cache for all output channels.
const SOURCE_BYTES: usize = 128 << 10;
/// Input channels are blocked in multiples of this: whole tiles of three and of four.
const CHANNELS: usize = 12;

pub(super) struct WeightGradient<'a> {
    pub(super) conv: &'a Conv,
    pub(super) d_w: &'a mut [f32],
    pub(super) d_b: Option<&'a mut [f32]>,
    pub(super) x: &'a [f32],
    pub(super) d_y: &'a [f32],
    pub(super) groups: usize,
}

/// The inputs shared by all tiles.
#[derive(Clone, Copy)]
struct Operands<'a> {
    conv: &'a Conv,
    x: &'a [f32],
    d_y: &'a [f32],
}

/// The part of the batch that a tile sums over.
#[derive(Clone)]
struct Region {
    groups: Range<usize>,
    rows: Range<usize>,
}

impl Kernel for WeightGradient<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let plane = self.conv.output_gradient;
        // Small images are summed over several groups, large ones over a few rows at a time.
        let pixels = SUM_PIXELS / self.conv.stride;
        let group_step = pixels.div_ceil(plane.pixels());
        let row_parts = (plane.pixels() / pixels).clamp(1, plane.height);
        let (d_w, d_b) = (self.d_w.as_mut_ptr(), self.d_b.as_deref_mut());
        let mut d_b = d_b.map(|d_b| &mut d_b[..self.conv.out_channels]);
        for group in (0..self.groups).step_by(group_step) {
            let groups = group..(group + group_step).min(self.groups);
            for part in 0..row_parts {
                let rows = part * plane.height / row_parts..(part + 1) * plane.height / row_parts;
                let region = Region { groups: groups.clone(), rows };
                all_blocks(simd, Operands { conv: self.conv, x: self.x, d_y: self.d_y }, d_w, &region);
                if let Some(d_b) = &mut d_b {
                    bias_sums(simd, d_b, self.d_y, plane, &region);
                }
            }
        }
    }
}

/// All tiles over one region.
#[inline(always)]
fn all_blocks<S: Simd>(simd: S, of: Operands<'_>, d_w: *mut f32, region: &Region) {
    let (conv, row) = (of.conv, of.conv.forward.source.row);
    let channel_bytes = region.groups.len() * region.rows.len() * row * size_of::<f32>();
    let step = (SOURCE_BYTES / channel_bytes.max(1)).next_multiple_of(CHANNELS).max(CHANNELS);
    for start in (0..conv.in_channels).step_by(step) {
        let channels = start..(start + step).min(conv.in_channels);
        if S::PAIRS && conv.out_channels.is_multiple_of(PAIRED) {
            for first in (0..conv.out_channels).step_by(PAIRED) {
                // SAFETY: as below.
                unsafe { tiles::<S, PAIRED, 3>(simd, of, d_w, first, channels.clone(), region) };
            }
            continue;
        }
        let mut first = 0;
        for block in blocks(conv.out_channels, 4) {
            // SAFETY: the buffers were checked against the geometry, and a region lies inside it.
            unsafe {
                match block {
                    4 => tiles::<S, 4, 3>(simd, of, d_w, first, channels.clone(), region),
                    3 => tiles::<S, 3, 4>(simd, of, d_w, first, channels.clone(), region),
                    2 => tiles::<S, 2, 4>(simd, of, d_w, first, channels.clone(), region),
                    _ => tiles::<S, 1, 4>(simd, of, d_w, first, channels.clone(), region),
                }
            }
            first += block;
        }
    }
}

/// The weights of some input channels for one block of output channels, TAPS per tile.
#[inline(always)]
unsafe fn tiles<S: Simd, const OC: usize, const TAPS: usize>(
    simd: S,
    of: Operands<'_>,
    d_w: *mut f32,
    first: usize,
    channels: Range<usize>,
    region: &Region,
) {
    let per_channel = of.conv.taps.len();
    // Group the same tap of neighbouring channels: all read inside the input for the same outputs. Without padding
    // every tap does, so group neighbouring taps, which share reads; with strides they share cache lines.
    let by_taps = of.conv.pad == 0 || of.conv.stride > 1;
    let mut channels = channels;
    if OC == PAIRED && by_taps {
        // Two tiles at once that cover the same pixels.
        let (step, taps) = if per_channel == 1 { (2 * TAPS, 1) } else { (2, TAPS) };
        while per_channel.is_multiple_of(taps) && channels.len() >= step {
            for tap in (0..per_channel).step_by(taps) {
                let mut at = [(channels.start, tap); WIDE_TAPS];
                for i in 0..WIDE_TAPS {
                    at[i] = (channels.start + i / taps, tap + i % taps);
                }
                // SAFETY: the caller's contract; the weights exist.
                unsafe { tile::<S, OC, WIDE_TAPS>(simd, of, d_w, at, first, region) };
            }
            channels.start += step;
        }
    }
    let even = if by_taps { 0 } else { channels.len() / TAPS * TAPS };
    for channel in channels.clone().take(even).step_by(TAPS) {
        for tap in 0..per_channel {
            let mut at = [(channel, tap); TAPS];
            (0..TAPS).for_each(|i| at[i].0 += i);
            // SAFETY: the caller's contract; the weights exist.
            unsafe { tile::<S, OC, TAPS>(simd, of, d_w, at, first, region) };
        }
    }
    // The remainder is grouped by neighbouring taps.
    let (mut left, mut at) = ((channels.len() - even) * per_channel, (channels.start + even, 0));
    while left > 0 {
        let n = left.min(TAPS);
        // SAFETY: as above.
        unsafe {
            match n {
                4 => tile::<S, OC, 4>(simd, of, d_w, run(at, per_channel), first, region),
                3 => tile::<S, OC, 3>(simd, of, d_w, run(at, per_channel), first, region),
                2 => tile::<S, OC, 2>(simd, of, d_w, run(at, per_channel), first, region),
                _ => tile::<S, OC, 1>(simd, of, d_w, [at], first, region),
            }
        }
        left -= n;
        at = advance(at, n, per_channel);
    }
}

/// The weight `n` after `(channel, tap)`.
#[inline(always)]
fn advance((mut channel, mut tap): (usize, usize), n: usize, per_channel: usize) -> (usize, usize) {
    tap += n;
    while tap >= per_channel {
        tap -= per_channel;
        channel += 1;
    }
    (channel, tap)
}

/// The weight `at` and those following it.
#[inline(always)]
fn run<const TAPS: usize>(at: (usize, usize), per_channel: usize) -> [(usize, usize); TAPS] {
    let mut all = [at; TAPS];
    for i in 1..TAPS {
        all[i] = advance(all[i - 1], 1, per_channel);
    }
    all
}

/// Adds OC output channels by TAPS weights to the gradient.
#[inline(always)]
unsafe fn tile<S: Simd, const OC: usize, const TAPS: usize>(
    simd: S,
    of: Operands<'_>,
    d_w: *mut f32,
    at: [(usize, usize); TAPS],
    first: usize,
    region: &Region,
) {
    let per_channel = of.conv.taps.len();
    let weight = |o: usize, t: usize| ((first + o) * of.conv.in_channels + at[t].0) * per_channel + at[t].1;
    // SAFETY: the weights of this tile exist; the region lies inside the batch.
    unsafe {
        if OC == PAIRED {
            let sum = sums::<_, 4, TAPS>(Paired(simd), of, at, first, region);
            for t in 0..TAPS {
                let found = Paired(simd).sum_vectors([sum[0][t], sum[1][t], sum[2][t], sum[3][t]]);
                for o in 0..OC {
                    *d_w.add(weight(o, t)) += found[o % 2][o / 2];
                }
            }
            return;
        }
        let sum = sums::<_, OC, TAPS>(simd, of, at, first, region);
        for t in 0..TAPS {
            let found = sum_each::<S, OC>(simd, std::array::from_fn(|o| sum[o][t]));
            for o in 0..OC {
                *d_w.add(weight(o, t)) += found[o];
            }
        }
    }
}

/// d_y times x, summed over a region: OC output channels, or pairs of them, by TAPS weights.
#[inline(always)]
unsafe fn sums<A: Apart, const OC: usize, const TAPS: usize>(
    simd: A,
    of: Operands<'_>,
    at: [(usize, usize); TAPS],
    first: usize,
    region: &Region,
) -> [[A::Vector; TAPS]; OC] {
    let conv = of.conv;
    let (plane, source) = (conv.output_gradient, conv.forward.source);
    let gradient = walk(plane, conv.out_channels);
    let channel = gradient.channel;
    // Only output pixels for which at least one tap reads inside the input.
    let (mut rows, mut columns) = (plane.height..0, plane.width..0);
    let mut offsets = [0; TAPS];
    for i in 0..TAPS {
        let (from, tap) = (at[i].0, &conv.taps[at[i].1]);
        rows = rows.start.min(tap.rows.start)..rows.end.max(tap.rows.end);
        columns = columns.start.min(tap.columns.start)..columns.end.max(tap.columns.end);
        offsets[i] = source.base + from * source.channel + tap.offset;
    }
    let rows = rows.start.max(region.rows.start)..rows.end.min(region.rows.end);
    let mut sum = [[simd.splat(0.0); TAPS]; OC];
    // SAFETY: rows and columns lie inside the output, and every tap of an output pixel lies inside the input's border.
    unsafe {
        let x = offsets.map(|offset| of.x.as_ptr().add(offset));
        let d_y = of.d_y.as_ptr().add(gradient.base + first * gradient.channel);
        for group in region.groups.clone() {
            for row in rows.clone() {
                let mut d = d_y.add(group * gradient.group + row * gradient.row + columns.start * gradient.pixel);
                let mut at = group * source.group + row * source.row + columns.start * source.pixel;
                for _ in columns.clone() {
                    // The shorter side of the tile stays in registers.
                    if TAPS <= OC {
                        let v: [A::Vector; TAPS] = std::array::from_fn(|t| simd.repeat(x[t].add(at)));
                        for o in 0..OC {
                            let g = simd.read(d.add(o * A::VECTORS * channel), channel);
                            for t in 0..TAPS {
                                sum[o][t] = simd.fma(g, v[t], sum[o][t]);
                            }
                        }
                    } else {
                        let g: [A::Vector; OC] =
                            std::array::from_fn(|o| simd.read(d.add(o * A::VECTORS * channel), channel));
                        for t in 0..TAPS {
                            let v = simd.repeat(x[t].add(at));
                            for o in 0..OC {
                                sum[o][t] = simd.fma(g[o], v, sum[o][t]);
                            }
                        }
                    }
                    d = d.add(LANES);
                    at += source.pixel;
                }
            }
        }
    }
    sum
}

/// Adds the sums of `d_y` over a region while it is in the cache.
#[inline(always)]
fn bias_sums<S: Simd>(simd: S, d_b: &mut [f32], d_y: &[f32], plane: Plane, region: &Region) {
    let walk = walk(plane, d_b.len());
    for group in region.groups.clone() {
        for (channel, d_b) in d_b.iter_mut().enumerate() {
            // Four accumulators, so that additions do not wait for one another.
            let mut sums = [simd.splat(0.0); 4];
            for row in region.rows.clone() {
                let start = group * walk.group + channel * walk.channel + walk.base + row * walk.row;
                let line = &d_y[start..start + plane.width * LANES];
                for pixels in line.chunks(4 * LANES) {
                    for (sum, pixel) in sums.iter_mut().zip(pixels.as_chunks::<LANES>().0) {
                        // SAFETY: a pixel is one vector.
                        *sum = simd.add(*sum, unsafe { load::<S>(pixel.as_ptr()) });
                    }
                }
            }
            *d_b += simd.sum(four(simd, sums));
        }
    }
}

/// The gradient of the bias alone.
pub(super) struct BiasGradient<'a> {
    pub(super) d_b: &'a mut [f32],
    pub(super) d_y: &'a [f32],
    pub(super) plane: Plane,
    pub(super) groups: usize,
}

impl Kernel for BiasGradient<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let region = Region { groups: 0..self.groups, rows: 0..self.plane.height };
        bias_sums(simd, self.d_b, self.d_y, self.plane, &region);
    }
}
