//! Speed of one core: its peak, and in the convolutions of the models.

use std::hint::black_box;
use std::time::Instant;

use crate::pool::Window;
use crate::simd::{Isa, Kernel, LANES, Simd};
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
    let run = || {
        let mut done = (0, 0.0);
        isa.run(Chains { a: black_box(0.999), b: black_box(0.001), done: &mut done });
        black_box(done).0 as f64
    };
    Some(CorePeak { gflops: best(seconds, run), lanes: LANES })
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
    /// Operations, and a sum that keeps the compiler from optimising the chains away.
    done: &'a mut (usize, f32),
}

impl Kernel for Chains<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // As many chains as sixteen registers hold, and enough to hide the latency of a multiply-add.
        const CHAINS: usize = 12;
        let (a, b) = (simd.splat(self.a), simd.splat(self.b));
        let mut v: [S::Vector; CHAINS] = std::array::from_fn(|i| simd.splat(i as f32));
        for _ in 0..STEPS {
            for v in &mut v {
                *v = simd.fma(*v, a, b);
            }
        }
        let sum = v.iter().fold(0.0, |sum, v| sum + simd.sum(*v));
        *self.done = (STEPS * CHAINS * LANES * 2, sum);
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
