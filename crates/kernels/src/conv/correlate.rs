//! The correlation behind the forward pass and the input gradient.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed by channel and pixel, in registers")]

use std::ops::Range;

use super::pass::{Pass, blocks};
use crate::simd::{Apart, Kernel, Paired, Simd};

/// Bytes of input per block, chosen to stay in the L2 cache.
const SOURCE_BYTES: usize = 200_000;
/// Packed weights larger than this are read once for several groups instead of once per group, and source channels are
/// split into parts that stay in the L2 cache for all these groups.
const LARGE_WEIGHTS_BYTES: usize = 384 << 10;
/// Minimum number of source channels in such a part.
const LEAST_CHANNELS: usize = 32;

/// The initial values of a tile.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    Zero,
    Bias(&'a [f32]),
    Target,
}

pub(super) struct Correlate<'a> {
    pub(super) pass: &'a Pass,
    pub(super) target: &'a mut [f32],
    pub(super) source: &'a [f32],
    pub(super) packed: &'a [f32],
    pub(super) start: Start<'a>,
    pub(super) groups: usize,
}

impl Kernel for Correlate<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { pass, target, source, packed, start, groups } = self;
        let fitting = |bytes: usize, most: usize| (SOURCE_BYTES / bytes.max(1)).clamp(1, most.max(1));
        let taps = pass.row_taps.count * pass.column_taps.count;
        // A phase without taps writes only its initial values.
        let source_channels = if taps == 0 { 0 } else { pass.source_channels };
        let row_bytes = pass.source.row * pass.source_channels * size_of::<f32>();
        let channel_bytes = pass.source.channel * size_of::<f32>();
        let large = size_of_val(packed) > LARGE_WEIGHTS_BYTES;
        let (groups_step, rows_step, channels_step) = if large {
            let together = fitting(LEAST_CHANNELS * channel_bytes, groups);
            (together, pass.rows, fitting(together * channel_bytes, pass.source_channels).max(LEAST_CHANNELS))
        } else {
            (1, fitting(row_bytes, pass.rows), pass.source_channels)
        };
        let steps =
            |n: usize, step: usize| (0..n.max(1)).step_by(step.max(1)).map(move |first| first..(first + step).min(n));
        // SAFETY: the callers checked that source and target hold `groups` groups and that `packed` is whole; a pass
        // stays inside a group's planes, by the construction of its taps and ranges (see the tests over odd shapes).
        unsafe {
            for together in steps(groups, groups_step) {
                for rows in steps(pass.rows, rows_step) {
                    for channels in steps(source_channels, channels_step) {
                        let part = Pass { source_channels: channels.len(), ..pass.clone() };
                        let (mut all_weights, mut first) = (packed.as_ptr(), 0);
                        for block in blocks(pass.target_channels, 6) {
                            let weights = all_weights.add(channels.start * taps * block);
                            for group in together.clone() {
                                let to = target
                                    .as_mut_ptr()
                                    .add(group * pass.target.group + pass.target.base + first * pass.target.channel);
                                let from = source.as_ptr().add(
                                    group * pass.source.group + pass.source.base + channels.start * pass.source.channel,
                                );
                                let start = match start {
                                    _ if channels.start > 0 => Start::Target,
                                    Start::Bias(bias) => Start::Bias(&bias[first..first + block]),
                                    other => other,
                                };
                                let (at, rows) = (Tile { to, from, weights, start }, rows.clone());
                                match block {
                                    6 => sweep::<S, 6>(simd, &part, at, rows),
                                    5 => sweep::<S, 5>(simd, &part, at, rows),
                                    4 => sweep::<S, 4>(simd, &part, at, rows),
                                    3 => sweep::<S, 3>(simd, &part, at, rows),
                                    2 => sweep::<S, 2>(simd, &part, at, rows),
                                    _ => sweep::<S, 1>(simd, &part, at, rows),
                                }
                            }
                            all_weights = all_weights.add(pass.source_channels * taps * block);
                            first += block;
                        }
                    }
                }
            }
        }
    }
}

/// A tile's source, target and initial values.
#[derive(Clone, Copy)]
struct Tile<'a> {
    to: *mut f32,
    from: *const f32,
    weights: *const f32,
    start: Start<'a>,
}

/// Width in pixels of a tile with this many channels: ten or twelve sums fit into sixteen registers. It is the same on
/// every processor, because a tile multiplies the zeros of the border where one of its pixels needs a tap and others do not.
pub(super) const fn tile_width(channels: usize) -> usize {
    if channels <= 3 { 3 } else { 2 }
}

/// Some rows of one block of target channels over some source channels.
#[inline(always)]
unsafe fn sweep<S: Simd, const OC: usize>(simd: S, pass: &Pass, at: Tile<'_>, rows: Range<usize>) {
    // SAFETY: the caller's contract.
    unsafe {
        match tile_width(OC) {
            3 => sweep_rows::<S, OC, 3>(simd, pass, at, rows),
            _ => sweep_rows::<S, OC, 2>(simd, pass, at, rows),
        }
    }
}

