//! General matrix products.
//!
//! An element of the result is summed along the depth in blocks of [`DEPTH`]: within a block by fused multiply-adds from
//! zero, then the block's sum is added to the result. Nothing else changes a rounding, so the bits depend on neither the
//! other sizes nor the machine.

#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and vector, in registers")]

use std::cell::RefCell;
use std::ops::Range;

use crate::Buffer;
use crate::outer::parts;
use crate::simd::{Isa, Kernel, LANES, Simd, load, load_pair, store, store_pair};

/// Products summed before they are added to the result.
const DEPTH: usize = 256;
/// Columns of a tile.
const TILE: usize = 2 * LANES;
/// Rows of a tile.
const ROWS: usize = 6;
/// Columns and rows of the right and the left side that stay in the second-level cache, for one block of the depth.
const BLOCK_COLUMNS: usize = 24 * TILE;
const BLOCK_ROWS: usize = 16 * ROWS;

thread_local! {
    /// Where both sides are packed.
    static PACKED: RefCell<Buffer> = RefCell::new(Buffer::default());
}

/// A matrix in memory: its first element, and the steps to the next row and column.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Matrix<'_> {
    pub(crate) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    fn holds(self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }

    /// to `[panel][k][wide]` = the columns in panels of `wide`, each row by row, with zeros after the last column.
    #[inline(always)]
    fn pack(self, to: &mut [f32], rows: &Range<usize>, columns: &Range<usize>, wide: usize) {
        let panels = to.chunks_exact_mut(rows.len() * wide).zip(columns.clone().step_by(wide));
        for (to, first) in panels {
            let count = wide.min(columns.end - first);
            if count < wide {
                to.fill(0.0);
            }
            let from = &self.data[rows.start * self.row + first * self.column..];
            if self.column == 1 {
                for (to, k) in to.chunks_exact_mut(wide).zip(0..rows.len()) {
                    let from = &from[k * self.row..][..count];
                    if count == TILE && wide == TILE {
                        to[..TILE].copy_from_slice(&from[..TILE]);
                    } else {
                        to[..count].copy_from_slice(from);
                    }
                }
            } else {
                // Columns are far apart: a few rows of each at a time, so that the target stays in the cache.
                for some in (0..rows.len()).step_by(LANES) {
                    let some = some..(some + LANES).min(rows.len());
                    for column in 0..count {
                        let from = &from[column * self.column..];
                        for k in some.clone() {
                            to[k * wide + column] = from[k * self.row];
                        }
                    }
                }
            }
        }
    }
}

/// c `[rows][columns]`, a row every `step` floats, = scale * a `[rows][depth]` * b `[depth][columns]`, or c += it.
pub(crate) struct Product<'a> {
    pub(crate) c: &'a mut [f32],
    pub(crate) step: usize,
    pub(crate) add: bool,
    pub(crate) scale: f32,
    pub(crate) a: Matrix<'a>,
    pub(crate) b: Matrix<'a>,
}

impl Product<'_> {
    pub(crate) fn run(self, isa: Isa, (rows, columns, depth): (usize, usize, usize)) {
        let Self { c, step, add, a, b, .. } = &self;
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(*step >= columns && (rows - 1) * step + columns <= c.len());
        assert!(a.holds(rows, depth) && b.holds(depth, columns));
        if depth == 0 {
            if !add {
                self.c.chunks_mut(self.step).take(rows).for_each(|row| row[..columns].fill(0.0));
            }
            return;
        }
        PACKED.with_borrow_mut(|packed| {
            let deep = depth.min(DEPTH);
            let right = deep * columns.min(BLOCK_COLUMNS).next_multiple_of(TILE);
            let left = deep * rows.min(BLOCK_ROWS).next_multiple_of(ROWS);
            if packed.len() < left + right {
                *packed = Buffer::zeros(left + right);
            }
            let (right, left) = packed.split_at_mut(right);
            isa.run(Blocks { product: self, rows, columns, depth, left, right });
        });
    }
}

struct Blocks<'a> {
    product: Product<'a>,
    rows: usize,
    columns: usize,
    depth: usize,
    left: &'a mut [f32],
    right: &'a mut [f32],
}

