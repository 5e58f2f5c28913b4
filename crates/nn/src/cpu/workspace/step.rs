//! One operation of a model, forward and backward.

use std::ops::Range;

use fedelity_kernels::pool::{self, MaxPool, PoolGradient};
use fedelity_kernels::{LANES, NormGradient, Normalise, Plane, Planes, PlanesMut, batch_norm, elementwise, group_norm};

use super::{Chunk, Mode, Workspace};
use crate::cpu::plan::{Back, CpuPlan, GradientSlot, Norm, Op, ValueId};

impl Workspace {
    /// Runs one operation forward, for one chunk.
    pub(super) fn step(&mut self, plan: &CpuPlan, op: &Op, mode: &mut Mode<'_>, chunk: Chunk) {
        let (isa, groups) = (self.isa, chunk.groups);
        let (place, range) = self.value(op.output(), chunk);
        let mut buffer = std::mem::take(self.buffer(place));
        let y = &mut buffer[range];
        let mut scratch = std::mem::take(&mut self.scratch);
        let to = &plan.values[op.output()];
        let count = groups * to.channels;
        let input = |id: ValueId| self.planes(plan, id, chunk);
        match op {
            Op::Conv { conv, x, bias, packed, .. } => {
                let bias = bias.clone().map(|bias| &mode.params()[bias]);
                conv.forward(y, input(*x).data, &self.packed[*packed], bias, chunk.samples, &mut scratch);
            }
            Op::Norm { norm, x, gamma, beta, stats, relu, .. } => {
                let range = self.aux_range(*stats, chunk);
                let mut aux = std::mem::take(&mut self.aux[*stats]);
                let (y, x) = (PlanesMut { data: y, plane: to.plane }, self.planes(plan, *x, chunk));
                let stats_part = &mut aux[range];
                match norm {
                    Norm::Group(norm) => {
                        let params = mode.params();
                        let (gamma, beta) = (&params[gamma.clone()], &params[beta.clone()]);
                        let pass = Normalise { y, x, gamma, beta, relu: *relu };
                        group_norm::forward(isa, pass, stats_part, *norm, groups);
                    }
                    Norm::Batch { mean, variance } => {
                        batch_norm_forward(mode, (mean, variance), (gamma, beta), |gamma, beta, running| {
                            let pass = Normalise { y, x, gamma, beta, relu: *relu };
                            match running {
                                Running::Training(mean, variance) => {
                                    let running = (mean, variance);
                                    batch_norm::forward_training(isa, pass, stats_part, running, chunk.samples);
                                }
                                Running::Evaluation(mean, variance) => {
                                    batch_norm::forward_evaluation(isa, pass, (mean, variance), groups);
                                }
                            }
                        });
                    }
                }
                self.aux[*stats] = aux;
            }
            Op::Relu { x, .. } => {
                elementwise::relu_forward(isa, PlanesMut { data: y, plane: to.plane }, input(*x), count);
            }
            Op::MaxPool { window, x, relu, choice, .. } => {
                let range = self.aux_range(*choice, chunk);
                let mut aux = std::mem::take(&mut self.aux[*choice]);
                let (y, x) = (PlanesMut { data: y, plane: to.plane }, self.planes(plan, *x, chunk));
                let (choice_part, window, relu) = (&mut aux[range], *window, *relu);
                pool::max_forward(isa, MaxPool { y, choice: choice_part, x, count, window, relu });
                self.aux[*choice] = aux;
            }
            Op::AveragePool { window, x, .. } => {
                pool::average_forward(isa, PlanesMut { data: y, plane: to.plane }, input(*x), count, *window);
            }
            Op::GlobalAverage { x, .. } => pool::global_forward(isa, y, input(*x), count),
            Op::Add { a, b, relu, .. } => {
                let y = PlanesMut { data: y, plane: to.plane };
                elementwise::add_forward(isa, y, input(*a), input(*b), count, *relu);
            }
        }
        self.scratch = scratch;
        *self.buffer(place) = buffer;
    }

