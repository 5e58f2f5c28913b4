//! Direct convolution: output, input gradient and weight gradient.
//!
//! There is no unfolded copy of the input. A tile of output channels by neighbouring pixels stays in registers while the
//! loop walks the input channels and the kernel's taps; one vector holds the same pixel of several samples.
//!
//! The input gradient of a strided convolution is split by phase: the input pixels whose row and column leave the same
//! remainder modulo the stride see the same subset of taps, so each phase is a dense correlation over the output
//! gradient and no work is spent on the zeros between its pixels.

#![allow(clippy::needless_range_loop, reason = "tiles are indexed by channel and pixel, in registers")]

use std::ops::Range;

use pulp::Simd;

use crate::plane::Plane;
use crate::simd::{Isa, Kernel, fma, load, store};

/// Bytes of input rows that are worked on at a time, so that they stay in the second-level cache.
const ROWS_BYTES: usize = 200_000;
/// Packed weights above this many bytes are walked once for all groups instead of once a group.
const LARGE_WEIGHTS_BYTES: usize = 384 << 10;
/// Pixels summed by a weight-gradient tile before its lanes are added up.
const SUM_PIXELS: usize = 64;

/// One convolution: its geometry and the tables its kernels walk.
#[derive(Clone, Debug)]
pub struct Conv {
    isa: Isa,
    in_channels: usize,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    /// The input, with a halo of at least `pad`.
    input: Plane,
    /// The output, with the halo its readers need.
    output: Plane,
    /// The gradient of the output, with the halo the input gradient needs.
    output_gradient: Plane,
    forward: Pass,
    backward: Vec<Pass>,
    /// The kernel's taps, row by row.
    taps: Vec<Tap>,
}

/// One tap of the kernel: where it reads, and the outputs for which it reads inside the input.
#[derive(Clone, Debug)]
struct Tap {
    offset: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// One dense correlation over a source with a border of zeros, all offsets in floats.
#[derive(Clone, Debug)]
struct Pass {
    row_taps: Taps,
    column_taps: Taps,
    source: Walk,
    target: Walk,
    source_channels: usize,
    target_channels: usize,
    rows: usize,
    columns: usize,
}

/// The kernel's taps along one axis: target position p reads source position `p * step + tap * sign + first`.
#[derive(Clone, Copy, Debug)]
struct Taps {
    count: usize,
    /// Which tap of the kernel tap 0 is, and how far apart they are: the rows of a phase are every stride-th.
    kernel_first: usize,
    kernel_step: usize,
    step: isize,
    sign: isize,
    first: isize,
    /// Source positions outside `0..limit` are the border.
    limit: isize,
    /// Floats from one tap to the next.
    offset: isize,
}

impl Taps {
    fn kernel(&self, tap: usize) -> usize {
        self.kernel_first + tap * self.kernel_step
    }

