//! Appending to `rounds.jsonl`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::RecordError;
use crate::header::Header;
use crate::reader::salvage;
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

    /// Goes on after the first rounds of an existing file, as many as given of those that [`salvage_rounds`] reads. It
    /// keeps their lines and nothing else.
    ///
    /// [`salvage_rounds`]: crate::salvage_rounds
    pub fn resume(path: &Path, header: &Header, rounds: usize) -> Result<Self, RecordError> {
        let failed = |what| RecordError::io(what, path);
        let (_, places) = salvage(path, Some(header))?;
        let mut whole = serde_json::to_vec(header).map_err(|error| failed("write")(error.into()))?;
        whole.push(b'\n');
        let mut file = fedelity_files::open(path).map_err(failed("read"))?;
        for place in places.into_iter().take(rounds) {
            let read = file.seek(SeekFrom::Start(place.start));
            let read = read.and_then(|_| Read::by_ref(&mut file).take(place.end - place.start).read_to_end(&mut whole));
            read.map_err(failed("read"))?;
        }
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
    use std::fs;

    use super::*;
    use crate::salvage_rounds;

    #[test]
    fn a_resumed_file_keeps_the_rounds_that_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let header = Header { rounds: 9, ..Header::default() };
        let mut file = RoundsFile::create(&path, &header).unwrap();
        (1..=5).for_each(|round| file.append(&RoundRecord { round, ..RoundRecord::default() }).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        let whole: Vec<&str> = text.lines().collect();
        let numbers = |rounds: usize| {
            RoundsFile::resume(&path, &header, rounds).unwrap();
            let read = salvage_rounds(&path).unwrap();
            assert!(!read.problems.iter().any(|problem| problem.contains("left out")), "{:?}", read.problems);
            read.rounds.iter().map(|round| round.round).collect::<Vec<_>>()
        };
        // A line that is damaged, twice there, empty, or of a round that cannot be.
        for wrong in ["\u{0}{", whole[1], "", "{\"round\":77}"] {
            let lines = [&whole[..3], &[wrong], &whole[3..]].concat();
            fs::write(&path, lines.join("\n") + "\n{\"round\":6,").unwrap();
            assert_eq!(numbers(9), [1, 2, 3, 4, 5], "{wrong:?}");
            fs::write(&path, lines.join("\n") + "\n").unwrap();
            assert_eq!(numbers(3), [1, 2, 3], "{wrong:?}");
            // Every line is as it was.
            assert_eq!(fs::read_to_string(&path).unwrap().lines().skip(1).collect::<Vec<_>>(), whole[1..4]);
        }
        assert_eq!(numbers(0), [0u64; 0]);
        assert_eq!(crate::last_round(&path), None);
        fs::write(&path, whole.join("\n") + "\n").unwrap();
        assert_eq!(crate::last_round(&path), Some(5));
        // A line that is longer than what is read at first, and one that is not whole.
        fs::write(
            &path,
            format!("{}{}\n", whole.join("\n") + "\n", whole[5].replace('{', &format!("{{{}", " ".repeat(99_999)))),
        )
        .unwrap();
        assert_eq!(crate::last_round(&path), Some(5));
        fs::write(&path, whole.join("\n")).unwrap();
        assert_eq!(crate::last_round(&path), None);
    }

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
