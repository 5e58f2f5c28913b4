//! Conversion from planes to transformed patches and back. Patches are stored as `[part][channel][patch]`.
//!
//! A last group of at most four samples leaves half of its lanes empty. Its patches are transformed two at a time, and a
//! vector of the products holds two of them: half the work, and each sample's numbers are the same.

use super::super::correlate::Start;
use super::super::pass::Walk;
use super::patch::Patch;
use super::{Winograd, with_patch};
use crate::simd::{Apart, HALF, Kernel, LANES, Paired, Simd, load, load_pair, store, store_pair};

/// Padding in floats between the parts, so that they do not compete for a few cache sets.
pub(super) const SKEW: usize = 16;

/// What a vector of transformed patches holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// Eight samples of one patch.
    Samples,
    /// Four samples of two neighbouring patches.
    Patches,
    /// Four samples of one patch of two neighbouring channels.
    Channels,
    /// Eight samples of one patch; those of two neighbouring channels follow one another.
    Pairs,
}

/// Some rows of patches on one side of a convolution.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a> {
    pub(super) shape: &'a Winograd,
    walk: Walk,
    pub(super) channels: usize,
    /// The first row of patches, counted over all groups, and the number of rows.
    pub(super) first: usize,
    pub(super) rows: usize,
    /// The range of rows outside the border, relative to the first.
    pub(super) inside: (usize, usize),
    pub(super) filling: Filling,
}

/// A row of patches of one channel, or of two.
struct PatchLine {
    channel: usize,
    /// The offsets of its first pixel and its first patch.
    pixel: usize,
    patch: usize,
    is_border: bool,
}

impl<'a> Strip<'a> {
    /// The source rows for some target rows: the same rows, and those the kernel reaches below them.
    pub(super) fn sources(shape: &'a Winograd, walk: Walk, (first, rows): (usize, usize)) -> Self {
        let (above, (start, end)) = (first % shape.rows, shape.inside);
        let rows = rows + shape.taps() - 1;
        let inside = (start.saturating_sub(above).min(rows), end.saturating_sub(above).min(rows));
        Self { shape, walk, channels: shape.sources, first, rows, inside, filling: Filling::Samples }
    }

    pub(super) fn targets(shape: &'a Winograd, walk: Walk, (first, rows): (usize, usize)) -> Self {
        Self { shape, walk, channels: shape.targets, first, rows, inside: (0, rows), filling: Filling::Samples }
    }

    pub(super) fn filled(self, filling: Filling) -> Self {
        Self { filling, ..self }
    }

    /// Patches per channel.
    #[inline(always)]
    pub(super) fn patches(&self) -> usize {
        self.rows * self.shape.columns
    }

    /// Vectors per channel, or per pair of channels.
    #[inline(always)]
    pub(super) fn vectors(&self) -> usize {
        match self.filling {
            Filling::Samples | Filling::Channels => self.patches(),
            Filling::Patches => self.patches().div_ceil(2),
            Filling::Pairs => 2 * self.patches(),
        }
    }

    /// Floats from one patch to the next.
    #[inline(always)]
    pub(super) fn patch(&self) -> usize {
        match self.filling {
            Filling::Samples | Filling::Channels => LANES,
            Filling::Patches => HALF,
            Filling::Pairs => 2 * LANES,
        }
    }

    /// Channels, or pairs of them.
    #[inline(always)]
    fn units(&self) -> usize {
        self.channels.div_ceil(self.together())
    }

    /// Channels whose patches are side by side.
    #[inline(always)]
    fn together(&self) -> usize {
        if matches!(self.filling, Filling::Channels | Filling::Pairs) { 2 } else { 1 }
    }

    /// Floats from one part to the next.
    #[inline(always)]
    pub(super) fn step(&self) -> usize {
        self.units() * self.vectors() * LANES + SKEW
    }

    /// All rows of patches, spaced `apart` pixels vertically, each with the first pixel of the one after it.
    #[inline(always)]
    fn lines(&self, apart: usize) -> impl Iterator<Item = (PatchLine, usize)> + use<> {
        let (first, rows, walk, inside) = (self.first, self.rows, self.walk, self.inside);
        let (all, several) = (self.shape.rows, self.shape.taps() == 1);
        let (unit, patches) = (self.vectors() * LANES, self.shape.columns * self.patch());
        let together = self.together();
        let line = move |line: usize| {
            let (channel, row) = (line / rows * together, line % rows);
            let group = if several { first + row } else { first } / all;
            let down = (first + row - group * all) * apart * walk.row;
            let pixel = walk.base + group * walk.group + channel * walk.channel + down;
            let patch = line / rows * unit + row * patches;
            PatchLine { channel, pixel, patch, is_border: row < inside.0 || row >= inside.1 }
        };
        let last = self.units() * rows - 1;
        (0..=last).map(move |i| (line(i), line((i + 1).min(last)).pixel))
    }

