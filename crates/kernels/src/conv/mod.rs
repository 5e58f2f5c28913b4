//! Direct convolution: output, input gradient and weight gradient.
//!
//! The input is never unfolded (no im2col). A tile of output channels by neighbouring pixels stays in registers while
//! the loop runs over input channels and kernel taps; one vector holds the same pixel of several samples.
//!
//! The input gradient of a strided convolution is split by phase: input pixels whose row and column have the same
//! remainder modulo the stride see the same subset of taps, so each phase is a dense correlation over the output
//! gradient, and no work is spent on the zeros between its pixels.
//!
//! Most 3x3 and 5x5 convolutions use Winograd instead, with fewer multiplications (`winograd/`).

mod correlate;
mod pass;
mod weight;
mod winograd;

use crate::plane::Plane;
use crate::simd::{Isa, LANES};
use crate::window::Window;
use correlate::{Correlate, Start, tile_width};
use pass::{Pass, Tap, Taps, Walk, blocks, covered, pack, phase_range, walk};
use weight::{BiasGradient, WeightGradient};
use winograd::{PatchTask, Winograd};

const PAGE_BYTES: usize = 4096;

/// A convolution: its geometry and the tables its kernels use.
#[derive(Clone, Debug)]
pub struct Conv {
    isa: Isa,
    in_channels: usize,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    /// The input, with a halo of at least `pad`.
    input: Plane,
    /// The output, with the halo its readers need.
    output: Plane,
    /// The gradient of the output, with the halo the input gradient needs.
    output_gradient: Plane,
    forward: Pass,
    backward: Vec<Pass>,
    /// The kernel's taps, row by row.
    taps: Vec<Tap>,
    /// Set if the output and the weight gradient use Winograd.
    patches: Option<Winograd>,
    /// Set if the input gradient uses Winograd.
    backward_patches: Option<Winograd>,
}

impl Conv {
    /// A convolution with a square kernel. Returns `None` unless `input` has a halo of at least `pad` and the kernel
    /// fits into the padded input. `output_halo` is the halo the readers of the output need.
    #[must_use]
    pub fn new(
        isa: Isa,
        (in_channels, out_channels): (usize, usize),
        Window { kernel, stride, pad }: Window,
        input: Plane,
        output_halo: usize,
    ) -> Option<Self> {
        let (height, width) = output_size(input, kernel, stride, pad)?;
        if in_channels == 0 || out_channels == 0 || input.halo < pad {
            return None;
        }
        let output = Plane { height, width, halo: output_halo };
        // A tile skips taps that none of its pixels needs; the remaining ones reach past the edge by less than its
        // width.
        let reach = blocks(in_channels, 6).map(|block| tile_width(block) - 1).max().unwrap_or(0);
        let multiply_adds = in_channels * out_channels * kernel * kernel * output.pixels();
        let patches = |channels, target, source_rows| {
            let task = PatchTask { channels, kernel, target, source_rows, multiply_adds };
            if stride == 1 { Winograd::fastest(task) } else { None }
        };
        let border = kernel.checked_sub(1 + pad);
        let backward_patches = border
            .and_then(|border| patches((out_channels, in_channels), (input.height, input.width), (border, height)));
        let patches = patches((in_channels, out_channels), (height, width), (pad, input.height));
        let halo = match (backward_patches, border) {
            (Some(_), Some(border)) => border,
            _ => gradient_halo(input, output, kernel, stride, pad).min(reach),
        };
        let output_gradient = output.with_halo(halo);
        let corner = input.origin() - pad * (input.row() + 1);
        let source = Walk {
            base: corner * LANES,
            group: in_channels * input.area() * LANES,
            channel: input.area() * LANES,
            row: stride * input.row() * LANES,
            pixel: stride * LANES,
        };
        let taps = |limit: usize, offset: usize| Taps {
            count: kernel,
            kernel_first: 0,
            kernel_step: 1,
            step: stride as isize,
            sign: 1,
            first: -(pad as isize),
            limit: limit as isize,
            offset: (offset * LANES) as isize,
        };
        let forward = Pass {
            row_taps: taps(input.height, input.row()),
            column_taps: taps(input.width, 1),
            source,
            target: walk(output, out_channels),
            source_channels: in_channels,
            target_channels: out_channels,
            rows: height,
            columns: width,
        };
        let mut conv = Self {
            isa,
            in_channels,
            out_channels,
            kernel,
            stride,
            pad,
            input,
            output,
            output_gradient,
            taps: (0..kernel * kernel)
                .map(|tap| Tap {
                    offset: (tap / kernel * input.row() + tap % kernel) * LANES,
                    rows: covered(tap / kernel, stride, pad, input.height, height),
                    columns: covered(tap % kernel, stride, pad, input.width, width),
                })
                .collect(),
            forward,
            backward: Vec::new(),
            patches,
            backward_patches,
        };
        for row_phase in 0..stride {
            for column_phase in 0..stride {
                conv.backward.extend(conv.phase(row_phase, column_phase, input.with_halo(0)));
            }
        }
        Some(conv)
    }

