//! Scaled dot-product attention of one sequence, all heads: softmax(Q K^T / sqrt(size)) V.
//!
//! Sequences are processed one at a time at their own length: there is no padding and no mask, and a result does not
//! depend on other sequences.

use crate::dropout;
use crate::function::exp;
use crate::matrix::{Matrix, Product};
use crate::simd::{Isa, Loops};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    pub heads: usize,
    pub size: usize,
    /// Number of tokens that attend.
    pub queries: usize,
    /// Number of tokens attended to.
    pub tokens: usize,
}

/// Rows in a buffer, `[token][heads * size]`, one every `step` floats.
#[derive(Clone, Copy, Debug)]
pub struct TokenRows<'a> {
    /// Starts at the first row.
    pub data: &'a [f32],
    /// Floats from one row to the next.
    pub step: usize,
}

/// Mutable [`TokenRows`].
#[derive(Debug)]
pub struct TokenRowsMut<'a> {
    /// Starts at the first row.
    pub data: &'a mut [f32],
    /// Floats from one row to the next.
    pub step: usize,
}

/// Dropout of the attention probabilities during training.
#[derive(Clone, Copy, Debug)]
pub struct Drop {
    /// Dropout probability, below 1.
    pub p: f32,
    /// Selects the dropped elements.
    pub key: u64,
}

impl Attention {
    /// Length in floats of the probabilities, `[head][query][token]`.
    #[must_use]
    pub fn probabilities(self) -> usize {
        self.heads * self.queries * self.tokens
    }

    /// Scratch floats that [`backward`] needs; [`forward`] with dropout needs half as many.
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

/// Inputs of an attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInputs<'a> {
    pub shape: Attention,
    pub q: TokenRows<'a>,
    pub k: TokenRows<'a>,
    pub v: TokenRows<'a>,
    pub drop: Option<Drop>,
}

impl AttentionInputs<'_> {
    fn check(&self) {
        self.shape.check(self.shape.queries, self.q.data.len(), self.q.step, "queries");
        self.shape.check(self.shape.tokens, self.k.data.len(), self.k.step, "keys");
        self.shape.check(self.shape.tokens, self.v.data.len(), self.v.step, "values");
    }
}

/// Output buffers for the gradients of queries, keys and values, and the inputs of the backward pass.
#[derive(Debug)]
pub struct AttentionGradient<'a> {
    pub d_q: TokenRowsMut<'a>,
    /// Keys and values share rows.
    pub d_kv: TokenRowsMut<'a>,
    /// Floats from a token's keys to its values.
    pub values: usize,
    pub d_context: &'a [f32],
    /// As stored by [`forward`].
    pub probabilities: &'a [f32],
}

fn head<'a>(rows: TokenRows<'a>, head: usize, size: usize) -> Matrix<'a> {
    Matrix { data: rows.data.get(head * size..).unwrap_or_default(), row: rows.step, column: 1 }
}

fn square(data: &[f32], tokens: usize) -> Matrix<'_> {
    Matrix { data, row: tokens, column: 1 }
}

/// Writes the attention's output to context `[query][heads * size]` and stores the probabilities,
/// `[head][query][token]`.
pub fn forward(
    isa: Isa,
    inputs: &AttentionInputs<'_>,
    context: &mut [f32],
    probabilities: &mut [f32],
    scratch: &mut [f32],
) {
    let AttentionInputs { shape, q, k, v, drop } = *inputs;
    let Attention { heads, size, queries, tokens } = shape;
    inputs.check();
    shape.check(queries, context.len(), shape.width(), "context");
    let (area, width) = (queries * tokens, heads * size);
    for h in 0..heads {
        let p = &mut probabilities[h * area..(h + 1) * area];
        let (a, b) = (head(q, h, size), head(k, h, size).transposed());
        Product { c: p, step: tokens, add: false, scale: shape.scale(), a, b }.run(isa, (queries, tokens, size));
        softmax(isa, p, tokens);
        let kept = match drop {
            None => &*p,
            Some(drop) => {
                dropout::forward(isa, &mut scratch[..area], p, drop.p, key(drop.key, h));
                &scratch[..area]
            }
        };
        let (a, b) = (square(kept, tokens), head(v, h, size));
        Product { c: &mut context[h * size..], step: width, add: false, scale: 1.0, a, b }
            .run(isa, (queries, size, tokens));
    }
}

