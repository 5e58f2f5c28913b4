//! Dense layers on small batches of rows: x `[sample][input]`, y `[sample][output]`, weights `[output][input]`.
//!
//! For few samples and large weights, where repacking the weights for a general matrix product would cost more than it
//! saves: each kernel reads them in place. A sample's outputs are bit-identical in any batch.

#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and vector, in registers")]

use std::ops::Range;

use crate::outer::{BLOCK_DEPTH, Factor, Outer, parts};
use crate::simd::{Apart, Isa, Kernel, LANES, Paired, Simd, load_pair, store_pair};

/// Inputs that a tile sums before reducing its lanes; the rows of a tile then fit into the L1 cache.
const FORWARD_INPUTS: usize = 1024;
/// Samples of a tile of pairs.
const PAIRED_SAMPLES: usize = 8;
/// Most samples whose input gradient is spread, the columns of their sums, and the rows of weights at a time.
const FEW: usize = 16;
const SPREAD_COLUMNS: usize = 256;
const SPREAD_ROWS: usize = 4;

#[derive(Clone, Copy, Debug)]
pub struct DenseSizes {
    pub samples: usize,
    pub inputs: usize,
    pub outputs: usize,
}

impl DenseSizes {
    pub(crate) fn check(self, y: &[f32], x: &[f32], w: &[f32]) {
        let Self { samples, inputs, outputs } = self;
        assert!(y.len() >= samples * outputs, "outputs: {} floats for {samples} times {outputs}", y.len());
        assert!(x.len() >= samples * inputs, "inputs: {} floats for {samples} times {inputs}", x.len());
        assert!(w.len() >= outputs * inputs, "weights: {} floats for {outputs} times {inputs}", w.len());
    }
}

/// y `[sample][output]` = x `[sample][input]` * w^T + bias, w `[output][input]`.
pub fn forward(isa: Isa, y: &mut [f32], x: &[f32], w: &[f32], bias: &[f32], sizes: DenseSizes) {
    sizes.check(y, x, w);
    let y = &mut y[..sizes.samples * sizes.outputs];
    for y in y.chunks_exact_mut(sizes.outputs.max(1)) {
        y.copy_from_slice(&bias[..sizes.outputs]);
    }
    isa.run(AffineForward { y, x, w, sizes });
}

struct AffineForward<'a> {
    y: &'a mut [f32],
    x: &'a [f32],
    w: &'a [f32],
    sizes: DenseSizes,
}

impl Kernel for AffineForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        // Tiles of pairs of samples, then of single ones.
        let paired = if S::PAIRS { self.sizes.samples / PAIRED_SAMPLES * PAIRED_SAMPLES } else { 0 };
        for inputs in parts(self.sizes.inputs, FORWARD_INPUTS) {
            for outputs in parts(self.sizes.outputs, 3) {
                for sample in (0..paired).step_by(PAIRED_SAMPLES) {
                    // SAFETY: as below.
                    unsafe { self.outputs::<_, 4>(Paired(simd), (sample, outputs.start), outputs.len(), &inputs) };
                }
                for samples in parts(self.sizes.samples - paired, 4) {
                    let (at, outputs) = ((paired + samples.start, outputs.start), outputs.len());
                    // SAFETY: `forward` checked the lengths, and a tile's rows exist.
                    unsafe {
                        match samples.len() {
                            4 => self.outputs::<_, 4>(simd, at, outputs, &inputs),
                            3 => self.outputs::<_, 3>(simd, at, outputs, &inputs),
                            2 => self.outputs::<_, 2>(simd, at, outputs, &inputs),
                            _ => self.outputs::<_, 1>(simd, at, outputs, &inputs),
                        }
                    }
                }
            }
        }
    }
}

impl AffineForward<'_> {
    #[inline(always)]
    unsafe fn outputs<A: Apart, const N: usize>(
        &mut self,
        simd: A,
        at: (usize, usize),
        outputs: usize,
        inputs: &Range<usize>,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match outputs {
                3 => self.tile::<A, N, 3>(simd, at, inputs),
                2 => self.tile::<A, N, 2>(simd, at, inputs),
                _ => self.tile::<A, N, 1>(simd, at, inputs),
            }
        }
    }

    /// N samples, or pairs of them, by O outputs: dot products along the inputs, added to y.
    #[inline(always)]
    unsafe fn tile<A: Apart, const N: usize, const O: usize>(
        &mut self,
        simd: A,
        (sample, output): (usize, usize),
        inputs: &Range<usize>,
    ) {
        let DenseSizes { inputs: row, outputs, .. } = self.sizes;
        let count = inputs.len();
        let whole = count / LANES * LANES;
        let mut sum = [[simd.splat(0.0); O]; N];
        // SAFETY: the rows of this tile exist, and `k` stays inside `inputs`.
        unsafe {
            let x = self.x.as_ptr().add(sample * row + inputs.start);
            let w = self.w.as_ptr().add(output * row + inputs.start);
            let mut k = 0;
            while k < whole {
                let mut v = [simd.splat(0.0); O];
                for o in 0..O {
                    v[o] = simd.repeat(w.add(o * row + k));
                }
                for n in 0..N {
                    let x = simd.read(x.add(n * A::VECTORS * row + k), row);
                    for o in 0..O {
                        sum[n][o] = simd.fma(x, v[o], sum[n][o]);
                    }
                }
                k += LANES;
            }
            if whole < count {
                let mut v = [simd.splat(0.0); O];
                for o in 0..O {
                    v[o] = simd.read_part(w.add(o * row + whole), 0, count - whole);
                }
                for n in 0..N {
                    let x = simd.read_part(x.add(n * A::VECTORS * row + whole), row, count - whole);
                    for o in 0..O {
                        sum[n][o] = simd.fma(x, v[o], sum[n][o]);
                    }
                }
            }
            let y = self.y.as_mut_ptr().add(sample * outputs + output);
            for o in 0..O {
                let mut all = [simd.splat(0.0); 4];
                for n in 0..N {
                    all[n] = sum[n][o];
                }
                let found = simd.sum_vectors(all);
                for n in 0..N * A::VECTORS {
                    *y.add(n * outputs + o) += found[n % A::VECTORS][n / A::VECTORS];
                }
            }
        }
    }
}

