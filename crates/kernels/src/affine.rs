//! Dense layers on small batches of rows: x `[sample][input]`, y `[sample][output]`, weights `[output][input]`.
//!
//! For few samples and large weights, where repacking the weights for a general matrix product would cost more than it
//! saves: each kernel reads them in place. A sample's outputs are bit-identical in any batch.

#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and vector, in registers")]

use std::ops::Range;

use crate::simd::{Apart, Isa, Kernel, LANES, Paired, Simd, load, store};

/// Inputs that a tile sums before reducing its lanes; the rows of a tile then fit into the L1 cache.
const FORWARD_INPUTS: usize = 1024;
/// Samples of a tile of pairs.
const PAIRED_SAMPLES: usize = 8;
/// Block of the right-hand matrix (columns and depth) that stays in the cache.
const BLOCK_COLUMNS: usize = 128;
const BLOCK_DEPTH: usize = 128;
/// Most samples whose input gradient is spread, the columns of their sums, and the rows of weights at a time.
const FEW: usize = 16;
const SPREAD_COLUMNS: usize = 256;
const SPREAD_ROWS: usize = 4;
/// Rows spaced by a multiple of this many bytes compete for a few cache sets; such a block is copied first.
const CROWDED_BYTES: usize = 512;

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

/// Splits `0..len` into ranges of at most `size`.
fn parts(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..(start + size).min(len))
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
            let mut v = [[simd.splat(0.0); 2]; R];
            // SAFETY: the caller's rows hold the columns, and each sample has sums and R gradients.
            unsafe {
                for r in 0..R {
                    let w = w.add(r * inputs + column);
                    v[r] = [load::<S>(w), load::<S>(w.add(LANES))];
                }
                for sample in 0..samples {
                    let to = sums.add(sample * columns + column);
                    let mut sum = [load::<S>(to), load::<S>(to.add(LANES))];
                    for r in 0..R {
                        let d = simd.splat(*d_y.add(sample * outputs + r));
                        sum = [simd.fma(d, v[r][0], sum[0]), simd.fma(d, v[r][1], sum[1])];
                    }
                    store::<S>(to, sum[0]);
                    store::<S>(to.add(LANES), sum[1]);
                }
            }
        }
    }
}

/// An operand of a product: the strides between rows and along the depth, in floats.
#[derive(Clone, Copy)]
struct Factor<'a> {
    x: &'a [f32],
    row: usize,
    step: usize,
}

/// to `[row][column]` = left `[row][depth]` * right `[depth][column]`, or to += it: each element of `left` is broadcast
/// and multiplied by neighbouring elements of `right`.
struct Outer<'a> {
    to: &'a mut [f32],
    left: Factor<'a>,
    right: Factor<'a>,
    rows: usize,
    columns: usize,
    depth: usize,
    add: bool,
}

impl Kernel for Outer<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let crowded = (self.right.row * size_of::<f32>()).is_multiple_of(CROWDED_BYTES);
        let mut copy = crowded.then_some([0.0; BLOCK_COLUMNS * BLOCK_DEPTH]);
        for columns in parts(self.columns, BLOCK_COLUMNS) {
            for depth in parts(self.depth, BLOCK_DEPTH) {
                let first = &self.right.x[depth.start * self.right.row + columns.start..];
                let right = match &mut copy {
                    Some(copy) => {
                        let lines = copy.chunks_exact_mut(BLOCK_COLUMNS).zip(first.chunks(self.right.row));
                        for (to, from) in lines.take(depth.len()) {
                            to[..columns.len()].copy_from_slice(&from[..columns.len()]);
                        }
                        Factor { x: copy, row: BLOCK_COLUMNS, step: 1 }
                    }
                    None => Factor { x: first, ..self.right },
                };
                for rows in parts(self.rows, 6) {
                    // SAFETY: the callers checked the lengths; the rows exist, and `right` starts at the block.
                    unsafe {
                        match rows.len() {
                            6 => self.sweep::<S, 6>(simd, right, rows.start, &columns, &depth),
                            5 => self.sweep::<S, 5>(simd, right, rows.start, &columns, &depth),
                            4 => self.sweep::<S, 4>(simd, right, rows.start, &columns, &depth),
                            3 => self.sweep::<S, 3>(simd, right, rows.start, &columns, &depth),
                            2 => self.sweep::<S, 2>(simd, right, rows.start, &columns, &depth),
                            _ => self.sweep::<S, 1>(simd, right, rows.start, &columns, &depth),
                        }
                    }
                }
            }
        }
    }
}

