//! `fedelity bench peak`.

use anyhow::{Context, Result};
use fedelity_kernels::measure;
use serde_json::json;

use super::check_seconds;
use crate::engine::resources;
use crate::printer::Printer;

/// Measure the multiply-add peak of one core
#[derive(Debug, clap::Args)]
pub(crate) struct Peak {
    /// Seconds to measure for.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Peak {
    pub(crate) fn run(self, printer: &Printer) -> Result<()> {
        check_seconds(self.seconds)?;
        let engine = resources()?.engine;
        let (isa, peak) = (engine.name(), measure::peak(engine.name(), self.seconds));
        let measure::CorePeak { gflops, lanes } = peak.with_context(|| format!("{isa} cannot be measured"))?;
        if self.json {
            return printer.json(&json!({ "peak_gflops": gflops, "isa": isa, "lanes": lanes }));
        }
        printer.line(format!("{gflops:.1} GFLOP/s on one core, {isa} ({lanes} lanes of f32)"))
    }
}
