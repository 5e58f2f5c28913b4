//! Group normalisation over `[group][channel][row][column][lane]`, with statistics per sample.

use pulp::Simd;

use crate::lines::moments;
use crate::norm::{GradientLines, NormGradient, Normalise, NormaliseLines};
use crate::simd::{Isa, Kernel, fma, load, store};

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
    pub fn stats(self, groups: usize, lanes: usize) -> usize {
        groups * self.groups_of_channels * 2 * lanes
    }
}

/// Normalises each sample separately. `stats` `[group][group of channels][2][lane]` receives the mean and the
/// reciprocal standard deviation.
pub fn forward(isa: Isa, pass: Normalise<'_>, stats: &mut [f32], norm: GroupNorm, groups: usize) {
    let pass = pass.lines(isa, groups * norm.channels, norm.channels);
    isa.run(GroupForward { pass, stats: &mut stats[..norm.stats(groups, isa.lanes())], width: norm.width() });
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
        let share = simd.splat_f32s(1.0 / (self.width * lines.count * lines.pixels) as f32);
        for (index, stats) in self.stats.chunks_exact_mut(2 * S::F32_LANES).enumerate() {
            let first = index * self.width;
            // SAFETY: `Normalise::lines` checked the buffers; statistics are two vectors.
            unsafe {
                let shift = load::<S>(x.line(first, 0));
                let (mut sum, mut squares) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
                for plane in first..first + self.width {
                    let (s, q) = moments(simd, x, plane, lines, shift);
                    sum = simd.add_f32s(sum, s);
                    squares = simd.add_f32s(squares, q);
                }
                let (mean, rstd) = finish(simd, sum, squares, share, shift);
                store::<S>(stats.as_mut_ptr(), mean);
                store::<S>(stats.as_mut_ptr().add(S::F32_LANES), rstd);
                for plane in first..first + self.width {
                    let scale = simd.mul_f32s(simd.splat_f32s(gamma[plane % gamma.len()]), rstd);
                    self.pass.apply(simd, plane, mean, scale);
                }
            }
        }
    }
}

/// Mean and reciprocal standard deviation from the sums of x - shift and of its square.
#[inline(always)]
fn finish<S: Simd>(simd: S, sum: S::f32s, squares: S::f32s, share: S::f32s, shift: S::f32s) -> (S::f32s, S::f32s) {
    let mean = simd.mul_f32s(sum, share);
    let variance = simd.sub_f32s(simd.mul_f32s(squares, share), simd.mul_f32s(mean, mean));
    let variance = simd.max_f32s(variance, simd.splat_f32s(0.0));
    let deviation = simd.sqrt_f32s(simd.add_f32s(variance, simd.splat_f32s(EPSILON)));
    (simd.add_f32s(mean, shift), simd.div_f32s(simd.splat_f32s(1.0), deviation))
}

/// The gradients through the statistics `stats`.
pub fn backward(isa: Isa, gradient: NormGradient<'_>, stats: &[f32], norm: GroupNorm, groups: usize) {
    let gradient = gradient.lines(isa, groups * norm.channels, norm.channels);
    isa.run(GroupBackward { gradient, stats: &stats[..norm.stats(groups, isa.lanes())], width: norm.width() });
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
        let share = simd.splat_f32s(-1.0 / (self.width * lines.count * lines.pixels) as f32);
        for (index, stats) in self.stats.chunks_exact(2 * S::F32_LANES).enumerate() {
            let first = index * self.width;
            // SAFETY: `NormGradient::lines` checked the buffers; statistics are two vectors.
            unsafe {
                let (mean, rstd) = (load::<S>(stats.as_ptr()), load::<S>(stats.as_ptr().add(S::F32_LANES)));
                let (mut sum, mut products) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
                for plane in first..first + self.width {
                    let (s, p) = gradient.sums(simd, plane, mean);
                    let p = simd.mul_f32s(p, rstd);
                    let channel = plane % channels;
                    gradient.d_beta[channel] += simd.reduce_sum_f32s(s);
                    gradient.d_gamma[channel] += simd.reduce_sum_f32s(p);
                    let gamma = simd.splat_f32s(gradient.gamma[channel]);
                    sum = fma(simd, s, gamma, sum);
                    products = fma(simd, p, gamma, products);
                }
                let share = simd.mul_f32s(rstd, share);
                let slope = simd.mul_f32s(simd.mul_f32s(products, rstd), share);
                let shift = simd.mul_f32s(sum, share);
                for plane in first..first + self.width {
                    let scale = simd.mul_f32s(simd.splat_f32s(gradient.gamma[plane % channels]), rstd);
                    gradient.write(simd, plane, (mean, scale, slope, shift));
                }
            }
        }
    }
}