impl Outer<'_> {
    /// R rows by a block of columns.
    #[inline(always)]
    unsafe fn sweep<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        right: Factor<'_>,
        row: usize,
        columns: &Range<usize>,
        depth: &Range<usize>,
    ) {
        let mut done = 0;
        // SAFETY: the columns of each tile lie inside the block.
        unsafe {
            while S::PAIRS && done + 8 * LANES <= columns.len() {
                let right = Factor { x: &right.x[done..], ..right };
                self.tile::<_, R, 4>(Paired(simd), right, (row, columns.start + done), depth);
                done += 8 * LANES;
            }
            while done + 2 * LANES <= columns.len() {
                let right = Factor { x: &right.x[done..], ..right };
                if S::PAIRS {
                    self.tile::<_, R, 1>(Paired(simd), right, (row, columns.start + done), depth);
                } else {
                    self.tile::<_, R, 2>(simd, right, (row, columns.start + done), depth);
                }
                done += 2 * LANES;
            }
            while done < columns.len() {
                let (right, valid) = (Factor { x: &right.x[done..], ..right }, LANES.min(columns.len() - done));
                self.last_columns::<S, R>(simd, right, (row, columns.start + done), depth, valid);
                done += valid;
            }
        }
    }

    /// R rows by V vectors of columns, or pairs of them.
    #[inline(always)]
    unsafe fn tile<A: Apart, const R: usize, const V: usize>(
        &mut self,
        simd: A,
        right: Factor<'_>,
        (row, column): (usize, usize),
        depth: &Range<usize>,
    ) {
        let (left, add, width) = (self.left, self.add || depth.start > 0, A::VECTORS * LANES);
        let mut sum = [[simd.splat(0.0); V]; R];
        // SAFETY: rows, columns and depth lie inside the matrices.
        unsafe {
            let mut a = left.x.as_ptr().add(row * left.row + depth.start * left.step);
            let mut b = right.x.as_ptr();
            for _ in depth.clone() {
                let mut v = [simd.splat(0.0); V];
                for i in 0..V {
                    v[i] = simd.read(b.add(i * width), LANES);
                }
                for r in 0..R {
                    let a = simd.splat(*a.add(r * left.row));
                    for i in 0..V {
                        sum[r][i] = simd.fma(a, v[i], sum[r][i]);
                    }
                }
                a = a.wrapping_add(left.step);
                b = b.wrapping_add(right.row);
            }
            let to = self.to.as_mut_ptr().add(row * self.columns + column);
            for r in 0..R {
                for i in 0..V {
                    let to = to.add(r * self.columns + i * width);
                    let old = if add { simd.read(to, LANES) } else { simd.splat(0.0) };
                    simd.write(to, LANES, simd.add(old, sum[r][i]));
                }
            }
        }
    }

    /// R rows by the `valid` lanes of one vector of columns.
    #[inline(always)]
    unsafe fn last_columns<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        right: Factor<'_>,
        (row, column): (usize, usize),
        depth: &Range<usize>,
        valid: usize,
    ) {
        let (left, add) = (self.left, self.add || depth.start > 0);
        let mut sum = [simd.splat(0.0); R];
        // SAFETY: rows, columns and depth lie inside the matrices; only `valid` lanes are read and written.
        unsafe {
            let mut a = left.x.as_ptr().add(row * left.row + depth.start * left.step);
            let mut b = right.x.as_ptr();
            for _ in depth.clone() {
                let v = simd.read_part(b, 0, valid);
                for r in 0..R {
                    sum[r] = simd.fma(simd.splat(*a.add(r * left.row)), v, sum[r]);
                }
                a = a.wrapping_add(left.step);
                b = b.wrapping_add(right.row);
            }
            let to = self.to.as_mut_ptr().add(row * self.columns + column);
            for r in 0..R {
                let to = std::slice::from_raw_parts_mut(to.add(r * self.columns), valid);
                let old = if add { simd.load_part(to) } else { simd.splat(0.0) };
                simd.store_part(to, simd.add(old, sum[r]));
            }
        }
    }
}
