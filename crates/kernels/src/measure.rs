//! Speed of one core: its peak, and in the convolutions of the models.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::Window;
use crate::simd::{Apart, Isa, Kernel, LANES, Paired, Simd};
use crate::{Buffer, Conv, Plane};

/// Multiply-adds per chain and run; a run takes a few milliseconds on a slow core.
const STEPS: usize = 500_000;

/// Samples per run, a multiple of every vector length.
pub const SAMPLES: usize = 16;

/// The peak speed of one core.
#[derive(Clone, Copy, Debug)]
pub struct CorePeak {
    pub gflops: f64,
    /// Floats per vector.
    pub lanes: usize,
}

/// The best of many short runs of independent multiply-adds, for about `seconds`. `None` if this machine lacks the
/// instruction set.
#[must_use]
pub fn peak(instruction_set: &str, seconds: f64) -> Option<CorePeak> {
    let isa = Isa::from_name(instruction_set)?;
    let mut lanes = LANES;
    let run = || {
        let mut operations = 0;
        isa.run(Chains { a: black_box(0.999), b: black_box(0.001), operations: &mut operations, lanes: &mut lanes });
        operations as f64
    };
    Some(CorePeak { gflops: best(seconds, run), lanes })
}

/// GFLOP/s of the fastest of repeated runs, each of which returns its number of operations.
fn best(seconds: f64, mut run: impl FnMut() -> f64) -> f64 {
    let (start, mut best) = (Instant::now(), 0.0f64);
    loop {
        let begin = Instant::now();
        let operations = run();
        best = best.max(operations / begin.elapsed().as_secs_f64() * 1e-9);
        if start.elapsed().as_secs_f64() >= seconds {
            return best;
        }
    }
}

struct Chains<'a> {
    a: f32,
    b: f32,
    operations: &'a mut usize,
    lanes: &'a mut usize,
}

impl Kernel for Chains<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if S::PAIRS && !S::PLAIN { self.run_in(Paired(simd)) } else { self.run_in(simd) }
    }
}

impl Chains<'_> {
    #[inline(always)]
    fn run_in<A: Apart>(self, simd: A) {
        // As many chains as sixteen registers hold, and enough to hide the latency of a multiply-add.
        const CHAINS: usize = 12;
        let (a, b) = (simd.splat(self.a), simd.splat(self.b));
        let mut chains = [a; CHAINS];
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = simd.fma(*chain, a, b);
            }
        }
        // The results are needed, or the compiler would leave the chains out.
        let mut found = [0.0; 2 * LANES];
        for chain in chains {
            // SAFETY: the array holds two vectors.
            unsafe { simd.write(found.as_mut_ptr(), LANES, chain) };
            black_box(&found);
        }
        *self.lanes = LANES * A::VECTORS;
        *self.operations = STEPS * CHAINS * *self.lanes * 2;
    }
}

/// A convolution of a model, on square images.
#[derive(Clone, Copy, Debug)]
pub struct ConvShape {
    pub model: &'static str,
    pub channels: (usize, usize),
    pub side: usize,
    pub window: Window,
}

const fn shape(
    model: &'static str,
    channels: (usize, usize),
    side: usize,
    (kernel, stride, pad): (usize, usize, usize),
) -> ConvShape {
    ConvShape { model, channels, side, window: Window { kernel, stride, pad } }
}

/// The convolutions of the models, for 3x32x32 images.
pub const CONVOLUTIONS: [ConvShape; 13] = [
    shape("simple-cnn", (3, 6), 32, (5, 1, 0)),
    shape("simple-cnn", (6, 16), 14, (5, 1, 0)),
    shape("ntd-cnn", (3, 32), 32, (5, 1, 2)),
    shape("ntd-cnn", (32, 64), 16, (5, 1, 2)),
    shape("resnet8-gn", (3, 16), 32, (3, 1, 1)),
    shape("resnet8-gn", (16, 16), 32, (3, 1, 1)),
    shape("resnet8-gn", (16, 32), 32, (3, 2, 1)),
    shape("resnet8-gn", (16, 32), 32, (1, 2, 0)),
    shape("resnet8-gn", (32, 32), 16, (3, 1, 1)),
    shape("resnet8-gn", (32, 64), 16, (3, 2, 1)),
    shape("resnet8-gn", (32, 64), 16, (1, 2, 0)),
    shape("resnet8-gn", (64, 64), 8, (3, 1, 1)),
    shape("(large)", (512, 512), 4, (3, 1, 1)),
];

/// The speed of a convolution in GFLOP/s, counting the operations of the direct sum.
#[derive(Clone, Copy, Debug)]
pub struct ConvSpeed {
    pub forward: f64,
    pub weight_gradient: f64,
    pub input_gradient: f64,
}

impl ConvShape {
    /// The best of repeated runs of each pass, for about `seconds` each. `None` if this machine lacks the instruction
    /// set.
    #[must_use]
    pub fn speed(&self, instruction_set: &str, seconds: f64) -> Option<ConvSpeed> {
        let isa = Isa::from_name(instruction_set)?;
        let (side, (from, to)) = (self.side, self.channels);
        let input = Plane { height: side, width: side, halo: self.window.pad };
        let conv = Conv::new(isa, self.channels, self.window, input, 0)?;
        let groups = SAMPLES / LANES;
        let filled = |len: usize, value: f32| {
            let mut buffer = Buffer::zeros(len);
            buffer.fill(value);
            buffer
        };
        let x = filled(groups * from * input.area() * LANES, 0.5);
        let w = filled(conv.weights(), 0.1);
        let d_y = filled(groups * to * conv.output_gradient().area() * LANES, 0.1);
        let mut y = Buffer::zeros(groups * to * conv.output().area() * LANES);
        let mut d_x = Buffer::zeros(groups * from * side * side * LANES);
        let mut d_w = vec![0.0; w.len()];
        let (mut forward, mut backward) = (Buffer::zeros(conv.packed()), Buffer::zeros(conv.packed()));
        let (mut scratch, mut sums) = (Buffer::zeros(conv.scratch()), Buffer::zeros(conv.sums()));
        conv.pack_forward(&mut forward, &w);
        conv.pack_backward(&mut backward, &w);
        let operations = 2.0 * (conv.multiply_adds() * SAMPLES) as f64;
        Some(ConvSpeed {
            forward: best(seconds, || {
                conv.forward(&mut y, &x, &forward, None, SAMPLES, &mut scratch);
                operations
            }),
            weight_gradient: best(seconds, || {
                conv.weight_gradient(&mut d_w, None, (&x, &d_y), SAMPLES, (&mut sums, &mut scratch));
                operations
            }),
            input_gradient: best(seconds, || {
                conv.input_gradient(&mut d_x, &d_y, &backward, SAMPLES, false, &mut scratch);
                operations
            }),
        })
    }
}
