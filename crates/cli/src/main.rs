//! The `fedelity` command.

use std::process::ExitCode;

use fedelity_methods::Registry;

fn main() -> ExitCode {
    ExitCode::from(fedelity_cli::run(std::env::args_os(), &Registry::default()).code())
}
