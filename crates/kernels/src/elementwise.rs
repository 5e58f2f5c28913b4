//! Operations on one element at a time: ReLU, sums of activations, and what optimisers and the aggregation need.

#![allow(clippy::too_many_arguments, reason = "a kernel takes each buffer with its plane")]

use std::marker::PhantomData;

use pulp::Simd;

use crate::lines::{Lines, Source, Target, clear_border, masked, relu};
use crate::plane::Plane;
use crate::simd::{Isa, Kernel, load, store};

pub use crate::optimise::{accumulate, adam_step, axpy, dot, sgd_step, squared_distance, squared_norm};

/// A function of two vectors.
trait Combination {
    fn apply<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s;
}

struct Add;
struct AddRelu;
struct Mask;

impl Combination for Add {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.add_f32s(a, b)
    }
}

impl Combination for AddRelu {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        relu(simd, simd.add_f32s(a, b))
    }
}

impl Combination for Mask {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        masked(simd, a, b)
    }
}

struct Combine<C> {
    y: Target,
    a: Source,
    b: Source,
    lines: Lines,
    planes: usize,
    function: PhantomData<C>,
}

impl<C: Combination> Kernel for Combine<C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for plane in 0..self.planes {
            for line in 0..self.lines.count {
                // SAFETY: `Source` and `Target` checked the buffers.
                unsafe {
                    let y = self.y.line(plane, line);
                    let (a, b) = (self.a.line(plane, line), self.b.line(plane, line));
                    for at in (0..self.lines.pixels * S::F32_LANES).step_by(S::F32_LANES) {
                        store::<S>(y.add(at), C::apply(simd, load::<S>(a.add(at)), load::<S>(b.add(at))));
                    }
                }
            }
        }
    }
}

struct Relu {
    y: Target,
    x: Source,
    lines: Lines,
    planes: usize,
}

impl Kernel for Relu {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for plane in 0..self.planes {
            for line in 0..self.lines.count {
                // SAFETY: `Source` and `Target` checked the buffers.
                unsafe {
                    let (y, x) = (self.y.line(plane, line), self.x.line(plane, line));
                    for at in (0..self.lines.pixels * S::F32_LANES).step_by(S::F32_LANES) {
                        store::<S>(y.add(at), relu(simd, load::<S>(x.add(at))));
                    }
                }
            }
        }
    }
}

/// y = max(x, 0) on `[group][channel][row][column][lane]`. NaN stays NaN.
pub fn relu_forward(
    isa: Isa,
    y: &mut [f32],
    y_plane: Plane,
    x: &[f32],
    x_plane: Plane,
    channels: usize,
    groups: usize,
) {
    let (lanes, planes) = (isa.lanes(), groups * channels);
    isa.run(Relu {
        y: Target::new(y, y_plane, planes, lanes),
        x: Source::new(x, x_plane, planes, lanes),
        lines: Lines::of(&[y_plane, x_plane]),
        planes,
    });
}

/// d_x = d_y where y > 0, else 0, on `[group][channel][row][column][lane]`. Clears the border of d_x.
pub fn relu_backward(
    isa: Isa,
    d_x: &mut [f32],
    dx_plane: Plane,
    d_y: &[f32],
    dy_plane: Plane,
    y: &[f32],
    y_plane: Plane,
    channels: usize,
    groups: usize,
) {
    let (lanes, planes) = (isa.lanes(), groups * channels);
    clear_border(isa, d_x, dx_plane, planes);
    isa.run(Combine::<Mask> {
        y: Target::new(d_x, dx_plane, planes, lanes),
        a: Source::new(d_y, dy_plane, planes, lanes),
        b: Source::new(y, y_plane, planes, lanes),
        lines: Lines::of(&[dx_plane, dy_plane, y_plane]),
        planes,
        function: PhantomData,
    });
}

/// y = relu?(a + b) on `[group][channel][row][column][lane]`.
pub fn add_forward(
    isa: Isa,
    y: &mut [f32],
    y_plane: Plane,
    a: &[f32],
    a_plane: Plane,
    b: &[f32],
    b_plane: Plane,
    channels: usize,
    groups: usize,
    relu: bool,
) {
    let (lanes, planes) = (isa.lanes(), groups * channels);
    let y = Target::new(y, y_plane, planes, lanes);
    let a = Source::new(a, a_plane, planes, lanes);
    let b = Source::new(b, b_plane, planes, lanes);
    let lines = Lines::of(&[y_plane, a_plane, b_plane]);
    if relu {
        isa.run(Combine::<AddRelu> { y, a, b, lines, planes, function: PhantomData });
    } else {
        isa.run(Combine::<Add> { y, a, b, lines, planes, function: PhantomData });
    }
}

/// d_x += d_y on `[group][channel][row][column][lane]`, without the borders.
pub fn add_to(
    isa: Isa,
    d_x: &mut [f32],
    dx_plane: Plane,
    d_y: &[f32],
    dy_plane: Plane,
    channels: usize,
    groups: usize,
) {
    let (lanes, planes) = (isa.lanes(), groups * channels);
    let y = Target::new(d_x, dx_plane, planes, lanes);
    isa.run(Combine::<Add> {
        y,
        a: Source { x: y.x, steps: y.steps },
        b: Source::new(d_y, dy_plane, planes, lanes),
        lines: Lines::of(&[dx_plane, dy_plane]),
        planes,
        function: PhantomData,
    });
}

/// x = max(x, 0) on rows. NaN stays NaN.
pub fn relu_rows(x: &mut [f32]) {
    for v in x {
        *v = if *v < 0.0 { 0.0 } else { *v };
    }
}

/// d = 0 where y <= 0, on rows.
pub fn relu_rows_backward(d: &mut [f32], y: &[f32]) {
    assert_eq!(d.len(), y.len());
    for (d, y) in d.iter_mut().zip(y) {
        *d = if *y > 0.0 { *d } else { 0.0 };
    }
}