    /// The taps that read inside the source for at least one of the targets `p..p + n`.
    #[inline(always)]
    fn inside(&self, p: usize, n: usize) -> Range<usize> {
        let (low, high) = (p as isize * self.step + self.first, (p + n - 1) as isize * self.step + self.first);
        let (from, to) = if self.sign > 0 { (-high, self.limit - low) } else { (low - self.limit + 1, high + 1) };
        let count = self.count as isize;
        from.clamp(0, count) as usize..to.clamp(0, count) as usize
    }
}

/// How one side of a pass is walked.
#[derive(Clone, Copy, Debug)]
struct Walk {
    base: usize,
    group: usize,
    channel: usize,
    row: usize,
    pixel: usize,
}

/// What a tile starts from.
#[derive(Clone, Copy)]
enum Start<'a> {
    Zero,
    Bias(&'a [f32]),
    Target,
}

impl Conv {
    /// A convolution with a square kernel. `input` must have a halo of at least `pad`, and the kernel must fit into the
    /// padded input; `None` otherwise. `output_halo` is what the readers of the output need.
    #[must_use]
    pub fn new(
        isa: Isa,
        (in_channels, out_channels): (usize, usize),
        (kernel, stride, pad): (usize, usize, usize),
        input: Plane,
        output_halo: usize,
    ) -> Option<Self> {
        let (height, width) = output_size(input, kernel, stride, pad)?;
        if in_channels == 0 || out_channels == 0 || input.halo < pad {
            return None;
        }
        let lanes = isa.lanes();
        let output = Plane { height, width, halo: output_halo };
        // A tile skips the taps that no pixel of it needs; what is left reaches over the edge by less than its width.
        let reach = blocks(in_channels).map(|block| tile_width(isa, block) - 1).max().unwrap_or(0);
        let output_gradient = output.with_halo(gradient_halo(input, output, kernel, stride, pad).min(reach));
        let corner = input.origin() - pad * (input.row() + 1);
        let source = Walk {
            base: corner * lanes,
            group: in_channels * input.area() * lanes,
            channel: input.area() * lanes,
            row: stride * input.row() * lanes,
            pixel: stride * lanes,
        };
        let taps = |limit: usize, offset: usize| Taps {
            count: kernel,
            kernel_first: 0,
            kernel_step: 1,
            step: stride as isize,
            sign: 1,
            first: -(pad as isize),
            limit: limit as isize,
            offset: (offset * lanes) as isize,
        };
        let forward = Pass {
            row_taps: taps(input.height, input.row()),
            column_taps: taps(input.width, 1),
            source,
            target: walk(output, out_channels, lanes),
            source_channels: in_channels,
            target_channels: out_channels,
            rows: height,
            columns: width,
        };
        let mut conv = Self {
            isa,
            in_channels,
            out_channels,
            kernel,
            stride,
            pad,
            input,
            output,
            output_gradient,
            taps: (0..kernel * kernel)
                .map(|tap| Tap {
                    offset: (tap / kernel * input.row() + tap % kernel) * lanes,
                    rows: covered(tap / kernel, stride, pad, input.height, height),
                    columns: covered(tap % kernel, stride, pad, input.width, width),
                })
                .collect(),
            forward,
            backward: Vec::new(),
        };
        for row_phase in 0..stride {
            for column_phase in 0..stride {
                conv.backward.extend(conv.phase(row_phase, column_phase, input.with_halo(0)));
            }
        }
        Some(conv)
    }

    /// The same convolution writing its input gradient into planes with this halo.
    #[must_use]
    pub fn with_input_gradient_halo(mut self, halo: usize) -> Self {
        let target = self.input.with_halo(halo);
        self.backward = (0..self.stride * self.stride)
            .filter_map(|phase| self.phase(phase / self.stride, phase % self.stride, target))
            .collect();
        self
    }

    /// The correlation that gives the input gradient at rows and columns of one remainder modulo the stride.
    fn phase(&self, row_phase: usize, column_phase: usize, target: Plane) -> Option<Pass> {
        let (s, pad, lanes) = (self.stride, self.pad, self.isa.lanes());
        let rows = phase_range(row_phase, s, pad, self.input.height);
        let columns = phase_range(column_phase, s, pad, self.input.width);
        if rows.is_empty() || columns.is_empty() {
            return None;
        }
        let gradient = self.output_gradient;
        let taps = |phase: usize, first: usize, limit: usize, offset: usize| Taps {
            count: self.kernel.saturating_sub(phase).div_ceil(s),
            kernel_first: phase,
            kernel_step: s,
            step: 1,
            sign: -1,
            first: first as isize,
            limit: limit as isize,
            offset: -((offset * lanes) as isize),
        };
        let row_taps = taps(row_phase, rows.start, gradient.height, gradient.row());
        let column_taps = taps(column_phase, columns.start, gradient.width, 1);
        let first_row = rows.start * s + row_phase - pad;
        let first_column = columns.start * s + column_phase - pad;
        let mut source = walk(gradient, self.out_channels, lanes);
        source.base += (rows.start * gradient.row() + columns.start) * lanes;
        let mut to = walk(target, self.in_channels, lanes);
        to.base += (first_row * target.row() + first_column) * lanes;
        to.row *= s;
        to.pixel *= s;
        Some(Pass {
            row_taps,
            column_taps,
            source,
            target: to,
            source_channels: self.out_channels,
            target_channels: self.in_channels,
            rows: rows.len(),
            columns: columns.len(),
        })
    }

