//! `fedelity bench`.

mod claims;
mod client;
mod isa;
mod kernels;
mod peak;
mod round;
mod scale;

use anyhow::{Result, bail};
use clap::Subcommand;

use crate::printer::Printer;
use crate::status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  fedelity bench peak
  fedelity bench kernels
  fedelity bench isa --model resnet8-gn
  fedelity bench client --model ntd-cnn --batch 50 --threads 2
  fedelity bench round --json
  fedelity bench scale --model simple-cnn
  fedelity bench claims --folder /shared/trial

Close other programs first: every figure is measured on this machine.";

/// Measure the speed of this machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Claims(claims::ClaimBench),
    Client(client::Client),
    Isa(isa::InstructionSets),
    Peak(peak::Peak),
    Kernels(kernels::Kernels),
    Round(round::RoundBench),
    Scale(scale::Scale),
}

impl Bench {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        match self.what {
            What::Claims(bench) => bench.run(printer)?,
            What::Client(bench) => bench.run(printer)?,
            What::Isa(bench) => bench.run(printer)?,
            What::Peak(bench) => bench.run(printer)?,
            What::Kernels(bench) => bench.run(printer)?,
            What::Round(bench) => bench.run(printer)?,
            What::Scale(bench) => bench.run(printer)?,
        }
        Ok(ExitStatus::Done)
    }
}

/// Checks a duration: above 0, and at most an hour.
fn check_seconds(seconds: f64) -> Result<()> {
    if seconds > 0.0 && seconds <= 3_600.0 {
        return Ok(());
    }
    bail!("--seconds {seconds}: expected a number above 0 and at most 3600")
}
