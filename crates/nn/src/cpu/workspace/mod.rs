//! Runs a compiled model: forward and backward passes.

mod load;
mod step;

use std::ops::Range;
use std::sync::Arc;

use fedelity_kernels::affine::{self, DenseSizes};
use fedelity_kernels::{Buffer, Conv, Isa, LANES, Planes, PlanesMut, clear_border, dropout, elementwise, lanes};

use crate::architecture::InputShape;
use crate::batch::Batch;
use crate::cpu::plan::{CpuPlan, Op, RowOp, ValueId, ValuePlace};
use crate::cpu::sequence::Sequence;
use crate::cpu::units::Units;
use crate::engine::{Outputs, Session};

/// Maximum number of groups of images evaluated at once.
const EVALUATION_GROUPS: usize = 8;

/// How normalisation and dropout behave.
enum Mode<'a> {
    Training { params: &'a mut [f32], key: u64 },
    Evaluation { params: &'a [f32] },
}

impl Mode<'_> {
    fn params(&self) -> &[f32] {
        match self {
            Self::Training { params, .. } => params,
            Self::Evaluation { params } => params,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Workspace {
    plan: Arc<CpuPlan>,
    isa: Isa,
    input: InputShape,
    samples: usize,
    /// Capacity of the buffers, in groups.
    groups: usize,
    /// Capacity of the row buffers, in samples.
    row_samples: usize,
    saved: Vec<Buffer>,
    slots: Vec<Buffer>,
    aux: Vec<Buffer>,
    packed: Vec<Buffer>,
    /// Accumulators of the weight gradients of some convolutions; zero between batches.
    sums: Vec<Buffer>,
    /// Scratch memory of the convolutions.
    scratch: Buffer,
    sequence: Sequence,
    /// The input of each row operation, and the output of the last.
    rows: Vec<Buffer>,
    d_rows: Vec<Buffer>,
    dropout_key: u64,
    /// Rows picked by index, before conversion to lanes.
    picked: Vec<f32>,
    /// Unit activations of convolutions, in passes that request them.
    units: Option<Box<Units>>,
    watches: bool,
}

/// The groups and samples of one chunk.
#[derive(Clone, Copy)]
struct Chunk {
    first: usize,
    groups: usize,
    samples: usize,
}

impl Session for Workspace {
    fn train(&mut self, params: &mut [f32], batch: &Batch<'_>, key: u64) -> Outputs<'_> {
        self.dropout_key = key;
        self.forward(Mode::Training { params, key }, batch)
    }

    fn evaluate(&mut self, params: &[f32], batch: &Batch<'_>) -> Outputs<'_> {
        self.forward(Mode::Evaluation { params }, batch)
    }

    fn evaluate_layers(&mut self, params: &[f32], batch: &Batch<'_>) -> (Outputs<'_>, Vec<(&str, &[f32])>) {
        let mut units = self.units.take().unwrap_or_else(|| Box::new(Units::new(&self.plan)));
        units.begin(batch.samples(self.input));
        self.units = Some(units);
        self.watches = true;
        self.forward(Mode::Evaluation { params }, batch);
        self.watches = false;
        let dense = self.plan.rows.iter().zip(&self.rows[1..]).filter_map(|(op, rows)| {
            let RowOp::Dense { outputs, weight, .. } = op else { return None };
            let tensor = self.plan.layout.tensors().iter().find(|tensor| tensor.offset == weight.start)?;
            Some((tensor.name.trim_end_matches(".weight"), &rows[..self.samples * outputs]))
        });
        let layers = self.units.iter().flat_map(|units| units.layers()).chain(dense).collect();
        (self.outputs(), layers)
    }

    fn outputs(&self) -> Outputs<'_> {
        let (features, logits) = (&self.rows[self.plan.rows.len() - 1], &self.rows[self.plan.rows.len()]);
        let width = |op: usize| if op == 0 { self.plan.row_width } else { self.plan.rows[op - 1].width() };
        Outputs {
            features: &features[..self.samples * width(self.plan.rows.len() - 1)],
            logits: &logits[..self.samples * width(self.plan.rows.len())],
            samples: self.samples,
        }
    }

    fn backward(&mut self, params: &[f32], d_logits: &[f32], d_features: Option<&[f32]>, grad: &mut [f32]) {
        let plan = Arc::clone(&self.plan);
        let n = self.samples;
        clear(&plan, grad);
        self.d_rows[plan.rows.len()][..d_logits.len()].copy_from_slice(d_logits);
        for (i, op) in plan.rows.iter().enumerate().rev() {
            let (before, after) = self.d_rows.split_at_mut(i + 1);
            let (d_x, d_y) = (&mut before[i], &mut after[0]);
            let (x, y) = (&self.rows[i], &self.rows[i + 1]);
            match op {
                RowOp::Dense { inputs, outputs, weight, bias, relu } => {
                    let d_y = &mut d_y[..n * outputs];
                    if *relu {
                        elementwise::relu_rows_backward(d_y, &y[..n * outputs]);
                    }
                    let (x, sizes) = (&x[..n * inputs], DenseSizes { samples: n, inputs: *inputs, outputs: *outputs });
                    let is_head = i + 1 == plan.rows.len();
                    affine::weight_gradient(self.isa, &mut grad[weight.clone()], d_y, x, sizes, is_head);
                    affine::bias_gradient(&mut grad[bias.clone()], d_y, n, *outputs);
                    if i > 0 || plan.exit.is_some() || plan.sequence.is_some() {
                        let (d_x, w) = (&mut d_x[..n * inputs], &params[weight.clone()]);
                        affine::input_gradient(self.isa, d_x, d_y, w, sizes, false);
                    }
                }
                RowOp::Relu { width } => {
                    d_x[..n * width].copy_from_slice(&d_y[..n * width]);
                    elementwise::relu_rows_backward(&mut d_x[..n * width], &y[..n * width]);
                }
                RowOp::Dropout { width, p } => {
                    let key = dropout_key(self.dropout_key, i);
                    dropout::backward(self.isa, &mut d_x[..n * width], &d_y[..n * width], *p, key);
                }
            }
            if i + 1 == plan.rows.len()
                && let Some(extra) = d_features
            {
                elementwise::axpy(self.isa, &mut d_x[..extra.len()], 1.0, extra);
            }
        }
        if let Some(tokens) = &plan.sequence {
            self.sequence.backward(tokens, params, &self.d_rows[0], grad);
        }
        let Some(exit) = plan.exit else { return };
        for op in &plan.ops {
            if let Op::Conv { conv, weight, packed, x, .. } = op
                && *x != 0
            {
                conv.pack_backward(&mut self.packed[*packed], &params[weight.clone()]);
            }
        }
        for chunk in self.chunks() {
            let value = &plan.values[exit];
            let first = chunk.first * LANES * plan.row_width;
            let rows = &self.d_rows[0][first..first + chunk.samples * plan.row_width];
            let d_exit = &mut self.slots[plan.exit_slot];
            let mut to = PlanesMut { data: d_exit, plane: value.gradient };
            clear_border(self.isa, &mut to, chunk.groups * value.channels);
            lanes::from_rows(self.isa, to, value.channels, rows, chunk.samples);
            for step in &plan.back {
                self.step_back(&plan, step, params, grad, chunk);
            }
        }
        for op in &plan.ops {
            if let Op::Conv { conv, weight, packed, .. } = op {
                conv.settle(&mut grad[weight.clone()], &mut self.sums[*packed]);
            }
        }
    }
}

impl Workspace {
    pub(crate) fn new(plan: Arc<CpuPlan>, isa: Isa, input: InputShape, frozen: Arc<[f32]>) -> Self {
        let rows = plan.rows.len() + 1;
        Self {
            isa,
            input,
            samples: 0,
            groups: 0,
            row_samples: 0,
            saved: vec![Buffer::default(); plan.saved],
            slots: vec![Buffer::default(); plan.slots.len()],
            aux: vec![Buffer::default(); plan.aux.len()],
            packed: plan.packed.iter().map(|&len| Buffer::zeros(len)).collect(),
            sums: plan.convolutions().map(|conv| Buffer::zeros(conv.sums())).collect(),
            scratch: Buffer::zeros(plan.convolutions().map(Conv::scratch).max().unwrap_or(0)),
            rows: vec![Buffer::default(); rows],
            d_rows: vec![Buffer::default(); rows],
            dropout_key: 0,
            picked: Vec::new(),
            units: None,
            watches: false,
            sequence: Sequence::new(isa, frozen),
            plan,
        }
    }

    /// Records a newly computed value of the samples starting at `first`, if units are requested.
    fn watch(&mut self, plan: &CpuPlan, id: ValueId, chunk: Chunk, first: usize) {
        let Some(mut units) = self.units.take() else { return };
        let x = self.slice(self.value(id, chunk));
        units.see(self.isa, id, &plan.values[id], x, first, chunk.samples);
        self.units = Some(units);
    }

    fn forward(&mut self, mut mode: Mode<'_>, batch: &Batch<'_>) -> Outputs<'_> {
        let plan = Arc::clone(&self.plan);
        let n = batch.samples(self.input);
        if n == 0 {
            self.samples = 0;
            return self.outputs();
        }
        self.reserve_rows(n);
        self.samples = n;
        if let Some(tokens) = &plan.sequence {
            self.read_tokens(tokens, &mode, batch);
        } else if plan.exit.is_some() {
            for op in &plan.ops {
                if let Op::Conv { conv, weight, packed, .. } = op {
                    conv.pack_forward(&mut self.packed[*packed], &mode.params()[weight.clone()]);
                }
            }
            if matches!(mode, Mode::Training { .. }) {
                self.reserve(n.div_ceil(LANES));
                self.load_image(batch, n);
                // From the last chunk to the first, and back from the first to the last: what a pass ends with is still in the
                // cache when the next one begins.
                for chunk in self.chunks().rev() {
                    self.spatial(&plan, &mut mode, chunk, chunk.first * LANES);
                }
            } else {
                self.evaluate_images(&plan, &mut mode, batch);
            }
        } else {
            self.load_rows(batch);
        }
        for (i, op) in plan.rows.iter().enumerate() {
            let (before, after) = self.rows.split_at_mut(i + 1);
            let (x, y) = (&before[i], &mut after[0]);
            match op {
                RowOp::Dense { inputs, outputs, weight, bias, relu } => {
                    let params = mode.params();
                    let (w, b) = (&params[weight.clone()], &params[bias.clone()]);
                    let sizes = DenseSizes { samples: n, inputs: *inputs, outputs: *outputs };
                    affine::forward(self.isa, y, x, w, b, sizes);
                    if *relu {
                        elementwise::relu_rows(&mut y[..n * outputs]);
                    }
                }
                RowOp::Relu { width } => {
                    y[..n * width].copy_from_slice(&x[..n * width]);
                    elementwise::relu_rows(&mut y[..n * width]);
                }
                RowOp::Dropout { width, p } => match mode {
                    Mode::Training { key, .. } => {
                        dropout::forward(self.isa, &mut y[..n * width], &x[..n * width], *p, dropout_key(key, i));
                    }
                    Mode::Evaluation { .. } => y[..n * width].copy_from_slice(&x[..n * width]),
                },
            }
        }
        self.outputs()
    }

    /// Nothing is saved for a backward pass, so the batch is processed in parts that reuse the same memory.
    fn evaluate_images(&mut self, plan: &CpuPlan, mode: &mut Mode<'_>, batch: &Batch<'_>) {
        let lanes = LANES;
        let groups = self.samples.div_ceil(lanes).min(plan.chunk).min(EVALUATION_GROUPS);
        self.reserve(groups);
        for first in (0..self.samples).step_by(groups * lanes) {
            let samples = (self.samples - first).min(groups * lanes);
            self.load_image(&batch.part(first..first + samples, self.input), samples);
            let chunk = Chunk { first: 0, groups: samples.div_ceil(lanes), samples };
            self.spatial(plan, mode, chunk, first);
        }
    }

    /// The image layers for one chunk of samples starting at `first`, up to rows.
    fn spatial(&mut self, plan: &CpuPlan, mode: &mut Mode<'_>, chunk: Chunk, first: usize) {
        for op in &plan.ops {
            self.step(plan, op, mode, chunk);
            if self.watches {
                self.watch(plan, op.output(), chunk, first);
            }
        }
        let Some(exit) = plan.exit else { return };
        let value = &plan.values[exit];
        let x = self.value(exit, chunk);
        let mut rows = std::mem::take(&mut self.rows[0]);
        let part = &mut rows[first * plan.row_width..(first + chunk.samples) * plan.row_width];
        let x = Planes { data: self.slice(x), plane: value.plane };
        lanes::to_rows(self.isa, part, x, value.channels, chunk.samples);
        self.rows[0] = rows;
    }

    fn chunks(&self) -> impl DoubleEndedIterator<Item = Chunk> + use<> {
        let (lanes, samples) = (LANES, self.samples);
        let groups = samples.div_ceil(lanes);
        let step = groups.min(self.plan.chunk).max(1);
        (0..groups).step_by(step).map(move |first| {
            let groups = step.min(groups - first);
            Chunk { first, groups, samples: (samples - first * lanes).min(groups * lanes) }
        })
    }

    /// The buffer and range of a value's chunk.
    fn value(&self, id: ValueId, chunk: Chunk) -> (ValuePlace, Range<usize>) {
        let value = &self.plan.values[id];
        let group = value.channels * value.plane.area() * LANES;
        match value.place {
            ValuePlace::Saved(_) => (value.place, chunk.first * group..(chunk.first + chunk.groups) * group),
            ValuePlace::Slot(_) => (value.place, 0..chunk.groups * group),
        }
    }

    fn slice(&self, (place, range): (ValuePlace, Range<usize>)) -> &[f32] {
        match place {
            ValuePlace::Saved(i) => &self.saved[i][range],
            ValuePlace::Slot(i) => &self.slots[i][range],
        }
    }

    fn buffer(&mut self, place: ValuePlace) -> &mut Buffer {
        match place {
            ValuePlace::Saved(i) => &mut self.saved[i],
            ValuePlace::Slot(i) => &mut self.slots[i],
        }
    }

    fn aux_range(&self, id: usize, chunk: Chunk) -> Range<usize> {
        let size = self.plan.aux[id];
        chunk.first * size..(chunk.first + chunk.groups) * size
    }
}

/// Zeroes the gradient where the backward pass adds it up. It writes the weights of dense layers, which may be millions, in
/// one go, and adds to the head what the loss has left there.
fn clear(plan: &CpuPlan, grad: &mut [f32]) {
    let mut done = 0;
    for op in &plan.rows {
        if let RowOp::Dense { weight, .. } = op {
            grad[done..weight.start].fill(0.0);
            done = weight.end;
        }
    }
}

/// Derives a separate key for each dropout layer.
fn dropout_key(key: u64, layer: usize) -> u64 {
    key ^ (layer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
