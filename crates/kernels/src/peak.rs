//! How fast this core can multiply and add.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pulp::Simd;

use crate::simd::{Isa, Kernel, fma};

/// Steps of a run, a few milliseconds long on a slow core.
const STEPS: usize = 500_000;

/// The peak of this core in GFLOP/s: the best of many short runs of independent multiply-adds, for about `seconds`.
#[must_use]
pub fn peak(isa: Isa, seconds: f64) -> f64 {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut best = 0.0f64;
    loop {
        let start = Instant::now();
        let (operations, sum) = isa.run(Chains { a: black_box(0.999), b: black_box(0.001) });
        let elapsed = start.elapsed().as_secs_f64();
        black_box(sum);
        best = best.max(operations as f64 / elapsed * 1e-9);
        if Instant::now() >= end {
            return best;
        }
    }
}

struct Chains {
    a: f32,
    b: f32,
}

impl Kernel for Chains {
    type Output = (usize, f32);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (usize, f32) {
        if S::REGISTER_COUNT >= 32 { chains::<S, 24>(simd, self) } else { chains::<S, 12>(simd, self) }
    }
}

/// Runs N chains and counts their operations. The sum keeps the compiler from dropping one.
#[inline(always)]
fn chains<S: Simd, const N: usize>(simd: S, Chains { a, b }: Chains) -> (usize, f32) {
    let (a, b) = (simd.splat_f32s(a), simd.splat_f32s(b));
    let mut v: [S::f32s; N] = std::array::from_fn(|i| simd.splat_f32s(i as f32));
    for _ in 0..STEPS {
        for v in &mut v {
            *v = fma(simd, *v, a, b);
        }
    }
    let sum = v.iter().fold(0.0, |sum, v| sum + simd.reduce_sum_f32s(*v));
    (STEPS * N * S::F32_LANES * 2, sum)
}
