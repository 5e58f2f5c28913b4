//! Plain versions of the kernels, used as oracles: straightforward f64 loops on `[sample][channel][row][column]`.

mod erf;
pub(crate) mod text;

use fedelity_kernels::Plane;
use fedelity_kernels::pool::Window;

/// Sizes of a plain activation `[sample][channel][row][column]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) samples: usize,
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl Shape {
    /// Number of elements.
    pub(crate) fn len(self) -> usize {
        self.samples * self.channels * self.height * self.width
    }

    /// The same samples with other channels, rows and columns.
    pub(crate) fn with(self, channels: usize, (height, width): (usize, usize)) -> Self {
        Self { samples: self.samples, channels, height, width }
    }

    /// The index of an element.
    pub(crate) fn at(self, n: usize, c: usize, i: usize, j: usize) -> usize {
        ((n * self.channels + c) * self.height + i) * self.width + j
    }

    /// Its rows and columns, with no border.
    pub(crate) fn plane(self) -> Plane {
        Plane::bare(self.height, self.width)
    }

    /// Calls `f` with the indices of every element, in order.
    fn each(self, mut f: impl FnMut(usize, usize, usize, usize)) {
        for n in 0..self.samples {
            for c in 0..self.channels {
                for i in 0..self.height {
                    for j in 0..self.width {
                        f(n, c, i, j);
                    }
                }
            }
        }
    }
}

/// Converts a plain activation to `[group][channel][row][column][lane]`, with `border` in the halo and `missing` in the
/// lanes past the last sample.
pub(crate) fn to_lanes(x: &[f64], shape: Shape, plane: Plane, lanes: usize, border: f32, missing: f32) -> Vec<f32> {
    let groups = shape.samples.div_ceil(lanes);
    let mut y = vec![border; groups * shape.channels * plane.area() * lanes];
    let full = Shape { samples: groups * lanes, ..shape };
    full.each(|n, c, i, j| {
        y[lane_at(shape, plane, lanes, n, c, i, j)] =
            if n < shape.samples { x[shape.at(n, c, i, j)] as f32 } else { missing };
    });
    y
}

/// Extracts the plain activation from a buffer `[group][channel][row][column][lane]`.
pub(crate) fn from_lanes(y: &[f32], shape: Shape, plane: Plane, lanes: usize) -> Vec<f64> {
    let mut x = Vec::with_capacity(shape.len());
    shape.each(|n, c, i, j| x.push(f64::from(y[lane_at(shape, plane, lanes, n, c, i, j)])));
    x
}

fn lane_at(shape: Shape, plane: Plane, lanes: usize, n: usize, c: usize, i: usize, j: usize) -> usize {
    let pixel = (i + plane.halo) * plane.row() + j + plane.halo;
    ((n / lanes * shape.channels + c) * plane.area() + pixel) * lanes + n % lanes
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) input: Shape,
    pub(crate) out_channels: usize,
    /// Rows and columns of the kernel.
    pub(crate) kernel: usize,
    /// Pixels from one position to the next.
    pub(crate) stride: usize,
    /// Zero padding on each side.
    pub(crate) pad: usize,
}

impl Convolution {
    /// Sizes of the output, or `None` if the kernel does not fit.
    pub(crate) fn output(self) -> Option<Shape> {
        let side = |n: usize| Some((n + 2 * self.pad).checked_sub(self.kernel)? / self.stride + 1);
        Some(self.input.with(self.out_channels, (side(self.input.height)?, side(self.input.width)?)))
    }

    /// Calls `f` with the indices into output, input and weights of every product.
    fn products(self, mut f: impl FnMut(usize, usize, usize)) {
        let (input, k) = (self.input, self.kernel);
        let Some(output) = self.output() else { return };
        output.each(|n, o, i, j| {
            for c in 0..input.channels {
                for p in 0..k {
                    for q in 0..k {
                        let inside = |at: usize, size| at.checked_sub(self.pad).filter(|at| *at < size);
                        let row = inside(i * self.stride + p, input.height);
                        let column = inside(j * self.stride + q, input.width);
                        if let (Some(row), Some(column)) = (row, column) {
                            let weight = ((o * input.channels + c) * k + p) * k + q;
                            f(output.at(n, o, i, j), input.at(n, c, row, column), weight);
                        }
                    }
                }
            }
        });
    }