    /// The same convolution without an input gradient; its output gradient needs no halo.
    #[must_use]
    pub fn without_input_gradient(mut self) -> Self {
        self.backward.clear();
        self.backward_patches = None;
        self.output_gradient.halo = 0;
        if (self.output_gradient.area() * LANES * size_of::<f32>()).is_multiple_of(PAGE_BYTES) {
            // Channels spaced by a multiple of a page would compete for a few sets of the L1 cache.
            self.output_gradient.halo = 1;
        }
        self
    }

    /// The same convolution, writing its input gradient into planes with this halo.
    #[must_use]
    pub fn with_input_gradient_halo(mut self, halo: usize) -> Self {
        let target = self.input.with_halo(halo);
        self.backward = (0..self.stride * self.stride)
            .filter_map(|phase| self.phase(phase / self.stride, phase % self.stride, target))
            .collect();
        self
    }

    /// The correlation that gives the input gradient at rows and columns of one phase (remainder modulo the stride).
    fn phase(&self, row_phase: usize, column_phase: usize, target: Plane) -> Option<Pass> {
        let (s, pad) = (self.stride, self.pad);
        let rows = phase_range(row_phase, s, pad, self.input.height);
        let columns = phase_range(column_phase, s, pad, self.input.width);
        if rows.is_empty() || columns.is_empty() {
            return None;
        }
        let gradient = self.output_gradient;
        let taps = |phase: usize, first: usize, limit: usize, offset: usize| Taps {
            count: self.kernel.saturating_sub(phase).div_ceil(s),
            kernel_first: phase,
            kernel_step: s,
            step: 1,
            sign: -1,
            first: first as isize,
            limit: limit as isize,
            offset: -((offset * LANES) as isize),
        };
        let row_taps = taps(row_phase, rows.start, gradient.height, gradient.row());
        let column_taps = taps(column_phase, columns.start, gradient.width, 1);
        let first_row = rows.start * s + row_phase - pad;
        let first_column = columns.start * s + column_phase - pad;
        let mut source = walk(gradient, self.out_channels);
        source.base += (rows.start * gradient.row() + columns.start) * LANES;
        let mut to = walk(target, self.in_channels);
        to.base += (first_row * target.row() + first_column) * LANES;
        to.row *= s;
        to.pixel *= s;
        Some(Pass {
            row_taps,
            column_taps,
            source,
            target: to,
            source_channels: self.out_channels,
            target_channels: self.in_channels,
            rows: rows.len(),
            columns: columns.len(),
        })
    }

    /// The plane of the output.
    #[must_use]
    pub fn output(&self) -> Plane {
        self.output
    }

    /// The plane of the output gradient. Its halo must hold zeros.
    #[must_use]
    pub fn output_gradient(&self) -> Plane {
        self.output_gradient
    }

    /// Number of weights: `[out][in][row][column]`.
    #[must_use]
    pub fn weights(&self) -> usize {
        self.out_channels * self.in_channels * self.kernel * self.kernel
    }

