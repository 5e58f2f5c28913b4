//! A folder for the files of a reader.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A seed, for a reader that needs it as one of its other files.
pub(crate) fn seed(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) struct Place(TempDir);

impl Place {
    /// A place with these files.
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary folder"));
        files.iter().for_each(|(name, bytes)| place.write(name, bytes));
        place
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, in folders that may not exist.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a temporary folder");
        fs::write(path, bytes).expect("a temporary file");
    }

    /// Removes a folder with all its files, if it exists.
    pub(crate) fn remove(&self, name: &str) {
        if self.file(name).exists() {
            fs::remove_dir_all(self.file(name)).expect("a temporary folder");
        }
    }
}