    /// Where the output goes.
    #[must_use]
    pub fn output(&self) -> Plane {
        self.output
    }

    /// The plane the output's gradient must be in: its halo must hold zeros.
    #[must_use]
    pub fn output_gradient(&self) -> Plane {
        self.output_gradient
    }

    /// Number of weights: `[out][in][row][column]`.
    #[must_use]
    pub fn weights(&self) -> usize {
        self.out_channels * self.in_channels * self.kernel * self.kernel
    }

    /// Multiply-adds of the forward pass for one sample. The two gradients take as many each.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        self.weights() * self.output.pixels()
    }

    /// Reorders the weights for [`Conv::forward`].
    pub fn pack_forward(&self, packed: &mut [f32], w: &[f32]) {
        assert!(packed.len() >= self.weights() && w.len() >= self.weights());
        let taps = self.kernel * self.kernel;
        pack(packed, &self.forward, self.kernel, |target, source, tap| {
            w[(target * self.in_channels + source) * taps + tap]
        });
    }

    /// Reorders the weights for [`Conv::input_gradient`].
    pub fn pack_backward(&self, packed: &mut [f32], w: &[f32]) {
        assert!(packed.len() >= self.weights() && w.len() >= self.weights());
        let taps = self.kernel * self.kernel;
        let mut rest = packed;
        for pass in &self.backward {
            let (part, tail) = rest.split_at_mut(pass.weights());
            pack(part, pass, self.kernel, |target, source, tap| {
                w[(source * self.in_channels + target) * taps + tap]
            });
            rest = tail;
        }
    }

    /// y = w * x + bias for `groups` groups. `packed` comes from [`Conv::pack_forward`].
    pub fn forward(&self, y: &mut [f32], x: &[f32], packed: &[f32], bias: Option<&[f32]>, groups: usize) {
        let start = match bias {
            Some(bias) => {
                assert!(bias.len() >= self.out_channels);
                Start::Bias(bias)
            }
            None => Start::Zero,
        };
        self.check(x, y, groups, self.output);
        assert!(packed.len() >= self.weights());
        self.isa.run(Correlate { pass: &self.forward, target: y, source: x, packed, start, groups });
    }

    /// dx = the gradient of the input, or dx += it. The halo of `d_y` must hold zeros; `dx` has the halo that was asked
    /// for. `packed` comes from [`Conv::pack_backward`].
    pub fn input_gradient(&self, d_x: &mut [f32], d_y: &[f32], packed: &[f32], groups: usize, add: bool) {
        assert!(packed.len() >= self.weights());
        assert!(d_y.len() >= groups * self.out_channels * self.output_gradient.area() * self.isa.lanes());
        let start = if add { Start::Target } else { Start::Zero };
        let mut rest = packed;
        for pass in &self.backward {
            assert!(d_x.len() >= groups * pass.target.group);
            let (part, tail) = rest.split_at(pass.weights());
            if add && part.is_empty() {
                continue;
            }
            self.isa.run(Correlate { pass, target: d_x, source: d_y, packed: part, start, groups });
            rest = tail;
        }
    }

    /// dw += the gradient of the weights, over all groups.
    pub fn weight_gradient(&self, d_w: &mut [f32], x: &[f32], d_y: &[f32], groups: usize) {
        assert!(d_w.len() >= self.weights());
        self.check(x, d_y, groups, self.output_gradient);
        self.isa.run(WeightGradient { conv: self, d_w, x, d_y, groups });
    }