    /// The first pixel of a patch in its row, and how many of its pixels belong to the previous patch (none for
    /// squares).
    #[inline(always)]
    fn place(&self, column: usize, (height, width): (usize, usize)) -> (usize, usize) {
        let at = column * width;
        if height > 1 {
            return (at, 0);
        }
        let last = self.shape.width - width;
        (at.min(last), at.saturating_sub(last))
    }

    /// The same for the patch after it, if there is one.
    #[inline(always)]
    fn beside(&self, column: usize, outputs: (usize, usize)) -> Option<(usize, usize)> {
        (column + 1 < self.shape.columns).then(|| self.place(column + 1, outputs))
    }
}

/// v = B' d B for every patch d of inputs.
pub(super) struct InputPatches<'a> {
    pub(super) strip: Strip<'a>,
    pub(super) v: &'a mut [f32],
    pub(super) source: &'a [f32],
}

impl Kernel for InputPatches<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_patch!(self.strip.shape.form, self.transform(simd))
    }
}

impl InputPatches<'_> {
    #[inline(always)]
    fn transform<P: Patch, S: Simd>(self, simd: S) {
        match self.strip.filling {
            Filling::Patches => self.each::<P, S, true>(simd),
            _ => self.each::<P, S, false>(simd),
        }
    }

    /// `TWO` patches at a time: the second of an odd number is the first of the next row, which is written later.
    #[inline(always)]
    fn each<P: Patch, S: Simd, const TWO: bool>(self, simd: S) {
        let Self { strip, v, source } = self;
        let (v, source) = (v.as_mut_ptr(), source.as_ptr());
        let (step, row) = (strip.step(), strip.walk.row);
        for (line, next) in strip.lines(P::OUTPUTS.0) {
            for column in (0..strip.shape.columns).step_by(1 + usize::from(TWO || S::PAIRS)) {
                let (at, _) = strip.place(column, P::OUTPUTS);
                let beside = strip.beside(column, P::OUTPUTS).map(|(beside, _)| (beside - at) * LANES);
                let pair = if S::PAIRS && !TWO { beside } else { None };
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let from = source.add(line.pixel + at * LANES);
                    let to = v.add(line.patch + column * strip.patch());
                    if P::OUTPUTS.0 == 1 && line.is_border {
                        for part in 0..P::INPUTS.1 {
                            store::<S>(to.add(part * step), simd.splat(0.0));
                            if pair.is_some() {
                                store::<S>(to.add(part * step + LANES), simd.splat(0.0));
                            }
                        }
                        continue;
                    }
                    let below = P::INPUTS.0 - P::OUTPUTS.0;
                    ahead::<P, S>(simd, source.add(next + at * LANES), row, below);
                    if let Some(beside) = pair {
                        ahead::<P, S>(simd, source.add(next + at * LANES + beside), row, below);
                        P::inputs(
                            Paired(simd),
                            #[inline(always)]
                            |r, c| Paired(simd).read(from.add(r * row + c * LANES), beside),
                            #[inline(always)]
                            |part, value| store_pair::<S>(to.add(part * step), value),
                        );
                        continue;
                    }
                    let beside = beside.unwrap_or(0);
                    P::inputs(
                        simd,
                        #[inline(always)]
                        |r, c| {
                            let from = from.add(r * row + c * LANES);
                            if TWO { simd.join(from, from.add(beside)) } else { load::<S>(from) }
                        },
                        #[inline(always)]
                        |part, value| store::<S>(to.add(part * step), value),
                    );
                }
            }
        }
    }
}

/// u = A dy A' for every patch dy of output gradients.
pub(super) struct GradientPatches<'a> {
    pub(super) strip: Strip<'a>,
    pub(super) u: &'a mut [f32],
    pub(super) gradient: &'a [f32],
}

impl Kernel for GradientPatches<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_patch!(self.strip.shape.form, self.transform(simd))
    }
}

impl GradientPatches<'_> {
    #[inline(always)]
    fn transform<P: Patch, S: Simd>(self, simd: S) {
        match self.strip.filling {
            Filling::Channels => self.each::<P, S, true>(simd),
            _ => self.each::<P, S, false>(simd),
        }
    }

    /// `TWO` channels in one vector, or in a pair if the strip is filled with pairs.
    #[inline(always)]
    fn each<P: Patch, S: Simd, const TWO: bool>(self, simd: S) {
        let Self { strip, u, gradient } = self;
        let (u, gradient) = (u.as_mut_ptr(), gradient.as_ptr());
        let (step, row) = (strip.step(), strip.walk.row);
        let pairs = S::PAIRS && strip.filling == Filling::Pairs;
        for (line, next) in strip.lines(P::OUTPUTS.0) {
            let beside = if line.channel + 1 < strip.channels { strip.walk.channel } else { 0 };
            for column in 0..strip.shape.columns {
                let (at, before) = strip.place(column, P::OUTPUTS);
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let from = gradient.add(line.pixel + at * LANES);
                    let to = u.add(line.patch + column * strip.patch());
                    ahead::<P, S>(simd, gradient.add(next + at * LANES), row, 0);
                    if pairs {
                        ahead::<P, S>(simd, gradient.add(next + at * LANES + beside), row, 0);
                        P::gradients(
                            Paired(simd),
                            #[inline(always)]
                            |r, c| {
                                if c < before {
                                    return simd.splat_pair(0.0);
                                }
                                Paired(simd).read(from.add(r * row + c * LANES), beside)
                            },
                            #[inline(always)]
                            |part, value| store_pair::<S>(to.add(part * step), value),
                        );
                        continue;
                    }
                    P::gradients(
                        simd,
                        // Each gradient counts once, in the patch it belongs to.
                        #[inline(always)]
                        |r, c| {
                            let from = from.add(r * strip.walk.row + c * LANES);
                            if c < before {
                                simd.splat(0.0)
                            } else if TWO {
                                simd.join(from, from.add(beside))
                            } else {
                                load::<S>(from)
                            }
                        },
                        #[inline(always)]
                        |part, value| store::<S>(to.add(part * step), value),
                    );
                }
            }
        }
    }
}

