//! Layer normalisation on rows `[row][column]`: each row has its own mean and variance.

use crate::simd::{Isa, Loops};

/// Partial sums of a row. Their order is fixed, so every instruction set gives the same bits.
const SUMS: usize = 16;

/// The sum of f(i) over the columns of a row.
#[inline(always)]
fn sum(width: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut sums = [0.0f32; SUMS];
    let blocks = width / SUMS * SUMS;
    for at in (0..blocks).step_by(SUMS) {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += f(at + i);
        }
    }
    let mut half = SUMS / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    (blocks..width).fold(sums[0], |sum, i| sum + f(i))
}

/// Scale, shift, and the epsilon added to the variance.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
    pub eps: f32,
}

/// y = gamma * (x - mean) * rstd + beta, row by row. The rows are as wide as gamma; `stats` `[row][2]` receives the
/// mean and the reciprocal standard deviation.
pub fn forward(isa: Isa, LayerNorm { gamma, beta, eps }: LayerNorm<'_>, y: &mut [f32], stats: &mut [f32], x: &[f32]) {
    let width = gamma.len();
    assert_eq!(beta.len(), width);
    check(y, x, stats, width);
    isa.run(Loops(
        #[inline(always)]
        move || {
            let (beta, share) = (&beta[..width], 1.0 / width as f32);
            let rows = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for ((y, x), stats) in rows.zip(stats.as_chunks_mut::<2>().0) {
                let mean = share * sum(width, |i| x[i]);
                let variance = share * sum(width, |i| (x[i] - mean) * (x[i] - mean));
                let rstd = 1.0 / (variance + eps).sqrt();
                *stats = [mean, rstd];
                for i in 0..width {
                    y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
                }
            }
        },
    ));
}

fn check(y: &[f32], x: &[f32], stats: &[f32], width: usize) {
    assert!(width > 0 && x.len().is_multiple_of(width) && y.len() == x.len());
    assert!(stats.len() >= 2 * (x.len() / width), "{} statistics for {} values", stats.len(), x.len());
}

/// Turns the gradient with respect to y, in `d`, into that with respect to x. Adds to the gradients of gamma and beta
/// if they are wanted.
pub fn backward(
    isa: Isa,
    d: &mut [f32],
    mut affine: Option<(&mut [f32], &mut [f32])>,
    x: &[f32],
    stats: &[f32],
    gamma: &[f32],
) {
    let width = gamma.len();
    check(d, x, stats, width);
    if let Some((d_gamma, d_beta)) = &affine {
        assert!(d_gamma.len() == width && d_beta.len() == width);
    }
    isa.run(Loops(
        #[inline(always)]
        move || {
            let share = 1.0 / width as f32;
            let rows = d.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for ((d, x), &[mean, rstd]) in rows.zip(stats.as_chunks::<2>().0) {
                if let Some((d_gamma, d_beta)) = &mut affine {
                    let (d_gamma, d_beta) = (&mut d_gamma[..width], &mut d_beta[..width]);
                    for i in 0..width {
                        d_gamma[i] += d[i] * ((x[i] - mean) * rstd);
                        d_beta[i] += d[i];
                    }
                }
                let plain = share * sum(width, |i| d[i] * gamma[i]);
                let along = share * sum(width, |i| d[i] * gamma[i] * ((x[i] - mean) * rstd));
                for i in 0..width {
                    d[i] = rstd * (d[i] * gamma[i] - plain - (x[i] - mean) * rstd * along);
                }
            }
        },
    ));
}
