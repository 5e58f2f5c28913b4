//! Batch normalisation over `[group][channel][row][column][lane]`, with PyTorch's defaults and running statistics.

use pulp::Simd;

use crate::lines::{
    Lines, SourceLines, TargetLines, clear_border, first_lanes, gradient, gradient_sums, moments, normalise,
};
use crate::norm::{NormGradient, Normalise};
use crate::simd::{Isa, Kernel};

/// What is added to the variance.
pub const EPSILON: f32 = 1e-5;
/// How much of a batch's statistics goes into the running ones.
pub const MOMENTUM: f32 = 0.1;

/// Normalises with the statistics of the `samples` samples in x.
///
/// `stats` `[2][channel]` gets the mean and the reciprocal standard deviation. The running mean and variance move by
/// [`MOMENTUM`] towards the batch's mean and unbiased variance.
pub fn forward_training(
    isa: Isa,
    Normalise { y, x, gamma, beta, relu }: Normalise<'_>,
    stats: &mut [f32],
    (running_mean, running_var): (&mut [f32], &mut [f32]),
    samples: usize,
) {
    assert!(samples > 0);
    let (lanes, channels) = (isa.lanes(), gamma.len());
    let groups = samples.div_ceil(lanes);
    let (mean, rstd) = stats[..2 * channels].split_at_mut(channels);
    isa.run(BatchForward {
        lines: Lines::of(&[y.plane, x.plane]),
        y: TargetLines::new(y, groups * channels, lanes),
        x: SourceLines::new(x, groups * channels, lanes),
        gamma,
        beta: &beta[..channels],
        mean,
        rstd,
        running_mean: &mut running_mean[..channels],
        running_var: &mut running_var[..channels],
        groups,
        samples,
        relu,
    });
}

struct BatchForward<'a> {
    y: TargetLines,
    x: SourceLines,
    lines: Lines,
    gamma: &'a [f32],
    beta: &'a [f32],
    mean: &'a mut [f32],
    rstd: &'a mut [f32],
    running_mean: &'a mut [f32],
    running_var: &'a mut [f32],
    groups: usize,
    samples: usize,
    relu: bool,
}

impl Kernel for BatchForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (lines, channels) = (self.lines, self.gamma.len());
        let last = self.samples - (self.groups - 1) * S::F32_LANES;
        let count = (self.samples * lines.count * lines.pixels) as f64;
        for channel in 0..channels {
            // SAFETY: the constructor of `BatchForward` checked the buffers.
            unsafe {
                let first = *self.x.line(channel, 0);
                let shift = simd.splat_f32s(first);
                let (mut sum, mut squares) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
                for group in 0..self.groups {
                    let (mut s, mut q) = moments(simd, self.x, group * channels + channel, lines, shift);
                    if group + 1 == self.groups && last < S::F32_LANES {
                        (s, q) = (first_lanes(simd, s, last), first_lanes(simd, q, last));
                    }
                    sum = simd.add_f32s(sum, s);
                    squares = simd.add_f32s(squares, q);
                }
                let offset = f64::from(simd.reduce_sum_f32s(sum)) / count;
                let variance = (f64::from(simd.reduce_sum_f32s(squares)) / count - offset * offset).max(0.0);
                let mean = (f64::from(first) + offset) as f32;
                let rstd = (1.0 / (variance + f64::from(EPSILON)).sqrt()) as f32;
                let unbiased = (variance * count / (count - 1.0).max(1.0)) as f32;
                (self.mean[channel], self.rstd[channel]) = (mean, rstd);
                move_towards(&mut self.running_mean[channel], mean);
                move_towards(&mut self.running_var[channel], unbiased);
                let scale = simd.splat_f32s(self.gamma[channel] * rstd);
                let with = (simd.splat_f32s(mean), scale, simd.splat_f32s(self.beta[channel]));
                for group in 0..self.groups {
                    let plane = group * channels + channel;
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

#[inline(always)]
fn move_towards(running: &mut f32, batch: f32) {
    *running = (1.0 - MOMENTUM) * *running + MOMENTUM * batch;
}

/// Normalises with the running mean and variance.
pub fn forward_evaluation(
    isa: Isa,
    Normalise { y, x, gamma, beta, relu }: Normalise<'_>,
    (running_mean, running_var): (&[f32], &[f32]),
    groups: usize,
) {
    let (lanes, channels) = (isa.lanes(), gamma.len());
    let planes = groups * channels;
    isa.run(BatchEvaluate {
        lines: Lines::of(&[y.plane, x.plane]),
        y: TargetLines::new(y, planes, lanes),
        x: SourceLines::new(x, planes, lanes),
        gamma,
        beta: &beta[..channels],
        mean: &running_mean[..channels],
        variance: &running_var[..channels],
        planes,
        relu,
    });
}

struct BatchEvaluate<'a> {
    y: TargetLines,
    x: SourceLines,
    lines: Lines,
    gamma: &'a [f32],
    beta: &'a [f32],
    mean: &'a [f32],
    variance: &'a [f32],
    planes: usize,
    relu: bool,
}

impl Kernel for BatchEvaluate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let channels = self.gamma.len();
        for plane in 0..self.planes {
            let channel = plane % channels;
            let scale = self.gamma[channel] / (self.variance[channel] + EPSILON).sqrt();
            let mean = simd.splat_f32s(self.mean[channel]);
            let with = (mean, simd.splat_f32s(scale), simd.splat_f32s(self.beta[channel]));
            // SAFETY: the constructor of `BatchEvaluate` checked the buffers.
            unsafe {
                if self.relu {
                    normalise::<S, true>(simd, (self.y, self.x), plane, self.lines, with);
                } else {
                    normalise::<S, false>(simd, (self.y, self.x), plane, self.lines, with);
                }
            }
        }
    }
}

