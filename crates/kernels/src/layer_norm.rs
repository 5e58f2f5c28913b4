//! Layer normalisation on rows `[row][column]`: every row has its own mean and variance.

use pulp::Simd;

use crate::simd::{Isa, Kernel};

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

/// Scale, shift and what is added to the variance.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    pub gamma: &'a [f32],
    pub beta: &'a [f32],
    pub eps: f32,
}

struct LayerForward<'a> {
    norm: LayerNorm<'a>,
    y: &'a mut [f32],
    stats: &'a mut [f32],
    x: &'a [f32],
}

impl Kernel for LayerForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let LayerNorm { gamma, beta, eps } = self.norm;
        let width = gamma.len();
        let (beta, share) = (&beta[..width], 1.0 / width as f32);
        let rows = self.y.chunks_exact_mut(width).zip(self.x.chunks_exact(width));
        for ((y, x), stats) in rows.zip(self.stats.as_chunks_mut::<2>().0) {
            let mean = share * sum(width, |i| x[i]);
            let variance = share * sum(width, |i| (x[i] - mean) * (x[i] - mean));
            let rstd = 1.0 / (variance + eps).sqrt();
            *stats = [mean, rstd];
            for i in 0..width {
                y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
            }
        }
    }
}

/// y = gamma * (x - mean) * rstd + beta, a row at a time. The rows are as wide as gamma; `stats` `[row][2]` gets the
/// mean and the reciprocal standard deviation.
pub fn forward(isa: Isa, norm: LayerNorm<'_>, y: &mut [f32], stats: &mut [f32], x: &[f32]) {
    let width = norm.gamma.len();
    assert!(width > 0 && norm.beta.len() == width && x.len().is_multiple_of(width) && y.len() == x.len());
    assert!(stats.len() >= 2 * (x.len() / width), "{} statistics for {} values", stats.len(), x.len());
    isa.run(LayerForward { norm, y, stats, x });
}

struct LayerBackward<'a> {
    d: &'a mut [f32],
    affine: Option<(&'a mut [f32], &'a mut [f32])>,
    x: &'a [f32],
    stats: &'a [f32],
    gamma: &'a [f32],
}

impl Kernel for LayerBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.gamma.len();
        let share = 1.0 / width as f32;
        let mut affine = self.affine;
        let rows = self.d.chunks_exact_mut(width).zip(self.x.chunks_exact(width));
        for ((d, x), &[mean, rstd]) in rows.zip(self.stats.as_chunks::<2>().0) {
            if let Some((d_gamma, d_beta)) = &mut affine {
                let (d_gamma, d_beta) = (&mut d_gamma[..width], &mut d_beta[..width]);
                for i in 0..width {
                    d_gamma[i] += d[i] * ((x[i] - mean) * rstd);
                    d_beta[i] += d[i];
                }
            }
            let gamma = self.gamma;
            let plain = share * sum(width, |i| d[i] * gamma[i]);
            let along = share * sum(width, |i| d[i] * gamma[i] * ((x[i] - mean) * rstd));
            for i in 0..width {
                d[i] = rstd * (d[i] * gamma[i] - plain - (x[i] - mean) * rstd * along);
            }
        }
    }
}

/// The gradient with respect to y in `d` becomes that with respect to x. Adds to the gradients of gamma and beta, where
/// they are wanted.
pub fn backward(
    isa: Isa,
    d: &mut [f32],
    affine: Option<(&mut [f32], &mut [f32])>,
    x: &[f32],
    stats: &[f32],
    gamma: &[f32],
) {
    let width = gamma.len();
    assert!(width > 0 && x.len().is_multiple_of(width) && d.len() == x.len());
    assert!(stats.len() >= 2 * (x.len() / width), "{} statistics for {} values", stats.len(), x.len());
    if let Some((d_gamma, d_beta)) = &affine {
        assert!(d_gamma.len() == width && d_beta.len() == width);
    }
    isa.run(LayerBackward { d, affine, x, stats, gamma });
}
