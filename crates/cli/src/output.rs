//! Files that commands write. An existing file is replaced only with `--overwrite`, or if it is a page of ours.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use fedelity_report::is_report_page;

/// Bytes of a file that show whether it is a page of ours.
const START: u64 = 4_096;

/// Whether existing files may be replaced.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Overwrite {
    /// Overwrite existing files.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

impl Overwrite {
    /// The same, where an earlier page may be replaced too.
    pub(crate) fn or_page(self, path: &Path) -> Self {
        Self { overwrite: self.overwrite || is_page(path) }
    }

    /// Rejects a file that exists and may not be replaced, before any work is done. `option` names the file.
    pub(crate) fn check(self, option: &str, path: &Path) -> Result<()> {
        if !self.overwrite && exists(path) {
            bail!("{}", refusal(option, path));
        }
        Ok(())
    }

    /// Writes a file atomically.
    pub(crate) fn write(self, option: &str, path: &Path, bytes: &[u8]) -> Result<()> {
        let written =
            if self.overwrite { fedelity_files::write(path, bytes) } else { fedelity_files::write_new(path, bytes) };
        written.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists if !self.overwrite => anyhow!("{}", refusal(option, path)),
            _ => anyhow!("{option} {}: cannot write: {error}", path.display()),
        })
    }
}

/// Whether there is anything at a path, even a link that leads nowhere.
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn refusal(option: &str, path: &Path) -> String {
    format!("{option} {}: the file exists; --overwrite replaces it", path.display())
}

fn is_page(path: &Path) -> bool {
    let mut start = Vec::new();
    let file = fs::metadata(path).ok().filter(fs::Metadata::is_file).and_then(|_| File::open(path).ok());
    file.is_some_and(|file| file.take(START).read_to_end(&mut start).is_ok() && is_report_page(&start))
}