    /// Multiply-adds of the forward pass for one sample. Each of the two gradients takes the same number.
    #[must_use]
    pub fn multiply_adds(&self) -> usize {
        self.weights() * self.output.pixels()
    }

    /// Length in floats of the weights packed by [`Conv::pack_forward`] and [`Conv::pack_backward`].
    #[must_use]
    pub fn packed(&self) -> usize {
        self.all_patches().map(|patches| patches.weights()).fold(self.weights(), usize::max)
    }

    /// Scratch floats that every pass needs.
    #[must_use]
    pub fn scratch(&self) -> usize {
        self.all_patches().map(|patches| patches.scratch()).max().unwrap_or(0)
    }

    fn all_patches(&self) -> impl Iterator<Item = &Winograd> {
        self.patches.iter().chain(&self.backward_patches)
    }

    /// Length in floats of the accumulator of [`Conv::weight_gradient`].
    #[must_use]
    pub fn sums(&self) -> usize {
        self.patches.map_or(0, |patches| patches.weights())
    }

    /// Reorders the weights for [`Conv::forward`].
    pub fn pack_forward(&self, packed: &mut [f32], w: &[f32]) {
        assert!(packed.len() >= self.packed() && w.len() >= self.weights());
        let taps = self.kernel * self.kernel;
        let steps = (taps, self.in_channels * taps);
        match self.patches {
            Some(patches) => self.isa.run(winograd::Pack { patches, packed, w, steps, turned: false }),
            None => pack(packed, &self.forward, self.kernel, w, steps),
        }
    }

    /// Reorders the weights for [`Conv::input_gradient`].
    pub fn pack_backward(&self, packed: &mut [f32], w: &[f32]) {
        assert!(packed.len() >= self.packed() && w.len() >= self.weights());
        let taps = self.kernel * self.kernel;
        let steps = (self.in_channels * taps, taps);
        if let Some(patches) = self.backward_patches {
            return self.isa.run(winograd::Pack { patches, packed, w, steps, turned: true });
        }
        let mut rest = packed;
        for pass in &self.backward {
            let (part, tail) = rest.split_at_mut(pass.weights());
            pack(part, pass, self.kernel, w, steps);
            rest = tail;
        }
    }

    /// y = w * x + bias for `samples` samples; what lies in lanes without one does not matter. `packed` comes from
    /// [`Conv::pack_forward`].
    pub fn forward(
        &self,
        y: &mut [f32],
        x: &[f32],
        packed: &[f32],
        bias: Option<&[f32]>,
        samples: usize,
        scratch: &mut [f32],
    ) {
        let groups = samples.div_ceil(LANES);
        let start = match bias {
            Some(bias) => {
                assert!(bias.len() >= self.out_channels);
                Start::Bias(bias)
            }
            None => Start::Zero,
        };
        self.check(x, y, groups, self.output);
        assert!(packed.len() >= self.packed() && scratch.len() >= self.scratch());
        let pass = &self.forward;
        match &self.patches {
            Some(shape) => winograd::PatchCorrelate {
                shape,
                target: y,
                to: pass.target,
                source: x,
                from: pass.source,
                packed,
                start,
                samples,
                scratch,
            }
            .run(self.isa),
            None => self.isa.run(Correlate { pass, target: y, source: x, packed, start, groups }),
        }
    }

