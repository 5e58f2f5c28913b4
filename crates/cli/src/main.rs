//! The `fedelity` command.

mod args;
mod board;
mod command;
mod config;
mod estimate;
mod execution;
mod features;
mod fit;
mod folder;
mod heatmap;
mod interrupt;
mod isa;
mod jobs;
mod machine;
mod printer;
mod progress;
mod rehearsal;
mod results;
mod saved;
mod server;
mod sheet;
mod sparkline;
mod status;
mod study;
mod synthetic;
mod table;
mod terminal;
mod text;
mod travel;
mod units;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use printer::{Printer, is_broken_pipe};
use status::Status;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let printer = Printer::new(cli.color, cli.quiet, cli.verbose);
    let status = match cli.command.run(&printer) {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => Status::Done,
        Err(error) => {
            printer.error(printer::told(&error));
            Status::CouldNotRun
        }
    };
    status.into()
}
