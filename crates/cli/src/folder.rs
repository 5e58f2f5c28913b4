//! Where results go.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use fedelity_record::{Error, RunFolder};

/// The folder for results unless the user names one.
const RUNS: &str = "runs";

/// Makes the folder that the user named, or a new one below `runs` with the time and a name.
pub(crate) fn create(output: Option<&Path>, name: &str) -> Result<RunFolder> {
    if let Some(path) = output {
        return RunFolder::create(path).map_err(|error| anyhow!("--output: {error}"));
    }
    let time = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S");
    let base = Path::new(RUNS).join(format!("{time}-{name}"));
    let mut path = base.clone();
    let mut tries = 1;
    loop {
        match RunFolder::create(&path) {
            // Two runs of the same second.
            Err(Error::Exists { .. }) if tries < 1_000 => {
                tries += 1;
                path = numbered(&base, tries);
            }
            other => return Ok(other?),
        }
    }
}

/// Writes a file: whole, or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or_else(|| anyhow!("{}: expected the name of a file", path.display()))?);
    name.push(".part");
    let aside = path.with_file_name(name);
    std::fs::write(&aside, bytes).and_then(|()| std::fs::rename(&aside, path)).map_err(|error| {
        let _ = std::fs::remove_file(&aside);
        anyhow!("{}: cannot write: {error}", path.display())
    })
}

fn numbered(base: &Path, n: usize) -> PathBuf {
    let mut name = base.as_os_str().to_os_string();
    name.push(format!("-{n}"));
    PathBuf::from(name)
}
