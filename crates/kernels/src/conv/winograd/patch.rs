//! Transforms of one patch, along rows and columns.
#![allow(clippy::needless_range_loop, reason = "patches are indexed in registers")]

use crate::simd::Arithmetic;
use std::marker::PhantomData;

use super::scheme::{FourOfFive, FourOfThree, Scheme, TwoOfFive, TwoOfThree, Untransformed};

/// Number of weights transformed together.
pub(super) const WIDE: usize = 8;
pub(super) type Wide = [f32; WIDE];

/// F(2x2, 3x3)
pub(super) type SquareTwoOfThree = Both<TwoOfThree, 4, 2, 3, TwoOfThree, 4, 2, 3>;
/// F(4x4, 3x3)
pub(super) type SquareFourOfThree = Both<FourOfThree, 6, 4, 3, FourOfThree, 6, 4, 3>;
/// F(2x2, 5x5)
pub(super) type SquareTwoOfFive = Both<TwoOfFive, 6, 2, 5, TwoOfFive, 6, 2, 5>;
/// F(2x4, 5x5)
pub(super) type TwoByFourOfFive = Both<TwoOfFive, 6, 2, 5, FourOfFive, 8, 4, 5>;
/// F(4, 5) along the rows
pub(super) type LineFourOfFive = Both<Untransformed, 1, 1, 1, FourOfFive, 8, 4, 5>;

/// Transforms of a patch. Reads and writes go through closures indexed by row and column, or by part.
pub(super) trait Patch {
    /// Rows and columns of the outputs.
    const OUTPUTS: (usize, usize);
    /// Rows and columns of the inputs, and of the parts.
    const INPUTS: (usize, usize);
    /// Rows and columns of the weights.
    const WEIGHTS: (usize, usize);

    /// B' d B.
    fn inputs<S: Arithmetic>(simd: S, d: impl Fn(usize, usize) -> S::Vector, part: impl FnMut(usize, S::Vector));

    /// A dy A'.
    fn gradients<S: Arithmetic>(simd: S, d: impl Fn(usize, usize) -> S::Vector, part: impl FnMut(usize, S::Vector));

    /// A' m A.
    fn outputs<S: Arithmetic>(simd: S, part: impl Fn(usize) -> S::Vector, y: impl FnMut(usize, usize, S::Vector));

    /// G g G'.
    fn weights(g: impl Fn(usize, usize) -> Wide, part: impl FnMut(usize, Wide));

    /// G' s G.
    fn weight_gradients(part: impl Fn(usize) -> Wide, d_g: impl FnMut(usize, usize, Wide));
}

/// Combines one scheme for the rows and one for the columns.
pub(super) struct Both<
    R,
    const A: usize,
    const B: usize,
    const C: usize,
    F,
    const P: usize,
    const M: usize,
    const K: usize,
>(PhantomData<(R, F)>);

impl<
    R: Scheme<A, B, C>,
    const A: usize,
    const B: usize,
    const C: usize,
    F: Scheme<P, M, K>,
    const P: usize,
    const M: usize,
    const K: usize,
