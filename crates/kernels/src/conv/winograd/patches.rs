//! From planes to transformed patches and back. Patches are kept as `[part][channel][patch]`.
#![allow(clippy::needless_range_loop, reason = "patches are indexed in registers")]

use pulp::Simd;

use super::super::correlate::Start;
use super::super::pass::Walk;
use super::scheme::Scheme;
use super::{Winograd, with_scheme};
use crate::simd::{Kernel, is_portable, load, store};

/// Floats between the parts, so that they do not share the same few places of the cache.
pub(super) const SKEW: usize = 16;

/// Some rows of patches of one side of a convolution.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a> {
    pub(super) shape: &'a Winograd,
    walk: Walk,
    pub(super) channels: usize,
    /// The first row of patches, counted over all groups, and how many.
    pub(super) first: usize,
    pub(super) rows: usize,
    /// The rows, from the first, that are no border.
    pub(super) inside: (usize, usize),
}

/// A row of patches of one channel.
struct Line {
    channel: usize,
    /// Where its first pixel stands, and its first patch.
    pixel: usize,
    patch: usize,
    is_border: bool,
}

impl<'a> Strip<'a> {
    /// What is read for some rows of the target: as many rows, and those the kernel reaches below them.
    pub(super) fn sources(shape: &'a Winograd, walk: Walk, (first, rows): (usize, usize)) -> Self {
        let (above, (start, end)) = (first % shape.rows, shape.inside);
        let rows = rows + shape.taps() - 1;
        let inside = (start.saturating_sub(above).min(rows), end.saturating_sub(above).min(rows));
        Self { shape, walk, channels: shape.sources, first, rows, inside }
    }

    pub(super) fn targets(shape: &'a Winograd, walk: Walk, (first, rows): (usize, usize)) -> Self {
        Self { shape, walk, channels: shape.targets, first, rows, inside: (0, rows) }
    }

    #[inline(always)]
    pub(super) fn patches(&self) -> usize {
        self.rows * self.shape.columns
    }

    /// Floats from one part to the next.
    #[inline(always)]
    pub(super) fn step(&self) -> usize {
        self.channels * self.patches() * self.shape.lanes + SKEW
    }

    /// Every row of patches, which are `apart` pixels from one to the next below.
    #[inline(always)]
    fn lines(&self, apart: usize) -> impl Iterator<Item = Line> + use<> {
        let (first, rows, walk, inside) = (self.first, self.rows, self.walk, self.inside);
        let (all, several) = (self.shape.rows, self.shape.taps() == 1);
        let patches = self.shape.columns * self.shape.lanes;
        (0..self.channels * rows).map(move |line| {
            let (channel, row) = (line / rows, line % rows);
            let group = if several { first + row } else { first } / all;
            let down = (first + row - group * all) * apart * walk.row;
            let pixel = walk.base + group * walk.group + channel * walk.channel + down;
            Line { channel, pixel, patch: line * patches, is_border: row < inside.0 || row >= inside.1 }
        })
    }

    /// The first pixel of a patch in its row, and how many of its pixels belong to the patch before. Squares fit.
    #[inline(always)]
    fn place(&self, column: usize, (height, width): (usize, usize)) -> (usize, usize) {
        let at = column * width;
        if height > 1 {
            return (at, 0);
        }
        let last = self.shape.width - width;
        (at.min(last), at.saturating_sub(last))
    }
}

/// Plain Rust would spread a transform out into thousands of single steps: there it is a call.
#[inline(always)]
fn call<S: Simd, A, B>(transform: impl Fn(A) -> B, side: A) -> B {
    #[inline(never)]
    fn apart<A, B>(transform: impl Fn(A) -> B, side: A) -> B {
        transform(side)
    }
    if is_portable::<S>() { apart(transform, side) } else { transform(side) }
}

/// Transforms the columns of a patch, then the rows of what came out. The transforms go by value, here and where they are
/// called: behind a reference they are not inlined, and six times slower.
#[inline(always)]
fn both_ways<S: Simd, const A: usize, const B: usize, const I: usize, const O: usize>(
    simd: S,
    read: impl Fn(usize, usize) -> S::f32s,
    down: impl Fn([S::f32s; A]) -> [S::f32s; B] + Copy,
    across: impl Fn([S::f32s; I]) -> [S::f32s; O] + Copy,
    mut write: impl FnMut(usize, [S::f32s; O]),
) {
    let zero = simd.splat_f32s(0.0);
    let mut half = [[zero; I]; B];
    for c in 0..I {
        let mut side = [zero; A];
        for r in 0..A {
            side[r] = read(r, c);
        }
        let side = call::<S, _, _>(down, side);
        for r in 0..B {
            half[r][c] = side[r];
        }
    }
    for r in 0..B {
        write(r, call::<S, _, _>(across, half[r]));
    }
}

