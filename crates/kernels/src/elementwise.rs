//! Elementwise operations: ReLU, sums of activations, and optimiser steps.

use std::marker::PhantomData;

use crate::lines::{Lines, SourceLines, TargetLines, clear_border};
use crate::plane::{Planes, PlanesMut};
use crate::simd::{Apart, Arithmetic, Isa, Kernel, LANES, Paired, Simd};

pub use crate::optimise::{adam_step, axpy, sgd_step, squared_norm};

/// A function of two vectors.
trait Combination {
    fn apply<A: Arithmetic>(simd: A, a: A::Vector, b: A::Vector) -> A::Vector;
}

macro_rules! combination {
    ($name:ident, |$simd:ident, $a:ident, $b:pat_param| $value:expr) => {
        struct $name;

        impl Combination for $name {
            #[inline(always)]
            fn apply<A: Arithmetic>($simd: A, $a: A::Vector, $b: A::Vector) -> A::Vector {
                $value
            }
        }
    };
}
combination!(Add, |simd, a, b| simd.add(a, b));
combination!(AddRelu, |simd, a, b| simd.relu(simd.add(a, b)));
combination!(Mask, |simd, a, b| simd.masked(a, b));
combination!(Relu, |simd, a, _| simd.relu(a));

struct Combine<C> {
    y: TargetLines,
    a: SourceLines,
    b: SourceLines,
    lines: Lines,
    count: usize,
    function: PhantomData<C>,
}

impl<C: Combination> Kernel for Combine<C> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if S::PAIRS && self.lines.pixels.is_multiple_of(2) { self.run_by(Paired(simd)) } else { self.run_by(simd) }
    }
}

impl<C: Combination> Combine<C> {
    #[inline(always)]
    fn run_by<A: Apart>(self, simd: A) {
        for plane in 0..self.count {
            for line in 0..self.lines.count {
                // SAFETY: `SourceLines` and `TargetLines` checked the buffers.
                unsafe {
                    let y = self.y.line(plane, line);
                    let (a, b) = (self.a.line(plane, line), self.b.line(plane, line));
                    for at in (0..self.lines.pixels * LANES).step_by(A::VECTORS * LANES) {
                        let (a, b) = (simd.read(a.add(at), LANES), simd.read(b.add(at), LANES));
                        simd.write(y.add(at), LANES, C::apply(simd, a, b));
                    }
                }
            }
        }
    }
}

/// y = max(x, 0) for `count` planes. NaN stays NaN.
pub fn relu_forward(isa: Isa, y: PlanesMut<'_>, x: Planes<'_>, count: usize) {
    combine::<Relu>(isa, y, x, x, count);
}

/// d_x = d_y where y > 0, else 0, for `count` planes. Clears the border of d_x.
pub fn relu_backward(isa: Isa, mut d_x: PlanesMut<'_>, d_y: Planes<'_>, y: Planes<'_>, count: usize) {
    clear_border(isa, &mut d_x, count);
    combine::<Mask>(isa, d_x, d_y, y, count);
}

/// y = relu?(a + b) for `count` planes.
pub fn add_forward(isa: Isa, y: PlanesMut<'_>, a: Planes<'_>, b: Planes<'_>, count: usize, relu: bool) {
    if relu { combine::<AddRelu>(isa, y, a, b, count) } else { combine::<Add>(isa, y, a, b, count) }
}

fn combine<C: Combination>(isa: Isa, y: PlanesMut<'_>, a: Planes<'_>, b: Planes<'_>, count: usize) {
    let lines = Lines::of(&[y.plane, a.plane, b.plane]);
    let (a, b) = (SourceLines::new(a, count), SourceLines::new(b, count));
    isa.run(Combine::<C> { y: TargetLines::new(y, count), a, b, lines, count, function: PhantomData });
}

/// d_x += d_y for `count` planes, without the borders.
pub fn add_to(isa: Isa, d_x: PlanesMut<'_>, d_y: Planes<'_>, count: usize) {
    let lines = Lines::of(&[d_x.plane, d_y.plane]);
    let (y, b) = (TargetLines::new(d_x, count), SourceLines::new(d_y, count));
    let a = SourceLines { x: y.x, steps: y.steps };
    isa.run(Combine::<Add> { y, a, b, lines, count, function: PhantomData });
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
