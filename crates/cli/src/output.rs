//! Files that commands write.

use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file atomically.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fedelity_files::write(path, bytes).with_context(|| format!("{}: cannot write", path.display()))
}
