//! Appending to `rounds.jsonl`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::RecordError;
use crate::header::Header;
use crate::round::RoundRecord;

/// An open `rounds.jsonl`. Each line reaches the file before the call returns.
#[derive(Debug)]
pub struct RoundsFile {
    file: File,
    path: PathBuf,
    line: Vec<u8>,
}

impl RoundsFile {
    /// Creates the file, which must not exist, and writes the header.
    pub fn create(path: &Path, header: &Header) -> Result<Self, RecordError> {
        let file = File::create_new(path).map_err(RecordError::io("create", path))?;
        let mut new = Self { file, path: path.to_path_buf(), line: Vec::new() };
        new.push(header)?;
        Ok(new)
    }

    pub fn append(&mut self, round: &RoundRecord) -> Result<(), RecordError> {
        self.push(round)
    }

    /// Makes sure that everything is on disk.
    pub fn finish(self) -> Result<(), RecordError> {
        self.file.sync_all().map_err(RecordError::io("write", &self.path))
    }

    /// One line in one write, so that a stopped run leaves at most one incomplete line.
    fn push(&mut self, value: &impl Serialize) -> Result<(), RecordError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value)
            .map_err(|error| RecordError::io("write", &self.path)(error.into()))?;
        self.line.push(b'\n');
        self.file.write_all(&self.line).and_then(|()| self.file.flush()).map_err(RecordError::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_with_the_path() {
        // This device accepts no bytes.
        let path = PathBuf::from("/dev/full");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut full = RoundsFile { file, path, line: Vec::new() };
        let message = full.append(&RoundRecord::default()).unwrap_err().to_string();
        assert!(message.starts_with("/dev/full: cannot write: No space left"), "{message}");
    }
}
