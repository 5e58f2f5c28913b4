//! Transformer blocks: attention, then two dense layers, each followed by a sum with its input and a normalisation.

use fedelity_kernels::attention::{self, Attention, AttentionGradient, AttentionInputs, Drop, TokenRows, TokenRowsMut};
use fedelity_kernels::{Buffer, Isa, dense, dropout, elementwise, gelu, layer_norm};

use super::plan::{Affine, Block};
use super::{Packed, SequenceWeights, TokenPass, affine_gradients, fit, linear_backward};

/// Dropout sites per block.
const PLACES: usize = 3;

/// Values saved for the backward pass of one block. Untrained blocks share one tape.
#[derive(Clone, Debug, Default)]
struct BlockTape {
    /// The first token of each sample, for a block that computes only those.
    first: Buffer,
    query: Buffer,
    key_value: Buffer,
    probabilities: Buffer,
    context: Buffer,
    sum1: Buffer,
    stats1: Buffer,
    middle: Buffer,
    up: Buffer,
    sum2: Buffer,
    stats2: Buffer,
}

#[derive(Clone, Debug, Default)]
pub(super) struct EncoderBuffers {
    /// The inputs and outputs of blocks: two alternating buffers for untrained blocks, then one for the input of each
    /// trained block.
    flow: Vec<Buffer>,
    /// One shared by all untrained blocks, then one per trained block.
    tapes: Vec<BlockTape>,
    thin: Buffer,
    wide: Buffer,
    squares: Buffer,
    d: [Buffer; 2],
    d_context: Buffer,
    d_query: Buffer,
    d_key_value: Buffer,
}

/// One block in one pass.
#[derive(Clone, Copy)]
struct BlockRun<'a> {
    block: &'a Block,
    weights: &'a [f32],
    pass: TokenPass<'a>,
    /// The first of the block's dropout sites.
    place: usize,
}

/// The indices of a block's buffers.
struct Route {
    from: usize,
    to: usize,
    tape: usize,
}

/// The number of blocks at the bottom that need no gradient in this pass.
fn untrained(blocks: &[Block], pass: TokenPass<'_>) -> usize {
    if pass.key.is_none() { blocks.len() } else { blocks.iter().take_while(|b| b.frozen).count() }
}

fn route(block: usize, untrained: usize) -> Route {
    let input = |block: usize| if block < untrained { block % 2 } else { 2 + block - untrained };
    Route { from: input(block), to: input(block + 1), tape: (block + 1).saturating_sub(untrained) }
}

impl EncoderBuffers {
    /// Allocates the buffers; returns the one for the embeddings.
    pub(super) fn start(&mut self, blocks: &[Block], pass: TokenPass<'_>) -> &mut [f32] {
        let packed = pass.packed;
        let untrained = untrained(blocks, pass);
        let trained = blocks.len() - untrained;
        if self.flow.len() < 3 + trained {
            self.flow.resize_with(3 + trained, Buffer::default);
            self.tapes.resize_with(1 + trained, BlockTape::default);
        }
        let (width, hidden, heads) = blocks.first().map_or((0, 0, 0), |b| (b.width, b.hidden, b.heads));
        let tokens = packed.tokens();
        let first = route(0, untrained).from;
        for (i, block) in blocks.iter().enumerate() {
            let Route { from, to, tape } = route(i, untrained);
            let rows = if block.first_token { packed.samples() } else { tokens };
            fit(&mut self.flow[from], tokens, width);
            fit(&mut self.flow[to], rows, width);
            self.tapes[tape].fit(block, tokens, rows, probabilities(block, packed));
        }
        fit(&mut self.thin, tokens, width);
        fit(&mut self.wide, tokens, hidden);
        let longest = packed.spans().map(|(_, len)| len).max().unwrap_or(0);
        fit(&mut self.squares, 2 * longest * longest, usize::from(heads > 0));
        &mut self.flow[first]
    }