    /// db += the sum of the output gradient over samples and pixels.
    pub fn bias_gradient(&self, d_b: &mut [f32], d_y: &[f32], groups: usize) {
        assert!(d_b.len() >= self.out_channels);
        let plane = self.output_gradient;
        assert!(d_y.len() >= groups * self.out_channels * plane.area() * self.isa.lanes());
        self.isa.run(BiasGradient { d_b: &mut d_b[..self.out_channels], d_y, plane, groups });
    }

    fn check(&self, x: &[f32], y: &[f32], groups: usize, y_plane: Plane) {
        let lanes = self.isa.lanes();
        assert!(x.len() >= groups * self.in_channels * self.input.area() * lanes, "input buffer too small");
        assert!(y.len() >= groups * self.out_channels * y_plane.area() * lanes, "output buffer too small");
    }
}

impl Pass {
    fn weights(&self) -> usize {
        self.row_taps.count * self.column_taps.count * self.source_channels * self.target_channels
    }
}

fn walk(plane: Plane, channels: usize, lanes: usize) -> Walk {
    Walk {
        base: plane.origin() * lanes,
        group: channels * plane.area() * lanes,
        channel: plane.area() * lanes,
        row: plane.row() * lanes,
        pixel: lanes,
    }
}

/// Rows and columns of the output, if there are any.
fn output_size(input: Plane, kernel: usize, stride: usize, pad: usize) -> Option<(usize, usize)> {
    if kernel == 0 || stride == 0 {
        return None;
    }
    let side = |n: usize| Some((n + 2 * pad).checked_sub(kernel)? / stride + 1);
    Some((side(input.height)?, side(input.width)?))
}

/// Phase coordinates q whose pixel q * stride + phase - pad lies inside an input of `size` pixels.
fn phase_range(phase: usize, stride: usize, pad: usize, size: usize) -> Range<usize> {
    let first = pad.saturating_sub(phase).div_ceil(stride);
    let end = (pad + size).saturating_sub(phase).div_ceil(stride);
    first..end.max(first)
}

/// The outputs along one axis for which a tap reads inside an input of `size` pixels.
fn covered(tap: usize, stride: usize, pad: usize, size: usize, outputs: usize) -> Range<usize> {
    let first = pad.saturating_sub(tap).div_ceil(stride).min(outputs);
    let end = (size + pad).saturating_sub(tap).div_ceil(stride).min(outputs);
    first..end.max(first)
}

/// How far the input gradient reaches over the edge of the output gradient.
fn gradient_halo(input: Plane, output: Plane, kernel: usize, stride: usize, pad: usize) -> usize {
    let side = |size: usize, out: usize| {
        let before = (kernel - 1) / stride;
        let after = ((pad + size - 1) / stride + 1).saturating_sub(out);
        before.max(after)
    };
    side(input.height, output.height).max(side(input.width, output.width))
}

/// Channels are taken in even blocks of at most six: with two pixels a tile then has ten or twelve sums, enough to hide
/// the latency of a multiply-add and few enough for sixteen registers.
fn blocks(channels: usize) -> impl Iterator<Item = usize> {
    let count = channels.div_ceil(6);
    let (size, larger) = (channels / count, channels % count);
    (0..count).map(move |i| size + usize::from(i < larger))
}

/// Packed order: block of target channels, source channel, tap, target channel within the block.
fn pack(packed: &mut [f32], pass: &Pass, kernel: usize, weight: impl Fn(usize, usize, usize) -> f32) {
    let (mut at, mut first) = (0, 0);
    for block in blocks(pass.target_channels) {
        for source in 0..pass.source_channels {
            for row in 0..pass.row_taps.count {
                for column in 0..pass.column_taps.count {
                    let tap = pass.row_taps.kernel(row) * kernel + pass.column_taps.kernel(column);
                    for target in first..first + block {
                        packed[at] = weight(target, source, tap);
                        at += 1;
                    }
                }
            }
        }
        first += block;
    }
}

