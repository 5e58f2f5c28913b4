//! The `fedelity` command.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod args;
mod command;
mod engine;
mod http;
mod interrupt;
mod latest;
mod output;
mod overrides;
mod printer;
mod run_output;
mod server;
mod status;
mod threads;
mod view;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use printer::{Printer, io_kind};
use status::ExitStatus;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let printer = Printer::new(cli.color, cli.quiet, cli.verbose);
    interrupt::report_file_size_limits();
    let status = match cli.command.run(&printer) {
        Ok(status) => status,
        // Nobody reads the output any more.
        Err(error) if io_kind(&error) == Some(ErrorKind::BrokenPipe) => ExitStatus::Done,
        Err(error) => {
            printer.error(printer::told(&error));
            ExitStatus::CouldNotRun
        }
    };
    status.into()
}