    /// rows `[sample][width]` = the last block's output for the first tokens.
    pub(super) fn forward(
        &mut self,
        blocks: &[Block],
        weights: SequenceWeights<'_>,
        pass: TokenPass<'_>,
        rows: &mut [f32],
    ) {
        let untrained = untrained(blocks, pass);
        let mut end = 0;
        for (i, block) in blocks.iter().enumerate() {
            let Route { from, to, tape } = route(i, untrained);
            let mut y = std::mem::take(&mut self.flow[to]);
            let x = &self.flow[from];
            let scratch = BlockScratch { thin: &mut self.thin, wide: &mut self.wide, squares: &mut self.squares };
            let run = BlockRun { block, weights: weights.of(block.frozen), pass, place: PLACES * i + 1 };
            self.tapes[tape].forward(run, x, &mut y, scratch);
            self.flow[to] = y;
            end = to;
        }
        let len = rows.len();
        rows.copy_from_slice(&self.flow[end][..len]);
    }

    /// Adds the gradients of all trained blocks. Returns that of the embeddings if `below` is set and no block is
    /// frozen.
    pub(super) fn backward(
        &mut self,
        blocks: &[Block],
        params: &[f32],
        pass: TokenPass<'_>,
        d_rows: &[f32],
        grad: &mut [f32],
        below: bool,
    ) -> Option<&mut [f32]> {
        let packed = pass.packed;
        let untrained = untrained(blocks, pass);
        let (tokens, width) = (packed.tokens(), blocks.first().map_or(0, |b| b.width));
        for buffer in self.d.iter_mut().chain([&mut self.d_context, &mut self.d_query]) {
            fit(buffer, tokens, width);
        }
        fit(&mut self.d_key_value, tokens, 2 * width);
        let n = packed.samples();
        self.d[0][..n * width].copy_from_slice(&d_rows[..n * width]);
        for (i, block) in blocks.iter().enumerate().skip(untrained).rev() {
            let Route { from, tape, .. } = route(i, untrained);
            let wanted = i > untrained || (below && untrained == 0);
            let run = BlockRun { block, weights: params, pass, place: PLACES * i + 1 };
            self.block_backward(run, (from, tape), grad, wanted);
        }
        (below && untrained == 0).then(|| &mut self.d[0][..])
    }