    /// dx = the gradient of the input, or dx += it. The halo of `d_y` and its lanes without a sample must hold zeros, which
    /// the latter then do in `dx` too; `dx` has the halo set by
    /// [`Conv::with_input_gradient_halo`]. `packed` comes from [`Conv::pack_backward`].
    pub fn input_gradient(
        &self,
        d_x: &mut [f32],
        d_y: &[f32],
        packed: &[f32],
        samples: usize,
        add: bool,
        scratch: &mut [f32],
    ) {
        let groups = samples.div_ceil(LANES);
        assert!(packed.len() >= self.packed() && scratch.len() >= self.scratch());
        assert!(d_y.len() >= groups * self.out_channels * self.output_gradient.area() * LANES);
        let start = if add { Start::Target } else { Start::Zero };
        if let (Some(shape), Some(pass)) = (&self.backward_patches, self.backward.first()) {
            assert!(d_x.len() >= groups * pass.target.group);
            return winograd::PatchCorrelate {
                shape,
                target: d_x,
                to: pass.target,
                source: d_y,
                from: self.gradient_corner(),
                packed,
                start,
                samples,
                scratch,
            }
            .run(self.isa);
        }
        let mut rest = packed;
        for pass in &self.backward {
            assert!(d_x.len() >= groups * pass.target.group);
            let (part, tail) = rest.split_at(pass.weights());
            if add && part.is_empty() {
                continue;
            }
            self.isa.run(Correlate { pass, target: d_x, source: d_y, packed: part, start, groups });
            rest = tail;
        }
    }

    /// Accumulates the gradient of the weights over all samples in dw and `sums`; [`Conv::settle`] completes dw. db +=
    /// the sum of the output gradient over samples and pixels. `sums` must initially hold zeros.
    pub fn weight_gradient(
        &self,
        d_w: &mut [f32],
        d_b: Option<&mut [f32]>,
        (x, d_y): (&[f32], &[f32]),
        samples: usize,
        (sums, scratch): (&mut [f32], &mut [f32]),
    ) {
        let groups = samples.div_ceil(LANES);
        assert!(d_w.len() >= self.weights() && d_b.as_ref().is_none_or(|d_b| d_b.len() >= self.out_channels));
        assert!(sums.len() >= self.sums() && scratch.len() >= self.scratch());
        self.check(x, d_y, groups, self.output_gradient);
        let Some(shape) = &self.patches else {
            return self.isa.run(WeightGradient { conv: self, d_w, d_b, x, d_y, groups });
        };
        let gradient = walk(self.output_gradient, self.out_channels);
        let from = self.forward.source;
        winograd::PatchWeightGradient { shape, sums, x, from, d_y, gradient, samples, scratch }.run(self.isa);
        if let Some(d_b) = d_b {
            let d_b = &mut d_b[..self.out_channels];
            self.isa.run(BiasGradient { d_b, d_y, plane: self.output_gradient, groups });
        }
    }

    /// Adds the accumulator `sums` of [`Conv::weight_gradient`] to dw and clears it.
    pub fn settle(&self, d_w: &mut [f32], sums: &mut [f32]) {
        assert!(d_w.len() >= self.weights() && sums.len() >= self.sums());
        if let Some(patches) = &self.patches {
            self.isa.run(winograd::Settle { patches: *patches, d_w, sums });
            sums.fill(0.0);
        }
    }

    /// The output gradient, starting at the first border pixel that Winograd patches read.
    fn gradient_corner(&self) -> Walk {
        let mut walk = walk(self.output_gradient, self.out_channels);
        walk.base -= (self.kernel - 1 - self.pad) * (walk.row + walk.pixel);
        walk
    }

    fn check(&self, x: &[f32], y: &[f32], groups: usize, y_plane: Plane) {
        assert!(x.len() >= groups * self.in_channels * self.input.area() * LANES, "input buffer too small");
        assert!(y.len() >= groups * self.out_channels * y_plane.area() * LANES, "output buffer too small");
    }
}

/// Rows and columns of the output; `None` if it is empty.
fn output_size(input: Plane, kernel: usize, stride: usize, pad: usize) -> Option<(usize, usize)> {
    if kernel == 0 || stride == 0 {
        return None;
    }
    let side = |n: usize| Some((n + 2 * pad).checked_sub(kernel)? / stride + 1);
    Some((side(input.height)?, side(input.width)?))
}

/// How far the input gradient reaches past the edge of the output gradient.
fn gradient_halo(input: Plane, output: Plane, kernel: usize, stride: usize, pad: usize) -> usize {
    let side = |size: usize, out: usize| {
        let before = (kernel - 1) / stride;
        let after = ((pad + size - 1) / stride + 1).saturating_sub(out);
        before.max(after)
    };
    side(input.height, output.height).max(side(input.width, output.width))
}
