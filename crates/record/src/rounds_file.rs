//! Appending to `rounds.jsonl`.

use std::fs::{self, File};
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

    /// Goes on after some rounds of an existing file, which keeps their lines and nothing else.
    pub fn resume(path: &Path, header: &Header, rounds: usize) -> Result<Self, RecordError> {
        let failed = |what| RecordError::io(what, path);
        let bytes = fs::read(path).map_err(failed("read"))?;
        let end = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .nth(rounds)
            .map_or(bytes.len(), |(at, _)| at + 1);
        let start = bytes.iter().position(|&byte| byte == b'\n').map_or(end, |at| at + 1);
        let mut whole = serde_json::to_vec(header).map_err(|error| failed("write")(error.into()))?;
        whole.push(b'\n');
        whole.extend(&bytes[start..end]);
        fedelity_files::write(path, &whole).map_err(failed("write"))?;
        let file = File::options().append(true).open(path).map_err(failed("open"))?;
        Ok(Self { file, path: path.to_path_buf(), line: Vec::new() })
    }

    /// Another handle of the file, to sync it.
    pub fn handle(&self) -> Result<File, RecordError> {
        self.file.try_clone().map_err(RecordError::io("open", &self.path))
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