struct Correlate<'a> {
    pass: &'a Pass,
    target: &'a mut [f32],
    source: &'a [f32],
    packed: &'a [f32],
    start: Start<'a>,
    groups: usize,
}

impl Kernel for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { pass, target, source, packed, start, groups } = self;
        let row_bytes = pass.source.row * pass.source_channels * size_of::<f32>();
        let chunk = (ROWS_BYTES / row_bytes.max(1)).clamp(1, pass.rows);
        let weights_outside = size_of_val(packed) > LARGE_WEIGHTS_BYTES;
        let (block_runs, group_runs) = if weights_outside { (groups, 1) } else { (1, groups) };
        // SAFETY: the callers checked that source and target hold `groups` groups and that `packed` is whole; a pass
        // stays inside a group's planes, by the construction of its taps and ranges (see the tests over odd shapes).
        unsafe {
            for outer in 0..group_runs {
                let mut row = 0;
                while row < pass.rows {
                    let rows = row..(row + if weights_outside { pass.rows } else { chunk }).min(pass.rows);
                    let (mut weights, mut first) = (packed.as_ptr(), 0);
                    for block in blocks(pass.target_channels) {
                        for inner in 0..block_runs {
                            let group = outer + inner;
                            let to = target.as_mut_ptr().add(
                                group * pass.target.group + pass.target.base + first * pass.target.channel,
                            );
                            let from = source.as_ptr().add(group * pass.source.group + pass.source.base);
                            let start = match start {
                                Start::Bias(bias) => Start::Bias(&bias[first..first + block]),
                                other => other,
                            };
                            let rows = rows.clone();
                            match block {
                                6 => sweep::<S, 6>(simd, pass, to, from, weights, start, rows),
                                5 => sweep::<S, 5>(simd, pass, to, from, weights, start, rows),
                                4 => sweep::<S, 4>(simd, pass, to, from, weights, start, rows),
                                3 => sweep::<S, 3>(simd, pass, to, from, weights, start, rows),
                                2 => sweep::<S, 2>(simd, pass, to, from, weights, start, rows),
                                _ => sweep::<S, 1>(simd, pass, to, from, weights, start, rows),
                            }
                        }
                        weights = weights.add(pass.weights() / pass.target_channels * block);
                        first += block;
                    }
                    row = rows.end;
                }
            }
        }
    }
}

/// Pixels of a tile with this many channels.
fn tile_width(isa: Isa, channels: usize) -> usize {
    match (isa.has_many_registers(), channels <= 3, channels <= 4) {
        (true, _, true) => 6,
        (true, _, false) => 4,
        (false, true, _) => 3,
        (false, false, _) => 2,
    }
}

/// All rows of one block of target channels, with tiles as wide as the registers allow: see [`tile_width`].
#[inline(always)]
unsafe fn sweep<S: Simd, const OC: usize>(
    simd: S,
    pass: &Pass,
    to: *mut f32,
    from: *const f32,
    weights: *const f32,
    start: Start<'_>,
    rows: Range<usize>,
) {
    // SAFETY: handed on.
    unsafe {
        if S::REGISTER_COUNT >= 32 {
            if OC <= 4 {
                sweep_rows::<S, OC, 6>(simd, pass, to, from, weights, start, rows);
            } else {
                sweep_rows::<S, OC, 4>(simd, pass, to, from, weights, start, rows);
            }
        } else if OC <= 3 {
            sweep_rows::<S, OC, 3>(simd, pass, to, from, weights, start, rows);
        } else {
            sweep_rows::<S, OC, 2>(simd, pass, to, from, weights, start, rows);
        }
    }
}

