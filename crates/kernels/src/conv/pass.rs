//! The building blocks of a convolution: taps, correlations over one source, and their weight order.

use std::ops::Range;

use crate::plane::Plane;
use crate::simd::LANES;

/// One tap of the kernel: its offset, and the outputs for which it reads inside the input.
#[derive(Clone, Debug)]
pub(super) struct Tap {
    pub(super) offset: usize,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// A dense correlation over a source with a zero border. All offsets are in floats.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) row_taps: Taps,
    pub(super) column_taps: Taps,
    pub(super) source: Walk,
    pub(super) target: Walk,
    pub(super) source_channels: usize,
    pub(super) target_channels: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// The kernel's taps along one axis: target position p reads source position `p * step + tap * sign + first`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taps {
    pub(super) count: usize,
    /// The kernel index of tap 0, and the step to the next: a phase uses every stride-th tap.
    pub(super) kernel_first: usize,
    pub(super) kernel_step: usize,
    pub(super) step: isize,
    pub(super) sign: isize,
    pub(super) first: isize,
    /// Source positions outside `0..limit` are in the border.
    pub(super) limit: isize,
    /// Floats from one tap to the next.
    pub(super) offset: isize,
}

impl Taps {
    pub(super) fn kernel(&self, tap: usize) -> usize {
        self.kernel_first + tap * self.kernel_step
    }

    /// The taps that read inside the source for at least one of the targets `p..p + n`.
    #[inline(always)]
    pub(super) fn inside(&self, p: usize, n: usize) -> Range<usize> {
        let (low, high) = (p as isize * self.step + self.first, (p + n - 1) as isize * self.step + self.first);
        let (from, to) = if self.sign > 0 { (-high, self.limit - low) } else { (low - self.limit + 1, high + 1) };
        let count = self.count as isize;
        from.clamp(0, count) as usize..to.clamp(0, count) as usize
    }
}

/// The strides of one side of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) base: usize,
    pub(super) group: usize,
    pub(super) channel: usize,
    pub(super) row: usize,
    pub(super) pixel: usize,
}

impl Pass {
    pub(super) fn weights(&self) -> usize {
        self.row_taps.count * self.column_taps.count * self.source_channels * self.target_channels
    }
}

pub(super) fn walk(plane: Plane, channels: usize) -> Walk {
    Walk {
        base: plane.origin() * LANES,
        group: channels * plane.area() * LANES,
        channel: plane.area() * LANES,
        row: plane.row() * LANES,
        pixel: LANES,
    }
}

/// Phase coordinates q whose pixel q * stride + phase - pad lies inside an input of `size` pixels.
pub(super) fn phase_range(phase: usize, stride: usize, pad: usize, size: usize) -> Range<usize> {
    let first = pad.saturating_sub(phase).div_ceil(stride);
    let end = (pad + size).saturating_sub(phase).div_ceil(stride);
    first..end.max(first)
}

/// The outputs along one axis for which a tap reads inside an input of `size` pixels.
pub(super) fn covered(tap: usize, stride: usize, pad: usize, size: usize, outputs: usize) -> Range<usize> {
    let first = pad.saturating_sub(tap).div_ceil(stride).min(outputs);
    let end = (size + pad).saturating_sub(tap).div_ceil(stride).min(outputs);
    first..end.max(first)
}

/// Splits channels into even blocks of at most `most`, chosen so that a tile has ten or twelve accumulators: enough to
/// hide the latency of a multiply-add, few enough for sixteen registers.
pub(super) fn blocks(channels: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = channels.div_ceil(most);
    let (size, larger) = (channels / count, channels % count);
    (0..count).map(move |i| size + usize::from(i < larger))
}

/// Packed order: block of target channels, source channel, tap, target channel within the block. `steps` are the
/// distances in weights from one source channel to the next, and from one target channel to the next.
pub(super) fn pack(packed: &mut [f32], pass: &Pass, kernel: usize, w: &[f32], steps: (usize, usize)) {
    let (mut at, mut first) = (0, 0);
    for block in blocks(pass.target_channels, 6) {
        for source in 0..pass.source_channels {
            for row in 0..pass.row_taps.count {
                for column in 0..pass.column_taps.count {
                    let tap = pass.row_taps.kernel(row) * kernel + pass.column_taps.kernel(column);
                    for target in first..first + block {
                        packed[at] = w[source * steps.0 + target * steps.1 + tap];
                        at += 1;
                    }
                }
            }
        }
        first += block;
    }
}
