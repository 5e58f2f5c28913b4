//! Inputs and outputs of normalisations, and the loops they share.

use crate::lines::{Lines, SourceLines, TargetLines, clear_border, four, two_pairs};
use crate::plane::{Plane, Planes, PlanesMut};
use crate::simd::{Apart, Arithmetic, Isa, LANES, Paired, Simd};

/// One vector.
type Single<A> = <<A as Apart>::Single as Arithmetic>::Vector;

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
            if S::PAIRS && self.lines.pixels.is_multiple_of(2) {
                self.apply_by(Paired(simd), plane, mean, scale);
            } else {
                self.apply_by(simd, plane, mean, scale);
            }
        }
    }

    #[inline(always)]
    unsafe fn apply_by<A: Apart>(&self, simd: A, plane: usize, mean: Single<A>, scale: Single<A>) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.relu {
                self.apply_with::<A, true>(simd, plane, mean, scale);
            } else {
                self.apply_with::<A, false>(simd, plane, mean, scale);
            }
        }
    }

    #[inline(always)]
    unsafe fn apply_with<A: Apart, const RELU: bool>(&self, simd: A, plane: usize, mean: Single<A>, scale: Single<A>) {
        let lines = self.lines;
        let shift = simd.splat(self.beta[plane % self.beta.len()]);
        let (mean, scale) = (simd.repeated(mean), simd.repeated(scale));
        for line in 0..lines.count {
            // SAFETY: the caller's contract; `at` stays inside the line.
            unsafe {
                let (y, x) = (self.y.line(plane, line), self.x.line(plane, line));
                for at in (0..lines.pixels * LANES).step_by(A::VECTORS * LANES) {
                    let v = simd.sub(simd.read(x.add(at), LANES), mean);
                    let v = simd.fma(v, scale, shift);
                    simd.write(y.add(at), LANES, if RELU { simd.relu(v) } else { v });
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
    fn beta<A: Arithmetic>(&self, simd: A, plane: usize) -> Option<A::Vector> {
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
        // SAFETY: the caller's contract.
        unsafe {
            if S::PAIRS && self.lines.pixels.is_multiple_of(4) {
                let (sum, products) = self.sums_by::<_, 2>(Paired(simd), plane, mean, scale);
                (two_pairs(simd, sum), two_pairs(simd, products))
            } else {
                let (sum, products) = self.sums_by::<_, 4>(simd, plane, mean, scale);
                (four(simd, sum), four(simd, products))
            }
        }
    }

    /// The sums of every fourth pixel; those after the last four count as the first. N values hold four vectors.
    #[inline(always)]
    unsafe fn sums_by<A: Apart, const N: usize>(
        &self,
        simd: A,
        plane: usize,
        mean: Single<A>,
        scale: Single<A>,
    ) -> ([A::Vector; N], [A::Vector; N]) {
        let (lines, zero, beta) = (self.lines, simd.splat(0.0), self.beta(simd, plane));
        let (mean, scale) = (simd.repeated(mean), simd.repeated(scale));
        let (mut sum, mut products) = ([zero; N], [zero; N]);
        for line in 0..lines.count {
            // SAFETY: the caller's contract; `pixel` stays inside the line.
            unsafe {
                let (d_y, x) = (self.d_y.line(plane, line), self.x.line(plane, line));
                let mut pixel = 0;
                while pixel < lines.pixels {
                    let step = if pixel + 4 <= lines.pixels { 4 } else { 1 };
                    for i in 0..N {
                        if i < step {
                            let at = (pixel + i * A::VECTORS) * LANES;
                            let x = simd.sub(simd.read(x.add(at), LANES), mean);
                            let d = passed(simd, simd.read(d_y.add(at), LANES), x, scale, beta);
                            sum[i] = simd.add(sum[i], d);
                            products[i] = simd.fma(d, x, products[i]);
                        }
                    }
                    pixel += step;
                }
            }
        }
        (sum, products)
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
        // SAFETY: the caller's contract.
        unsafe {
            if S::PAIRS && self.lines.pixels.is_multiple_of(2) {
                self.write_by(Paired(simd), plane, (mean, scale, slope, shift));
            } else {
                self.write_by(simd, plane, (mean, scale, slope, shift));
            }
        }
    }

    #[inline(always)]
    unsafe fn write_by<A: Apart>(
        &self,
        simd: A,
        plane: usize,
        (mean, scale, slope, shift): (Single<A>, Single<A>, Single<A>, Single<A>),
    ) {
        let (lines, beta) = (self.lines, self.beta(simd, plane));
        let (mean, scale) = (simd.repeated(mean), simd.repeated(scale));
        let (slope, shift) = (simd.repeated(slope), simd.repeated(shift));
        for line in 0..lines.count {
            // SAFETY: the caller's contract; `at` stays inside the line.
            unsafe {
                let (d_x, d_y) = (self.d_x.line(plane, line), self.d_y.line(plane, line));
                let x = self.x.line(plane, line);
                for at in (0..lines.pixels * LANES).step_by(A::VECTORS * LANES) {
                    let x = simd.sub(simd.read(x.add(at), LANES), mean);
                    let d = passed(simd, simd.read(d_y.add(at), LANES), x, scale, beta);
                    simd.write(d_x.add(at), LANES, simd.fma(d, scale, simd.fma(x, slope, shift)));
                }
            }
        }
    }
}

/// The gradient that a ReLU lets pass, if there is one. The output has the bits of [`NormaliseLines::apply`].
#[inline(always)]
fn passed<A: Arithmetic>(simd: A, d: A::Vector, x: A::Vector, scale: A::Vector, beta: Option<A::Vector>) -> A::Vector {
    match beta {
        Some(beta) => simd.masked(d, simd.fma(x, scale, beta)),
        None => d,
    }
}
