//! 3x3 and 5x5 Winograd convolutions, with fewer multiplications (Lavin and Gray 2016).
//!
//! A tile of M x M neighbouring outputs is computed from a patch of P x P inputs: y = A' [(G g G') * (B' d B)] A. This
//! takes P x P products where the direct sum takes (M K)^2: 36 instead of 144 for 4x4 outputs of a 3x3 kernel. The same
//! patches give the gradient of the weights: G' [sum over patches of (A dy A') * (B' d B)] G.
//!
//! With few channels, the products saved do not pay for the transforms. Then only the columns are transformed: M
//! neighbours in one row are computed from P inputs in each of K rows, y = A' sum over rows of (G g) * (B' d), with P K
//! products instead of M K^2: 40 instead of 100 for four outputs of a 5x5 kernel.

mod gather;
mod patch;
mod patches;
mod product;
mod scheme;
mod weights;

use std::ops::Range;

use super::correlate::Start;
use super::pass::Walk;
use crate::simd::{HALF, Isa, LANES};
use gather::GatherProducts;
use patch::Patch;
use patches::{Filling, GradientPatches, InputPatches, OutputPatches, SKEW, Strip};
use product::Multiply;
pub(super) use weights::{Pack, Settle};

/// Bytes of transformed patches per strip, and the minimum number of patches. The weight gradient uses larger strips:
/// it reduces its lanes once per strip, however many patches the strip has.
const STRIP_BYTES: usize = 640 << 10;
const GRADIENT_BYTES: usize = 1400 << 10;
const STRIP_PATCHES: usize = 4;
/// Minimum speedup for Winograd to be used.
const GAIN: f64 = 1.15;
/// More transformed weights than this would be read from memory, for too few patches.
const MAX_WEIGHTS: usize = 256 * 256 * 36;

/// Sizes of the output tiles and kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchForm {
    /// F(2x2, 3x3)
    TwoOfThree,
    /// F(4x4, 3x3)
    FourOfThree,
    /// F(2x2, 5x5)
    TwoOfFive,
    /// F(2x4, 5x5)
    TwoByFourOfFive,
    /// F(4, 5) along the rows
    FourInLine,
}

/// Calls a generic function with the [`Patch`] type of a form.
macro_rules! with_patch {
    ($form:expr, $object:ident . $function:ident ( $($argument:expr),* )) => {{
        use $crate::conv::winograd::{PatchForm, patch};
        match $form {
            PatchForm::TwoOfThree => $object.$function::<patch::SquareTwoOfThree, _>($($argument),*),
            PatchForm::FourOfThree => $object.$function::<patch::SquareFourOfThree, _>($($argument),*),
            PatchForm::TwoOfFive => $object.$function::<patch::SquareTwoOfFive, _>($($argument),*),
            PatchForm::TwoByFourOfFive => $object.$function::<patch::TwoByFourOfFive, _>($($argument),*),
            PatchForm::FourInLine => $object.$function::<patch::LineFourOfFive, _>($($argument),*),
        }
    }};
}
use with_patch;

/// The dimensions of a form's patches.
#[derive(Clone, Copy, Debug)]
struct Sides {
    /// Rows and columns of the outputs.
    outputs: (usize, usize),
    /// Rows and columns of the inputs.
    inputs: (usize, usize),
    /// Kernel rows that remain to be summed over.
    taps: usize,
    /// Cost of transforming one element of a patch, in multiply-adds.
    transform: usize,
}

impl Sides {
    fn of<P: Patch>(transform: usize) -> Self {
        Self { outputs: P::OUTPUTS, inputs: P::INPUTS, taps: P::WEIGHTS.1 / P::WEIGHTS.0, transform }
    }
}

impl PatchForm {
    const ALL: [Self; 5] =
        [Self::TwoOfThree, Self::FourOfThree, Self::TwoOfFive, Self::TwoByFourOfFive, Self::FourInLine];

    fn sides(self) -> Sides {
        match self {
            Self::TwoOfThree => Sides::of::<patch::SquareTwoOfThree>(5),
            Self::FourOfThree => Sides::of::<patch::SquareFourOfThree>(5),
            Self::TwoOfFive => Sides::of::<patch::SquareTwoOfFive>(5),
            Self::TwoByFourOfFive => Sides::of::<patch::TwoByFourOfFive>(5),
            Self::FourInLine => Sides::of::<patch::LineFourOfFive>(4),
        }
    }

