//! `fedelity bench kernels`.

use std::time::Instant;

use anyhow::{Result, anyhow};
use fedelity_kernels::{Buffer, Conv, Isa, Plane, peak};
use serde::Serialize;
use serde_json::json;

use super::check_seconds;
use crate::isa;
use crate::printer::Printer;
use crate::table::{Align, Table};

/// Measure the convolutions of the models, by layer shape
///
/// One core; the best of repeated runs, as the peak is, on images of 3x32x32. The operations of the plain sum are counted:
/// a convolution that takes fewer is above 100 %.
#[derive(Debug, clap::Args)]
pub(crate) struct Kernels {
    /// Seconds to measure each kernel for.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// One convolution of a model.
struct Shape {
    model: &'static str,
    channels: (usize, usize),
    side: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
}

const fn shape(
    model: &'static str,
    channels: (usize, usize),
    side: usize,
    (kernel, stride, pad): (usize, usize, usize),
) -> Shape {
    Shape { model, channels, side, kernel, stride, pad }
}

const SHAPES: [Shape; 13] = [
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

/// Samples of a run, a multiple of every vector's length.
const SAMPLES: usize = 16;

/// The speed of one layer, in GFLOP/s.
#[derive(Debug, Serialize)]
struct Speed {
    model: &'static str,
    layer: String,
    forward: f64,
    weight_gradient: f64,
    input_gradient: f64,
}

impl Kernels {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        check_seconds(self.seconds)?;
        let isa = isa::chosen()?;
        let top = peak(isa, 0.5);
        let mut speeds = Vec::new();
        for shape in &SHAPES {
            speeds.push(measure(isa, shape, self.seconds)?);
            printer.detail(format_args!("{} done", speeds[speeds.len() - 1].layer));
        }
        if self.json {
            return printer
                .json(&json!({ "peak_gflops": top, "isa": isa.name(), "samples": SAMPLES, "layers": speeds }));
        }
        let columns = [
            ("model", Align::Left),
            ("layer", Align::Left),
            ("forward", Align::Right),
            ("weight gradient", Align::Right),
            ("input gradient", Align::Right),
        ];
        let mut table = Table::new(&columns);
        let cell = |gflops: f64| format!("{gflops:.1} ({:.0} %)", 100.0 * gflops / top);
        for speed in &speeds {
            table.row([
                speed.model.to_string(),
                speed.layer.clone(),
                cell(speed.forward),
                cell(speed.weight_gradient),
                cell(speed.input_gradient),
            ]);
        }
        for line in table.lines(printer) {
            printer.line(line)?;
        }
        printer.line(format!("GFLOP/s and share of the peak of one core, {top:.1} GFLOP/s ({})", isa.name()))?;
        printer.line("The operations of the plain sum are counted: a convolution that takes fewer is above 100 %")
    }
}

fn measure(isa: Isa, shape: &Shape, seconds: f64) -> Result<Speed> {
    let (from, to) = shape.channels;
    let Shape { side, kernel, stride, pad, .. } = *shape;
    let layer = format!("{from}->{to} {side}x{side} k{kernel} s{stride}");
    let input = Plane { height: side, width: side, halo: pad };
    let conv = Conv::new(isa, (from, to), (kernel, stride, pad), input, 0)
        .ok_or_else(|| anyhow!("the convolution {layer} cannot be built"))?;
    let (lanes, groups) = (isa.lanes(), SAMPLES / isa.lanes());
    let filled = |len: usize, value: f32| {
        let mut buffer = Buffer::zeros(len);
        buffer.fill(value);
        buffer
    };
    let x = filled(groups * from * input.area() * lanes, 0.5);
    let w = filled(conv.weights(), 0.1);
    let d_y = filled(groups * to * conv.output_gradient().area() * lanes, 0.1);
    let mut y = Buffer::zeros(groups * to * conv.output().area() * lanes);
    let mut d_x = Buffer::zeros(groups * from * side * side * lanes);
    let mut d_w = vec![0.0; w.len()];
    let (mut forward, mut backward) = (Buffer::zeros(conv.packed()), Buffer::zeros(conv.packed()));
    let (mut scratch, mut sums) = (Buffer::zeros(conv.scratch()), Buffer::zeros(conv.sums()));
    conv.pack_forward(&mut forward, &w);
    conv.pack_backward(&mut backward, &w);
    let operations = 2.0 * (conv.multiply_adds() * SAMPLES) as f64;
    Ok(Speed {
        model: shape.model,
        layer,
        forward: best(seconds, operations, || conv.forward(&mut y, &x, &forward, None, groups, &mut scratch)),
        weight_gradient: best(seconds, operations, || {
            conv.weight_gradient(&mut d_w, None, (&x, &d_y), groups, (&mut sums, &mut scratch));
            conv.settle(&mut d_w, &mut sums);
        }),
        input_gradient: best(seconds, operations, || {
            conv.input_gradient(&mut d_x, &d_y, &backward, groups, false, &mut scratch);
        }),
    })
}

/// GFLOP/s of the fastest of repeated runs.
fn best(seconds: f64, operations: f64, mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut shortest = f64::MAX;
    while start.elapsed().as_secs_f64() < seconds {
        let begin = Instant::now();
        run();
        shortest = shortest.min(begin.elapsed().as_secs_f64());
    }
    operations / shortest * 1e-9
}
