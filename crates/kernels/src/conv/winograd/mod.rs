//! Convolutions of many channels with fewer multiplications (Lavin and Gray 2016).
//!
//! A square of M x M neighbouring outputs comes from a patch of P x P inputs: y = A' [(G g G') * (B' d B)] A, with P x P
//! products where the plain sum has (M K)^2: 36 instead of 144 for four by four outputs of a 3x3 kernel. The same patches
//! give the gradient of the weights: G' [sum over patches of (A dy A') * (B' d B)] G.

mod patches;
mod product;
mod scheme;
mod weights;

use super::correlate::Start;
use super::pass::Walk;
use crate::simd::Isa;
use patches::{Gradients, Inputs, Outputs, SKEW, Strip};
use product::{Gather, Multiply};
use scheme::{FourOfThree, TwoOfFive, TwoOfThree};
pub(super) use weights::{Pack, Settle};

/// Bytes of transformed patches that are worked on at a time, and how many patches at least. The weight gradient takes
/// more at a time: whatever the number of patches, each sum over lanes ends once a strip.
const STRIP_BYTES: usize = 640 << 10;
const GRADIENT_BYTES: usize = 1400 << 10;
const STRIP_PATCHES: usize = 4;
/// What it costs to transform one number of a patch, in multiply-adds, and what patches must save to be worth it.
const TRANSFORM: usize = 5;
const GAIN: f64 = 1.25;
/// Above this many transformed weights they would come from memory, for too few patches.
const MAX_WEIGHTS: usize = 256 * 256 * 36;

/// Which outputs come from which patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// F(2x2, 3x3)
    TwoOfThree,
    /// F(4x4, 3x3)
    FourOfThree,
    /// F(2x2, 5x5)
    TwoOfFive,
}

/// Calls a generic function with the scheme of a form.
macro_rules! with_scheme {
    ($form:expr, $object:ident . $function:ident ( $($argument:expr),* )) => {
        match $form {
            $crate::conv::winograd::Form::TwoOfThree => {
                $object.$function::<$crate::conv::winograd::TwoOfThree, 4, 2, 3, _>($($argument),*)
            }
            $crate::conv::winograd::Form::FourOfThree => {
                $object.$function::<$crate::conv::winograd::FourOfThree, 6, 4, 3, _>($($argument),*)
            }
            $crate::conv::winograd::Form::TwoOfFive => {
                $object.$function::<$crate::conv::winograd::TwoOfFive, 6, 2, 5, _>($($argument),*)
            }
        }
    };
}
use with_scheme;

impl Form {
    /// Outputs and inputs of a patch along one axis.
    fn sides(self) -> (usize, usize) {
        match self {
            Self::TwoOfThree => (2, 4),
            Self::FourOfThree => (4, 6),
            Self::TwoOfFive => (2, 6),
        }
    }
}

/// A correlation that is done by patches: stride 1, whole patches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winograd {
    form: Form,
    /// Rows and columns of patches.
    rows: usize,
    columns: usize,
    lanes: usize,
    /// Channels that are read, and that are made.
    sources: usize,
    targets: usize,
}

impl Winograd {
    /// `height` and `width` are those of the target.
    pub(super) fn new(
        (sources, targets): (usize, usize),
        (kernel, stride): (usize, usize),
        (height, width): (usize, usize),
        lanes: usize,
    ) -> Option<Self> {
        let by = |n: usize| height.is_multiple_of(n) && width.is_multiple_of(n);
        let form = match (kernel, stride) {
            (3, 1) if by(4) && height * width > 16 => Form::FourOfThree,
            (3, 1) if by(2) => Form::TwoOfThree,
            (5, 1) if by(2) => Form::TwoOfFive,
            _ => return None,
        };
        let side = form.sides().0;
        Some(Self { form, rows: height / side, columns: width / side, lanes, sources, targets })
    }