    /// Runs one operation backward, for one chunk.
    pub(super) fn step_back(&mut self, plan: &CpuPlan, step: &Back, params: &[f32], grad: &mut [f32], chunk: Chunk) {
        let (isa, groups, op) = (self.isa, chunk.groups, &plan.ops[step.op]);
        let y = op.output();
        let (dy_plane, channels) = (plan.values[y].gradient, plan.values[y].channels);
        let mut scratch = std::mem::take(&mut self.scratch);
        if let Op::Conv { conv, x, weight, bias, packed, .. } = op {
            let mut sums = std::mem::take(&mut self.sums[*packed]);
            let (x, d_y) = (self.slice(self.value(*x, chunk)), &self.slots[step.d_y][..]);
            // The bias follows the weights.
            let (weights, behind) = grad[weight.start..].split_at_mut(weight.len());
            let d_b = bias.as_ref().map(|bias| &mut behind[..bias.len()]);
            conv.weight_gradient(weights, d_b, (x, d_y), chunk.samples, (&mut sums, &mut scratch));
            self.sums[*packed] = sums;
        }
        for (target, x) in step.to.iter().zip(op.inputs()) {
            let (Some(target), Some(x)) = (target, x) else { continue };
            let to = target.detour.unwrap_or(target.slot);
            let mut buffer = std::mem::take(&mut self.slots[to]);
            let d_y: &[f32] = &self.slots[step.d_y];
            let dx_plane = plan.values[x].gradient;
            let count = groups * channels;
            let view = |id: ValueId| self.planes(plan, id, chunk);
            let d_out = Planes { data: d_y, plane: dy_plane };
            let d_x = PlanesMut { data: &mut buffer, plane: dx_plane };
            match op {
                Op::Conv { conv, packed, .. } => {
                    conv.input_gradient(d_x.data, d_y, &self.packed[*packed], chunk.samples, target.add, &mut scratch);
                }
                Op::Norm { norm, gamma, beta, stats, relu, .. } => {
                    let stats = &self.aux[*stats][self.aux_range(*stats, chunk)];
                    let (d_gamma, d_beta) = two(grad, gamma, beta);
                    let (relu, gamma) = (relu.then(|| (&params[beta.clone()], view(y).plane)), &params[gamma.clone()]);
                    let gradient = NormGradient { d_x, d_gamma, d_beta, d_y: d_out, relu, x: view(x), gamma };
                    match norm {
                        Norm::Group(norm) => group_norm::backward(isa, gradient, stats, *norm, groups),
                        Norm::Batch { .. } => batch_norm::backward(isa, gradient, stats, chunk.samples),
                    }
                }
                Op::Relu { .. } | Op::Add { relu: true, .. } => {
                    elementwise::relu_backward(isa, d_x, d_out, view(y), count);
                }
                Op::Add { relu: false, .. } => {
                    d_x.data[..count * dx_plane.area() * LANES].fill(0.0);
                    elementwise::add_to(isa, d_x, d_out, count);
                }
                Op::MaxPool { window, choice, .. } => {
                    let choice = Some(&self.aux[*choice][self.aux_range(*choice, chunk)]);
                    pool::backward(isa, PoolGradient { d_x, d_y: d_out, choice, count, window: *window });
                }
                Op::AveragePool { window, .. } => {
                    pool::backward(isa, PoolGradient { d_x, d_y: d_out, choice: None, count, window: *window });
                }
                Op::GlobalAverage { .. } => pool::global_backward(isa, d_x, d_y, count),
            }
            self.slots[to] = buffer;
            self.join(target, dx_plane, plan.values[x].channels, groups);
        }
        self.scratch = scratch;
    }

    fn planes(&self, plan: &CpuPlan, id: ValueId, chunk: Chunk) -> Planes<'_> {
        Planes { data: self.slice(self.value(id, chunk)), plane: plan.values[id].plane }
    }

    /// Adds a detour to the gradient it belongs to.
    fn join(&mut self, target: &GradientSlot, plane: Plane, channels: usize, groups: usize) {
        if let Some(detour) = target.detour {
            let mut sum = std::mem::take(&mut self.slots[target.slot]);
            let d = Planes { data: &self.slots[detour], plane };
            elementwise::add_to(self.isa, PlanesMut { data: &mut sum, plane }, d, channels * groups);
            self.slots[target.slot] = sum;
        }
    }
}

/// Running statistics, to be updated or only read.
enum Running<'a> {
    Training(&'a mut [f32], &'a mut [f32]),
    Evaluation(&'a [f32], &'a [f32]),
}

/// Calls `run` with the affine parameters and the running statistics, which are in the same buffer.
fn batch_norm_forward(
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
            // The four tensors are adjacent: weight, bias, running mean, running variance.
            let (affine, running) = params.split_at_mut(mean.start);
            let (mean, variance) = running[..variance.end - mean.start].split_at_mut(mean.len());
            run(&affine[gamma.clone()], &affine[beta.clone()], Running::Training(mean, variance));
        }
    }
}

/// Borrows two adjacent ranges of a buffer.
fn two<'a>(buffer: &'a mut [f32], first: &Range<usize>, second: &Range<usize>) -> (&'a mut [f32], &'a mut [f32]) {
    let (a, b) = buffer.split_at_mut(second.start);
    (&mut a[first.clone()], &mut b[..second.len()])
}