#[inline(always)]
unsafe fn sweep_rows<S: Simd, const OC: usize, const PX: usize>(
    simd: S,
    pass: &Pass,
    first: Tile<'_>,
    rows: Range<usize>,
) {
    for row in rows {
        let row_taps = pass.row_taps.inside(row, 1);
        let mut column = 0;
        while column < pass.columns {
            let left = pass.columns - column;
            // SAFETY: row and column lie inside the pass.
            unsafe {
                let from = first.from.add(row * pass.source.row + column * pass.source.pixel);
                let to = first.to.add(row * pass.target.row + column * pass.target.pixel);
                let at = Tile { to, from, ..first };
                if S::PAIRS && PX == 2 && left >= 2 {
                    // Several tiles at once where all need the same taps, so that this changes no sum.
                    let column_taps = pass.column_taps.inside(column, 2);
                    let same = |n: usize| {
                        left >= 2 * n && (1..n).all(|i| pass.column_taps.inside(column + 2 * i, 2) == column_taps)
                    };
                    let taps = (row_taps.clone(), column_taps.clone());
                    if same(4) {
                        tile::<_, OC, 4>(Paired(simd), pass, at, taps);
                        column += 8;
                    } else if same(2) {
                        tile::<_, OC, 2>(Paired(simd), pass, at, taps);
                        column += 4;
                    } else {
                        tile::<_, OC, 1>(Paired(simd), pass, at, taps);
                        column += 2;
                    }
                } else if left >= PX && left != PX + 1 || PX == 2 && left >= 2 {
                    let taps = (row_taps.clone(), pass.column_taps.inside(column, PX));
                    tile::<_, OC, PX>(simd, pass, at, taps);
                    column += PX;
                } else if left >= 2 {
                    let taps = (row_taps.clone(), pass.column_taps.inside(column, 2));
                    tile::<_, OC, 2>(simd, pass, at, taps);
                    column += 2;
                } else {
                    let taps = (row_taps.clone(), pass.column_taps.inside(column, 1));
                    tile::<_, OC, 1>(simd, pass, at, taps);
                    column += 1;
                }
            }
        }
    }
}

/// OC target channels by PX pixels or pairs of them, accumulated in registers over some source channels and all taps.
#[inline(always)]
unsafe fn tile<A: Apart, const OC: usize, const PX: usize>(
    simd: A,
    pass: &Pass,
    Tile { to, from, weights, start }: Tile<'_>,
    (row_taps, column_taps): (Range<usize>, Range<usize>),
) {
    let (pixel, beside) = (pass.source.pixel, pass.target.pixel);
    // SAFETY: the caller's pixel has PX neighbours, and every tap of a pixel lies inside the source with its border.
    unsafe {
        let mut sum = [[simd.splat(0.0); PX]; OC];
        match start {
            Start::Zero => {}
            Start::Bias(bias) => {
                for o in 0..OC {
                    sum[o] = [simd.splat(bias[o]); PX];
                }
            }
            Start::Target => {
                for o in 0..OC {
                    for p in 0..PX {
                        sum[o][p] = simd.read(to.add(o * pass.target.channel + p * A::VECTORS * beside), beside);
                    }
                }
            }
        }
        let (tap_rows, tap_columns) = (pass.row_taps.count, pass.column_taps.count);
        if tap_rows * tap_columns == 1 && !row_taps.is_empty() && !column_taps.is_empty() {
            // A single tap: loop over the channels only.
            for channel in 0..pass.source_channels {
                let from = from.add(channel * pass.source.channel);
                let x: [A::Vector; PX] = std::array::from_fn(|p| simd.read(from.add(p * A::VECTORS * pixel), pixel));
                for o in 0..OC {
                    let w = simd.splat(*weights.add(channel * OC + o));
                    for p in 0..PX {
                        sum[o][p] = simd.fma(w, x[p], sum[o][p]);
                    }
                }
            }
            return finish_tile(simd, pass, to, &sum);
        }
        let (row_offset, column_offset) = (pass.row_taps.offset, pass.column_taps.offset);
        for channel in 0..pass.source_channels {
            let from = from.add(channel * pass.source.channel).offset(column_taps.start as isize * column_offset);
            let weights = weights.add((channel * tap_rows * tap_columns + column_taps.start) * OC);
            for row in row_taps.clone() {
                let mut from = from.offset(row as isize * row_offset);
                let mut weights = weights.add(row * tap_columns * OC);
                for _ in column_taps.clone() {
                    let x: [A::Vector; PX] =
                        std::array::from_fn(|p| simd.read(from.add(p * A::VECTORS * pixel), pixel));
                    for o in 0..OC {
                        let w = simd.splat(*weights.add(o));
                        for p in 0..PX {
                            sum[o][p] = simd.fma(w, x[p], sum[o][p]);
                        }
                    }
                    from = from.offset(column_offset);
                    weights = weights.add(OC);
                }
            }
        }
        finish_tile(simd, pass, to, &sum);
    }
}

#[inline(always)]
unsafe fn finish_tile<A: Apart, const OC: usize, const PX: usize>(
    simd: A,
    pass: &Pass,
    to: *mut f32,
    sum: &[[A::Vector; PX]; OC],
) {
    let pixel = pass.target.pixel;
    for o in 0..OC {
        for p in 0..PX {
            // SAFETY: the caller's pixel has PX neighbours in OC channels.
            unsafe { simd.write(to.add(o * pass.target.channel + p * A::VECTORS * pixel), pixel, sum[o][p]) };
        }
    }
}