    /// Replaces the gradient of the block's output in `d[0]` by that of its input, if wanted.
    fn block_backward(
        &mut self,
        BlockRun { block, weights: params, pass, place }: BlockRun<'_>,
        (from, tape): (usize, usize),
        grad: &mut [f32],
        wanted: bool,
    ) {
        let (isa, packed, width) = (pass.isa, pass.packed, block.width);
        let tokens = packed.tokens();
        let rows = if block.first_token { packed.samples() } else { tokens };
        let (thin, wide) = (rows * width, rows * block.hidden);
        let tape = &mut self.tapes[tape];
        let x = &self.flow[from][..tokens * width];
        let [d, d_next] = &mut self.d;

        // The second half: dense layers.
        norm_backward(isa, &block.norm2, params, grad, &mut d[..thin], (&tape.sum2, &tape.stats2));
        let (d_down, d_up) = (&mut self.thin[..thin], &mut self.wide[..wide]);
        undrop(isa, d_down, &d[..thin], pass.drop(block.dropout, place + 2));
        let weight = &params[block.down.weight.clone()];
        dense::input_gradient(isa, d_up, d_down, weight, block.down.sizes(rows), false);
        let up = &mut tape.up[..wide];
        gelu::backward(isa, up, d_up);
        linear_backward(isa, &block.down, params, grad, (d_down, up), None, rows);
        let d_middle = Some((&mut d[..thin], true));
        linear_backward(isa, &block.up, params, grad, (d_up, &tape.middle[..thin]), d_middle, rows);

        // The first half: attention.
        norm_backward(isa, &block.norm1, params, grad, &mut d[..thin], (&tape.sum1, &tape.stats1));
        undrop(isa, d_down, &d[..thin], pass.drop(block.dropout, place + 1));
        let d_context = &mut self.d_context[..thin];
        linear_backward(isa, &block.out, params, grad, (d_down, &tape.context[..thin]), Some((d_context, false)), rows);
        let (d_query, d_kv) = (&mut self.d_query[..thin], &mut self.d_key_value[..tokens * 2 * width]);
        let drop = pass.drop(block.attention_dropout, place);
        each_sample(block, packed, |s, shape, at, query_row, probabilities| {
            let drop = drop.map(|(p, key)| Drop { p, key: sample_key(key, s) });
            let inputs =
                attention_inputs(shape, &tape.query[query_row * width..], &tape.key_value[at * 2 * width..], drop);
            let d_kv = &mut d_kv[at * 2 * width..(at + shape.tokens) * 2 * width];
            let gradient = AttentionGradient {
                d_q: TokenRowsMut { data: &mut d_query[query_row * width..], step: width },
                d_kv: TokenRowsMut { data: d_kv, step: 2 * width },
                values: width,
                d_context: &d_context[query_row * width..(query_row + shape.queries) * width],
                probabilities: &tape.probabilities[probabilities..],
            };
            attention::backward(isa, &inputs, gradient, &mut self.squares);
        });
        let asked = if block.first_token { &tape.first[..thin] } else { x };
        if !wanted {
            linear_backward(isa, &block.query, params, grad, (d_query, asked), None, rows);
            linear_backward(isa, &block.key_value, params, grad, (d_kv, x), None, tokens);
            return;
        }
        linear_backward(isa, &block.query, params, grad, (d_query, asked), Some((&mut d[..thin], true)), rows);
        if block.first_token {
            let d_x = &mut d_next[..tokens * width];
            linear_backward(isa, &block.key_value, params, grad, (d_kv, x), Some((d_x, false)), tokens);
            for (d, (at, _)) in d[..thin].chunks_exact(width).zip(packed.spans()) {
                elementwise::axpy(isa, &mut d_x[at * width..(at + 1) * width], 1.0, d);
            }
            self.d.swap(0, 1);
        } else {
            linear_backward(isa, &block.key_value, params, grad, (d_kv, x), Some((&mut d[..thin], true)), tokens);
        }
    }
}

/// Scratch buffers of a forward pass.
struct BlockScratch<'a> {
    thin: &'a mut Buffer,
    wide: &'a mut Buffer,
    squares: &'a mut Buffer,
}

impl BlockTape {
    fn fit(&mut self, block: &Block, tokens: usize, rows: usize, probabilities: usize) {
        let width = block.width;
        if block.first_token {
            fit(&mut self.first, rows, width);
        }
        for buffer in [&mut self.query, &mut self.context, &mut self.sum1, &mut self.middle, &mut self.sum2] {
            fit(buffer, rows, width);
        }
        fit(&mut self.key_value, tokens, 2 * width);
        fit(&mut self.up, rows, block.hidden);
        fit(&mut self.stats1, rows, 2);
        fit(&mut self.stats2, rows, 2);
        fit(&mut self.probabilities, probabilities, 1);
    }