/// d_x `[sample][input]` = d_y `[sample][output]` * w, or d_x += it.
pub fn input_gradient(isa: Isa, d_x: &mut [f32], d_y: &[f32], w: &[f32], sizes: DenseSizes, add: bool) {
    sizes.check(d_y, d_x, w);
    let DenseSizes { samples, inputs, outputs } = sizes;
    let d_x = &mut d_x[..samples * inputs];
    if !add && outputs == 0 {
        return d_x.fill(0.0);
    }
    if samples <= FEW && inputs.is_multiple_of(2 * LANES) {
        return isa.run(Spread { d_x, d_y, w, sizes, add });
    }
    let (left, right) = (Factor { x: d_y, row: outputs, step: 1 }, Factor { x: w, row: inputs, step: 1 });
    isa.run(Outer { to: d_x, left, right, rows: samples, columns: inputs, depth: outputs, add });
}

/// d_w `[output][input]` = d_y^T * x, over all samples, or d_w += it.
pub fn weight_gradient(isa: Isa, d_w: &mut [f32], d_y: &[f32], x: &[f32], sizes: DenseSizes, add: bool) {
    sizes.check(d_y, x, d_w);
    let DenseSizes { samples, inputs, outputs } = sizes;
    if !add && samples == 0 {
        return d_w[..outputs * inputs].fill(0.0);
    }
    let (left, right) = (Factor { x: d_y, row: 1, step: outputs }, Factor { x, row: inputs, step: 1 });
    isa.run(Outer { to: d_w, left, right, rows: outputs, columns: inputs, depth: samples, add });
}

/// d_b `[output]` += the column sums of d_y `[sample][output]`.
pub fn bias_gradient(d_b: &mut [f32], d_y: &[f32], samples: usize, outputs: usize) {
    assert!(d_b.len() >= outputs && d_y.len() >= samples * outputs);
    for d_y in d_y[..samples * outputs].chunks_exact(outputs.max(1)) {
        for (d_b, d) in d_b.iter_mut().zip(d_y) {
            *d_b += d;
        }
    }
}

/// The input gradient of few samples: their sums stay in the cache, and the weights are read once, row by row. The sums have
/// the order of [`Outer`].
struct Spread<'a> {
    d_x: &'a mut [f32],
    d_y: &'a [f32],
    w: &'a [f32],
    sizes: DenseSizes,
    add: bool,
}

impl Kernel for Spread<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { d_x, d_y, w, sizes: DenseSizes { samples, inputs, outputs }, add } = self;
        let mut sums = [0.0; FEW * SPREAD_COLUMNS];
        for columns in parts(inputs, SPREAD_COLUMNS) {
            for depth in parts(outputs, BLOCK_DEPTH) {
                let sums = &mut sums[..samples * columns.len()];
                sums.fill(0.0);
                for rows in parts(depth.len(), SPREAD_ROWS) {
                    let output = depth.start + rows.start;
                    let (w, d_y) = (&w[output * inputs + columns.start..], &d_y[output..]);
                    let add = SpreadRows { sums, columns: columns.len(), w, inputs, d_y, outputs };
                    // SAFETY: `input_gradient` checked the lengths; the columns are whole pairs of vectors.
                    unsafe {
                        match rows.len() {
                            SPREAD_ROWS => add.run::<S, SPREAD_ROWS>(simd),
                            3 => add.run::<S, 3>(simd),
                            2 => add.run::<S, 2>(simd),
                            _ => add.run::<S, 1>(simd),
                        }
                    }
                }
                for (d_x, sums) in d_x.chunks_exact_mut(inputs).zip(sums.chunks_exact(columns.len())) {
                    for (d_x, sum) in d_x[columns.clone()].iter_mut().zip(sums) {
                        let old = if add || depth.start > 0 { *d_x } else { 0.0 };
                        *d_x = old + sum;
                    }
                }
            }
        }
    }
}

/// sums `[sample][column]` += d_y `[sample][row]` * w `[row][column]`, for a few rows.
struct SpreadRows<'a> {
    sums: &'a mut [f32],
    columns: usize,
    w: &'a [f32],
    inputs: usize,
    d_y: &'a [f32],
    outputs: usize,
}

impl SpreadRows<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd, const R: usize>(self, simd: S) {
        let Self { sums, columns, w, inputs, d_y, outputs } = self;
        let samples = sums.len() / columns;
        let (sums, w, d_y) = (sums.as_mut_ptr(), w.as_ptr(), d_y.as_ptr());
        for column in (0..columns).step_by(2 * LANES) {
            let mut v = [simd.splat_pair(0.0); R];
            // SAFETY: the caller's rows hold the columns, and each sample has sums and R gradients.
            unsafe {
                for r in 0..R {
                    v[r] = load_pair::<S>(w.add(r * inputs + column));
                }
                for sample in 0..samples {
                    let to = sums.add(sample * columns + column);
                    let mut sum = load_pair::<S>(to);
                    for r in 0..R {
                        sum = simd.fma_pair(simd.splat_pair(*d_y.add(sample * outputs + r)), v[r], sum);
                    }
                    store_pair::<S>(to, sum);
                }
            }
        }
    }
}