> Patch for Both<R, A, B, C, F, P, M, K>
{
    const OUTPUTS: (usize, usize) = (B, M);
    const INPUTS: (usize, usize) = (A, P);
    const WEIGHTS: (usize, usize) = (C, K);

    #[inline(always)]
    fn inputs<S: Arithmetic>(simd: S, d: impl Fn(usize, usize) -> S::Vector, mut part: impl FnMut(usize, S::Vector)) {
        transform::<S, A, A, P, P>(
            simd,
            d,
            #[inline(always)]
            |side| R::input(simd, side),
            #[inline(always)]
            |side| F::input(simd, side),
            #[inline(always)]
            |r, c, value| part(r * P + c, value),
        );
    }

    #[inline(always)]
    fn gradients<S: Arithmetic>(
        simd: S,
        d: impl Fn(usize, usize) -> S::Vector,
        mut part: impl FnMut(usize, S::Vector),
    ) {
        transform::<S, B, A, M, P>(
            simd,
            d,
            #[inline(always)]
            |side| R::gradient(simd, side),
            #[inline(always)]
            |side| F::gradient(simd, side),
            #[inline(always)]
            |r, c, value| part(r * P + c, value),
        );
    }

    #[inline(always)]
    fn outputs<S: Arithmetic>(simd: S, part: impl Fn(usize) -> S::Vector, y: impl FnMut(usize, usize, S::Vector)) {
        transform::<S, A, B, P, M>(
            simd,
            #[inline(always)]
            |r, c| part(r * P + c),
            #[inline(always)]
            |side| R::output(simd, side),
            #[inline(always)]
            |side| F::output(simd, side),
            y,
        );
    }

    #[inline(always)]
    fn weights(g: impl Fn(usize, usize) -> Wide, mut part: impl FnMut(usize, Wide)) {
        let mut half = [[[0.0; WIDE]; P]; C];
        for r in 0..C {
            let mut row = [[0.0; WIDE]; K];
            for c in 0..K {
                row[c] = g(r, c);
            }
            half[r] = apply(&F::WEIGHTS, &row);
        }
        for c in 0..P {
            let column = std::array::from_fn(|r| half[r][c]);
            for (r, values) in apply(&R::WEIGHTS, &column).into_iter().enumerate() {
                part(r * P + c, values);
            }
        }
    }

    #[inline(always)]
    fn weight_gradients(part: impl Fn(usize) -> Wide, mut d_g: impl FnMut(usize, usize, Wide)) {
        let mut half = [[[0.0; WIDE]; K]; A];
        for r in 0..A {
            let mut row = [[0.0; WIDE]; P];
            for c in 0..P {
                row[c] = part(r * P + c);
            }
            half[r] = apply_transposed(&F::WEIGHTS, &row);
        }
        for c in 0..K {
            let column = std::array::from_fn(|r| half[r][c]);
            for (r, values) in apply_transposed(&R::WEIGHTS, &column).into_iter().enumerate() {
                d_g(r, c, values);
            }
        }
    }
}

/// Transforms the columns of a patch, then the rows of the result. The transforms are passed by value, here and in the
/// callers: behind a reference they are not inlined, and six times slower.
#[inline(always)]
fn transform<S: Arithmetic, const A: usize, const B: usize, const I: usize, const O: usize>(
    simd: S,
    read: impl Fn(usize, usize) -> S::Vector,
    down: impl Fn([S::Vector; A]) -> [S::Vector; B] + Copy,
    across: impl Fn([S::Vector; I]) -> [S::Vector; O] + Copy,
    mut write: impl FnMut(usize, usize, S::Vector),
) {
    let zero = simd.splat(0.0);
    let mut half = [[zero; I]; B];
    for c in 0..I {
        let mut side = [zero; A];
        for r in 0..A {
            side[r] = read(r, c);
        }
        let side = call::<S, _, _>(down, side);
        for r in 0..B {
            half[r][c] = side[r];
        }
    }
    for r in 0..B {
        let side = call::<S, _, _>(across, half[r]);
        for c in 0..O {
            write(r, c, side[c]);
        }
    }
}

/// For plain Rust the transform stays a call: inlined, it would be unrolled into thousands of scalar instructions.
#[inline(always)]
fn call<S: Arithmetic, A, B>(transform: impl Fn(A) -> B, side: A) -> B {
    #[inline(never)]
    fn apart<A, B>(transform: impl Fn(A) -> B, side: A) -> B {
        transform(side)
    }
    if S::PLAIN { apart(transform, side) } else { transform(side) }
}

#[inline(always)]
fn apply<const I: usize, const J: usize>(matrix: &[[f32; J]; I], v: &[Wide; J]) -> [Wide; I] {
    let mut out = [[0.0; WIDE]; I];
    for i in 0..I {
        for j in 0..J {
            for lane in 0..WIDE {
                out[i][lane] += matrix[i][j] * v[j][lane];
            }
        }
    }
    out
}

#[inline(always)]
fn apply_transposed<const I: usize, const J: usize>(matrix: &[[f32; J]; I], v: &[Wide; I]) -> [Wide; J] {
    let mut out = [[0.0; WIDE]; J];
    for j in 0..J {
        for i in 0..I {
            for lane in 0..WIDE {
                out[j][lane] += matrix[i][j] * v[i][lane];
            }
        }
    }
    out
}
