//! `fedelity man`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;
use crate::output::Overwrite;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::units::plural;

const EXAMPLES: &str = "\
Examples:
  fedelity man > fedelity.1                     the page of the program itself
  fedelity man ~/.local/share/man/man1          one page per command; then: man fedelity-run";

/// Print the manual page, or write one page per command to a folder
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Manual {
    /// The folder for the pages.
    folder: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,
}

impl Manual {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let mut program = Cli::command();
        program.build();
        let Some(folder) = &self.folder else {
            printer.raw(&page(program)?)?;
            return Ok(ExitStatus::Done);
        };
        let mut pages = Vec::new();
        collect(&program, &mut pages)?;
        let files: Vec<PathBuf> = pages.iter().map(|(name, _)| folder.join(format!("{name}.1"))).collect();
        files.iter().try_for_each(|file| self.overwrite.check("FOLDER", file))?;
        fs::create_dir_all(folder).with_context(|| format!("{}: cannot create", folder.display()))?;
        for (file, (_, page)) in files.iter().zip(&pages) {
            self.overwrite.write("FOLDER", file, page)?;
        }
        printer.say(format_args!("Wrote {} to {}", plural(pages.len(), "page"), folder.display()));
        Ok(ExitStatus::Done)
    }
}

fn page(command: Command) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Man::new(command).render(&mut bytes)?;
    Ok(bytes)
}

/// The pages of a command and of those below it, by name.
fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push((name.to_string(), page(command.clone())?));
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        collect(below, pages)?;
    }
    Ok(())
}
