//! `fedelity bench kernels`.

use anyhow::{Context, Result};
use fedelity_kernels::measure::{self, CONVOLUTIONS, SAMPLES};
use serde::Serialize;
use serde_json::json;

use super::check_seconds;
use crate::engine::resources;
use crate::printer::Printer;
use crate::view::table::{Align, Table};

/// Measure the convolutions of the models, by layer shape
///
/// Uses one core and 3x32x32 images, and keeps the best of repeated runs, as for the peak. The operations of direct
/// convolution are counted: an algorithm that needs fewer may exceed 100 %.
#[derive(Debug, clap::Args)]
pub(crate) struct Kernels {
    /// Seconds to measure each kernel for.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

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
        let engine = resources()?.engine;
        let isa = engine.name();
        let unknown = || format!("{isa} cannot be measured");
        let top = measure::peak(isa, 0.5).with_context(unknown)?.gflops;
        let mut speeds = Vec::new();
        for shape in &CONVOLUTIONS {
            let ((from, to), side, window) = (shape.channels, shape.side, shape.window);
            let layer = format!("{from}->{to} {side}x{side} k{} s{}", window.kernel, window.stride);
            let measure::ConvSpeed { forward, weight_gradient, input_gradient } =
                shape.speed(isa, self.seconds).with_context(unknown)?;
            printer.detail(format_args!("{layer} done"));
            speeds.push(Speed { model: shape.model, layer, forward, weight_gradient, input_gradient });
        }
        if self.json {
            return printer.json(&json!({ "peak_gflops": top, "isa": isa, "samples": SAMPLES, "layers": speeds }));
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
        printer.drawn(table.lines(printer))?;
        printer.line(format!("GFLOP/s and share of the peak of one core, {top:.1} GFLOP/s ({isa})"))?;
        printer.line("The operations of direct convolution are counted: an algorithm that needs fewer may exceed 100 %")
    }
}