/// The gradients through the batch's statistics `stats`. d_x will be zero in lanes without a sample.
pub fn backward(
    isa: Isa,
    NormGradient { mut d_x, d_gamma, d_beta, d_y, relu_output, x, gamma }: NormGradient<'_>,
    stats: &[f32],
    samples: usize,
) {
    assert!(samples > 0);
    let (lanes, channels) = (isa.lanes(), gamma.len());
    let groups = samples.div_ceil(lanes);
    let planes = groups * channels;
    clear_border(isa, &mut d_x, planes);
    let (mean, rstd) = stats[..2 * channels].split_at(channels);
    isa.run(BatchBackward {
        lines: Lines::of(&[d_x.plane, d_y.plane, relu_output.unwrap_or(x).plane, x.plane]),
        d_x: TargetLines::new(d_x, planes, lanes),
        d_y: SourceLines::new(d_y, planes, lanes),
        y: relu_output.map(|y| SourceLines::new(y, planes, lanes)),
        x: SourceLines::new(x, planes, lanes),
        mean,
        rstd,
        gamma,
        d_gamma: &mut d_gamma[..channels],
        d_beta: &mut d_beta[..channels],
        groups,
        samples,
    });
}

struct BatchBackward<'a> {
    d_x: TargetLines,
    d_y: SourceLines,
    y: Option<SourceLines>,
    x: SourceLines,
    lines: Lines,
    mean: &'a [f32],
    rstd: &'a [f32],
    gamma: &'a [f32],
    d_gamma: &'a mut [f32],
    d_beta: &'a mut [f32],
    groups: usize,
    samples: usize,
}

impl Kernel for BatchBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (lines, channels) = (self.lines, self.gamma.len());
        let last = self.samples - (self.groups - 1) * S::F32_LANES;
        let count = (self.samples * lines.count * lines.pixels) as f32;
        for channel in 0..channels {
            let (rstd, mean) = (self.rstd[channel], simd.splat_f32s(self.mean[channel]));
            // SAFETY: the constructor of `BatchBackward` checked the buffers.
            unsafe {
                let (mut sum, mut products) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
                for group in 0..self.groups {
                    let buffers = (self.d_y, self.y, self.x);
                    let (s, p) = gradient_sums(simd, buffers, group * channels + channel, lines, mean);
                    sum = simd.add_f32s(sum, s);
                    products = simd.add_f32s(products, p);
                }
                let sum = simd.reduce_sum_f32s(sum);
                let products = simd.reduce_sum_f32s(products) * rstd;
                self.d_beta[channel] += sum;
                self.d_gamma[channel] += products;
                let scale = self.gamma[channel] * rstd;
                let mut slope = simd.splat_f32s(-scale * rstd * products / count);
                let mut shift = simd.splat_f32s(-scale * sum / count);
                let scale = simd.splat_f32s(scale);
                for group in 0..self.groups {
                    if group + 1 == self.groups {
                        (slope, shift) = (first_lanes(simd, slope, last), first_lanes(simd, shift, last));
                    }
                    let buffers = (self.d_x, self.d_y, self.y, self.x);
                    gradient(simd, buffers, group * channels + channel, lines, (mean, scale, slope, shift));
                }
            }
        }
    }
}
