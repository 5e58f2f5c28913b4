//! Scaled dot-product attention of one sequence, all heads: softmax(Q K^T / sqrt(size)) V.
//!
//! A sequence stands by itself, with as many tokens as it has: there is no padding and no mask, and its result does not
//! depend on others.

#![allow(clippy::too_many_arguments, reason = "a kernel takes each buffer by itself")]

use pulp::Simd;

use crate::dropout;
use crate::function::exp;
use crate::simd::{Isa, Kernel};

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Heads.
    pub heads: usize,
    /// Width of one head.
    pub size: usize,
    /// Tokens that ask.
    pub queries: usize,
    /// Tokens that are looked at.
    pub tokens: usize,
}

/// Rows somewhere in a buffer: `[token][heads * size]`, a row every `step` floats.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// From the first row on.
    pub data: &'a [f32],
    /// From one row to the next.
    pub step: usize,
}

/// The same, to be written.
#[derive(Debug)]
pub struct RowsMut<'a> {
    /// From the first row on.
    pub data: &'a mut [f32],
    /// From one row to the next.
    pub step: usize,
}

/// Which probabilities are dropped while training.
#[derive(Clone, Copy, Debug)]
pub struct Drop {
    /// The share, below 1.
    pub p: f32,
    /// Chooses them.
    pub key: u64,
}

impl Attention {
    /// Floats of the probabilities: `[head][query][token]`.
    #[must_use]
    pub fn probabilities(self) -> usize {
        self.heads * self.queries * self.tokens
    }

    /// Floats of scratch that [`backward`] needs; [`forward`] needs half of them when it drops.
    #[must_use]
    pub fn scratch(self) -> usize {
        2 * self.queries * self.tokens
    }

    fn width(self) -> usize {
        self.heads * self.size
    }

    fn check(self, rows: usize, data: usize, step: usize, what: &str) {
        let needed = if rows == 0 { 0 } else { (rows - 1) * step + self.width() };
        assert!(step >= self.width() && data >= needed, "{what}: {data} floats for {rows} rows in steps of {step}");
    }

    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }
}

/// A matrix in memory: its first element, and the steps to the next row and column.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl Matrix<'_> {
    fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    fn holds(self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// c `[rows][columns]`, a row every `step` floats, = scale * a `[rows][depth]` * b `[depth][columns]`.
fn multiply(
    (rows, columns, depth): (usize, usize, usize),
    c: &mut [f32],
    step: usize,
    scale: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(step >= columns && (rows - 1) * step + columns <= c.len());
    assert!(a.holds(rows, depth) && b.holds(depth, columns));
    // SAFETY: all three matrices are inside their slices, by the lines above.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            c.as_mut_ptr(),
            1,
            step as isize,
            false,
            a.data.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.column as isize,
            b.row as isize,
            0.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn head<'a>(rows: Rows<'a>, head: usize, size: usize) -> Matrix<'a> {
    Matrix { data: rows.data.get(head * size..).unwrap_or_default(), row: rows.step, column: 1 }
}

fn square(data: &[f32], tokens: usize) -> Matrix<'_> {
    Matrix { data, row: tokens, column: 1 }
}

/// context `[query][heads * size]` = the attention's output. Keeps the probabilities, `[head][query][token]`.
pub fn forward(
    isa: Isa,
    shape: Attention,
    context: &mut [f32],
    probabilities: &mut [f32],
    q: Rows<'_>,
    k: Rows<'_>,
    v: Rows<'_>,
    drop: Option<Drop>,
    scratch: &mut [f32],
) {
    let Attention { heads, size, queries, tokens } = shape;
    shape.check(queries, q.data.len(), q.step, "queries");
    shape.check(tokens, k.data.len(), k.step, "keys");
    shape.check(tokens, v.data.len(), v.step, "values");
    shape.check(queries, context.len(), shape.width(), "context");
    let area = queries * tokens;
    for h in 0..heads {
        let p = &mut probabilities[h * area..(h + 1) * area];
        multiply((queries, tokens, size), p, tokens, shape.scale(), head(q, h, size), head(k, h, size).transposed());
        isa.run(Softmax { rows: p, width: tokens });
        let kept = match drop {
            None => &*p,
            Some(drop) => {
                dropout::forward(&mut scratch[..area], p, drop.p, key(drop.key, h));
                &scratch[..area]
            }
        };
        let context = &mut context[h * size..];
        multiply((queries, size, tokens), context, heads * size, 1.0, square(kept, tokens), head(v, h, size));
    }
}

