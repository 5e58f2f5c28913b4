//! Activations of convolution units: a unit is an output channel, its activation the mean over all pixels.

use fedelity_kernels::{Buffer, Isa, LANES, Plane, Planes, PlanesMut, elementwise, lanes, pool};

use crate::cpu::plan::{CpuPlan, Op, Value, ValueId};

/// The activations of all convolutions in one forward pass.
#[derive(Clone, Debug)]
pub(crate) struct Units {
    layers: Vec<WatchedLayer>,
    /// One chunk after its ReLU, and its means.
    work: [Buffer; 2],
}

/// A convolution with its normalisation and ReLU.
#[derive(Clone, Debug)]
struct WatchedLayer {
    name: String,
    value: ValueId,
    channels: usize,
    /// Whether a ReLU follows that is applied by another operation.
    relu: bool,
    /// `[sample][channel]`
    rows: Vec<f32>,
}

impl Units {
    pub(crate) fn new(plan: &CpuPlan) -> Self {
        let only_reader = |value: ValueId| {
            let mut readers = plan.ops.iter().filter(|op| op.inputs().contains(&Some(value)));
            readers.next().filter(|_| readers.next().is_none())
        };
        let layer = |op: &Op| {
            let Op::Conv { y, weight, .. } = op else { return None };
            let tensor = plan.layout.tensors().iter().find(|tensor| tensor.offset == weight.start)?;
            let value = match only_reader(*y) {
                Some(Op::Norm { y, .. }) => *y,
                _ => *y,
            };
            let relu = matches!(only_reader(value), Some(Op::Relu { .. } | Op::MaxPool { relu: true, .. }));
            let channels = plan.values[value].channels;
            let name = tensor.name.trim_end_matches(".weight").to_string();
            Some(WatchedLayer { name, value, channels, relu, rows: Vec::new() })
        };
        Self { layers: plan.ops.iter().filter_map(layer).collect(), work: Default::default() }
    }

    /// Starts a forward pass of `samples` samples.
    pub(crate) fn begin(&mut self, samples: usize) {
        self.layers.iter_mut().for_each(|layer| layer.rows.resize(samples * layer.channels, 0.0));
    }

    /// Records a value of the samples starting at `first`, if it is the output of a convolution.
    pub(crate) fn see(&mut self, isa: Isa, id: ValueId, value: &Value, x: &[f32], first: usize, samples: usize) {
        let Some(layer) = self.layers.iter_mut().find(|layer| layer.value == id) else { return };
        let (channels, groups) = (layer.channels, samples.div_ceil(LANES));
        let bare = Plane::bare(value.plane.height, value.plane.width);
        let [positive, means] = &mut self.work;
        let (count, x) = (groups * channels, Planes { data: x, plane: value.plane });
        fit(means, count * LANES);
        if layer.relu {
            fit(positive, count * bare.area() * LANES);
            elementwise::relu_forward(isa, PlanesMut { data: positive, plane: bare }, x, count);
            pool::global_forward(isa, means, Planes { data: positive, plane: bare }, count);
        } else {
            pool::global_forward(isa, means, x, count);
        }
        let rows = &mut layer.rows[first * channels..(first + samples) * channels];
        lanes::to_rows(isa, rows, Planes { data: means, plane: Plane::bare(1, 1) }, channels, samples);
    }

    /// The name and activations of each convolution.
    pub(crate) fn layers(&self) -> impl Iterator<Item = (&str, &[f32])> {
        self.layers.iter().map(|layer| (layer.name.as_str(), &layer.rows[..]))
    }
}

/// Grows a buffer to at least this length. Never shrinks it.
fn fit(buffer: &mut Buffer, len: usize) {
    if buffer.len() < len {
        *buffer = Buffer::zeros(len);
    }
}
