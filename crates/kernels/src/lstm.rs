//! The cell of an LSTM, as in PyTorch: gates `[row][4 * hidden]` in the order i, f, g, o.

use crate::function::{logistic, tanh};
use crate::simd::{Isa, Loops};

/// One step: replaces the pre-activations in `gates` by the gates and writes the new state to `cell` and `hidden`
/// `[row][width]`, given the previous cell.
#[derive(Debug)]
pub struct LstmStep<'a> {
    pub gates: &'a mut [f32],
    pub cell: &'a mut [f32],
    pub hidden: &'a mut [f32],
    pub before: &'a [f32],
    pub width: usize,
}

pub fn forward(isa: Isa, LstmStep { gates, cell, hidden, before, width: n }: LstmStep<'_>) {
    let len = cell.len();
    assert!(n > 0 && len.is_multiple_of(n) && hidden.len() == len && before.len() == len);
    assert_eq!(gates.len(), 4 * len);
    isa.run(Loops(
        #[inline(always)]
        move || {
            let states = cell.chunks_exact_mut(n).zip(hidden.chunks_exact_mut(n)).zip(before.chunks_exact(n));
            for (gates, ((cell, hidden), before)) in gates.chunks_exact_mut(4 * n).zip(states) {
                let [input, forget, new, output] = split(gates, n);
                for i in 0..n {
                    input[i] = logistic(input[i]);
                    forget[i] = logistic(forget[i]);
                    new[i] = tanh(new[i]);
                    output[i] = logistic(output[i]);
                    cell[i] = forget[i] * before[i] + input[i] * new[i];
                    hidden[i] = output[i] * tanh(cell[i]);
                }
            }
        },
    ));
}

/// The four gates of a row.
#[inline(always)]
fn split(gates: &mut [f32], n: usize) -> [&mut [f32]; 4] {
    let (input, rest) = gates.split_at_mut(n);
    let (forget, rest) = rest.split_at_mut(n);
    let (new, output) = rest.split_at_mut(n);
    [input, forget, new, output]
}

/// One backward step: replaces the gates by the gradients of their pre-activations, and `d_cell`, the gradient of the
/// new cell from later steps, by that of the previous cell.
#[derive(Debug)]
pub struct LstmGradient<'a> {
    pub gates: &'a mut [f32],
    pub d_cell: &'a mut [f32],
    pub d_hidden: &'a [f32],
    pub cell: &'a [f32],
    pub before: &'a [f32],
    pub width: usize,
}

pub fn backward(isa: Isa, LstmGradient { gates, d_cell, d_hidden, cell, before, width: n }: LstmGradient<'_>) {
    let len = cell.len();
    assert!(n > 0 && len.is_multiple_of(n) && before.len() == len);
    assert!(d_cell.len() == len && d_hidden.len() == len && gates.len() == 4 * len);
    isa.run(Loops(
        #[inline(always)]
        move || {
            let grads = d_cell.chunks_exact_mut(n).zip(d_hidden.chunks_exact(n));
            let states = cell.chunks_exact(n).zip(before.chunks_exact(n));
            for ((gates, (d_cell, d_hidden)), (cell, before)) in gates.chunks_exact_mut(4 * n).zip(grads).zip(states) {
                let [input, forget, new, output] = split(gates, n);
                for i in 0..n {
                    let (x, f, g, o) = (input[i], forget[i], new[i], output[i]);
                    let squashed = tanh(cell[i]);
                    let d = d_cell[i] + d_hidden[i] * o * (1.0 - squashed * squashed);
                    input[i] = d * g * x * (1.0 - x);
                    forget[i] = d * before[i] * f * (1.0 - f);
                    new[i] = d * x * (1.0 - g * g);
                    output[i] = d_hidden[i] * squashed * o * (1.0 - o);
                    d_cell[i] = d * f;
                }
            }
        },
    ));
}