    /// Whether this is faster than a plain correlation of so many multiply-adds.
    pub(super) fn pay(&self, multiply_adds: usize) -> bool {
        let transforms = TRANSFORM * self.parts() * (self.sources + self.targets);
        let work = self.rows * self.columns * (self.weights() + transforms);
        self.weights() <= MAX_WEIGHTS && multiply_adds as f64 >= GAIN * work as f64
    }

    fn parts(&self) -> usize {
        self.form.sides().1.pow(2)
    }

    /// Floats of the transformed weights, and of the sums of their gradient.
    pub(super) fn weights(&self) -> usize {
        self.parts() * self.sources * self.targets
    }

    /// Floats of memory that a pass works in.
    pub(super) fn scratch(&self) -> usize {
        let channels = self.sources + self.targets;
        let rows = self.strip_rows(STRIP_BYTES).max(self.strip_rows(GRADIENT_BYTES));
        self.parts() * (channels * rows * self.columns * self.lanes + 2 * SKEW)
    }

    /// Rows of patches that are worked on at a time; they may belong to several groups.
    fn strip_rows(&self, bytes: usize) -> usize {
        let patch = self.parts() * (self.sources + self.targets) * self.lanes * size_of::<f32>();
        (bytes / patch).max(STRIP_PATCHES).div_ceil(self.columns).max(1)
    }

    /// The first row of patches of every strip, and how many.
    fn strips(&self, groups: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (all, step) = (groups * self.rows, self.strip_rows(bytes));
        (0..all).step_by(step).map(move |first| (first, step.min(all - first)))
    }
}

/// The forward pass, or the input gradient with the sides swapped.
pub(super) struct Correlate<'a> {
    pub(super) shape: &'a Winograd,
    pub(super) target: &'a mut [f32],
    pub(super) to: Walk,
    pub(super) source: &'a [f32],
    /// From the first pixel of the border.
    pub(super) from: Walk,
    pub(super) packed: &'a [f32],
    pub(super) start: Start<'a>,
    pub(super) groups: usize,
    pub(super) scratch: &'a mut [f32],
}

impl Correlate<'_> {
    pub(super) fn run(self, isa: Isa) {
        let Self { shape, target, to, source, from, packed, start, groups, scratch } = self;
        let &Winograd { sources, targets, .. } = shape;
        for rows in shape.strips(groups, STRIP_BYTES) {
            let before = Strip { shape, walk: from, channels: sources, rows };
            let after = Strip { shape, walk: to, channels: targets, rows };
            let (parts, patches, steps) = (shape.parts(), before.patches(), (after.step(), before.step()));
            let (v, m) = scratch.split_at_mut(parts * before.step());
            isa.run(Inputs { strip: before, v, source });
            isa.run(Multiply { m, v, w: packed, parts, sources, targets, patches, steps });
            isa.run(Outputs { strip: after, target, m, start });
        }
    }
}

/// sums `[part][out][in]` += the transformed gradient of the weights, over all groups.
pub(super) struct WeightGradient<'a> {
    pub(super) shape: &'a Winograd,
    pub(super) sums: &'a mut [f32],
    pub(super) x: &'a [f32],
    /// From the first pixel of the border.
    pub(super) from: Walk,
    pub(super) d_y: &'a [f32],
    pub(super) gradient: Walk,
    pub(super) groups: usize,
    pub(super) scratch: &'a mut [f32],
}

impl WeightGradient<'_> {
    pub(super) fn run(self, isa: Isa) {
        let Self { shape, sums, x, from, d_y, gradient, groups, scratch } = self;
        let (inputs, outputs) = (shape.sources, shape.targets);
        for rows in shape.strips(groups, GRADIENT_BYTES) {
            let before = Strip { shape, walk: from, channels: inputs, rows };
            let after = Strip { shape, walk: gradient, channels: outputs, rows };
            let (parts, patches, steps) = (shape.parts(), before.patches(), (after.step(), before.step()));
            let (v, u) = scratch.split_at_mut(parts * before.step());
            isa.run(Inputs { strip: before, v, source: x });
            isa.run(Gradients { strip: after, u, gradient: d_y });
            isa.run(Gather { sums, u, v, parts, inputs, outputs, patches, steps });
        }
    }
}
