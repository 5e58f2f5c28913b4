//! Compiles a tree of layers into a flat list of operations on numbered values.
//!
//! Spatial values use the batch-in-lanes layout and are processed in chunks of groups; after the last spatial layer
//! they become rows, processed for the whole batch. A value that a backward step reads is saved for the whole batch;
//! all others, and all gradients, share a few chunk-sized buffers.

use std::ops::Range;

use fedelity_kernels::group_norm::GroupNorm;
use fedelity_kernels::pool::Window;
use fedelity_kernels::{Conv, Isa, LANES, Plane};

use crate::architecture::{Architecture, InputShape, Layer, Node};
use crate::cpu::memory::Slots;
use crate::cpu::plan::{CpuPlan, Norm, Op, RowOp, Value, ValueId, ValuePlace};
use crate::cpu::sequence::{self, SequencePlan};
use crate::error::NnError;
use crate::layout::{Init, Layout};

/// A chunk gets one more group for every this many bytes of a layer's weights, so that large weights are not streamed
/// from memory for every group.
const CHUNK_WEIGHT_BYTES: usize = 512 << 10;
const MAX_CHUNK: usize = 8;

pub(crate) fn plan(arch: &Architecture, isa: Isa) -> Result<CpuPlan, NnError> {
    let mut builder = Builder::new(arch, isa);
    let mut rest = &arch.extractor[..];
    if matches!(arch.input, InputShape::Tokens { .. }) {
        let (plan, left) = sequence::plan(arch, &mut builder.layout, &mut builder.frozen)?;
        builder.row_width = plan.width;
        builder.at = Position::Rows(plan.width);
        builder.sequence = Some(plan);
        rest = left;
    }
    builder.nodes(rest)?;
    builder.finish()
}

/// The output of the layers so far, which the next layer reads.
#[derive(Clone, Copy)]
enum Position {
    Spatial(ValueId),
    Rows(usize),
}

struct Builder<'a> {
    arch: &'a Architecture,
    isa: Isa,
    layout: Layout,
    frozen: Layout,
    sequence: Option<SequencePlan>,
    /// Channels, rows and columns; halos are set at the end.
    shapes: Vec<(usize, Plane)>,
    ops: Vec<Draft>,
    rows: Vec<RowOp>,
    row_width: usize,
    at: Position,
}

/// An operation before halos and buffers are known.
enum Draft {
    Conv { window: Window, x: ValueId, y: ValueId, weight: Range<usize>, bias: Option<Range<usize>> },
    Ready(Op),
}

impl<'a> Builder<'a> {
    fn new(arch: &'a Architecture, isa: Isa) -> Self {
        let (channels, height, width) = arch.input.sides();
        Self {
            arch,
            isa,
            layout: Layout::default(),
            frozen: Layout::default(),
            sequence: None,
            shapes: vec![(channels, Plane::bare(height, width))],
            ops: Vec::new(),
            rows: Vec::new(),
            row_width: 0,
            at: Position::Spatial(0),
        }
    }

    fn misfit(&self, reason: impl Into<String>) -> NnError {
        NnError::DoesNotFit { model: self.arch.name.clone(), reason: reason.into() }
    }

    fn spatial(&self, node: &Node) -> Result<ValueId, NnError> {
        match self.at {
            Position::Spatial(x) => Ok(x),
            Position::Rows(_) => {
                Err(self.misfit(format!("layer {:?} needs an image, but the input is flat here", node.layer)))
            }
        }
    }

    fn value(&mut self, channels: usize, plane: Plane) -> ValueId {
        self.shapes.push((channels, plane));
        self.shapes.len() - 1
    }

