//! Batch normalisation over `[group][channel][row][column][lane]`, with PyTorch's defaults and running statistics.

use crate::lines::{first_lanes, moments};
use crate::norm::{GradientLines, NormGradient, Normalise, NormaliseLines};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// Added to the variance.
pub const EPSILON: f32 = 1e-5;
/// Weight of a batch's statistics in the update of the running ones.
pub const MOMENTUM: f32 = 0.1;

/// Normalises with the statistics of the `samples` samples in x.
///
/// `stats` `[2][channel]` receives the mean and the reciprocal standard deviation. The running mean and variance move
/// by [`MOMENTUM`] towards the batch's mean and unbiased variance.
pub fn forward_training(
    isa: Isa,
    pass: Normalise<'_>,
    stats: &mut [f32],
    (running_mean, running_var): (&mut [f32], &mut [f32]),
    samples: usize,
) {
    assert!(samples > 0);
    let (groups, channels) = (samples.div_ceil(LANES), pass.gamma.len());
    let (mean, rstd) = stats[..2 * channels].split_at_mut(channels);
    isa.run(BatchForward {
        pass: pass.lines(groups * channels, channels),
        mean,
        rstd,
        running_mean: &mut running_mean[..channels],
        running_var: &mut running_var[..channels],
        groups,
        samples,
    });
}

struct BatchForward<'a> {
    pass: NormaliseLines<'a>,
    mean: &'a mut [f32],
    rstd: &'a mut [f32],
    running_mean: &'a mut [f32],
    running_var: &'a mut [f32],
    groups: usize,
    samples: usize,
}

impl Kernel for BatchForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let NormaliseLines { x, lines, gamma, .. } = self.pass;
        let channels = gamma.len();
        let last = self.samples - (self.groups - 1) * LANES;
        let count = (self.samples * lines.count * lines.pixels) as f64;
        #[allow(clippy::needless_range_loop, reason = "four buffers are indexed by it")]
        for channel in 0..channels {
            // SAFETY: `Normalise::lines` checked the buffers.
            unsafe {
                let first = *x.line(channel, 0);
                let shift = simd.splat(first);
                let (mut sum, mut squares) = (simd.splat(0.0), simd.splat(0.0));
                for group in 0..self.groups {
                    let (mut s, mut q) = moments(simd, x, group * channels + channel, lines, shift);
                    if group + 1 == self.groups && last < LANES {
                        (s, q) = (first_lanes(simd, s, last), first_lanes(simd, q, last));
                    }
                    sum = simd.add(sum, s);
                    squares = simd.add(squares, q);
                }
                let offset = f64::from(simd.sum(sum)) / count;
                let variance = (f64::from(simd.sum(squares)) / count - offset * offset).max(0.0);
                let mean = (f64::from(first) + offset) as f32;
                let rstd = (1.0 / (variance + f64::from(EPSILON)).sqrt()) as f32;
                let unbiased = (variance * count / (count - 1.0).max(1.0)) as f32;
                (self.mean[channel], self.rstd[channel]) = (mean, rstd);
                move_towards(&mut self.running_mean[channel], mean);
                move_towards(&mut self.running_var[channel], unbiased);
                let (mean, scale) = (simd.splat(mean), simd.splat(gamma[channel] * rstd));
                for group in 0..self.groups {
                    self.pass.apply(simd, group * channels + channel, mean, scale);
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
pub fn forward_evaluation(isa: Isa, pass: Normalise<'_>, (running_mean, running_var): (&[f32], &[f32]), groups: usize) {
    let channels = pass.gamma.len();
    let (mean, variance, planes) = (&running_mean[..channels], &running_var[..channels], groups * channels);
    isa.run(BatchEvaluate { pass: pass.lines(planes, channels), mean, variance, planes });
}

struct BatchEvaluate<'a> {
    pass: NormaliseLines<'a>,
    mean: &'a [f32],
    variance: &'a [f32],
    planes: usize,
}

impl Kernel for BatchEvaluate<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let gamma = self.pass.gamma;
        for plane in 0..self.planes {
            let channel = plane % gamma.len();
            let scale = gamma[channel] / (self.variance[channel] + EPSILON).sqrt();
            let (mean, scale) = (simd.splat(self.mean[channel]), simd.splat(scale));
            // SAFETY: `Normalise::lines` checked the buffers.
            unsafe { self.pass.apply(simd, plane, mean, scale) };
        }
    }
}

/// The gradients through the batch statistics `stats`. d_x is zero in lanes without a sample.
pub fn backward(isa: Isa, gradient: NormGradient<'_>, stats: &[f32], samples: usize) {
    assert!(samples > 0);
    let (groups, channels) = (samples.div_ceil(LANES), gradient.gamma.len());
    let (mean, rstd) = stats[..2 * channels].split_at(channels);
    let gradient = gradient.lines(isa, groups * channels, channels);
    isa.run(BatchBackward { gradient, mean, rstd, groups, samples });
}

struct BatchBackward<'a> {
    gradient: GradientLines<'a>,
    mean: &'a [f32],
    rstd: &'a [f32],
    groups: usize,
    samples: usize,
}

impl Kernel for BatchBackward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let gradient = self.gradient;
        let (lines, channels) = (gradient.lines, gradient.gamma.len());
        let last = self.samples - (self.groups - 1) * LANES;
        let count = (self.samples * lines.count * lines.pixels) as f32;
        for channel in 0..channels {
            let (rstd, mean) = (self.rstd[channel], simd.splat(self.mean[channel]));
            let scale = gradient.gamma[channel] * rstd;
            // SAFETY: `NormGradient::lines` checked the buffers.
            unsafe {
                let (mut sum, mut products) = (simd.splat(0.0), simd.splat(0.0));
                for group in 0..self.groups {
                    let (s, p) = gradient.sums(simd, group * channels + channel, mean, simd.splat(scale));
                    sum = simd.add(sum, s);
                    products = simd.add(products, p);
                }
                let sum = simd.sum(sum);
                let products = simd.sum(products) * rstd;
                gradient.d_beta[channel] += sum;
                gradient.d_gamma[channel] += products;
                let mut slope = simd.splat(-scale * rstd * products / count);
                let mut shift = simd.splat(-scale * sum / count);
                let scale = simd.splat(scale);
                for group in 0..self.groups {
                    if group + 1 == self.groups {
                        (slope, shift) = (first_lanes(simd, slope, last), first_lanes(simd, shift, last));
                    }
                    gradient.write(simd, group * channels + channel, (mean, scale, slope, shift));
                }
            }
        }
    }
}