    fn forward(
        &mut self,
        BlockRun { block, weights, pass, place }: BlockRun<'_>,
        x: &[f32],
        y: &mut [f32],
        scratch: BlockScratch<'_>,
    ) {
        let (isa, packed, width) = (pass.isa, pass.packed, block.width);
        let tokens = packed.tokens();
        let rows = if block.first_token { packed.samples() } else { tokens };
        let (thin, wide) = (rows * width, rows * block.hidden);
        if block.first_token {
            for (to, (at, _)) in self.first.chunks_exact_mut(width).zip(packed.spans()) {
                to.copy_from_slice(&x[at * width..(at + 1) * width]);
            }
        }
        let asked: &[f32] = if block.first_token { &self.first } else { x };
        pass.linear(weights, &block.query, &mut self.query, asked, rows);
        pass.linear(weights, &block.key_value, &mut self.key_value, x, tokens);
        let drop = pass.drop(block.attention_dropout, place);
        each_sample(block, packed, |s, shape, at, query_row, probabilities| {
            let drop = drop.map(|(p, key)| Drop { p, key: sample_key(key, s) });
            let inputs =
                attention_inputs(shape, &self.query[query_row * width..], &self.key_value[at * 2 * width..], drop);
            let context = &mut self.context[query_row * width..(query_row + shape.queries) * width];
            attention::forward(isa, &inputs, context, &mut self.probabilities[probabilities..], scratch.squares);
        });
        let drop = pass.drop(block.dropout, place + 1);
        pass.linear(
            weights,
            &block.out,
            if drop.is_some() { scratch.thin } else { &mut self.sum1 },
            &self.context,
            rows,
        );
        if let Some((p, key)) = drop {
            dropout::forward(isa, &mut self.sum1[..thin], &scratch.thin[..thin], p, key);
        }
        elementwise::axpy(isa, &mut self.sum1[..thin], 1.0, &asked[..thin]);
        let norm = block.norm1.of(weights);
        layer_norm::forward(isa, norm, &mut self.middle[..thin], &mut self.stats1, &self.sum1[..thin]);

        pass.linear(weights, &block.up, &mut self.up, &self.middle, rows);
        gelu::forward(isa, &mut scratch.wide[..wide], &self.up[..wide]);
        let drop = pass.drop(block.dropout, place + 2);
        pass.linear(
            weights,
            &block.down,
            if drop.is_some() { scratch.thin } else { &mut self.sum2 },
            scratch.wide,
            rows,
        );
        if let Some((p, key)) = drop {
            dropout::forward(isa, &mut self.sum2[..thin], &scratch.thin[..thin], p, key);
        }
        elementwise::axpy(isa, &mut self.sum2[..thin], 1.0, &self.middle[..thin]);
        let norm = block.norm2.of(weights);
        layer_norm::forward(isa, norm, &mut y[..thin], &mut self.stats2, &self.sum2[..thin]);
    }
}

/// A token's values follow its keys.
fn attention_inputs<'a>(shape: Attention, q: &'a [f32], kv: &'a [f32], drop: Option<Drop>) -> AttentionInputs<'a> {
    let width = shape.heads * shape.size;
    let (q, k) = (TokenRows { data: q, step: width }, TokenRows { data: kv, step: 2 * width });
    AttentionInputs { shape, q, k, v: TokenRows { data: &kv[width..], ..k }, drop }
}

fn norm_backward(
    isa: Isa,
    norm: &Affine,
    params: &[f32],
    grad: &mut [f32],
    d: &mut [f32],
    (x, stats): (&[f32], &[f32]),
) {
    let len = d.len();
    let affine = Some(affine_gradients(grad, norm));
    layer_norm::backward(isa, d, affine, &x[..len], stats, &params[norm.gamma.clone()]);
}

/// Writes the gradient before dropout to `to`.
fn undrop(isa: Isa, to: &mut [f32], d: &[f32], drop: Option<(f32, u64)>) {
    match drop {
        Some((p, key)) => dropout::backward(isa, to, d, p, key),
        None => to.copy_from_slice(d),
    }
}

/// Calls `f` with each sample's index, attention, first token, first query row and offset of its probabilities.
fn each_sample(block: &Block, packed: &Packed, mut f: impl FnMut(usize, Attention, usize, usize, usize)) {
    let (mut query_row, mut probabilities) = (0, 0);
    for (s, (at, tokens)) in packed.spans().enumerate() {
        let queries = if block.first_token { 1 } else { tokens };
        let shape = Attention { heads: block.heads, size: block.width / block.heads, queries, tokens };
        f(s, shape, at, query_row, probabilities);
        query_row += queries;
        probabilities += shape.probabilities();
    }
}

fn probabilities(block: &Block, packed: &Packed) -> usize {
    let mut sum = 0;
    each_sample(block, packed, |_, shape, _, _, _| sum += shape.probabilities());
    sum
}

fn sample_key(key: u64, sample: usize) -> u64 {
    key.wrapping_add((sample as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f))
}
