//! The `fedelity` command.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod args;
mod command;
mod engine;
mod interrupt;
mod latest;
mod output;
mod overrides;
mod printer;
mod server;
mod status;
mod view;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use printer::{Printer, is_broken_pipe};
use status::ExitStatus;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let printer = Printer::new(cli.color, cli.quiet, cli.verbose);
    let status = match cli.command.run(&printer) {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => ExitStatus::Done,
        Err(error) => {
            printer.error(printer::told(&error));
            ExitStatus::CouldNotRun
        }
    };
    status.into()
}
