//! Word, position and token type embeddings, summed to one row per token.

use fedelity_kernels::{Buffer, dropout, embedding, layer_norm};

use super::plan::EmbeddingPlan;
use super::{SequenceWeights, TokenPass, affine_gradients, fit};

/// Index of the embeddings among the dropout sites.
const PLACE: usize = 0;

/// Values saved for the backward pass.
#[derive(Clone, Debug, Default)]
pub(super) struct EmbeddingTape {
    sums: Buffer,
    stats: Buffer,
    scratch: Buffer,
}

impl EmbeddingTape {
    /// y `[token][width]`, for tables with positions.
    pub(super) fn forward(
        &mut self,
        plan: &EmbeddingPlan,
        weights: SequenceWeights<'_>,
        pass: TokenPass<'_>,
        y: &mut [f32],
    ) {
        let (weights, width, packed) = (weights.of(plan.frozen), plan.width, pass.packed);
        let tokens = packed.tokens();
        let len = tokens * width;
        let Some(rest) = &plan.rest else {
            return embedding::gather(&mut y[..len], &weights[plan.word.clone()], &packed.ids, width);
        };
        fit(&mut self.sums, tokens, width);
        fit(&mut self.stats, tokens, 2);
        let sums = &mut self.sums[..len];
        embedding::gather(sums, &weights[plan.word.clone()], &packed.ids, width);
        embedding::add(sums, &weights[rest.position.clone()], packed.positions(), width);
        if let Some(kind) = &rest.kind {
            embedding::add(sums, &weights[kind.clone()], std::iter::repeat_n(0, tokens), width);
        }
        let norm = rest.norm.of(weights);
        match pass.drop(rest.dropout, PLACE) {
            None => layer_norm::forward(pass.isa, norm, &mut y[..len], &mut self.stats, sums),
            Some((p, key)) => {
                fit(&mut self.scratch, tokens, width);
                let scratch = &mut self.scratch[..len];
                layer_norm::forward(pass.isa, norm, scratch, &mut self.stats, sums);
                dropout::forward(pass.isa, &mut y[..len], scratch, p, key);
            }
        }
    }

    /// Adds the gradients of the tables. Overwrites `d`, the gradient of y.
    pub(super) fn backward(
        &mut self,
        plan: &EmbeddingPlan,
        params: &[f32],
        pass: TokenPass<'_>,
        d: &mut [f32],
        grad: &mut [f32],
    ) {
        let (width, packed) = (plan.width, pass.packed);
        let len = packed.tokens() * width;
        let d = &mut d[..len];
        if let Some(rest) = &plan.rest {
            if let Some((p, key)) = pass.drop(rest.dropout, PLACE) {
                self.scratch[..len].copy_from_slice(d);
                dropout::backward(pass.isa, d, &self.scratch[..len], p, key);
            }
            let gamma = &params[rest.norm.gamma.clone()];
            let affine = Some(affine_gradients(grad, &rest.norm));
            layer_norm::backward(pass.isa, d, affine, &self.sums[..len], &self.stats, gamma);
            embedding::scatter(&mut grad[rest.position.clone()], d, packed.positions(), width);
            if let Some(kind) = &rest.kind {
                embedding::scatter(&mut grad[kind.clone()], d, std::iter::repeat_n(0, packed.tokens()), width);
            }
        }
        embedding::scatter(&mut grad[plan.word.clone()], d, packed.ids.iter().copied(), width);
    }
}