#[inline(always)]
unsafe fn sweep_rows<S: Simd, const OC: usize, const PX: usize>(
    simd: S,
    pass: &Pass,
    to: *mut f32,
    from: *const f32,
    weights: *const f32,
    start: Start<'_>,
    rows: Range<usize>,
) {
    for row in rows {
        let row_taps = pass.row_taps.inside(row, 1);
        let mut column = 0;
        while column < pass.columns {
            let left = pass.columns - column;
            // SAFETY: row and column lie inside the pass.
            unsafe {
                let from = from.add(row * pass.source.row + column * pass.source.pixel);
                let to = to.add(row * pass.target.row + column * pass.target.pixel);
                if left >= PX && left != PX + 1 || PX == 2 && left >= 2 {
                    let taps = (row_taps.clone(), pass.column_taps.inside(column, PX));
                    tile::<S, OC, PX>(simd, pass, to, from, weights, start, taps);
                    column += PX;
                } else if left >= 2 {
                    let taps = (row_taps.clone(), pass.column_taps.inside(column, 2));
                    tile::<S, OC, 2>(simd, pass, to, from, weights, start, taps);
                    column += 2;
                } else {
                    let taps = (row_taps.clone(), pass.column_taps.inside(column, 1));
                    tile::<S, OC, 1>(simd, pass, to, from, weights, start, taps);
                    column += 1;
                }
            }
        }
    }
}

/// OC target channels by PX pixels, in registers over all source channels and taps.
#[inline(always)]
unsafe fn tile<S: Simd, const OC: usize, const PX: usize>(
    simd: S,
    pass: &Pass,
    to: *mut f32,
    from: *const f32,
    weights: *const f32,
    start: Start<'_>,
    (row_taps, column_taps): (Range<usize>, Range<usize>),
) {
    // SAFETY: the caller's pixel has PX neighbours, and every tap of a pixel lies inside the source with its border.
    unsafe {
        let mut sum = [[simd.splat_f32s(0.0); PX]; OC];
        match start {
            Start::Zero => {}
            Start::Bias(bias) => {
                for o in 0..OC {
                    sum[o] = [simd.splat_f32s(bias[o]); PX];
                }
            }
            Start::Target => {
                for o in 0..OC {
                    for p in 0..PX {
                        sum[o][p] = load::<S>(to.add(o * pass.target.channel + p * pass.target.pixel));
                    }
                }
            }
        }
        let pixel = pass.source.pixel;
        let (tap_rows, tap_columns) = (pass.row_taps.count, pass.column_taps.count);
        if tap_rows * tap_columns == 1 && !row_taps.is_empty() && !column_taps.is_empty() {
            // A single tap: the channels are the only loop.
            for channel in 0..pass.source_channels {
                let from = from.add(channel * pass.source.channel);
                let x: [S::f32s; PX] = std::array::from_fn(|p| load::<S>(from.add(p * pixel)));
                for o in 0..OC {
                    let w = simd.splat_f32s(*weights.add(channel * OC + o));
                    for p in 0..PX {
                        sum[o][p] = fma(simd, w, x[p], sum[o][p]);
                    }
                }
            }
            return finish_tile::<S, OC, PX>(pass, to, &sum);
        }
        let (row_offset, column_offset) = (pass.row_taps.offset, pass.column_taps.offset);
        for channel in 0..pass.source_channels {
            let from = from.add(channel * pass.source.channel).offset(column_taps.start as isize * column_offset);
            let weights = weights.add((channel * tap_rows * tap_columns + column_taps.start) * OC);
            for row in row_taps.clone() {
                let mut from = from.offset(row as isize * row_offset);
                let mut weights = weights.add(row * tap_columns * OC);
                for _ in column_taps.clone() {
                    let x: [S::f32s; PX] = std::array::from_fn(|p| load::<S>(from.add(p * pixel)));
                    for o in 0..OC {
                        let w = simd.splat_f32s(*weights.add(o));
                        for p in 0..PX {
                            sum[o][p] = fma(simd, w, x[p], sum[o][p]);
                        }
                    }
                    from = from.offset(column_offset);
                    weights = weights.add(OC);
                }
            }
        }
        finish_tile::<S, OC, PX>(pass, to, &sum);
    }
}