/// v = B' d B of every patch of inputs d.
pub(super) struct Inputs<'a> {
    pub(super) strip: Strip<'a>,
    pub(super) v: &'a mut [f32],
    pub(super) source: &'a [f32],
}

impl Kernel for Inputs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_scheme!(self.strip.shape.form, self.transform(simd))
    }
}

impl Inputs<'_> {
    #[inline(always)]
    fn transform<
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
        simd: S,
    ) {
        spread::<S, A, A, P, P>(
            simd,
            self.strip,
            (self.v, self.source),
            (B, M),
            #[inline(always)]
            |side| D::input(simd, side),
            #[inline(always)]
            |side| F::input(simd, side),
        );
    }
}

/// u = A dy A' of every patch of output gradients dy.
pub(super) struct Gradients<'a> {
    pub(super) strip: Strip<'a>,
    pub(super) u: &'a mut [f32],
    pub(super) gradient: &'a [f32],
}

impl Kernel for Gradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_scheme!(self.strip.shape.form, self.transform(simd))
    }
}

impl Gradients<'_> {
    #[inline(always)]
    fn transform<
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
        simd: S,
    ) {
        spread::<S, B, A, M, P>(
            simd,
            self.strip,
            (self.u, self.gradient),
            (B, M),
            #[inline(always)]
            |side| D::gradient(simd, side),
            #[inline(always)]
            |side| F::gradient(simd, side),
        );
    }
}

/// Planes to parts: patches of `A` by `I` pixels, `sides` pixels from one to the next, become `B` by `O` parts.
#[inline(always)]
fn spread<S: Simd, const A: usize, const B: usize, const I: usize, const O: usize>(
    simd: S,
    strip: Strip<'_>,
    (parts, plane): (&mut [f32], &[f32]),
    sides: (usize, usize),
    down: impl Fn([S::f32s; A]) -> [S::f32s; B] + Copy,
    across: impl Fn([S::f32s; I]) -> [S::f32s; O] + Copy,
) {
    let (parts, plane) = (parts.as_mut_ptr(), plane.as_ptr());
    let (lanes, step) = (S::F32_LANES, strip.step());
    let zero = simd.splat_f32s(0.0);
    // What stands for outputs is taken once, by the patch it belongs to.
    let once = I == sides.1;
    for line in strip.lines(sides.0) {
        for column in 0..strip.shape.columns {
            let (at, before) = strip.place(column, sides);
            // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
            unsafe {
                let from = plane.add(line.pixel + at * lanes);
                let to = parts.add(line.patch + column * lanes);
                if sides.0 == 1 && line.is_border {
                    for part in 0..B * O {
                        store::<S>(to.add(part * step), zero);
                    }
                    continue;
                }
                both_ways::<S, A, B, I, O>(
                    simd,
                    #[inline(always)]
                    |r, c| if once && c < before { zero } else { load::<S>(from.add(r * strip.walk.row + c * lanes)) },
                    down,
                    across,
                    #[inline(always)]
                    |r, side| {
                        for c in 0..O {
                            store::<S>(to.add((r * O + c) * step), side[c]);
                        }
                    },
                );
            }
        }
    }
}

/// target = start + A' m A of every patch.
pub(super) struct Outputs<'a> {
    pub(super) strip: Strip<'a>,
    pub(super) target: &'a mut [f32],
    pub(super) m: &'a [f32],
    pub(super) start: Start<'a>,
}

impl Kernel for Outputs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_scheme!(self.strip.shape.form, self.transform(simd))
    }
}

impl Outputs<'_> {
    #[inline(always)]
    fn transform<
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
        simd: S,
    ) {
        let Self { strip, target, m, start } = self;
        let (target, m) = (target.as_mut_ptr(), m.as_ptr());
        let (lanes, step) = (S::F32_LANES, strip.step());
        for line in strip.lines(B) {
            let bias = if let Start::Bias(bias) = start { bias[line.channel] } else { 0.0 };
            let bias = simd.splat_f32s(bias);
            for column in 0..strip.shape.columns {
                let (at, before) = strip.place(column, (B, M));
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let y = target.add(line.pixel + at * lanes);
                    let m = m.add(line.patch + column * lanes);
                    both_ways::<S, A, B, P, M>(
                        simd,
                        #[inline(always)]
                        |r, c| load::<S>(m.add((r * P + c) * step)),
                        #[inline(always)]
                        |side| D::output(simd, side),
                        #[inline(always)]
                        |side| F::output(simd, side),
                        #[inline(always)]
                        |r, side| {
                            for c in 0..M {
                                if c < before {
                                    continue;
                                }
                                let y = y.add(r * strip.walk.row + c * lanes);
                                let value = match start {
                                    Start::Zero => side[c],
                                    Start::Bias(_) => simd.add_f32s(side[c], bias),
                                    Start::Target => simd.add_f32s(side[c], load::<S>(y)),
                                };
                                store::<S>(y, value);
                            }
                        },
                    );
                }
            }
        }
    }
}
