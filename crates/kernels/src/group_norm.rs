//! Group normalisation over `[group][channel][row][column][lane]`, statistics per sample.

use pulp::Simd;

use crate::lines::{Lines, SourceLines, TargetLines, clear_border, gradient, gradient_sums, moments, normalise};
use crate::norm::{NormGradient, Normalise};
use crate::simd::{Isa, Kernel, fma, load, store};

/// What is added to the variance.
pub const EPSILON: f32 = 1e-5;

/// How the channels are grouped.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm {
    /// Channels of the activation.
    pub channels: usize,
    /// Groups of neighbouring channels that share a mean and a variance. Divides `channels`.
    pub groups_of_channels: usize,
}

impl GroupNorm {
    /// Channels that share statistics.
    fn width(self) -> usize {
        assert!(
            self.groups_of_channels > 0 && self.channels.is_multiple_of(self.groups_of_channels),
            "{self:?}: the groups do not divide the channels"
        );
        self.channels / self.groups_of_channels
    }

    /// Floats of the statistics of that many sample groups: `[group][group of channels][2][lane]`.
    #[must_use]
    pub fn stats(self, groups: usize, lanes: usize) -> usize {
        groups * self.groups_of_channels * 2 * lanes
    }
}

/// Normalises each sample by itself. `stats` `[group][group of channels][2][lane]` gets the mean and the reciprocal
/// standard deviation.
pub fn forward(
    isa: Isa,
    Normalise { y, x, gamma, beta, relu }: Normalise<'_>,
    stats: &mut [f32],
    norm: GroupNorm,
    groups: usize,
) {
    let (lanes, planes) = (isa.lanes(), groups * norm.channels);
    assert!(gamma.len() >= norm.channels && beta.len() >= norm.channels);
    isa.run(GroupForward {
        lines: Lines::of(&[y.plane, x.plane]),
        y: TargetLines::new(y, planes, lanes),
        x: SourceLines::new(x, planes, lanes),
        stats: &mut stats[..norm.stats(groups, lanes)],
        gamma,
        beta,
        width: norm.width(),
        channel_groups: norm.groups_of_channels,
        relu,
    });
}

struct GroupForward<'a> {
    y: TargetLines,
    x: SourceLines,
    lines: Lines,
    stats: &'a mut [f32],
    gamma: &'a [f32],
    beta: &'a [f32],
    width: usize,
    channel_groups: usize,
    relu: bool,
}

impl Kernel for GroupForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let lines = self.lines;
        let share = simd.splat_f32s(1.0 / (self.width * lines.count * lines.pixels) as f32);
        for (index, stats) in self.stats.chunks_exact_mut(2 * S::F32_LANES).enumerate() {
            let first = index * self.width;
            // SAFETY: the constructor of `GroupForward` checked the buffers; statistics are two vectors.
            unsafe {
                let shift = load::<S>(self.x.line(first, 0));
                let (mut sum, mut squares) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
                for plane in first..first + self.width {
                    let (s, q) = moments(simd, self.x, plane, lines, shift);
                    sum = simd.add_f32s(sum, s);
                    squares = simd.add_f32s(squares, q);
                }
                let (mean, rstd) = finish(simd, sum, squares, share, shift);
                store::<S>(stats.as_mut_ptr(), mean);
                store::<S>(stats.as_mut_ptr().add(S::F32_LANES), rstd);
                for plane in first..first + self.width {
                    let channel = plane % (self.channel_groups * self.width);
                    let scale = simd.mul_f32s(simd.splat_f32s(self.gamma[channel]), rstd);
                    let with = (mean, scale, simd.splat_f32s(self.beta[channel]));
                    if self.relu {
                        normalise::<S, true>(simd, (self.y, self.x), plane, lines, with);
                    } else {
                        normalise::<S, false>(simd, (self.y, self.x), plane, lines, with);
                    }
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
pub fn backward(
    isa: Isa,
    NormGradient { mut d_x, d_gamma, d_beta, d_y, relu_output, x, gamma }: NormGradient<'_>,
    stats: &[f32],
    norm: GroupNorm,
    groups: usize,
) {
    let (lanes, planes) = (isa.lanes(), groups * norm.channels);
    assert!(gamma.len() >= norm.channels);
    clear_border(isa, &mut d_x, planes);
    isa.run(GroupBackward {
        lines: Lines::of(&[d_x.plane, d_y.plane, relu_output.unwrap_or(x).plane, x.plane]),
        d_x: TargetLines::new(d_x, planes, lanes),
        d_y: SourceLines::new(d_y, planes, lanes),
        y: relu_output.map(|y| SourceLines::new(y, planes, lanes)),
        x: SourceLines::new(x, planes, lanes),
        stats: &stats[..norm.stats(groups, lanes)],
        gamma,
        d_gamma: &mut d_gamma[..norm.channels],
        d_beta: &mut d_beta[..norm.channels],
        width: norm.width(),
    });
}

struct GroupBackward<'a> {
    d_x: TargetLines,
    d_y: SourceLines,
    y: Option<SourceLines>,
    x: SourceLines,
    lines: Lines,
    stats: &'a [f32],
    gamma: &'a [f32],
    d_gamma: &'a mut [f32],
    d_beta: &'a mut [f32],
    width: usize,
}

impl Kernel for GroupBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let lines = self.lines;
        let channels = self.d_gamma.len();
        let share = simd.splat_f32s(-1.0 / (self.width * lines.count * lines.pixels) as f32);
        for (index, stats) in self.stats.chunks_exact(2 * S::F32_LANES).enumerate() {
            let first = index * self.width;
            // SAFETY: the constructor of `GroupBackward` checked the buffers; statistics are two vectors.
            unsafe {
                let (mean, rstd) = (load::<S>(stats.as_ptr()), load::<S>(stats.as_ptr().add(S::F32_LANES)));
                let (mut sum, mut products) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
                for plane in first..first + self.width {
                    let (s, p) = gradient_sums(simd, (self.d_y, self.y, self.x), plane, lines, mean);
                    let p = simd.mul_f32s(p, rstd);
                    let channel = plane % channels;
                    self.d_beta[channel] += simd.reduce_sum_f32s(s);
                    self.d_gamma[channel] += simd.reduce_sum_f32s(p);
                    let gamma = simd.splat_f32s(self.gamma[channel]);
                    sum = fma(simd, s, gamma, sum);
                    products = fma(simd, p, gamma, products);
                }
                let share = simd.mul_f32s(rstd, share);
                let slope = simd.mul_f32s(simd.mul_f32s(products, rstd), share);
                let shift = simd.mul_f32s(sum, share);
                for plane in first..first + self.width {
                    let scale = simd.mul_f32s(simd.splat_f32s(self.gamma[plane % channels]), rstd);
                    let buffers = (self.d_x, self.d_y, self.y, self.x);
                    gradient(simd, buffers, plane, lines, (mean, scale, slope, shift));
                }
            }
        }
    }
}
