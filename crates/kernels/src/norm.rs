//! Inputs and outputs of normalisations, and the loops they share.

use crate::lines::{Lines, SourceLines, TargetLines, clear_border, four, masked, relu};
use crate::plane::{Plane, Planes, PlanesMut};
use crate::simd::{Isa, LANES, Simd, load, store};

/// y = relu?(gamma * normalised x + beta).
#[derive(Debug)]
pub struct Normalise<'a> {
    pub y: PlanesMut<'a>,
    pub x: Planes<'a>,
    /// `[channel]`.
    pub gamma: &'a [f32],
    /// `[channel]`.
    pub beta: &'a [f32],
    /// Whether a ReLU follows.
    pub relu: bool,
}

/// [`Normalise`] with checked buffers.
pub(crate) struct NormaliseLines<'a> {
    y: TargetLines,
    pub(crate) x: SourceLines,
    pub(crate) lines: Lines,
    pub(crate) gamma: &'a [f32],
    beta: &'a [f32],
    relu: bool,
}

impl<'a> Normalise<'a> {
    pub(crate) fn lines(self, planes: usize, channels: usize) -> NormaliseLines<'a> {
        let Self { y, x, gamma, beta, relu } = self;
        NormaliseLines {
            lines: Lines::of(&[y.plane, x.plane]),
            y: TargetLines::new(y, planes),
            x: SourceLines::new(x, planes),
            gamma: &gamma[..channels],
            beta: &beta[..channels],
            relu,
        }
    }
}

impl NormaliseLines<'_> {
    /// y = relu?((x - mean) * scale + beta) over one plane.
    ///
    /// # Safety
    /// The plane must be in range.
    #[inline(always)]
    pub(crate) unsafe fn apply<S: Simd>(&self, simd: S, plane: usize, mean: S::Vector, scale: S::Vector) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.relu {
                self.apply_with::<S, true>(simd, plane, mean, scale);
            } else {
                self.apply_with::<S, false>(simd, plane, mean, scale);
            }
        }
    }

    #[inline(always)]
    unsafe fn apply_with<S: Simd, const RELU: bool>(&self, simd: S, plane: usize, mean: S::Vector, scale: S::Vector) {
        let lines = self.lines;
        let shift = simd.splat(self.beta[plane % self.beta.len()]);
        for line in 0..lines.count {
            // SAFETY: the caller's contract; `pixel` stays inside the line.
            unsafe {
                let (y, x) = (self.y.line(plane, line), self.x.line(plane, line));
                for pixel in 0..lines.pixels {
                    let v = simd.sub(load::<S>(x.add(pixel * LANES)), mean);
                    let v = simd.fma(v, scale, shift);
                    store::<S>(y.add(pixel * LANES), if RELU { relu(simd, v) } else { v });
                }
            }
        }
    }
}

/// The gradients of [`Normalise`]. Clears the border of d_x and accumulates d_gamma and d_beta.
#[derive(Debug)]
pub struct NormGradient<'a> {
    pub d_x: PlanesMut<'a>,
    /// `[channel]`.
    pub d_gamma: &'a mut [f32],
    /// `[channel]`.
    pub d_beta: &'a mut [f32],
    /// The gradient of the output: zero in lanes without a sample.
    pub d_y: Planes<'a>,
    /// Beta `[channel]` and the plane of the output, if a ReLU followed: the gradient passes only where the output was
    /// positive, which is computed again, because reading it would take longer.
    pub relu: Option<(&'a [f32], Plane)>,
    pub x: Planes<'a>,
    /// `[channel]`.
    pub gamma: &'a [f32],
}

/// [`NormGradient`] with checked buffers.
pub(crate) struct GradientLines<'a> {
    d_x: TargetLines,
    d_y: SourceLines,
    relu: Option<&'a [f32]>,
    x: SourceLines,
    pub(crate) lines: Lines,
    pub(crate) gamma: &'a [f32],
    pub(crate) d_gamma: &'a mut [f32],
    pub(crate) d_beta: &'a mut [f32],
}