/// The gradients of [`forward`].
pub fn backward(isa: Isa, inputs: &AttentionInputs<'_>, gradient: AttentionGradient<'_>, scratch: &mut [f32]) {
    let AttentionInputs { shape, q, k, v, drop } = *inputs;
    let Attention { heads, size, queries, tokens } = shape;
    let AttentionGradient { d_q, d_kv, values, d_context, probabilities } = gradient;
    inputs.check();
    shape.check(queries, d_context.len(), shape.width(), "gradient of the context");
    let area = queries * tokens;
    let (kept, d_p) = scratch[..2 * area].split_at_mut(area);
    for h in 0..heads {
        let p = &probabilities[h * area..(h + 1) * area];
        let d_out = head(TokenRows { data: d_context, step: shape.width() }, h, size);
        let b = head(v, h, size).transposed();
        Product { c: d_p, step: tokens, add: false, scale: 1.0, a: d_out, b }.run(isa, (queries, tokens, size));
        let kept = match drop {
            None => p,
            Some(drop) => {
                let key = key(drop.key, h);
                // The gradient is scaled by the same factors as the probabilities.
                dropout::forward(isa, kept, d_p, drop.p, key);
                d_p.copy_from_slice(kept);
                dropout::forward(isa, kept, p, drop.p, key);
                &*kept
            }
        };
        let mut to_tokens = |from: usize, scale: f32, a: Matrix<'_>, b: Matrix<'_>| {
            let c = &mut d_kv.data[from + h * size..];
            Product { c, step: d_kv.step, add: false, scale, a: a.transposed(), b }.run(isa, (tokens, size, queries));
        };
        to_tokens(values, 1.0, square(kept, tokens), d_out);
        softmax_backward(isa, d_p, p, tokens);
        let (a, b, scale) = (square(d_p, tokens), head(k, h, size), shape.scale());
        Product { c: &mut d_q.data[h * size..], step: d_q.step, add: false, scale, a, b }
            .run(isa, (queries, size, tokens));
        to_tokens(0, scale, a, head(q, h, size));
    }
}

/// Derives a separate key for each head.
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

/// Replaces each row by its softmax.
fn softmax(isa: Isa, rows: &mut [f32], width: usize) {
    isa.run(Loops(
        #[inline(always)]
        move || {
            for row in rows.chunks_exact_mut(width.max(1)) {
                let larger = |a: f32, b: f32| if a < b { b } else { a };
                let top = fold(row.len(), f32::NEG_INFINITY, |most, i| larger(most, row[i]), larger);
                for value in row.iter_mut() {
                    *value = exp(*value - top);
                }
                let share = 1.0 / fold(row.len(), 0.0, |sum, i| sum + row[i], |a, b| a + b);
                for value in row.iter_mut() {
                    *value *= share;
                }
            }
        },
    ));
}

/// d = p * (d - sum(d * p)), row by row.
fn softmax_backward(isa: Isa, d: &mut [f32], p: &[f32], width: usize) {
    let width = width.max(1);
    isa.run(Loops(
        #[inline(always)]
        move || {
            for (d, p) in d.chunks_exact_mut(width).zip(p.chunks_exact(width)) {
                let mean = fold(width, 0.0, |sum, i| sum + d[i] * p[i], |a, b| a + b);
                for (d, p) in d.iter_mut().zip(p) {
                    *d = p * (*d - mean);
                }
            }
        },
    ));
}