impl Kernel for Blocks<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { product: Product { c, step, add, scale, a, b }, rows, columns, depth, left, right } = self;
        let c = c.as_mut_ptr();
        for columns in parts(columns, BLOCK_COLUMNS) {
            for deep in parts(depth, DEPTH) {
                b.pack(right, &deep, &columns, TILE);
                for rows in parts(rows, BLOCK_ROWS) {
                    // Rows that lie along the depth are read where they are.
                    let packs = a.column != 1;
                    if packs {
                        a.transposed().pack(left, &deep, &rows, ROWS);
                    }
                    let mut column = columns.start;
                    while column < columns.end {
                        // Several whole tiles side by side if registers hold pairs.
                        let panels = match (columns.end - column) / TILE {
                            4.. if S::PAIRS => 4,
                            2.. if S::PAIRS => 2,
                            _ => 1,
                        };
                        let right = &right[(column - columns.start) * deep.len()..];
                        for (i, row) in rows.clone().step_by(ROWS).enumerate() {
                            // SAFETY: `run` checked that the matrices hold these rows and columns, and that the packed
                            // ones fit.
                            unsafe {
                                let (from, along, across) = if packs {
                                    (left.as_ptr().add(i * deep.len() * ROWS), ROWS, 1)
                                } else {
                                    (a.data.as_ptr().add(row * a.row + deep.start), 1, a.row)
                                };
                                let tile = ProductTile {
                                    c: c.add(row * step + column),
                                    step,
                                    columns: (columns.end - column).min(TILE),
                                    add: add || deep.start > 0,
                                    scale,
                                    left: from,
                                    along,
                                    across,
                                    right: right.as_ptr(),
                                    panels,
                                    depth: deep.len(),
                                };
                                match rows.end - row {
                                    1 => tile.run_panels::<S, 1>(simd),
                                    2 => tile.run_panels::<S, 2>(simd),
                                    3 => tile.run_panels::<S, 3>(simd),
                                    4 => tile.run_panels::<S, 4>(simd),
                                    5 => tile.run_panels::<S, 5>(simd),
                                    _ => tile.run_panels::<S, ROWS>(simd),
                                }
                            }
                        }
                        column += panels * TILE;
                    }
                }
            }
        }
    }
}

/// Some rows by [`TILE`] columns, of which the first `columns` exist.
#[derive(Clone, Copy)]
struct ProductTile {
    c: *mut f32,
    step: usize,
    columns: usize,
    add: bool,
    scale: f32,
    left: *const f32,
    /// Steps of the left side along the depth, and from one row to the next.
    along: usize,
    across: usize,
    right: *const f32,
    depth: usize,
    /// Whole tiles side by side, or one.
    panels: usize,
}

impl ProductTile {
    /// # Safety
    /// All rows, columns and the depth must exist.
    #[inline(always)]
    unsafe fn run_panels<S: Simd, const R: usize>(self, simd: S) {
        // SAFETY: by the contract.
        unsafe {
            match self.panels {
                4 => self.run_pairs::<S, R, 4>(simd),
                2 => self.run_pairs::<S, R, 2>(simd),
                _ => self.run::<S, R>(simd),
            }
        }
    }

    /// # Safety
    /// All rows, `PANELS` whole tiles of columns and the depth must exist.
    #[inline(always)]
    unsafe fn run_pairs<S: Simd, const R: usize, const PANELS: usize>(self, simd: S) {
        let Self { c, step, add, scale, left, along, across, right, depth, .. } = self;
        let mut sum = [[simd.splat_pair(0.0); PANELS]; R];
        // SAFETY: by the contract.
        unsafe {
            let (mut a, mut b) = (left, right);
            for _ in 0..depth {
                let mut v = [simd.splat_pair(0.0); PANELS];
                for p in 0..PANELS {
                    v[p] = load_pair::<S>(b.add(p * depth * TILE));
                }
                for r in 0..R {
                    let a = simd.splat_pair(*a.add(r * across));
                    for p in 0..PANELS {
                        sum[r][p] = simd.fma_pair(a, v[p], sum[r][p]);
                    }
                }
                a = a.wrapping_add(along);
                b = b.wrapping_add(TILE);
            }
            let scale = simd.splat_pair(scale);
            for r in 0..R {
                for p in 0..PANELS {
                    let to = c.add(r * step + p * TILE);
                    let value = simd.mul_pair(scale, sum[r][p]);
                    store_pair::<S>(to, if add { simd.add_pair(load_pair::<S>(to), value) } else { value });
                }
            }
        }
    }

    /// # Safety
    /// All rows, columns and the depth must exist.
    #[inline(always)]
    unsafe fn run<S: Simd, const R: usize>(self, simd: S) {
        let Self { c, step, columns, add, scale, left, along, across, right, depth, .. } = self;
        let mut sum = [[simd.splat(0.0); 2]; R];
        // SAFETY: by the contract.
        unsafe {
            let (mut a, mut b) = (left, right);
            for _ in 0..depth {
                let v = [load::<S>(b), load::<S>(b.add(LANES))];
                for r in 0..R {
                    let a = simd.splat(*a.add(r * across));
                    sum[r][0] = simd.fma(a, v[0], sum[r][0]);
                    sum[r][1] = simd.fma(a, v[1], sum[r][1]);
                }
                a = a.wrapping_add(along);
                b = b.wrapping_add(TILE);
            }
            let scale = simd.splat(scale);
            for r in 0..R {
                for i in 0..2 {
                    let to = c.add(r * step + i * LANES);
                    let value = simd.mul(scale, sum[r][i]);
                    if columns >= (i + 1) * LANES {
                        store::<S>(to, if add { simd.add(load::<S>(to), value) } else { value });
                    } else if columns > i * LANES {
                        let to = std::slice::from_raw_parts_mut(to, columns - i * LANES);
                        let value = if add { simd.add(simd.load_part(to), value) } else { value };
                        simd.store_part(to, value);
                    }
                }
            }
        }
    }
}