impl<'a> NormGradient<'a> {
    /// Clears the border of d_x.
    pub(crate) fn lines(self, isa: Isa, planes: usize, channels: usize) -> GradientLines<'a> {
        let Self { mut d_x, d_gamma, d_beta, d_y, relu, x, gamma } = self;
        clear_border(isa, &mut d_x, planes);
        let source = |from| SourceLines::new(from, planes);
        GradientLines {
            // The output counts, although it is not read: runs decide the order of sums.
            lines: Lines::of(&[d_x.plane, d_y.plane, relu.map_or(x.plane, |(_, plane)| plane), x.plane]),
            d_x: TargetLines::new(d_x, planes),
            d_y: source(d_y),
            relu: relu.map(|(beta, _)| &beta[..channels]),
            x: source(x),
            gamma: &gamma[..channels],
            d_gamma: &mut d_gamma[..channels],
            d_beta: &mut d_beta[..channels],
        }
    }
}

impl GradientLines<'_> {
    /// Beta of a plane's channel, if a ReLU followed.
    #[inline(always)]
    fn beta<S: Simd>(&self, simd: S, plane: usize) -> Option<S::Vector> {
        self.relu.map(|beta| simd.splat(beta[plane % beta.len()]))
    }

    /// Per lane, the sums of d and of d * (x - mean) over one plane, where d is `d_y`, or zero where a ReLU stopped the output
    /// (x - mean) * scale + beta.
    ///
    /// # Safety
    /// The plane must be in range.
    #[inline(always)]
    pub(crate) unsafe fn sums<S: Simd>(
        &self,
        simd: S,
        plane: usize,
        mean: S::Vector,
        scale: S::Vector,
    ) -> (S::Vector, S::Vector) {
        const UNROLL: usize = 4;
        let lines = self.lines;
        let zero = simd.splat(0.0);
        let beta = self.beta(simd, plane);
        let (mut sum, mut products) = ([zero; UNROLL], [zero; UNROLL]);
        for line in 0..lines.count {
            // SAFETY: the caller's contract; `pixel` stays inside the line.
            unsafe {
                let (d_y, x) = (self.d_y.line(plane, line), self.x.line(plane, line));
                let mut pixel = 0;
                while pixel < lines.pixels {
                    let step = if pixel + UNROLL <= lines.pixels { UNROLL } else { 1 };
                    for i in 0..UNROLL {
                        if i < step {
                            let at = (pixel + i) * LANES;
                            let x = simd.sub(load::<S>(x.add(at)), mean);
                            let d = passed(simd, load::<S>(d_y.add(at)), x, scale, beta);
                            sum[i] = simd.add(sum[i], d);
                            products[i] = simd.fma(d, x, products[i]);
                        }
                    }
                    pixel += step;
                }
            }
        }
        (four(simd, sum), four(simd, products))
    }

    /// d_x = d * scale + (x - mean) * slope + shift over one plane, with d as in [`GradientLines::sums`].
    ///
    /// # Safety
    /// The plane must be in range.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd>(
        &self,
        simd: S,
        plane: usize,
        (mean, scale, slope, shift): (S::Vector, S::Vector, S::Vector, S::Vector),
    ) {
        let lines = self.lines;
        let beta = self.beta(simd, plane);
        for line in 0..lines.count {
            // SAFETY: the caller's contract; `pixel` stays inside the line.
            unsafe {
                let (d_x, d_y) = (self.d_x.line(plane, line), self.d_y.line(plane, line));
                let x = self.x.line(plane, line);
                for at in (0..lines.pixels * LANES).step_by(LANES) {
                    let x = simd.sub(load::<S>(x.add(at)), mean);
                    let d = passed(simd, load::<S>(d_y.add(at)), x, scale, beta);
                    store::<S>(d_x.add(at), simd.fma(d, scale, simd.fma(x, slope, shift)));
                }
            }
        }
    }
}

/// The gradient that a ReLU lets pass, if there is one. The output has the bits of [`NormaliseLines::apply`].
#[inline(always)]
fn passed<S: Simd>(simd: S, d: S::Vector, x: S::Vector, scale: S::Vector, beta: Option<S::Vector>) -> S::Vector {
    match beta {
        Some(beta) => masked(simd, d, simd.fma(x, scale, beta)),
        None => d,
    }
}
