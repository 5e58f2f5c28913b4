//! The `fedelity` command as a function, for every program that offers it.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod args;
mod command;
mod engine;
mod file_kind;
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

use std::ffi::OsString;
use std::io::ErrorKind;

use clap::Parser;

use args::Cli;
use command::Command;
use fedelity_fl::Evaluation;
use fedelity_methods::Registry;
use printer::{Printer, When, io_kind};

pub use command::resumable;
pub use engine::resources;
pub use latest::find as find_run;
pub use overrides::place_data;
pub use status::ExitStatus;
pub use threads::startable;
pub use view::result_lines;

/// Does what the command line says; the first argument is the name of the program. Configurations may name these methods.
pub fn run(arguments: impl IntoIterator<Item = OsString>, methods: &Registry) -> ExitStatus {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            // Help goes to stdout and errors to stderr; it does not matter if nobody reads them.
            let _ = answer.print();
            return if answer.use_stderr() { ExitStatus::CouldNotRun } else { ExitStatus::Done };
        }
    };
    let printer = Printer::new(cli.color, cli.quiet, cli.verbose);
    interrupt::report_file_size_limits();
    match cli.command.run(&printer, methods) {
        Ok(status) => status,
        // Nobody reads the output any more.
        Err(error) if io_kind(&error) == Some(ErrorKind::BrokenPipe) => ExitStatus::Done,
        Err(error) => {
            printer.error(printer::told(&error));
            ExitStatus::CouldNotRun
        }
    }
}

/// As [`run`], without a word: the error is returned instead.
pub fn attempt(arguments: impl IntoIterator<Item = OsString>, methods: &Registry) -> anyhow::Result<ExitStatus> {
    Cli::try_parse_from(arguments)?.command.run(&silent(), methods)
}

/// What `fedelity evaluate` with these arguments finds, and all that it prints of it.
pub fn evaluated(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<(Evaluation, serde_json::Value)> {
    match Cli::try_parse_from(arguments)?.command {
        Command::Evaluate(command) => command.evaluated(&silent()),
        _ => anyhow::bail!("expected the arguments of fedelity evaluate"),
    }
}

/// Says nothing but what is lost.
fn silent() -> Printer {
    Printer::new(When::Never, true, false)
}
