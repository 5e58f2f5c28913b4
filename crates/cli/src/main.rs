//! The `fedelity` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(fedelity_cli::run(std::env::args_os()).code())
}
