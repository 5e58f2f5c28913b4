//! One operation of a model, forward and backward.

use std::ops::Range;

use fedelity_kernels::{NormGradient, Normalise, Plane, batch_norm, elementwise, group_norm, pool};

use super::{Chunk, Mode, Workspace};
use crate::plan::{Back, Norm, Op, Plan, Target, ValueId};

impl Workspace {
    /// One operation forward, for one chunk.
    pub(super) fn step(&mut self, plan: &Plan, op: &Op, mode: &mut Mode<'_>, chunk: Chunk) {
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
                let (y, x) = ((y, to.plane), (x, from));
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
                            let (channels, samples) = (to.channels, chunk.samples);
                            match running {
                                Running::Training(mean, variance) => {
                                    let running = (mean, variance);
                                    batch_norm::forward_training(
                                        isa, pass, stats_part, running, channels, groups, samples,
                                    );
                                }
                                Running::Evaluation(mean, variance) => {
                                    batch_norm::forward_evaluation(isa, pass, (mean, variance), channels, groups);
                                }
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
    pub(super) fn step_back(&mut self, plan: &Plan, step: &Back, params: &[f32], grad: &mut [f32], chunk: Chunk) {
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
                    let (relu_output, gamma) = (relu.then(|| view(y)), &params[gamma.clone()]);
                    let (d_x, d_y, x) = ((&mut buffer[..], dx_plane), (d_y, dy_plane), view(x));
                    let gradient = NormGradient { d_x, d_gamma, d_beta, d_y, relu_output, x, gamma };
                    match norm {
                        Norm::Group(norm) => group_norm::backward(isa, gradient, stats, *norm, groups),
                        Norm::Batch { .. } => {
                            batch_norm::backward(isa, gradient, stats, channels, groups, chunk.samples);
                        }
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
