//! Runs a compiled model: forward, and backward after it.

use std::ops::Range;
use std::sync::Arc;

use fedelity_kernels::{
    Buffer, Conv, Isa, Plane, affine, batch_norm, clear_halo, dropout, elementwise, group_norm, lanes, pool,
};

use crate::architecture::InputShape;
use crate::batch::Batch;
use crate::plan::{Back, Norm, Op, Place, Plan, RowOp, Target, ValueId};
use crate::sequence::{Sequence, SequencePlan, Texts};

/// A batch of another kind than the model's input is a mistake of the program, not of its user.
const UNFIT: &str = "the batch is not what this model takes";

/// Groups of images that are evaluated at a time, at most.
const EVALUATION_GROUPS: usize = 8;

/// What a model says about a batch, as rows.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// What the head reads, `[sample][feature]`.
    pub features: &'a [f32],
    /// `[sample][class]`.
    pub logits: &'a [f32],
    /// Number of samples.
    pub samples: usize,
}

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

/// The buffers of one worker.
#[derive(Clone, Debug)]
pub struct Workspace {
    plan: Arc<Plan>,
    isa: Isa,
    input: InputShape,
    samples: usize,
    /// Groups the buffers have room for.
    groups: usize,
    /// Samples the row buffers have room for.
    row_samples: usize,
    saved: Vec<Buffer>,
    slots: Vec<Buffer>,
    aux: Vec<Buffer>,
    packed: Vec<Buffer>,
    /// What the weight gradients of some convolutions are summed in; zero between batches.
    sums: Vec<Buffer>,
    /// Where a convolution works.
    scratch: Buffer,
    sequence: Sequence,
    /// Rows before each row operation, and after the last one.
    rows: Vec<Buffer>,
    d_rows: Vec<Buffer>,
    dropout_key: u64,
    /// Rows picked by index, on their way into lanes.
    picked: Vec<f32>,
}

/// The groups and samples of one chunk.
#[derive(Clone, Copy)]
struct Chunk {
    first: usize,
    groups: usize,
    samples: usize,
}

