//! `fedelity resume`.

use std::path::PathBuf;

use anyhow::Result;
use fedelity_methods::Registry;

use crate::command::run::{Session, resume};
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  fedelity resume runs/latest                     go on where the last run was stopped
  fedelity resume runs/a --set rounds=200         prolong a finished run to 200 rounds
  fedelity resume runs/a --threads 1              results do not depend on the threads

A run writes a checkpoint after every round and, within a round, after every client that trained for
more than a moment. It may be stopped at any time, by Ctrl-C, a full disk, a crash or a power cut: the
results of the resumed run are the same, bit for bit, as if it had never been stopped. With several
methods or seeds, runs that have ended are not repeated. A damaged checkpoint is named, and the one
before it is used.

A finished run keeps its last checkpoint, in the folder 'checkpoint', so that it can be prolonged.";

/// Go on with a run that was stopped, or prolong a finished one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ResumeCommand {
    /// The folder of the run, or of several runs.
    run: PathBuf,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    session: Session,
}

impl ResumeCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        resume(&self.run, &self.overrides, &self.session, printer, methods)
    }
}