/// Writes a tile's sums.
#[inline(always)]
unsafe fn finish_tile<S: Simd, const OC: usize, const PX: usize>(pass: &Pass, to: *mut f32, sum: &[[S::f32s; PX]; OC]) {
    for o in 0..OC {
        for p in 0..PX {
            // SAFETY: the caller's pixel has PX neighbours in OC channels.
            unsafe { store::<S>(to.add(o * pass.target.channel + p * pass.target.pixel), sum[o][p]) };
        }
    }
}

struct WeightGradient<'a> {
    conv: &'a Conv,
    d_w: &'a mut [f32],
    x: &'a [f32],
    d_y: &'a [f32],
    groups: usize,
}

/// The part of the batch one weight-gradient tile sums over.
#[derive(Clone)]
struct Region {
    groups: Range<usize>,
    rows: Range<usize>,
}

impl Kernel for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let conv = self.conv;
        let plane = conv.output_gradient;
        // Small images are summed over several groups, large ones over some rows, before the lanes are added up.
        let (group_step, row_step) = if plane.pixels() >= SUM_PIXELS {
            (1, SUM_PIXELS.div_ceil(plane.width))
        } else {
            (SUM_PIXELS.div_ceil(plane.pixels()), plane.height)
        };
        let d_w = self.d_w.as_mut_ptr();
        let mut group = 0;
        while group < self.groups {
            let groups = group..(group + group_step).min(self.groups);
            let mut row = 0;
            while row < plane.height {
                let end = if plane.height - row < 2 * row_step { plane.height } else { row + row_step };
                let region = Region { groups: groups.clone(), rows: row..end };
                let mut first = 0;
                for block in blocks(conv.out_channels) {
                    // SAFETY: the buffers were checked against the geometry, and a region lies inside it.
                    unsafe {
                        match block {
                            6 => taps::<S, 6, 2>(simd, &self, d_w, first, &region),
                            5 => taps::<S, 5, 2>(simd, &self, d_w, first, &region),
                            4 => taps::<S, 4, 2>(simd, &self, d_w, first, &region),
                            3 => taps::<S, 3, 3>(simd, &self, d_w, first, &region),
                            2 => taps::<S, 2, 3>(simd, &self, d_w, first, &region),
                            _ => taps::<S, 1, 3>(simd, &self, d_w, first, &region),
                        }
                    }
                    first += block;
                }
                row = end;
            }
            group = groups.end;
        }
    }
}

