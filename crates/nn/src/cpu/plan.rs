//! A compiled model: numbered values, operations on them, and the steps of the backward pass.

use std::ops::Range;

use fedelity_kernels::group_norm::GroupNorm;
use fedelity_kernels::pool::Window;
use fedelity_kernels::{Conv, Plane};

use crate::cpu::sequence::SequencePlan;
use crate::layout::Layout;

/// Index of a spatial value.
pub(crate) type ValueId = usize;

/// A spatial value: `[group][channel][row][column][lane]`.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub channels: usize,
    /// The plane of the value, with the border its readers need.
    pub plane: Plane,
    /// The plane of its gradient, with the border its producer needs.
    pub gradient: Plane,
    pub place: ValuePlace,
}

/// The buffer that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValuePlace {
    /// Its own buffer, for the whole batch.
    Saved(usize),
    /// A shared buffer, for one chunk.
    Slot(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Conv { conv: Box<Conv>, x: ValueId, y: ValueId, weight: Range<usize>, bias: Option<Range<usize>>, packed: usize },
    Norm { norm: Norm, x: ValueId, y: ValueId, gamma: Range<usize>, beta: Range<usize>, stats: usize, relu: bool },
    Relu { x: ValueId, y: ValueId },
    MaxPool { window: Window, x: ValueId, y: ValueId, relu: bool, choice: usize },
    AveragePool { window: Window, x: ValueId, y: ValueId },
    GlobalAverage { x: ValueId, y: ValueId },
    Add { a: ValueId, b: ValueId, y: ValueId, relu: bool },
}

#[derive(Clone, Debug)]
pub(crate) enum Norm {
    Group(GroupNorm),
    Batch { mean: Range<usize>, variance: Range<usize> },
}

impl Op {
    pub(crate) fn inputs(&self) -> [Option<ValueId>; 2] {
        match *self {
            Self::Conv { x, .. }
            | Self::Norm { x, .. }
            | Self::Relu { x, .. }
            | Self::MaxPool { x, .. }
            | Self::AveragePool { x, .. }
            | Self::GlobalAverage { x, .. } => [Some(x), None],
            Self::Add { a, b, .. } => [Some(a), Some(b)],
        }
    }

    pub(crate) fn output(&self) -> ValueId {
        match *self {
            Self::Conv { y, .. }
            | Self::Norm { y, .. }
            | Self::Relu { y, .. }
            | Self::MaxPool { y, .. }
            | Self::AveragePool { y, .. }
            | Self::GlobalAverage { y, .. }
            | Self::Add { y, .. } => y,
        }
    }

    /// Values the backward step of this operation reads.
    pub(crate) fn saves(&self) -> [Option<ValueId>; 2] {
        match *self {
            Self::Conv { x, .. } => [Some(x), None],
            Self::Norm { x, y, relu, .. } => [Some(x), relu.then_some(y)],
            Self::Relu { y, .. } => [Some(y), None],
            Self::Add { y, relu, .. } => [relu.then_some(y), None],
            Self::MaxPool { .. } | Self::AveragePool { .. } | Self::GlobalAverage { .. } => [None, None],
        }
    }
}

/// The backward step of one operation: the slots of its output's and its inputs' gradients.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    pub op: usize,
    pub d_y: usize,
    pub to: [Option<GradientSlot>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GradientSlot {
    pub slot: usize,
    /// Whether to add, because another reader of the same value has already written.
    pub add: bool,
    /// Where an operation that cannot add writes first.
    pub detour: Option<usize>,
}

/// An operation on rows `[sample][feature]` of the whole batch.
#[derive(Clone, Debug)]
pub(crate) enum RowOp {
    Dense { inputs: usize, outputs: usize, weight: Range<usize>, bias: Range<usize>, relu: bool },
    Relu { width: usize },
    Dropout { width: usize, p: f32 },
}

impl RowOp {
    pub(crate) fn width(&self) -> usize {
        match *self {
            Self::Dense { outputs, .. } => outputs,
            Self::Relu { width } | Self::Dropout { width, .. } => width,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CpuPlan {
    pub layout: Layout,
    /// Weights that are never trained, in a separate buffer.
    pub frozen: Layout,
    /// The token part; `None` if the input is not a text.
    pub sequence: Option<SequencePlan>,
    pub values: Vec<Value>,
    pub ops: Vec<Op>,
    pub back: Vec<Back>,
    /// Slot of the gradient of the last spatial value.
    pub exit_slot: usize,
    /// The last spatial value; `None` if the model starts from rows.
    pub exit: Option<ValueId>,
    /// Floats per group in each slot.
    pub slots: Vec<usize>,
    /// Floats per group in each auxiliary buffer (statistics, choices), which spans the whole batch.
    pub aux: Vec<usize>,
    /// Floats in the packed weights of each convolution.
    pub packed: Vec<usize>,
    pub saved: usize,
    /// Width of the input of the first row operation.
    pub row_width: usize,
    pub rows: Vec<RowOp>,
    /// Groups per chunk; all of them if statistics cover the batch.
    pub chunk: usize,
    pub multiply_adds: usize,
}

impl CpuPlan {
    /// Inputs, outputs, weight and bias of the head.
    pub(crate) fn head(&self) -> (usize, usize, Range<usize>, Range<usize>) {
        match self.rows.last() {
            Some(RowOp::Dense { inputs, outputs, weight, bias, .. }) => {
                (*inputs, *outputs, weight.clone(), bias.clone())
            }
            _ => unreachable!("a plan ends with its head"),
        }
    }

    /// Every convolution, in the order of the packed weights.
    pub(crate) fn convolutions(&self) -> impl Iterator<Item = &Conv> {
        self.ops.iter().filter_map(|op| if let Op::Conv { conv, .. } = op { Some(&**conv) } else { None })
    }
}