    /// Whether this form supports such a kernel and target.
    fn fits(self, kernel: usize, (height, width): (usize, usize)) -> bool {
        let Sides { outputs, inputs, .. } = self.sides();
        let whole = height.is_multiple_of(outputs.0) && width.is_multiple_of(outputs.1);
        let enough = match self {
            Self::FourOfThree => whole && height * width > 16,
            Self::FourInLine => width >= outputs.1,
            Self::TwoOfThree | Self::TwoOfFive | Self::TwoByFourOfFive => whole,
        };
        kernel == inputs.1 - outputs.1 + 1 && enough
    }
}

/// The correlation for which [`Winograd::fastest`] picks a form.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchTask {
    /// Source and target channels.
    pub(super) channels: (usize, usize),
    pub(super) kernel: usize,
    /// Rows and columns of the target.
    pub(super) target: (usize, usize),
    /// Rows of zeros above the source, and rows of the source.
    pub(super) source_rows: (usize, usize),
    /// Multiply-adds of the direct sum.
    pub(super) multiply_adds: usize,
}

/// A Winograd correlation of stride 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winograd {
    form: PatchForm,
    /// Rows and columns of patches.
    rows: usize,
    columns: usize,
    /// Columns of the target. If they are not a multiple of a patch's, the last patch starts early and overlaps.
    width: usize,
    /// The range of source rows outside the border: first, and one past the last.
    inside: (usize, usize),
    /// Source and target channels.
    sources: usize,
    targets: usize,
}

impl Winograd {
    /// The fastest form, if one is faster than the direct sum.
    pub(super) fn fastest(task: PatchTask) -> Option<Self> {
        let fitting = PatchForm::ALL.into_iter().filter(|form| form.fits(task.kernel, task.target));
        let found = fitting.map(|form| Self::new(form, task)).filter(|found| found.weights() <= MAX_WEIGHTS);
        let fastest = found.min_by_key(Self::work)?;
        (task.multiply_adds as f64 >= GAIN * fastest.work() as f64).then_some(fastest)
    }

    fn new(form: PatchForm, task: PatchTask) -> Self {
        let Sides { outputs, taps, .. } = form.sides();
        let (height, width) = task.target;
        let (rows, columns) = (height / outputs.0, width.div_ceil(outputs.1));
        let (above, source) = task.source_rows;
        // Border rows can be skipped only if kernel rows remain to be summed over.
        let inside = if taps > 1 { (above, above + source) } else { (0, usize::MAX) };
        let (sources, targets) = task.channels;
        Self { form, rows, columns, width, inside, sources, targets }
    }

    /// Approximate number of multiply-adds.
    fn work(&self) -> usize {
        let Sides { taps, transform, .. } = self.form.sides();
        let rows_of_taps = if taps == 1 {
            self.rows
        } else {
            (0..self.rows).map(|row| self.inside.1.min(row + taps).saturating_sub(self.inside.0.max(row))).sum()
        };
        let products = rows_of_taps * self.columns * self.parts() * self.sources * self.targets;
        products + self.rows * self.columns * self.parts() * transform * (self.sources + self.targets)
    }

    fn parts(&self) -> usize {
        let (rows, columns) = self.form.sides().inputs;
        rows * columns
    }

    fn taps(&self) -> usize {
        self.form.sides().taps
    }

    /// Length in floats of the transformed weights, and of the accumulator of their gradient.
    pub(super) fn weights(&self) -> usize {
        self.parts() * self.taps() * self.sources * self.targets
    }

    /// Scratch floats that a pass needs.
    pub(super) fn scratch(&self) -> usize {
        let (whole, half) =
            (self.strip_rows(STRIP_BYTES).max(self.strip_rows(GRADIENT_BYTES)), self.strip_rows(2 * STRIP_BYTES));
        let vectors = |rows: usize, together: usize| {
            let patches = |rows: usize| (rows * self.columns).div_ceil(together);
            self.sources * patches(rows + self.taps() - 1) + self.targets.next_multiple_of(2) * patches(rows)
        };
        self.parts() * (vectors(whole, 1).max(vectors(half, 2)) * LANES + 2 * SKEW)
    }

    /// Rows of patches per strip. With square patches, a strip may span several groups.
    fn strip_rows(&self, bytes: usize) -> usize {
        let patch = self.parts() * (self.sources + self.targets) * LANES * size_of::<f32>();
        let rows = (bytes / patch).max(STRIP_PATCHES).div_ceil(self.columns).max(1);
        if self.taps() == 1 { rows } else { self.rows.div_ceil(self.rows.div_ceil(rows)) }
    }

    /// The first row of patches and the number of rows of every strip of these groups.
    fn strips(&self, groups: Range<usize>, bytes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (step, one, before) = (self.strip_rows(bytes), self.taps() == 1, groups.start * self.rows);
        let (parts, rows) = if one { (1, groups.len() * self.rows) } else { (groups.len(), self.rows) };
        (0..parts).flat_map(move |part| {
            (0..rows).step_by(step).map(move |first| (before + part * rows + first, step.min(rows - first)))
        })
    }
}