    fn parameter(&mut self, node: &Node, part: &str, shape: &[usize], init: Init) -> Range<usize> {
        self.layout.push(format!("{}.{part}", node.name), shape, true, init)
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<(), NnError> {
        let mut i = 0;
        while i < nodes.len() {
            let next = |k: usize| nodes.get(i + k).map(|n| &n.layer);
            let relu = matches!(next(1), Some(Layer::Relu));
            i += self.node(&nodes[i], relu, next(1))?;
        }
        Ok(())
    }

    /// Compiles one layer, fused with a following ReLU or pooling if possible. Returns the number of layers consumed.
    fn node(&mut self, node: &Node, relu: bool, next: Option<&Layer>) -> Result<usize, NnError> {
        let with_relu = 1 + usize::from(relu);
        if node.frozen {
            return Err(self.misfit(format!("layer {:?} cannot be frozen", node.name)));
        }
        match &node.layer {
            Layer::Conv { out, kernel, stride, pad, bias } => {
                let x = self.spatial(node)?;
                self.conv(node, x, *out, Window { kernel: *kernel, stride: *stride, pad: *pad }, *bias)?;
                Ok(1)
            }
            Layer::GroupNorm { .. } | Layer::BatchNorm => {
                let x = self.spatial(node)?;
                self.norm(node, x, relu)?;
                Ok(with_relu)
            }
            Layer::Relu => match (self.at, next) {
                (Position::Spatial(x), Some(Layer::MaxPool(window))) => self.pool(x, *window, true, true).map(|()| 2),
                (Position::Spatial(x), _) => {
                    let (channels, plane) = self.shapes[x];
                    let y = self.value(channels, plane);
                    self.push(Op::Relu { x, y });
                    Ok(1)
                }
                (Position::Rows(width), _) => {
                    self.rows.push(RowOp::Relu { width });
                    Ok(1)
                }
            },
            Layer::MaxPool(window) => {
                let x = self.spatial(node)?;
                self.pool(x, *window, true, false).map(|()| 1)
            }
            Layer::AveragePool(window) => {
                let x = self.spatial(node)?;
                self.pool(x, *window, false, false).map(|()| 1)
            }
            Layer::GlobalAveragePool => {
                let x = self.spatial(node)?;
                let y = self.value(self.shapes[x].0, Plane::bare(1, 1));
                self.push(Op::GlobalAverage { x, y });
                Ok(1)
            }
            Layer::Residual { body, shortcut } => {
                let x = self.spatial(node)?;
                self.residual(x, body, shortcut, relu)?;
                Ok(with_relu)
            }
            Layer::Flatten => {
                if let Position::Spatial(x) = self.at {
                    let (channels, plane) = self.shapes[x];
                    self.row_width = channels * plane.pixels();
                    self.at = Position::Rows(self.row_width);
                }
                Ok(1)
            }
            Layer::Dense { out } => {
                let Position::Rows(inputs) = self.at else {
                    return Err(self.misfit(format!("layer {:?} needs a flat input", node.name)));
                };
                self.dense(node, inputs, *out, relu);
                Ok(with_relu)
            }
            Layer::Dropout { p } => {
                let Position::Rows(width) = self.at else {
                    return Err(self.misfit("dropout needs a flat input"));
                };
                self.rows.push(RowOp::Dropout { width, p: *p });
                Ok(1)
            }
            Layer::Embedding { .. }
            | Layer::Embeddings { .. }
            | Layer::Block { .. }
            | Layer::FirstToken
            | Layer::Lstm { .. } => Err(self.misfit("it reads texts, and these are not")),
        }
    }

    fn push(&mut self, op: Op) {
        self.at = Position::Spatial(op.output());
        self.ops.push(Draft::Ready(op));
    }

    fn conv(&mut self, node: &Node, x: ValueId, out: usize, window: Window, bias: bool) -> Result<(), NnError> {
        let Window { kernel, stride, pad } = window;
        let (channels, plane) = self.shapes[x];
        let trial = Conv::new(self.isa, (channels, out), window, plane.with_halo(pad), 0).ok_or_else(|| {
            self.misfit(format!(
                "a {kernel}x{kernel} convolution with stride {stride} and padding {pad} ({:?}) does not fit {}x{} pixels",
                node.name, plane.height, plane.width
            ))
        })?;
        let fan_in = channels * kernel * kernel;
        let init = Init::Uniform { fan_in };
        let weight = self.parameter(node, "weight", &[out, channels, kernel, kernel], init);
        let bias = bias.then(|| self.parameter(node, "bias", &[out], init));
        let y = self.value(out, trial.output());
        self.ops.push(Draft::Conv { window, x, y, weight, bias });
        self.at = Position::Spatial(y);
        Ok(())
    }

    fn norm(&mut self, node: &Node, x: ValueId, relu: bool) -> Result<(), NnError> {
        let (channels, plane) = self.shapes[x];
        let groups = match node.layer {
            Layer::GroupNorm { channels_per_group: size } if size == 0 || channels % size != 0 => {
                return Err(self.misfit(format!("{channels} channels do not divide into groups of {size}")));
            }
            Layer::GroupNorm { channels_per_group } => Some(channels / channels_per_group),
            _ => None,
        };
        let gamma = self.parameter(node, "weight", &[channels], Init::Constant(1.0));
        let beta = self.parameter(node, "bias", &[channels], Init::Constant(0.0));
        let norm = if let Some(groups_of_channels) = groups {
            Norm::Group(GroupNorm { channels, groups_of_channels })
        } else {
            let mut buffer = |part: &str, value: f32| {
                self.layout.push(format!("{}.{part}", node.name), &[channels], false, Init::Constant(value))
            };
            Norm::Batch { mean: buffer("running_mean", 0.0), variance: buffer("running_var", 1.0) }
        };
        let y = self.value(channels, plane);
        self.push(Op::Norm { norm, x, y, gamma, beta, stats: 0, relu });
        Ok(())
    }

    fn pool(&mut self, x: ValueId, window: Window, max: bool, relu: bool) -> Result<(), NnError> {
        let (channels, plane) = self.shapes[x];
        let (height, width) = window.output(plane).ok_or_else(|| {
            self.misfit(format!(
                "a pooling window of {} does not fit {}x{} pixels",
                window.kernel, plane.height, plane.width
            ))
        })?;
        let y = self.value(channels, Plane::bare(height, width));
        self.push(if max { Op::MaxPool { window, x, y, relu, choice: 0 } } else { Op::AveragePool { window, x, y } });
        Ok(())
    }

    fn residual(&mut self, x: ValueId, body: &[Node], shortcut: &[Node], relu: bool) -> Result<(), NnError> {
        let mut end = |nodes: &[Node]| {
            self.at = Position::Spatial(x);
            self.nodes(nodes)?;
            match self.at {
                Position::Spatial(value) => Ok((value, self.ops.len())),
                Position::Rows(_) => Err(self.misfit("a residual block cannot flatten its input")),
            }
        };
        let start = end(&[])?.1;
        let ((a, middle), (b, _)) = (end(body)?, end(shortcut)?);
        // The shortcut runs first, and so comes last in the backward pass: a strided 1x1 convolution then adds its few
        // pixels to an existing gradient instead of writing zeros between them.
        self.ops[start..].rotate_left(middle - start);
        if self.shapes[a] != self.shapes[b] {
            return Err(self.misfit("the two sides of a residual block have different shapes"));
        }
        let (channels, plane) = self.shapes[a];
        let y = self.value(channels, plane);
        self.push(Op::Add { a, b, y, relu });
        Ok(())
    }

    fn dense(&mut self, node: &Node, inputs: usize, outputs: usize, relu: bool) {
        let init = Init::Uniform { fan_in: inputs };
        let weight = self.parameter(node, "weight", &[outputs, inputs], init);
        let bias = self.parameter(node, "bias", &[outputs], init);
        self.rows.push(RowOp::Dense { inputs, outputs, weight, bias, relu });
        self.at = Position::Rows(outputs);
    }

    fn finish(mut self) -> Result<CpuPlan, NnError> {
        let Position::Rows(features) = self.at else {
            return Err(self.misfit("the features are not flat"));
        };
        let head = Node::named(self.arch.head.clone(), Layer::Dense { out: self.arch.classes });
        self.dense(&head, features, self.arch.classes, false);
        let lanes = LANES;
        let mut values: Vec<Value> = self
            .shapes
            .iter()
            .map(|&(channels, plane)| Value { channels, plane, gradient: plane, place: ValuePlace::Slot(0) })
            .collect();
        for op in &self.ops {
            if let Draft::Conv { window: Window { pad, .. }, x, .. } = op {
                values[*x].plane.halo = values[*x].plane.halo.max(*pad);
            }
        }
        let (mut packed, mut aux) = (Vec::new(), Vec::new());
        let (mut ops, mut multiply_adds, mut chunk) = (Vec::new(), 0, 1);
        for draft in std::mem::take(&mut self.ops) {
            let op = self.settle(draft, &mut values, &mut packed, &mut aux, lanes)?;
            match &op {
                Op::Conv { conv, .. } => {
                    multiply_adds += conv.multiply_adds();
                    chunk = chunk.max((conv.weights() * 4 / CHUNK_WEIGHT_BYTES + 1).min(MAX_CHUNK));
                }
                Op::Norm { norm: Norm::Batch { .. }, .. } => chunk = usize::MAX,
                _ => {}
            }
            ops.push(op);
        }
        multiply_adds += self
            .rows
            .iter()
            .map(|op| if let RowOp::Dense { inputs, outputs, .. } = op { inputs * outputs } else { 0 })
            .sum::<usize>();
        multiply_adds += self.sequence.as_ref().map_or(0, |plan| plan.multiply_adds(self.arch.input.len()));
        // A model that starts with a flat layer has no spatial values.
        let exit = ops.last().map(Op::output);
        let row_width = self.row_width;
        let mut memory = Slots::default();
        let saved = memory.place_values(&ops, &mut values, exit);
        let (back, exit_slot) = match exit {
            Some(exit) => memory.place_gradients(&ops, &mut values, exit),
            None => (Vec::new(), 0),
        };
        let mut slots: Vec<usize> = memory.sizes.iter().map(|s| s * lanes).collect();
        if slots.is_empty() {
            slots.push(0);
        }
        Ok(CpuPlan {
            layout: self.layout,
            frozen: self.frozen,
            sequence: self.sequence,
            values,
            ops,
            back,
            exit_slot,
            exit,
            slots,
            aux,
            packed,
            saved,
            row_width,
            rows: self.rows,
            chunk,
            multiply_adds,
        })
    }

    /// Fixes the halos and auxiliary buffers of a drafted operation.
    fn settle(
        &self,
        draft: Draft,
        values: &mut [Value],
        packed: &mut Vec<usize>,
        aux: &mut Vec<usize>,
        lanes: usize,
    ) -> Result<Op, NnError> {
        Ok(match draft {
            Draft::Conv { window, x, y, weight, bias } => {
                let (from, to) = (&values[x], &values[y]);
                let conv = Conv::new(self.isa, (from.channels, to.channels), window, from.plane, to.plane.halo)
                    .ok_or_else(|| self.misfit("a convolution does not fit its input"))?;
                let conv = if x == 0 {
                    conv.without_input_gradient()
                } else {
                    conv.with_input_gradient_halo(from.gradient.halo)
                };
                values[y].gradient = conv.output_gradient();
                packed.push(conv.packed());
                Op::Conv { conv: Box::new(conv), x, y, weight, bias, packed: packed.len() - 1 }
            }
            Draft::Ready(Op::Norm { norm, x, y, gamma, beta, relu, .. }) => {
                aux.push(match &norm {
                    Norm::Group(norm) => norm.groups_of_channels * 2 * lanes,
                    Norm::Batch { .. } => 2 * values[x].channels,
                });
                Op::Norm { norm, x, y, gamma, beta, stats: aux.len() - 1, relu }
            }
            Draft::Ready(Op::MaxPool { window, x, y, relu, .. }) => {
                aux.push(values[y].channels * values[y].plane.pixels() * lanes);
                Op::MaxPool { window, x, y, relu, choice: aux.len() - 1 }
            }
            Draft::Ready(op) => op,
        })
    }
}