    /// The output. Weights are `[out][in][row][column]`.
    pub(crate) fn forward(self, x: &[f64], w: &[f64], bias: &[f64]) -> Vec<f64> {
        let mut y = Vec::new();
        if let Some(output) = self.output() {
            output.each(|_, o, _, _| y.push(bias[o]));
        }
        self.products(|out, input, weight| y[out] += x[input] * w[weight]);
        y
    }

    /// The gradients of input and weights.
    pub(crate) fn backward(self, d_y: &[f64], x: &[f64], w: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut d_x, mut d_w) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        self.products(|out, input, weight| {
            d_x[input] += d_y[out] * w[weight];
            d_w[weight] += d_y[out] * x[input];
        });
        (d_x, d_w)
    }
}

/// The sum of each channel over samples and pixels.
pub(crate) fn channel_sums(x: &[f64], shape: Shape) -> Vec<f64> {
    let mut sums = vec![0.0; shape.channels];
    shape.each(|n, c, i, j| sums[c] += x[shape.at(n, c, i, j)]);
    sums
}

/// Calls `f` with output index, tap and input index of every tap inside the image.
fn taps(shape: Shape, window: Window, mut f: impl FnMut(usize, usize, usize)) {
    let Some(sides) = window.output(shape.plane()) else { return };
    let output = shape.with(shape.channels, sides);
    output.each(|n, c, i, j| {
        for tap in 0..window.kernel * window.kernel {
            let inside = |at: usize, size| at.checked_sub(window.pad).filter(|at| *at < size);
            let row = inside(i * window.stride + tap / window.kernel, shape.height);
            let column = inside(j * window.stride + tap % window.kernel, shape.width);
            if let (Some(row), Some(column)) = (row, column) {
                f(output.at(n, c, i, j), tap, shape.at(n, c, row, column));
            }
        }
    });
}

fn outputs(shape: Shape, window: Window) -> usize {
    window.output(shape.plane()).map_or(0, |sides| shape.with(shape.channels, sides).len())
}

/// The maximum over each window of x or relu(x), and its index in x (`None` where ReLU clipped it).
pub(crate) fn max_pool(x: &[f64], shape: Shape, window: Window, relu: bool) -> (Vec<f64>, Vec<Option<usize>>) {
    let mut best: Vec<Option<usize>> = vec![None; outputs(shape, window)];
    taps(shape, window, |out, _, at| {
        if best[out].is_none_or(|old| x[at] > x[old] || x[at].is_nan()) {
            best[out] = Some(at);
        }
    });
    if relu {
        best.iter_mut().for_each(|at| *at = at.filter(|&at| x[at].is_nan() || x[at] > 0.0));
    }
    (best.iter().map(|at| at.map_or(0.0, |at| x[at])).collect(), best)
}

/// The gradient of the input of [`max_pool`].
pub(crate) fn max_pool_backward(d_y: &[f64], choice: &[Option<usize>], shape: Shape) -> Vec<f64> {
    let mut d_x = vec![0.0; shape.len()];
    for (d, at) in d_y.iter().zip(choice) {
        if let Some(at) = at {
            d_x[*at] += d;
        }
    }
    d_x
}

/// The average over each window; padding counts as zeros.
pub(crate) fn average_pool(x: &[f64], shape: Shape, window: Window) -> Vec<f64> {
    let mut y = vec![0.0; outputs(shape, window)];
    taps(shape, window, |out, _, at| y[out] += x[at] / (window.kernel * window.kernel) as f64);
    y
}

/// The gradient of the input of [`average_pool`].
pub(crate) fn average_pool_backward(d_y: &[f64], shape: Shape, window: Window) -> Vec<f64> {
    let mut d_x = vec![0.0; shape.len()];
    taps(shape, window, |out, _, at| d_x[at] += d_y[out] / (window.kernel * window.kernel) as f64);
    d_x
}

/// The average over the pixels: `[sample][channel]`.
pub(crate) fn global_average(x: &[f64], shape: Shape) -> Vec<f64> {
    x.chunks(shape.height * shape.width).map(|x| x.iter().sum::<f64>() / x.len() as f64).collect()
}

