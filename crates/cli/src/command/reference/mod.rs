//! `fedelity reference`.

mod data;
mod keys;
mod markdown;
mod methods;
mod models;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::output::Overwrite;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::units::plural;

const EXAMPLES: &str = "\
Examples:
  fedelity reference pages                  keys.md, layers.md, methods.md, models.md and data.md
  fedelity reference pages --overwrite      update the pages";

/// Write all keys, methods, models and data sets as Markdown pages
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReferencePages {
    /// The folder for the pages.
    folder: PathBuf,

    #[command(flatten)]
    overwrite: Overwrite,
}

impl ReferencePages {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let pages = [
            ("keys.md", keys::configuration()),
            ("layers.md", keys::layers()),
            ("methods.md", methods::page()?),
            ("models.md", models::page()?),
            ("data.md", data::page()),
        ];
        let files = pages.each_ref().map(|(name, _)| self.folder.join(name));
        files.iter().try_for_each(|file| self.overwrite.check("FOLDER", file))?;
        fs::create_dir_all(&self.folder).with_context(|| format!("{}: cannot create", self.folder.display()))?;
        for (file, (_, page)) in files.iter().zip(&pages) {
            self.overwrite.write("FOLDER", file, page.text().as_bytes())?;
        }
        printer.say(format_args!("Wrote {} to {}", plural(pages.len(), "page"), self.folder.display()));
        Ok(ExitStatus::Done)
    }
}
