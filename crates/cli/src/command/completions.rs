//! `fedelity completions`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::printer::Printer;
use crate::status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  fedelity completions bash > ~/.local/share/bash-completion/completions/fedelity
  fedelity completions fish > ~/.config/fish/completions/fedelity.fish
  fedelity completions zsh > ~/.zfunc/_fedelity";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "fedelity", &mut script);
        printer.raw(&script)?;
        Ok(ExitStatus::Done)
    }
}