/// Writes the gradients of queries, keys and values, given that of the context and what [`forward`] kept. The gradients
/// of keys and values share rows: a token's values stand `values` floats after its keys.
pub fn backward(
    isa: Isa,
    shape: Attention,
    d_q: RowsMut<'_>,
    d_kv: RowsMut<'_>,
    values: usize,
    d_context: &[f32],
    probabilities: &[f32],
    q: Rows<'_>,
    k: Rows<'_>,
    v: Rows<'_>,
    drop: Option<Drop>,
    scratch: &mut [f32],
) {
    let Attention { heads, size, queries, tokens } = shape;
    shape.check(queries, q.data.len(), q.step, "queries");
    shape.check(tokens, k.data.len(), k.step, "keys");
    shape.check(tokens, v.data.len(), v.step, "values");
    shape.check(queries, d_context.len(), shape.width(), "gradient of the context");
    let area = queries * tokens;
    let (kept, d_p) = scratch[..2 * area].split_at_mut(area);
    for h in 0..heads {
        let p = &probabilities[h * area..(h + 1) * area];
        let d_out = head(Rows { data: d_context, step: shape.width() }, h, size);
        multiply((queries, tokens, size), d_p, tokens, 1.0, d_out, head(v, h, size).transposed());
        let kept = match drop {
            None => p,
            Some(drop) => {
                let key = key(drop.key, h);
                // The same factors for the gradient as for the probabilities.
                dropout::forward(kept, d_p, drop.p, key);
                d_p.copy_from_slice(kept);
                dropout::forward(kept, p, drop.p, key);
                &*kept
            }
        };
        let to = &mut d_kv.data[values + h * size..];
        multiply((tokens, size, queries), to, d_kv.step, 1.0, square(kept, tokens).transposed(), d_out);
        isa.run(SoftmaxBackward { d: d_p, p, width: tokens });
        let (d_p, scale) = (square(d_p, tokens), shape.scale());
        multiply((queries, size, tokens), &mut d_q.data[h * size..], d_q.step, scale, d_p, head(k, h, size));
        let to = &mut d_kv.data[h * size..];
        multiply((tokens, size, queries), to, d_kv.step, scale, d_p.transposed(), head(q, h, size));
    }
}

/// A key of its own for each head.
fn key(key: u64, head: usize) -> u64 {
    key.wrapping_add((head as u64).wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// Partial sums of a row, in a fixed order.
const SUMS: usize = 8;

#[inline(always)]
fn fold(row: usize, start: f32, f: impl Fn(f32, usize) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut parts = [start; SUMS];
    let blocks = row / SUMS * SUMS;
    for at in (0..blocks).step_by(SUMS) {
        for (i, part) in parts.iter_mut().enumerate() {
            *part = f(*part, at + i);
        }
    }
    let mut all = parts[0];
    for part in &parts[1..] {
        all = join(all, *part);
    }
    (blocks..row).fold(all, f)
}

struct Softmax<'a> {
    rows: &'a mut [f32],
    width: usize,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for row in self.rows.chunks_exact_mut(self.width.max(1)) {
            let larger = |a: f32, b: f32| if a < b { b } else { a };
            let top = fold(row.len(), f32::NEG_INFINITY, |most, i| larger(most, row[i]), larger);
            for value in row.iter_mut() {
                *value = exp(*value - top);
            }
            let sum = fold(row.len(), 0.0, |sum, i| sum + row[i], |a, b| a + b);
            let share = 1.0 / sum;
            for value in row.iter_mut() {
                *value *= share;
            }
        }
    }
}

/// d = p * (d - sum(d * p)), a row at a time.
struct SoftmaxBackward<'a> {
    d: &'a mut [f32],
    p: &'a [f32],
    width: usize,
}

impl Kernel for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.width.max(1);
        for (d, p) in self.d.chunks_exact_mut(width).zip(self.p.chunks_exact(width)) {
            let mean = fold(width, 0.0, |sum, i| sum + d[i] * p[i], |a, b| a + b);
            for (d, p) in d.iter_mut().zip(p) {
                *d = p * (*d - mean);
            }
        }
    }
}