/// target = start + A' m A for every patch.
pub(super) struct OutputPatches<'a> {
    pub(super) strip: Strip<'a>,
    pub(super) target: &'a mut [f32],
    pub(super) m: &'a [f32],
    pub(super) start: Start<'a>,
}

impl Kernel for OutputPatches<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_patch!(self.strip.shape.form, self.transform(simd))
    }
}

impl OutputPatches<'_> {
    #[inline(always)]
    fn transform<P: Patch, S: Simd>(self, simd: S) {
        match self.strip.filling {
            Filling::Patches => self.each::<P, S, true>(simd),
            _ => self.each::<P, S, false>(simd),
        }
    }

    /// `TWO` patches at a time; the other half of their lanes gets what empty lanes have.
    #[inline(always)]
    fn each<P: Patch, S: Simd, const TWO: bool>(self, simd: S) {
        let Self { strip, target, m, start } = self;
        let (target, m) = (target.as_mut_ptr(), m.as_ptr());
        let step = strip.step();
        for (line, next) in strip.lines(P::OUTPUTS.0) {
            let bias = if let Start::Bias(bias) = start { bias[line.channel] } else { 0.0 };
            let bias = simd.splat(bias);
            for column in (0..strip.shape.columns).step_by(1 + usize::from(TWO || S::PAIRS)) {
                let (at, before) = strip.place(column, P::OUTPUTS);
                let beside = strip.beside(column, P::OUTPUTS);
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let row = target.add(line.pixel);
                    let m = m.add(line.patch + column * strip.patch());
                    ahead::<P, S>(simd, target.add(next + at * LANES), strip.walk.row, 0);
                    if S::PAIRS
                        && !TWO
                        && let Some((second, overlap)) = beside
                    {
                        ahead::<P, S>(simd, target.add(next + second * LANES), strip.walk.row, 0);
                        P::outputs(
                            Paired(simd),
                            #[inline(always)]
                            |part| load_pair::<S>(m.add(part * step)),
                            #[inline(always)]
                            |r, c, pair| {
                                let down = r * strip.walk.row;
                                let pair = simd.parted(pair);
                                put(simd, row.add(down + (at + c) * LANES), pair[0], start, bias);
                                if c >= overlap {
                                    put(simd, row.add(down + (second + c) * LANES), pair[1], start, bias);
                                }
                            },
                        );
                        continue;
                    }
                    P::outputs(
                        simd,
                        #[inline(always)]
                        |part| load::<S>(m.add(part * step)),
                        #[inline(always)]
                        |r, c, value| {
                            let down = r * strip.walk.row;
                            let [value, second] = if TWO { simd.split(value) } else { [value; 2] };
                            if c >= before {
                                put(simd, row.add(down + (at + c) * LANES), value, start, bias);
                            }
                            if TWO
                                && let Some((at, before)) = beside
                                && c >= before
                            {
                                put(simd, row.add(down + (at + c) * LANES), second, start, bias);
                            }
                        },
                    );
                }
            }
        }
    }
}

/// Writes one pixel of an output.
///
/// # Safety
/// The pixel must exist.
#[inline(always)]
unsafe fn put<S: Simd>(simd: S, y: *mut f32, value: S::Vector, start: Start<'_>, bias: S::Vector) {
    // SAFETY: by the contract.
    unsafe {
        let value = match start {
            Start::Zero => value,
            Start::Bias(_) => simd.add(value, bias),
            Start::Target => simd.add(value, load::<S>(y)),
        };
        store::<S>(y, value);
    }
}

/// Fetches the rows of a patch that the patch above it does not have, from the row `first` on.
#[inline(always)]
fn ahead<P: Patch, S: Simd>(simd: S, pixel: *const f32, row: usize, first: usize) {
    for r in 0..P::OUTPUTS.0 {
        for c in (0..P::OUTPUTS.1).step_by(2) {
            simd.prefetch(pixel.wrapping_add((first + r) * row + c * LANES));
        }
    }
}
