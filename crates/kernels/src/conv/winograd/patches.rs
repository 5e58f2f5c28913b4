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
    pub(super) walk: Walk,
    pub(super) channels: usize,
    /// The first row of patches, counted over all groups, and how many.
    pub(super) rows: (usize, usize),
}

impl Strip<'_> {
    pub(super) fn patches(&self) -> usize {
        self.rows.1 * self.shape.columns
    }

    /// Floats from one part to the next.
    #[inline(always)]
    pub(super) fn step(&self) -> usize {
        self.channels * self.patches() * self.shape.lanes + SKEW
    }

    /// Channel, first pixel and first patch of every row of patches, whose patches are `side` pixels apart.
    #[inline(always)]
    fn lines(&self, side: usize) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (rows, walk, (first, count)) = (self.shape.rows, self.walk, self.rows);
        let patches = self.shape.columns * self.shape.lanes;
        (0..self.channels * count).map(move |line| {
            let (channel, row) = (line / count, first + line % count);
            let (group, row) = (row / rows, row % rows);
            let pixel = walk.base + group * walk.group + channel * walk.channel + row * side * walk.row;
            (channel, pixel, line * patches)
        })
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

/// Transforms the columns of a patch, then the rows of what came out. `transform` goes by value, here and where it is
/// called: behind a reference it is not inlined, and six times slower.
#[inline(always)]
fn both_ways<S: Simd, const I: usize, const O: usize>(
    simd: S,
    read: impl Fn(usize, usize) -> S::f32s,
    transform: impl Fn([S::f32s; I]) -> [S::f32s; O] + Copy,
    mut write: impl FnMut(usize, [S::f32s; O]),
) {
    let zero = simd.splat_f32s(0.0);
    let mut half = [[zero; I]; O];
    for c in 0..I {
        let mut side = [zero; I];
        for r in 0..I {
            side[r] = read(r, c);
        }
        let side = call::<S, _, _>(transform, side);
        for r in 0..O {
            half[r][c] = side[r];
        }
    }
    for r in 0..O {
        write(r, call::<S, _, _>(transform, half[r]));
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
    fn transform<F: Scheme<P, M, K>, const P: usize, const M: usize, const K: usize, S: Simd>(self, simd: S) {
        spread::<S, P, P>(
            simd,
            self.strip,
            (self.v, self.source, M),
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
    fn transform<F: Scheme<P, M, K>, const P: usize, const M: usize, const K: usize, S: Simd>(self, simd: S) {
        spread::<S, M, P>(
            simd,
            self.strip,
            (self.u, self.gradient, M),
            #[inline(always)]
            |side| F::gradient(simd, side),
        );
    }
}

/// Planes to parts: patches of `I` by `I` pixels, `apart` pixels from one to the next, become `O` by `O` parts.
#[inline(always)]
fn spread<S: Simd, const I: usize, const O: usize>(
    simd: S,
    strip: Strip<'_>,
    (parts, plane, apart): (&mut [f32], &[f32], usize),
    transform: impl Fn([S::f32s; I]) -> [S::f32s; O] + Copy,
) {
    let (parts, plane) = (parts.as_mut_ptr(), plane.as_ptr());
    let (lanes, step) = (S::F32_LANES, strip.step());
    for (_, pixel, patch) in strip.lines(apart) {
        for column in 0..strip.shape.columns {
            // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
            unsafe {
                let from = plane.add(pixel + column * apart * lanes);
                let to = parts.add(patch + column * lanes);
                both_ways::<S, I, O>(
                    simd,
                    #[inline(always)]
                    |r, c| load::<S>(from.add(r * strip.walk.row + c * lanes)),
                    transform,
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
    fn transform<F: Scheme<P, M, K>, const P: usize, const M: usize, const K: usize, S: Simd>(self, simd: S) {
        let Self { strip, target, m, start } = self;
        let (target, m) = (target.as_mut_ptr(), m.as_ptr());
        let (lanes, step) = (S::F32_LANES, strip.step());
        for (channel, pixel, patch) in strip.lines(M) {
            let bias = if let Start::Bias(bias) = start { bias[channel] } else { 0.0 };
            let bias = simd.splat_f32s(bias);
            for column in 0..strip.shape.columns {
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let y = target.add(pixel + column * M * lanes);
                    let m = m.add(patch + column * lanes);
                    both_ways::<S, P, M>(
                        simd,
                        #[inline(always)]
                        |r, c| load::<S>(m.add((r * P + c) * step)),
                        #[inline(always)]
                        |side| F::output(simd, side),
                        #[inline(always)]
                        |r, side| {
                            for c in 0..M {
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
