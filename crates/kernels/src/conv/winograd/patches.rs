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

/// v = B' d B of every patch.
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
        let Self { strip, v, source } = self;
        let (v, source) = (v.as_mut_ptr(), source.as_ptr());
        let (lanes, step, zero) = (S::F32_LANES, strip.step(), simd.splat_f32s(0.0));
        for (_, pixel, patch) in strip.lines(M) {
            for column in 0..strip.shape.columns {
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let d = source.add(pixel + column * M * lanes);
                    let v = v.add(patch + column * lanes);
                    // The columns of the patch, then the rows of what came out.
                    let mut half = [[zero; P]; P];
                    for c in 0..P {
                        let mut side = [zero; P];
                        for r in 0..P {
                            side[r] = load::<S>(d.add(r * strip.walk.row + c * lanes));
                        }
                        let side = call::<S, _, _>(
                            #[inline(always)]
                            |side| F::input(simd, side),
                            side,
                        );
                        for r in 0..P {
                            half[r][c] = side[r];
                        }
                    }
                    for r in 0..P {
                        let side = call::<S, _, _>(
                            #[inline(always)]
                            |side| F::input(simd, side),
                            half[r],
                        );
                        for c in 0..P {
                            store::<S>(v.add((r * P + c) * step), side[c]);
                        }
                    }
                }
            }
        }
    }
}

/// u = A dy A' of every patch.
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
        let Self { strip, u, gradient } = self;
        let (u, gradient) = (u.as_mut_ptr(), gradient.as_ptr());
        let (lanes, step, zero) = (S::F32_LANES, strip.step(), simd.splat_f32s(0.0));
        for (_, pixel, patch) in strip.lines(M) {
            for column in 0..strip.shape.columns {
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let d = gradient.add(pixel + column * M * lanes);
                    let u = u.add(patch + column * lanes);
                    let mut half = [[zero; M]; P];
                    for c in 0..M {
                        let mut side = [zero; M];
                        for r in 0..M {
                            side[r] = load::<S>(d.add(r * strip.walk.row + c * lanes));
                        }
                        let side = call::<S, _, _>(
                            #[inline(always)]
                            |side| F::gradient(simd, side),
                            side,
                        );
                        for r in 0..P {
                            half[r][c] = side[r];
                        }
                    }
                    for r in 0..P {
                        let side = call::<S, _, _>(
                            #[inline(always)]
                            |side| F::gradient(simd, side),
                            half[r],
                        );
                        for c in 0..P {
                            store::<S>(u.add((r * P + c) * step), side[c]);
                        }
                    }
                }
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
        let (lanes, step, zero) = (S::F32_LANES, strip.step(), simd.splat_f32s(0.0));
        for (channel, pixel, patch) in strip.lines(M) {
            let bias = if let Start::Bias(bias) = start { simd.splat_f32s(bias[channel]) } else { zero };
            for column in 0..strip.shape.columns {
                // SAFETY: the caller's buffers hold the strip's rows, with their border, and its patches.
                unsafe {
                    let y = target.add(pixel + column * M * lanes);
                    let m = m.add(patch + column * lanes);
                    let mut half = [[zero; P]; M];
                    for c in 0..P {
                        let mut side = [zero; P];
                        for r in 0..P {
                            side[r] = load::<S>(m.add((r * P + c) * step));
                        }
                        let side = call::<S, _, _>(
                            #[inline(always)]
                            |side| F::output(simd, side),
                            side,
                        );
                        for r in 0..M {
                            half[r][c] = side[r];
                        }
                    }
                    for r in 0..M {
                        let side = call::<S, _, _>(
                            #[inline(always)]
                            |side| F::output(simd, side),
                            half[r],
                        );
                        let y = y.add(r * strip.walk.row);
                        for c in 0..M {
                            let y = y.add(c * lanes);
                            let value = match start {
                                Start::Zero => side[c],
                                Start::Bias(_) => simd.add_f32s(side[c], bias),
                                Start::Target => simd.add_f32s(side[c], load::<S>(y)),
                            };
                            store::<S>(y, value);
                        }
                    }
                }
            }
        }
    }
}
