//! Products of matrices in which each element of one is multiplied by neighbouring elements of the other, read in place.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and vector, in registers")]

use std::ops::Range;

use crate::simd::{Apart, Kernel, LANES, Paired, Simd};

/// Block of the right-hand matrix (columns and depth) that stays in the cache.
const BLOCK_COLUMNS: usize = 128;
pub(crate) const BLOCK_DEPTH: usize = 128;
/// Rows spaced by a multiple of this many bytes compete for a few cache sets; such a block is copied first.
const CROWDED_BYTES: usize = 512;

/// Splits `0..len` into ranges of at most `size`.
pub(crate) fn parts(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..(start + size).min(len))
}

/// An operand of a product: the strides between rows and along the depth, in floats.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) row: usize,
    pub(crate) step: usize,
}

/// to `[row][column]` = left `[row][depth]` * right `[depth][column]`, or to += it: each element of `left` is broadcast
/// and multiplied by neighbouring elements of `right`.
pub(crate) struct Outer<'a> {
    pub(crate) to: &'a mut [f32],
    pub(crate) left: Factor<'a>,
    pub(crate) right: Factor<'a>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    pub(crate) add: bool,
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
