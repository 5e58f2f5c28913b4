//! `fedelity watch`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::interrupt::Interrupt;
use crate::latest::resolve;
use crate::printer::Printer;
use crate::server::{LiveServer, open};
use crate::status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  fedelity watch runs/2026-01-31-fedntd     the live report of a run, in a browser
  fedelity watch runs --no-open             all runs in a folder; only print the address
  fedelity run experiment.toml --open       the same, from the start of a run

The page is served only to this computer and updates as the run's files change. You can reload it
and open it more than once. Ctrl-C stops the server; open pages keep what they show. The environment
variable BROWSER names another program to open the page with.";

/// Follow a run in a browser
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// A run folder, or a folder with several runs.
    run: PathBuf,

    /// Only print the address; do not open a browser.
    #[arg(long)]
    no_open: bool,

    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

impl Watch {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let run = resolve(&self.run, printer)?;
        if !run.is_dir() {
            bail!("{}: no such folder", run.display());
        }
        let interrupt = Interrupt::listen_quietly()?;
        let server = LiveServer::start(&run)?;
        if self.json {
            printer.json(&serde_json::json!({ "address": server.address(), "run": run.display().to_string() }))?;
        } else {
            printer.line(server.address())?;
        }
        printer.say("Press Ctrl-C to stop");
        if !self.no_open {
            open(server.address());
        }
        while !interrupt.is_asked() {
            std::thread::sleep(Duration::from_millis(100));
        }
        server.end();
        Ok(ExitStatus::Done)
    }
}
