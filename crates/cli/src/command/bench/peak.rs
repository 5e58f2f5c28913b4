//! `fedelity bench peak`.

use anyhow::Result;
use fedelity_kernels::peak;
use serde_json::json;

use super::check_seconds;
use crate::isa;
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
        let isa = isa::chosen()?;
        let gflops = peak(isa, self.seconds);
        if self.json {
            return printer.json(&json!({ "peak_gflops": gflops, "isa": isa.name(), "lanes": isa.lanes() }));
        }
        printer.line(format!("{gflops:.1} GFLOP/s on one core, {} ({} lanes of f32)", isa.name(), isa.lanes()))
    }
}