/// max(x, 0).
pub(crate) fn relu(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&v| if v < 0.0 { 0.0 } else { v }).collect()
}

/// d where y > 0, else 0.
pub(crate) fn relu_backward(d: &[f64], y: &[f64]) -> Vec<f64> {
    d.iter().zip(y).map(|(&d, &y)| if y > 0.0 { d } else { 0.0 }).collect()
}

/// The elements that share statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sharing {
    /// One sample; its channels are split into this many groups.
    GroupsOfChannels(usize),
    /// All samples of one channel.
    Batch,
}

impl Sharing {
    /// The elements of each set.
    fn sets(self, shape: Shape) -> Vec<Vec<usize>> {
        let count = match self {
            Self::GroupsOfChannels(groups) => shape.samples * groups,
            Self::Batch => shape.channels,
        };
        let mut sets = vec![Vec::new(); count];
        shape.each(|n, c, i, j| {
            let set = match self {
                Self::GroupsOfChannels(groups) => n * groups + c / (shape.channels / groups),
                Self::Batch => c,
            };
            sets[set].push(shape.at(n, c, i, j));
        });
        sets
    }
}

fn mean_and_variance(x: &[f64], set: &[usize]) -> (f64, f64) {
    let mean = set.iter().map(|&i| x[i]).sum::<f64>() / set.len() as f64;
    (mean, set.iter().map(|&i| (x[i] - mean).powi(2)).sum::<f64>() / set.len() as f64)
}

/// Mean and biased variance of each set, in order: `[sample][group of channels]` or `[channel]`.
pub(crate) fn statistics(x: &[f64], shape: Shape, sharing: Sharing) -> Vec<(f64, f64)> {
    sharing.sets(shape).iter().map(|set| mean_and_variance(x, set)).collect()
}

/// gamma * (x - mean) / sqrt(variance + 1e-5) + beta.
pub(crate) fn normalise(x: &[f64], shape: Shape, sharing: Sharing, gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    let pixels = shape.height * shape.width;
    for set in sharing.sets(shape) {
        let (mean, variance) = mean_and_variance(x, &set);
        for i in set {
            let channel = i / pixels % shape.channels;
            y[i] = gamma[channel] * (x[i] - mean) / (variance + 1e-5).sqrt() + beta[channel];
        }
    }
    y
}

/// The gradients of x, gamma and beta of [`normalise`].
pub(crate) fn normalise_backward(
    d_y: &[f64],
    x: &[f64],
    shape: Shape,
    sharing: Sharing,
    gamma: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut d_x, mut d_gamma, mut d_beta) = (vec![0.0; x.len()], vec![0.0; gamma.len()], vec![0.0; gamma.len()]);
    let pixels = shape.height * shape.width;
    let channel = |i: usize| i / pixels % shape.channels;
    for set in sharing.sets(shape) {
        let (mean, variance) = mean_and_variance(x, &set);
        let rstd = 1.0 / (variance + 1e-5).sqrt();
        let hat = |i: usize| (x[i] - mean) * rstd;
        let count = set.len() as f64;
        let average = set.iter().map(|&i| d_y[i] * gamma[channel(i)]).sum::<f64>() / count;
        let slope = set.iter().map(|&i| d_y[i] * gamma[channel(i)] * hat(i)).sum::<f64>() / count;
        for &i in &set {
            d_x[i] = rstd * (d_y[i] * gamma[channel(i)] - average - hat(i) * slope);
            d_gamma[channel(i)] += d_y[i] * hat(i);
            d_beta[channel(i)] += d_y[i];
        }
    }
    (d_x, d_gamma, d_beta)
}

/// c `[rows][columns]` = a * b, where `a(i, k)` and `b(k, j)` give the entries.
pub(crate) fn product(
    (rows, columns, depth): (usize, usize, usize),
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let entry = |at: usize| (0..depth).map(|k| a(at / columns, k) * b(k, at % columns)).sum();
    (0..rows * columns).map(entry).collect()
}

/// log softmax(z / temperature) of one row.
pub(crate) fn log_softmax(z: &[f64], temperature: f64) -> Vec<f64> {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log = z.iter().map(|v| ((v - top) / temperature).exp()).sum::<f64>().ln();
    z.iter().map(|v| (v - top) / temperature - log).collect()
}