impl Workspace {
    pub(crate) fn new(plan: Arc<Plan>, isa: Isa, input: InputShape, frozen: Arc<[f32]>) -> Self {
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
            sequence: Sequence::new(isa, frozen),
            plan,
        }
    }

    /// Forward in training mode. The running statistics inside `params` move; `key` decides what dropout drops.
    pub fn train(&mut self, params: &mut [f32], batch: &Batch<'_>, key: u64) -> Outputs<'_> {
        self.dropout_key = key;
        self.forward(Mode::Training { params, key }, batch)
    }

    /// Forward in evaluation mode: every sample for itself.
    pub fn evaluate(&mut self, params: &[f32], batch: &Batch<'_>) -> Outputs<'_> {
        self.forward(Mode::Evaluation { params }, batch)
    }

    /// What the last forward pass gave.
    #[must_use]
    pub fn outputs(&self) -> Outputs<'_> {
        let (features, logits) = (&self.rows[self.plan.rows.len() - 1], &self.rows[self.plan.rows.len()]);
        let width = |op: usize| if op == 0 { self.plan.row_width } else { self.plan.rows[op - 1].width() };
        Outputs {
            features: &features[..self.samples * width(self.plan.rows.len() - 1)],
            logits: &logits[..self.samples * width(self.plan.rows.len())],
            samples: self.samples,
        }
    }

    /// The activations of every layer on rows in the last forward pass, by the layer's name: `[sample][unit]`. What the
    /// spatial layers hand over comes first, as `flatten`.
    pub fn layers(&self) -> impl Iterator<Item = (&str, &[f32])> {
        let flatten = self.plan.exit.map(|_| ("flatten", &self.rows[0][..self.samples * self.plan.row_width]));
        let dense = self.plan.rows.iter().zip(&self.rows[1..]).filter_map(|(op, rows)| {
            let RowOp::Dense { outputs, weight, .. } = op else { return None };
            let tensor = self.plan.layout.tensors().iter().find(|tensor| tensor.offset == weight.start)?;
            Some((tensor.name.trim_end_matches(".weight"), &rows[..self.samples * outputs]))
        });
        flatten.into_iter().chain(dense)
    }

    /// After [`Workspace::train`]: adds the gradient of the loss to `grad`, which has the full length. `d_features` is
    /// what the loss asks of the features beyond what comes through the head.
    pub fn backward(&mut self, params: &[f32], d_logits: &[f32], d_features: Option<&[f32]>, grad: &mut [f32]) {
        let plan = Arc::clone(&self.plan);
        let n = self.samples;
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
                    let (x, sizes) = (&x[..n * inputs], (n, *inputs, *outputs));
                    affine::weight_gradient(self.isa, &mut grad[weight.clone()], d_y, x, sizes);
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
                    dropout::backward(&mut d_x[..n * width], &d_y[..n * width], *p, key);
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
            let first = chunk.first * self.isa.lanes() * plan.row_width;
            let rows = &self.d_rows[0][first..first + chunk.samples * plan.row_width];
            let d_exit = &mut self.slots[plan.exit_slot];
            lanes::from_rows(self.isa, d_exit, value.gradient, value.channels, rows, chunk.samples);
            if value.gradient.halo > 0 {
                for group in
                    d_exit.chunks_mut(value.channels * value.gradient.area() * self.isa.lanes()).take(chunk.groups)
                {
                    clear_halo(group, value.gradient, value.channels, self.isa.lanes());
                }
            }
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
                self.reserve(n.div_ceil(self.isa.lanes()));
                self.load_image(batch, n);
                for chunk in self.chunks() {
                    self.spatial(&plan, &mut mode, chunk, chunk.first * self.isa.lanes());
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
                    affine::forward(self.isa, y, x, w, b, (n, *inputs, *outputs), *relu);
                }
                RowOp::Relu { width } => {
                    y[..n * width].copy_from_slice(&x[..n * width]);
                    elementwise::relu_rows(&mut y[..n * width]);
                }
                RowOp::Dropout { width, p } => match mode {
                    Mode::Training { key, .. } => {
                        dropout::forward(&mut y[..n * width], &x[..n * width], *p, dropout_key(key, i));
                    }
                    Mode::Evaluation { .. } => y[..n * width].copy_from_slice(&x[..n * width]),
                },
            }
        }
        self.outputs()
    }

    /// Nothing is kept for a backward pass, so the batch goes through in parts that use the same memory.
    fn evaluate_images(&mut self, plan: &Plan, mode: &mut Mode<'_>, batch: &Batch<'_>) {
        let lanes = self.isa.lanes();
        let groups = self.samples.div_ceil(lanes).min(plan.chunk).min(EVALUATION_GROUPS);
        self.reserve(groups);
        for first in (0..self.samples).step_by(groups * lanes) {
            let samples = (self.samples - first).min(groups * lanes);
            self.load_image(&batch.part(first..first + samples, self.input), samples);
            let chunk = Chunk { first: 0, groups: samples.div_ceil(lanes), samples };
            self.spatial(plan, mode, chunk, first);
        }
    }

    /// The layers on images for one chunk, whose samples are those from `first` on, to rows.
    fn spatial(&mut self, plan: &Plan, mode: &mut Mode<'_>, chunk: Chunk, first: usize) {
        for op in &plan.ops {
            self.step(plan, op, mode, chunk);
        }
        let Some(exit) = plan.exit else { return };
        let value = &plan.values[exit];
        let x = self.value(exit, chunk);
        let mut rows = std::mem::take(&mut self.rows[0]);
        let part = &mut rows[first * plan.row_width..(first + chunk.samples) * plan.row_width];
        lanes::to_rows(self.isa, part, self.slice(x), value.plane, value.channels, chunk.samples);
        self.rows[0] = rows;
    }

    /// The token part of the model, up to one row a sample.
    fn read_tokens(&mut self, plan: &SequencePlan, mode: &Mode<'_>, batch: &Batch<'_>) {
        let Batch::Tokens { ids, starts, indices } = *batch else { panic!("{UNFIT}") };
        let (texts, rows) = (Texts { ids, starts, indices }, &mut self.rows[0][..indices.len() * plan.width]);
        match mode {
            Mode::Training { params, key } => self.sequence.train(plan, params, texts, *key, rows),
            Mode::Evaluation { params } => self.sequence.evaluate(plan, params, texts, rows),
        }
    }

    fn load_image(&mut self, batch: &Batch<'_>, n: usize) {
        let image = &self.plan.values[0];
        let x = &mut self.saved[0];
        match *batch {
            Batch::Bytes { pixels, indices, scale, shift } => {
                lanes::gather_u8(self.isa, x, image.plane, image.channels, pixels, indices, scale, shift);
            }
            Batch::Floats { rows } => lanes::from_rows(self.isa, x, image.plane, image.channels, rows, n),
            Batch::Rows { values, indices } => {
                let row = |&i: &u32| &values[i as usize * self.input.len()..(i as usize + 1) * self.input.len()];
                self.picked.clear();
                indices.iter().for_each(|i| self.picked.extend_from_slice(row(i)));
                lanes::from_rows(self.isa, x, image.plane, image.channels, &self.picked, n);
            }
            Batch::Tokens { .. } => panic!("{UNFIT}"),
        }
    }

    fn load_rows(&mut self, batch: &Batch<'_>) {
        let (width, len) = (self.input.len(), self.samples * self.input.len());
        let rows = &mut self.rows[0][..len];
        match *batch {
            Batch::Bytes { pixels, indices, scale, shift } => {
                let (channels, height, columns) = self.input.sides();
                lanes::gather_u8_rows(rows, height * columns, channels, pixels, indices, scale, shift);
            }
            Batch::Floats { rows: values } => rows.copy_from_slice(&values[..len]),
            Batch::Rows { values, indices } => {
                for (row, &i) in rows.chunks_exact_mut(width).zip(indices) {
                    row.copy_from_slice(&values[i as usize * width..(i as usize + 1) * width]);
                }
            }
            Batch::Tokens { .. } => panic!("{UNFIT}"),
        }
    }

    /// Makes room for the rows of a batch.
    fn reserve_rows(&mut self, samples: usize) {
        if samples <= self.row_samples {
            return;
        }
        self.row_samples = samples;
        for (i, rows) in self.rows.iter_mut().zip(&mut self.d_rows).enumerate() {
            let width = if i == 0 { self.plan.row_width } else { self.plan.rows[i - 1].width() };
            *rows.0 = Buffer::zeros(samples * width);
            *rows.1 = Buffer::zeros(samples * width);
        }
    }

    /// Makes room for the images of a batch. Fresh buffers are zero, and so are their halos from then on.
    fn reserve(&mut self, groups: usize) {
        if groups <= self.groups {
            return;
        }
        self.groups = groups;
        let lanes = self.isa.lanes();
        for value in &self.plan.values {
            if let Place::Saved(i) = value.place {
                self.saved[i] = Buffer::zeros(groups * value.channels * value.plane.area() * lanes);
            }
        }
        let chunk = groups.min(self.plan.chunk);
        for (slot, &size) in self.slots.iter_mut().zip(&self.plan.slots) {
            *slot = Buffer::zeros(chunk * size);
        }
        for (aux, &size) in self.aux.iter_mut().zip(&self.plan.aux) {
            *aux = Buffer::zeros(groups * size);
        }
    }

    fn chunks(&self) -> impl Iterator<Item = Chunk> + use<> {
        let (lanes, samples) = (self.isa.lanes(), self.samples);
        let groups = samples.div_ceil(lanes);
        let step = groups.min(self.plan.chunk).max(1);
        (0..groups).step_by(step).map(move |first| {
            let groups = step.min(groups - first);
            Chunk { first, groups, samples: (samples - first * lanes).min(groups * lanes) }
        })
    }

    /// Where a value's chunk stands.
    fn value(&self, id: ValueId, chunk: Chunk) -> (Place, Range<usize>) {
        let value = &self.plan.values[id];
        let group = value.channels * value.plane.area() * self.isa.lanes();
        match value.place {
            Place::Saved(_) => (value.place, chunk.first * group..(chunk.first + chunk.groups) * group),
            Place::Slot(_) => (value.place, 0..chunk.groups * group),
        }
    }

    fn slice(&self, (place, range): (Place, Range<usize>)) -> &[f32] {
        match place {
            Place::Saved(i) => &self.saved[i][range],
            Place::Slot(i) => &self.slots[i][range],
        }
    }

    fn buffer(&mut self, place: Place) -> &mut Buffer {
        match place {
            Place::Saved(i) => &mut self.saved[i],
            Place::Slot(i) => &mut self.slots[i],
        }
    }

    fn aux_range(&self, id: usize, chunk: Chunk) -> Range<usize> {
        let size = self.plan.aux[id];
        chunk.first * size..(chunk.first + chunk.groups) * size
    }

    /// One operation forward, for one chunk.
    fn step(&mut self, plan: &Plan, op: &Op, mode: &mut Mode<'_>, chunk: Chunk) {
        let (isa, groups) = (self.isa, chunk.groups);
        let (place, range) = self.value(op.output(), chunk);
        let mut buffer = std::mem::take(self.buffer(place));
        let y = &mut buffer[range];
        let mut scratch = std::mem::take(&mut self.scratch);
        let to = &plan.values[op.output()];
        let input = |id: ValueId| self.slice(self.value(id, chunk));
        match op {
            Op::Conv { conv, x, bias, packed, .. } => {
                let bias = bias.clone().map(|bias| &mode.params()[bias]);
                let x = self.slice(self.value(*x, chunk));
                conv.forward(y, x, &self.packed[*packed], bias, groups, &mut scratch);
            }
            Op::Norm { norm, x, gamma, beta, stats, relu, .. } => {
                let (x, from) = (*x, plan.values[*x].plane);
                let range = self.aux_range(*stats, chunk);
                let mut aux = std::mem::take(&mut self.aux[*stats]);
                let x = self.slice(self.value(x, chunk));
                let stats_part = &mut aux[range];
                match norm {
                    Norm::Group(norm) => {
                        let params = mode.params();
                        let (gamma, beta) = (&params[gamma.clone()], &params[beta.clone()]);
                        group_norm::forward(isa, y, to.plane, stats_part, x, from, gamma, beta, *norm, groups, *relu);
                    }
                    Norm::Batch { mean, variance } => {
                        batch_norm_forward(isa, mode, (mean, variance), (gamma, beta), |gamma, beta, running| {
                            match running {
                                Running::Training(mean, variance) => batch_norm::forward_training(
                                    isa,
                                    y,
                                    to.plane,
                                    stats_part,
                                    mean,
                                    variance,
                                    x,
                                    from,
                                    gamma,
                                    beta,
                                    to.channels,
                                    groups,
                                    chunk.samples,
                                    *relu,
                                ),
                                Running::Evaluation(mean, variance) => batch_norm::forward_evaluation(
                                    isa,
                                    y,
                                    to.plane,
                                    x,
                                    from,
                                    gamma,
                                    beta,
                                    mean,
                                    variance,
                                    to.channels,
                                    groups,
                                    *relu,
                                ),
                            }
                        });
                    }
                }
                self.aux[*stats] = aux;
            }
            Op::Relu { x, .. } => {
                elementwise::relu_forward(isa, y, to.plane, input(*x), plan.values[*x].plane, to.channels, groups);
            }
            Op::MaxPool { window, x, relu, choice, .. } => {
                let range = self.aux_range(*choice, chunk);
                let mut aux = std::mem::take(&mut self.aux[*choice]);
                let from = plan.values[*x].plane;
                let x = self.slice(self.value(*x, chunk));
                let choices = &mut aux[range];
                pool::max_forward(isa, y, to.plane, choices, x, from, to.channels, groups, *window, *relu);
                self.aux[*choice] = aux;
            }
            Op::AveragePool { window, x, .. } => {
                let from = plan.values[*x].plane;
                pool::average_forward(isa, y, to.plane, input(*x), from, to.channels, groups, *window);
            }
            Op::GlobalAverage { x, .. } => {
                pool::global_forward(isa, y, input(*x), plan.values[*x].plane, to.channels, groups);
            }
            Op::Add { a, b, relu, .. } => {
                let (pa, pb) = (plan.values[*a].plane, plan.values[*b].plane);
                elementwise::add_forward(isa, y, to.plane, input(*a), pa, input(*b), pb, to.channels, groups, *relu);
            }
        }
        self.scratch = scratch;
        *self.buffer(place) = buffer;
    }

    /// One operation backward, for one chunk.
    fn step_back(&mut self, plan: &Plan, step: &Back, params: &[f32], grad: &mut [f32], chunk: Chunk) {
        let (isa, groups, op) = (self.isa, chunk.groups, &plan.ops[step.op]);
        let y = op.output();
        let (dy_plane, channels) = (plan.values[y].gradient, plan.values[y].channels);
        let mut scratch = std::mem::take(&mut self.scratch);
        if let Op::Conv { conv, x, weight, bias, packed, .. } = op {
            let mut sums = std::mem::take(&mut self.sums[*packed]);
            let (x, d_y) = (self.slice(self.value(*x, chunk)), &self.slots[step.d_y][..]);
            // A bias stands behind its weights.
            let (weights, behind) = grad[weight.start..].split_at_mut(weight.len());
            let d_b = bias.as_ref().map(|bias| &mut behind[..bias.len()]);
            conv.weight_gradient(weights, d_b, (x, d_y), groups, (&mut sums, &mut scratch));
            self.sums[*packed] = sums;
        }
        for (target, x) in step.to.iter().zip(op.inputs()) {
            let (Some(target), Some(x)) = (target, x) else { continue };
            let to = target.detour.unwrap_or(target.slot);
            let mut buffer = std::mem::take(&mut self.slots[to]);
            let d_y: &[f32] = &self.slots[step.d_y];
            let dx_plane = plan.values[x].gradient;
            let view = |id: ValueId| (self.slice(self.value(id, chunk)), plan.values[id].plane);
            match op {
                Op::Conv { conv, packed, .. } => {
                    conv.input_gradient(&mut buffer, d_y, &self.packed[*packed], groups, target.add, &mut scratch);
                }
                Op::Norm { norm, gamma, beta, stats, relu, .. } => {
                    let stats = &self.aux[*stats][self.aux_range(*stats, chunk)];
                    let (d_gamma, d_beta) = two(grad, gamma, beta);
                    let (x, from) = view(x);
                    let relu_output = relu.then(|| view(y));
                    let gamma = &params[gamma.clone()];
                    match norm {
                        Norm::Group(norm) => group_norm::backward(
                            isa,
                            &mut buffer,
                            dx_plane,
                            d_gamma,
                            d_beta,
                            d_y,
                            dy_plane,
                            relu_output,
                            x,
                            from,
                            stats,
                            gamma,
                            *norm,
                            groups,
                        ),
                        Norm::Batch { .. } => batch_norm::backward(
                            isa,
                            &mut buffer,
                            dx_plane,
                            d_gamma,
                            d_beta,
                            d_y,
                            dy_plane,
                            relu_output,
                            x,
                            from,
                            stats,
                            gamma,
                            channels,
                            groups,
                            chunk.samples,
                        ),
                    }
                }
                Op::Relu { .. } | Op::Add { relu: true, .. } => {
                    let (y, y_plane) = view(y);
                    elementwise::relu_backward(isa, &mut buffer, dx_plane, d_y, dy_plane, y, y_plane, channels, groups);
                }
                Op::Add { relu: false, .. } => {
                    let area = channels * dx_plane.area() * isa.lanes();
                    buffer[..groups * area].fill(0.0);
                    elementwise::add_to(isa, &mut buffer, dx_plane, d_y, dy_plane, channels, groups);
                }
                Op::MaxPool { window, choice, .. } => {
                    let choice = &self.aux[*choice][self.aux_range(*choice, chunk)];
                    let window = *window;
                    pool::max_backward(isa, &mut buffer, dx_plane, d_y, dy_plane, choice, channels, groups, window);
                }
                Op::AveragePool { window, .. } => {
                    pool::average_backward(isa, &mut buffer, dx_plane, d_y, dy_plane, channels, groups, *window);
                }
                Op::GlobalAverage { .. } => {
                    pool::global_backward(isa, &mut buffer, dx_plane, d_y, channels, groups);
                }
            }
            self.slots[to] = buffer;
            self.join(target, dx_plane, plan.values[x].channels, groups);
        }
        self.scratch = scratch;
    }

    /// Adds a detour to the gradient it belongs to.
    fn join(&mut self, target: &Target, plane: Plane, channels: usize, groups: usize) {
        if let Some(detour) = target.detour {
            let mut sum = std::mem::take(&mut self.slots[target.slot]);
            elementwise::add_to(self.isa, &mut sum, plane, &self.slots[detour], plane, channels, groups);
            self.slots[target.slot] = sum;
        }
    }
}