/// All weights of one block of output channels, TAPS at a time.
#[inline(always)]
unsafe fn taps<S: Simd, const OC: usize, const TAPS: usize>(
    simd: S,
    job: &WeightGradient<'_>,
    d_w: *mut f32,
    first: usize,
    region: &Region,
) {
    let (channels, per_channel) = (job.conv.in_channels, job.conv.taps.len());
    // The same tap of neighbouring channels goes together: both read inside the input for the same outputs.
    let even = channels / TAPS * TAPS;
    for channel in (0..even).step_by(TAPS) {
        for tap in 0..per_channel {
            // SAFETY: handed on; the weights exist.
            unsafe { weight_tile::<S, OC, TAPS>(simd, job, d_w, std::array::from_fn(|i| (channel + i, tap)), first, region) };
        }
    }
    // What is left goes by neighbouring taps.
    let (mut left, mut at) = ((channels - even) * per_channel, (even, 0));
    while left > 0 {
        // SAFETY: as above.
        let n = unsafe {
            if left >= TAPS {
                let at = std::array::from_fn(|i| advance(at, i, per_channel));
                weight_tile::<S, OC, TAPS>(simd, job, d_w, at, first, region);
                TAPS
            } else {
                weight_tile::<S, OC, 1>(simd, job, d_w, [at], first, region);
                1
            }
        };
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

/// OC output channels by TAPS weights, in registers over a region.
#[inline(always)]
unsafe fn weight_tile<S: Simd, const OC: usize, const TAPS: usize>(
    simd: S,
    job: &WeightGradient<'_>,
    d_w: *mut f32,
    at: [(usize, usize); TAPS],
    first: usize,
    region: &Region,
) {
    let conv = job.conv;
    let (plane, lanes) = (conv.output_gradient, S::F32_LANES);
    // Only output pixels for which one of the taps reads inside the input.
    let (mut rows, mut columns) = (plane.height..0, plane.width..0);
    let offsets: [usize; TAPS] = std::array::from_fn(|i| {
        let (channel, tap) = (at[i].0, &conv.taps[at[i].1]);
        rows = rows.start.min(tap.rows.start)..rows.end.max(tap.rows.end);
        columns = columns.start.min(tap.columns.start)..columns.end.max(tap.columns.end);
        conv.forward.source.base + channel * conv.forward.source.channel + tap.offset
    });
    let rows = rows.start.max(region.rows.start)..rows.end.min(region.rows.end);
    let gradient = walk(plane, conv.out_channels, lanes);
    let source = conv.forward.source;
    let count = conv.in_channels * conv.taps.len();
    let mut sum = [[simd.splat_f32s(0.0); TAPS]; OC];
    // SAFETY: rows and columns lie inside the output, and every tap of an output pixel lies inside the input's border.
    unsafe {
        let x = offsets.map(|offset| job.x.as_ptr().add(offset));
        let d_y = job.d_y.as_ptr().add(gradient.base + first * gradient.channel);
        for group in region.groups.clone() {
            for row in rows.clone() {
                let mut d = d_y.add(group * gradient.group + row * gradient.row + columns.start * gradient.pixel);
                let mut at = group * source.group + row * source.row + columns.start * source.pixel;
                for _ in columns.clone() {
                    if OC <= TAPS {
                        let g: [S::f32s; OC] = std::array::from_fn(|o| load::<S>(d.add(o * gradient.channel)));
                        for t in 0..TAPS {
                            let v = load::<S>(x[t].add(at));
                            for o in 0..OC {
                                sum[o][t] = fma(simd, g[o], v, sum[o][t]);
                            }
                        }
                    } else {
                        let v: [S::f32s; TAPS] = std::array::from_fn(|t| load::<S>(x[t].add(at)));
                        for o in 0..OC {
                            let g = load::<S>(d.add(o * gradient.channel));
                            for t in 0..TAPS {
                                sum[o][t] = fma(simd, g, v[t], sum[o][t]);
                            }
                        }
                    }
                    d = d.add(lanes);
                    at += source.pixel;
                }
            }
        }
        for o in 0..OC {
            for t in 0..TAPS {
                let weight = (first + o) * count + at[t].0 * conv.taps.len() + at[t].1;
                *d_w.add(weight) += simd.reduce_sum_f32s(sum[o][t]);
            }
        }
    }
}

struct BiasGradient<'a> {
    d_b: &'a mut [f32],
    d_y: &'a [f32],
    plane: Plane,
    groups: usize,
}

impl Kernel for BiasGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let walk = walk(self.plane, self.d_b.len(), S::F32_LANES);
        for group in 0..self.groups {
            for (channel, d_b) in self.d_b.iter_mut().enumerate() {
                // Four sums, so that one addition need not wait for the one before.
                let mut sums = [simd.splat_f32s(0.0); 4];
                for row in 0..self.plane.height {
                    let start = group * walk.group + channel * walk.channel + walk.base + row * walk.row;
                    let line = &self.d_y[start..start + self.plane.width * S::F32_LANES];
                    let (fours, rest) = S::as_simd_f32s(line).0.as_chunks::<4>();
                    for four in fours {
                        for (sum, &v) in sums.iter_mut().zip(four) {
                            *sum = simd.add_f32s(*sum, v);
                        }
                    }
                    for (sum, &v) in sums.iter_mut().zip(rest) {
                        *sum = simd.add_f32s(*sum, v);
                    }
                }
                let [a, b, c, d] = sums;
                *d_b += simd.reduce_sum_f32s(simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d)));
            }
        }
    }
}
