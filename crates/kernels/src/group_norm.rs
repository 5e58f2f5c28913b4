//! Group normalisation over `[group][channel][row][column][lane]`, with statistics per sample.

use crate::lines::moments;
use crate::norm::{GradientLines, NormGradient, Normalise, NormaliseLines};
use crate::simd::{Isa, Kernel, LANES, Simd, load, store};

/// Added to the variance.
pub const EPSILON: f32 = 1e-5;

#[derive(Clone, Copy, Debug)]
pub struct GroupNorm {
    pub channels: usize,
    /// Number of groups of neighbouring channels that share a mean and a variance. Divides `channels`.
    pub groups_of_channels: usize,
}

impl GroupNorm {
    /// Channels per group.
    fn width(self) -> usize {
        assert!(
            self.groups_of_channels > 0 && self.channels.is_multiple_of(self.groups_of_channels),
            "{self:?}: the groups do not divide the channels"
        );
        self.channels / self.groups_of_channels
    }

    /// Length in floats of the statistics for this many sample groups: `[group][group of channels][2][lane]`.
    #[must_use]
    pub fn stats(self, groups: usize) -> usize {
        groups * self.groups_of_channels * 2 * LANES
    }
}

/// Normalises each sample separately. `stats` `[group][group of channels][2][lane]` receives the mean and the
/// reciprocal standard deviation.
pub fn forward(isa: Isa, pass: Normalise<'_>, stats: &mut [f32], norm: GroupNorm, groups: usize) {
    let pass = pass.lines(groups * norm.channels, norm.channels);
    isa.run(GroupForward { pass, stats: &mut stats[..norm.stats(groups)], width: norm.width() });
}

struct GroupForward<'a> {
    pass: NormaliseLines<'a>,
    stats: &'a mut [f32],
    width: usize,
}

impl Kernel for GroupForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let NormaliseLines { x, lines, gamma, .. } = self.pass;
        let share = simd.splat(1.0 / (self.width * lines.count * lines.pixels) as f32);
        for (index, stats) in self.stats.chunks_exact_mut(2 * LANES).enumerate() {
            let first = index * self.width;
            // SAFETY: `Normalise::lines` checked the buffers; statistics are two vectors.
            unsafe {
                let shift = load::<S>(x.line(first, 0));
                let (mut sum, mut squares) = (simd.splat(0.0), simd.splat(0.0));
                for plane in first..first + self.width {
                    let (s, q) = moments(simd, x, plane, lines, shift);
                    sum = simd.add(sum, s);
                    squares = simd.add(squares, q);
                }
                let (mean, rstd) = finish(simd, sum, squares, share, shift);
                store::<S>(stats.as_mut_ptr(), mean);
                store::<S>(stats.as_mut_ptr().add(LANES), rstd);
                for plane in first..first + self.width {
                    let scale = simd.mul(simd.splat(gamma[plane % gamma.len()]), rstd);
                    self.pass.apply(simd, plane, mean, scale);
                }
            }
        }
    }
}

/// Mean and reciprocal standard deviation from the sums of x - shift and of its square.
#[inline(always)]
fn finish<S: Simd>(
    simd: S,
    sum: S::Vector,
    squares: S::Vector,
    share: S::Vector,
    shift: S::Vector,
) -> (S::Vector, S::Vector) {
    let mean = simd.mul(sum, share);
    let variance = simd.sub(simd.mul(squares, share), simd.mul(mean, mean));
    let variance = simd.relu(variance);
    let deviation = simd.sqrt(simd.add(variance, simd.splat(EPSILON)));
    (simd.add(mean, shift), simd.div(simd.splat(1.0), deviation))
}

/// The gradients through the statistics `stats`.
pub fn backward(isa: Isa, gradient: NormGradient<'_>, stats: &[f32], norm: GroupNorm, groups: usize) {
    let gradient = gradient.lines(isa, groups * norm.channels, norm.channels);
    isa.run(GroupBackward { gradient, stats: &stats[..norm.stats(groups)], width: norm.width() });
}

struct GroupBackward<'a> {
    gradient: GradientLines<'a>,
    stats: &'a [f32],
    width: usize,
}

impl Kernel for GroupBackward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let gradient = self.gradient;
        let (lines, channels) = (gradient.lines, gradient.gamma.len());
        let share = simd.splat(-1.0 / (self.width * lines.count * lines.pixels) as f32);
        for (index, stats) in self.stats.chunks_exact(2 * LANES).enumerate() {
            let first = index * self.width;
            // SAFETY: `NormGradient::lines` checked the buffers; statistics are two vectors.
            unsafe {
                let (mean, rstd) = (load::<S>(stats.as_ptr()), load::<S>(stats.as_ptr().add(LANES)));
                let (mut sum, mut products) = (simd.splat(0.0), simd.splat(0.0));
                for plane in first..first + self.width {
                    let channel = plane % channels;
                    let gamma = simd.splat(gradient.gamma[channel]);
                    let (s, p) = gradient.sums(simd, plane, mean, simd.mul(gamma, rstd));
                    let p = simd.mul(p, rstd);
                    gradient.d_beta[channel] += simd.sum(s);
                    gradient.d_gamma[channel] += simd.sum(p);
                    sum = simd.fma(s, gamma, sum);
                    products = simd.fma(p, gamma, products);
                }
                let share = simd.mul(rstd, share);
                let slope = simd.mul(simd.mul(products, rstd), share);
                let shift = simd.mul(sum, share);
                for plane in first..first + self.width {
                    let scale = simd.mul(simd.splat(gradient.gamma[plane % channels]), rstd);
                    gradient.write(simd, plane, (mean, scale, slope, shift));
                }
            }
        }
    }
}