/// Running statistics, to be moved or only read.
enum Running<'a> {
    Training(&'a mut [f32], &'a mut [f32]),
    Evaluation(&'a [f32], &'a [f32]),
}

/// Hands the affine parameters and the running statistics to `run`, which come from the same buffer.
fn batch_norm_forward(
    _isa: Isa,
    mode: &mut Mode<'_>,
    (mean, variance): (&Range<usize>, &Range<usize>),
    (gamma, beta): (&Range<usize>, &Range<usize>),
    run: impl FnOnce(&[f32], &[f32], Running<'_>),
) {
    match mode {
        Mode::Evaluation { params } => run(
            &params[gamma.clone()],
            &params[beta.clone()],
            Running::Evaluation(&params[mean.clone()], &params[variance.clone()]),
        ),
        Mode::Training { params, .. } => {
            // The four tensors stand one after the other: weight, bias, running mean, running variance.
            let (affine, running) = params.split_at_mut(mean.start);
            let (mean, variance) = running[..variance.end - mean.start].split_at_mut(mean.len());
            run(&affine[gamma.clone()], &affine[beta.clone()], Running::Training(mean, variance));
        }
    }
}

/// Two neighbouring parts of a buffer at once.
fn two<'a>(buffer: &'a mut [f32], first: &Range<usize>, second: &Range<usize>) -> (&'a mut [f32], &'a mut [f32]) {
    let (a, b) = buffer.split_at_mut(second.start);
    (&mut a[first.clone()], &mut b[..second.len()])
}

/// A key of its own for each dropout layer.
fn dropout_key(key: u64, layer: usize) -> u64 {
    key ^ (layer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
