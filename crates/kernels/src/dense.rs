//! Dense layers of many rows, as general matrix products: x `[sample][input]`, y `[sample][output]`, weights `[output][input]`.

#![allow(clippy::too_many_arguments, reason = "a matrix product has three sizes and three buffers")]

use crate::elementwise::relu_rows;

pub use crate::affine::bias_gradient;

/// A matrix in memory: its first element, and the steps to the next row and column.
#[derive(Clone, Copy)]
struct Matrix {
    data: *const f32,
    row: usize,
    column: usize,
}

/// c `[rows][columns]` = a `[rows][depth]` * b `[depth][columns]`, or c += it.
///
/// # Safety
/// `c` must hold rows * columns floats, and `a` and `b` must hold the matrices their steps describe.
unsafe fn multiply((rows, columns, depth): (usize, usize, usize), c: *mut f32, add: bool, a: Matrix, b: Matrix) {
    if rows == 0 || columns == 0 {
        return;
    }
    // SAFETY: by the contract.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            c,
            1,
            columns as isize,
            add,
            a.data,
            a.column as isize,
            a.row as isize,
            b.data,
            b.column as isize,
            b.row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// y `[sample][output]` = relu?(x `[sample][input]` * w^T + bias), w `[output][input]`.
pub fn forward(
    y: &mut [f32],
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    samples: usize,
    inputs: usize,
    outputs: usize,
    relu: bool,
) {
    check(y, x, w, samples, inputs, outputs);
    let y = &mut y[..samples * outputs];
    if let Some(bias) = bias {
        for y in y.chunks_exact_mut(outputs.max(1)) {
            y.copy_from_slice(&bias[..outputs]);
        }
    }
    let x = Matrix { data: x.as_ptr(), row: inputs, column: 1 };
    let w = Matrix { data: w.as_ptr(), row: 1, column: inputs };
    // SAFETY: `check` compared the lengths.
    unsafe { multiply((samples, outputs, inputs), y.as_mut_ptr(), bias.is_some(), x, w) };
    if relu {
        relu_rows(y);
    }
}

/// d_x `[sample][input]` = d_y `[sample][output]` * w, or d_x += it.
pub fn input_gradient(
    d_x: &mut [f32],
    d_y: &[f32],
    w: &[f32],
    samples: usize,
    inputs: usize,
    outputs: usize,
    add: bool,
) {
    check(d_y, d_x, w, samples, inputs, outputs);
    let d_y = Matrix { data: d_y.as_ptr(), row: outputs, column: 1 };
    let w = Matrix { data: w.as_ptr(), row: inputs, column: 1 };
    // SAFETY: `check` compared the lengths.
    unsafe { multiply((samples, inputs, outputs), d_x.as_mut_ptr(), add, d_y, w) };
}

/// d_w `[output][input]` += d_y^T * x, over all samples.
pub fn weight_gradient(d_w: &mut [f32], d_y: &[f32], x: &[f32], samples: usize, inputs: usize, outputs: usize) {
    check(d_y, x, d_w, samples, inputs, outputs);
    let d_y = Matrix { data: d_y.as_ptr(), row: 1, column: outputs };
    let x = Matrix { data: x.as_ptr(), row: inputs, column: 1 };
    // SAFETY: `check` compared the lengths.
    unsafe { multiply((outputs, inputs, samples), d_w.as_mut_ptr(), true, d_y, x) };
}

fn check(y: &[f32], x: &[f32], w: &[f32], samples: usize, inputs: usize, outputs: usize) {
    assert!(y.len() >= samples * outputs, "outputs: {} floats for {samples} times {outputs}", y.len());
    assert!(x.len() >= samples * inputs, "inputs: {} floats for {samples} times {inputs}", x.len());
    assert!(w.len() >= outputs * inputs, "weights: {} floats for {outputs} times {inputs}", w.len());
}