/// The number of groups whose vectors hold more than half of the samples: all, or all but the last.
fn whole_groups(samples: usize) -> usize {
    samples / LANES + usize::from(samples % LANES > HALF)
}

/// The forward pass, or the input gradient with the sides swapped.
pub(super) struct PatchCorrelate<'a> {
    pub(super) shape: &'a Winograd,
    pub(super) target: &'a mut [f32],
    pub(super) to: Walk,
    pub(super) source: &'a [f32],
    /// Starts at the first pixel of the border.
    pub(super) from: Walk,
    pub(super) packed: &'a [f32],
    pub(super) start: Start<'a>,
    pub(super) samples: usize,
    pub(super) scratch: &'a mut [f32],
}

impl PatchCorrelate<'_> {
    pub(super) fn run(self, isa: Isa) {
        let Self { shape, target, to, source, from, packed, start, samples, scratch } = self;
        let (whole, groups) = (whole_groups(samples), samples.div_ceil(LANES));
        let strips = shape.strips(0..whole, STRIP_BYTES).map(|rows| (rows, Filling::Samples));
        let halves = shape.strips(whole..groups, 2 * STRIP_BYTES).map(|rows| (rows, Filling::Patches));
        for (rows, filling) in strips.chain(halves) {
            let before = Strip::sources(shape, from, rows).filled(filling);
            let after = Strip::targets(shape, to, rows).filled(filling);
            let (v, m) = scratch.split_at_mut(shape.parts() * before.step());
            isa.run(InputPatches { strip: before, v, source });
            isa.run(Multiply { m, v, w: packed, before, after });
            isa.run(OutputPatches { strip: after, target, m, start });
        }
    }
}

/// sums `[part][tap][in][out]` += the transformed gradient of the weights, over all groups.
pub(super) struct PatchWeightGradient<'a> {
    pub(super) shape: &'a Winograd,
    pub(super) sums: &'a mut [f32],
    pub(super) x: &'a [f32],
    /// Starts at the first pixel of the border.
    pub(super) from: Walk,
    pub(super) d_y: &'a [f32],
    pub(super) gradient: Walk,
    pub(super) samples: usize,
    pub(super) scratch: &'a mut [f32],
}

impl PatchWeightGradient<'_> {
    pub(super) fn run(self, isa: Isa) {
        let Self { shape, sums, x, from, d_y, gradient, samples, scratch } = self;
        let whole = whole_groups(samples) * shape.rows;
        // The strips decide the order of the sums, so one that begins in a whole group stays as it is.
        for rows in shape.strips(0..samples.div_ceil(LANES), GRADIENT_BYTES) {
            let (mut before, mut after) = (Strip::sources(shape, from, rows), Strip::targets(shape, gradient, rows));
            if rows.0 >= whole {
                (before, after) = (before.filled(Filling::Patches), after.filled(Filling::Channels));
            } else if isa.pairs() {
                after = after.filled(Filling::Pairs);
            }
            let (v, u) = scratch.split_at_mut(shape.parts() * before.step());
            isa.run(InputPatches { strip: before, v, source: x });
            isa.run(GradientPatches { strip: after, u, gradient: d_y });
            isa.run(GatherProducts { sums, u, v, before, after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(channels: (usize, usize), kernel: usize, side: usize, pad: usize) -> Option<PatchForm> {
        let made = side + 2 * pad + 1 - kernel;
        let multiply_adds = channels.0 * channels.1 * kernel * kernel * made * made;
        let task = PatchTask { channels, kernel, target: (made, made), source_rows: (pad, side), multiply_adds };
        Winograd::fastest(task).map(|found| found.form)
    }

    #[test]
    fn few_channels_use_lines_and_many_use_squares() {
        assert_eq!(form((3, 6), 5, 32, 0), Some(PatchForm::FourInLine));
        assert_eq!(form((6, 16), 5, 14, 0), Some(PatchForm::FourInLine));
        assert_eq!(form((32, 64), 5, 14, 0), Some(PatchForm::TwoOfFive));
        assert_eq!(form((32, 64), 5, 16, 2), Some(PatchForm::TwoByFourOfFive));
        assert_eq!(form((64, 64), 3, 32, 1), Some(PatchForm::FourOfThree));
        assert_eq!(form((64, 64), 3, 6, 1), Some(PatchForm::TwoOfThree));
        assert_eq!(form((3, 6), 7, 32, 0), None);
        assert_eq!(form((1, 1), 5, 28, 0), None);
    }
}
