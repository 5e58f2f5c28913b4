//! Dense layers on large batches of rows, as general matrix products: x `[sample][input]`, y `[sample][output]`,
//! weights `[output][input]`.

use crate::matrix::{Matrix, Product};
use crate::simd::Isa;

pub use crate::affine::{DenseSizes, bias_gradient};

/// y `[sample][output]` = x `[sample][input]` * w^T + bias, w `[output][input]`.
pub fn forward(isa: Isa, y: &mut [f32], x: &[f32], w: &[f32], bias: &[f32], sizes: DenseSizes) {
    sizes.check(y, x, w);
    let DenseSizes { samples, inputs, outputs } = sizes;
    for y in y[..samples * outputs].chunks_exact_mut(outputs.max(1)) {
        y.copy_from_slice(&bias[..outputs]);
    }
    let (a, b) = (Matrix { data: x, row: inputs, column: 1 }, Matrix { data: w, row: 1, column: inputs });
    Product { c: y, step: outputs, add: true, scale: 1.0, a, b }.run(isa, (samples, outputs, inputs));
}

/// d_x `[sample][input]` = d_y `[sample][output]` * w, or d_x += it.
pub fn input_gradient(isa: Isa, d_x: &mut [f32], d_y: &[f32], w: &[f32], sizes: DenseSizes, add: bool) {
    sizes.check(d_y, d_x, w);
    let DenseSizes { samples, inputs, outputs } = sizes;
    let (a, b) = (Matrix { data: d_y, row: outputs, column: 1 }, Matrix { data: w, row: inputs, column: 1 });
    Product { c: d_x, step: inputs, add, scale: 1.0, a, b }.run(isa, (samples, inputs, outputs));
}

/// d_w `[output][input]` += d_y^T * x, over all samples.
pub fn weight_gradient(isa: Isa, d_w: &mut [f32], d_y: &[f32], x: &[f32], sizes: DenseSizes) {
    sizes.check(d_y, x, d_w);
    let DenseSizes { samples, inputs, outputs } = sizes;
    let (a, b) = (Matrix { data: d_y, row: 1, column: outputs }, Matrix { data: x, row: inputs, column: 1 });
    Product { c: d_w, step: inputs, add: true, scale: 1.0, a, b }.run(isa, (outputs, inputs, samples));
}
