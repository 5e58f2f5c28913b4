//! An LSTM over texts of different lengths.
//!
//! Samples are sorted by length, longest first, and tokens are grouped by step: the first token of every sample, then
//! every second token, and so on. The samples active at a step are then the first ones of the previous step.

use fedelity_kernels::lstm::{self, LstmGradient, LstmStep};
use fedelity_kernels::{Buffer, dense, elementwise, embedding};

use super::plan::{EmbeddingPlan, Lstm};
use super::{Packed, SequenceWeights, TokenPass, fit, linear_backward};

/// Values saved by a forward pass. Rows are ordered by step.
#[derive(Clone, Debug, Default)]
pub(super) struct LstmBuffers {
    ids: Vec<u32>,
    /// The sample indices, longest sample first.
    order: Vec<usize>,
    /// The start of each step, and the end of the last one.
    steps: Vec<usize>,
    words: Buffer,
    gates: Buffer,
    cells: Buffer,
    hidden: Buffer,
    zeros: Buffer,
    sums: Buffer,
    d_hidden: Buffer,
    d_cell: Buffer,
}

impl LstmBuffers {
    /// Sorts the tokens of a batch by step.
    fn sort(&mut self, packed: &Packed) {
        let length = |i: usize| packed.starts[i + 1] - packed.starts[i];
        self.order.clear();
        self.order.extend(0..packed.samples());
        self.order.sort_unstable_by_key(|&i| (std::cmp::Reverse(length(i)), i));
        self.ids.clear();
        self.steps.clear();
        self.steps.push(0);
        for step in 0..self.order.first().map_or(0, |&i| length(i)) {
            self.ids.extend(
                self.order.iter().take_while(|&&i| length(i) > step).map(|&i| packed.ids[packed.starts[i] + step]),
            );
            self.steps.push(self.ids.len());
        }
    }

    /// Number of samples active at a step.
    fn active(&self, step: usize) -> usize {
        self.steps.get(step + 1).map_or(0, |end| end - self.steps[step])
    }

    pub(super) fn forward(
        &mut self,
        plan: &Lstm,
        table: &EmbeddingPlan,
        weights: SequenceWeights<'_>,
        pass: TokenPass<'_>,
        rows: &mut [f32],
    ) {
        let packed = pass.packed;
        self.sort(packed);
        let (tokens, n, h) = (self.ids.len(), self.order.len(), plan.hidden);
        fit(&mut self.words, tokens, plan.width);
        fit(&mut self.gates, tokens, 4 * h);
        fit(&mut self.cells, tokens, h);
        fit(&mut self.hidden, tokens, h);
        fit(&mut self.zeros, n, h);
        fit(&mut self.sums, n, 4 * h);
        let words = &weights.of(table.frozen)[table.word.clone()];
        embedding::gather(&mut self.words[..tokens * plan.width], words, &self.ids, plan.width);
        pass.linear(weights.params, &plan.input, &mut self.gates, &self.words, tokens);
        let recurrent = &plan.recurrent;
        let (w, b) = (&weights.params[recurrent.weight.clone()], &weights.params[recurrent.bias.clone()]);
        for step in 0..self.steps.len() - 1 {
            let (at, active) = (self.steps[step], self.active(step));
            let gates = &mut self.gates[at * 4 * h..(at + active) * 4 * h];
            let (old_cells, cells) = self.cells.split_at_mut(at * h);
            let (old_hidden, hidden) = self.hidden.split_at_mut(at * h);
            let before = if step == 0 {
                // The initial hidden state is zero, and so is its product.
                for gates in gates.chunks_exact_mut(4 * h) {
                    elementwise::axpy(pass.isa, gates, 1.0, b);
                }
                &self.zeros[..active * h]
            } else {
                let last = self.steps[step - 1] * h;
                let (sums, old) = (&mut self.sums[..active * 4 * h], &old_hidden[last..last + active * h]);
                dense::forward(pass.isa, sums, old, w, b, recurrent.sizes(active));
                elementwise::axpy(pass.isa, gates, 1.0, sums);
                &old_cells[last..last + active * h]
            };
            let (cell, hidden) = (&mut cells[..active * h], &mut hidden[..active * h]);
            lstm::forward(pass.isa, LstmStep { gates, cell, hidden, before, width: h });
        }
        for (place, &sample) in self.order.iter().enumerate() {
            let length = packed.starts[sample + 1] - packed.starts[sample];
            let to = &mut rows[sample * h..(sample + 1) * h];
            match length.checked_sub(1) {
                Some(last) => to.copy_from_slice(&self.hidden[(self.steps[last] + place) * h..][..h]),
                None => to.fill(0.0),
            }
        }
    }

    pub(super) fn backward(
        &mut self,
        plan: &Lstm,
        table: &EmbeddingPlan,
        params: &[f32],
        pass: TokenPass<'_>,
        d_rows: &[f32],
        grad: &mut [f32],
    ) {
        let (tokens, n, h) = (self.ids.len(), self.order.len(), plan.hidden);
        fit(&mut self.d_hidden, n, h);
        fit(&mut self.d_cell, n, h);
        let recurrent = &plan.recurrent;
        for step in (0..self.steps.len() - 1).rev() {
            let (at, active) = (self.steps[step], self.active(step));
            // Samples that end here.
            for place in self.active(step + 1)..active {
                let sample = self.order[place];
                self.d_hidden[place * h..(place + 1) * h].copy_from_slice(&d_rows[sample * h..(sample + 1) * h]);
                self.d_cell[place * h..(place + 1) * h].fill(0.0);
            }
            let gates = &mut self.gates[at * 4 * h..(at + active) * 4 * h];
            let cell = &self.cells[at * h..(at + active) * h];
            let last = step.checked_sub(1).map(|step| self.steps[step] * h);
            let before = match last {
                None => &self.zeros[..active * h],
                Some(last) => &self.cells[last..last + active * h],
            };
            let (d_hidden, d_cell) = (&mut self.d_hidden[..active * h], &mut self.d_cell[..active * h]);
            lstm::backward(pass.isa, LstmGradient { gates, d_cell, d_hidden, cell, before, width: h });
            dense::bias_gradient(&mut grad[recurrent.bias.clone()], gates, active, 4 * h);
            if let Some(last) = last {
                let old = &self.hidden[last..last + active * h];
                dense::weight_gradient(
                    pass.isa,
                    &mut grad[recurrent.weight.clone()],
                    gates,
                    old,
                    recurrent.sizes(active),
                );
                let w = &params[recurrent.weight.clone()];
                dense::input_gradient(pass.isa, d_hidden, gates, w, recurrent.sizes(active), false);
            }
        }
        let (d_gates, words) = (&self.gates[..tokens * 4 * h], &mut self.words[..tokens * plan.width]);
        linear_backward(pass.isa, &plan.input, params, grad, (d_gates, words), None, tokens);
        if !table.frozen {
            let weight = &params[plan.input.weight.clone()];
            dense::input_gradient(pass.isa, words, d_gates, weight, plan.input.sizes(tokens), false);
            embedding::scatter(&mut grad[table.word.clone()], words, self.ids.iter().copied(), plan.width);
        }
    }
}
