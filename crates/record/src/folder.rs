//! The folder of one run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::RecordError;
use crate::header::Header;
use crate::holdings::Holdings;
use crate::rounds_file::RoundsFile;
use crate::summary::Summary;

/// The files of a run folder.
pub mod names {
    pub const CONFIG: &str = "config.toml";
    /// Which client holds which samples.
    pub const PARTITION: &str = "partition.json";
    /// The header and one line per round.
    pub const ROUNDS: &str = "rounds.jsonl";
    /// The record of rounds that are run again, until the run ends.
    pub const BEFORE: &str = "rounds-before.jsonl";
    pub const SUMMARY: &str = "summary.json";
    /// How many samples of each class each client holds.
    pub const HOLDINGS: &str = "holdings.json";
    /// How good the models are for each client.
    pub const CLIENTS: &str = "clients.json";
    /// Features of some test samples, under the global and under a local model.
    pub const FEATURES: &str = "features.safetensors";
    /// The user's tags.
    pub const TAGS: &str = "tags.json";
    /// The layers of a model of one's own.
    pub const LAYERS: &str = "layers.toml";
    /// The model after the last round.
    pub const MODEL: &str = "model.safetensors";
    /// The model after the best round.
    pub const BEST: &str = "best.safetensors";
    /// What a run of a sweep was made from.
    pub const STAMP: &str = "sweep.json";
    /// What a sweep with `[tune]` has chosen; in the folder of the sweep.
    pub const CHOSEN: &str = "chosen.json";
    /// The folders of its runs: those that choose settings, and those that compare the chosen ones.
    pub const CHOOSE: &str = "choose";
    pub const COMPARE: &str = "compare";
}

/// A file that shows whether others can be written.
const PROBE: &str = ".writable";

#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Creates the folder and its parents, and checks that files can be written. An existing folder is rejected.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let unwritable = |source| RecordError::Unwritable { source, path: path.to_path_buf() };
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above).map_err(unwritable)?;
        }
        fs::create_dir(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => RecordError::Exists { path: path.to_path_buf() },
            _ => unwritable(source),
        })?;
        let folder = Self { path: path.to_path_buf() };
        if let Err(source) = folder.try_write() {
            // Clean up; if this fails too, the first error is the one to report.
            let _ = fs::remove_file(folder.file(PROBE));
            let _ = fs::remove_dir(path);
            return Err(unwritable(source));
        }
        Ok(folder)
    }

    /// A folder that exists.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Self { path: path.to_path_buf() }),
            Ok(_) => Err(RecordError::io("read", path)(io::Error::from(io::ErrorKind::NotADirectory))),
            Err(error) => Err(RecordError::io("read", path)(error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file atomically.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        let path = self.file(name);
        fedelity_files::write(&path, bytes).map_err(RecordError::io("write", &path))
    }

    pub fn write_config(&self, toml: &str) -> Result<(), RecordError> {
        self.write(names::CONFIG, toml.as_bytes())
    }

    /// Writes how many samples of each class each client holds.
    pub fn write_holdings(&self, holdings: &Holdings) -> Result<(), RecordError> {
        self.write_json(names::HOLDINGS, serde_json::to_vec(holdings))
    }

    pub fn write_summary(&self, summary: &Summary) -> Result<(), RecordError> {
        self.write_json(names::SUMMARY, serde_json::to_vec_pretty(summary))
    }

    pub(crate) fn write_json(&self, name: &str, json: serde_json::Result<Vec<u8>>) -> Result<(), RecordError> {
        let mut bytes = json.map_err(|error| RecordError::io("write", &self.file(name))(error.into()))?;
        bytes.push(b'\n');
        self.write(name, &bytes)
    }

    /// Removes a file, if it exists.
    pub fn remove(&self, name: &str) -> Result<(), RecordError> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RecordError::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Goes on with `rounds.jsonl` after some of its rounds, under a new header.
    pub fn resume_rounds(&self, header: &Header, rounds: usize) -> Result<RoundsFile, RecordError> {
        RoundsFile::resume(&self.file(names::ROUNDS), header, rounds)
    }

    /// Keeps the record as it is beside what follows, unless an earlier one that is longer is still there.
    pub fn set_aside_rounds(&self) -> Result<(), RecordError> {
        let (now, before) = (self.file(names::ROUNDS), self.file(names::BEFORE));
        let bytes = fedelity_files::read(&now, fedelity_files::RECORD).map_err(RecordError::io("read", &now))?;
        let longer = fs::metadata(&before).is_ok_and(|before| before.len() > bytes.len() as u64);
        if longer { Ok(()) } else { self.write(names::BEFORE, &bytes) }
    }

    /// Starts `rounds.jsonl` with its header.
    pub fn start_rounds(&self, header: &Header) -> Result<RoundsFile, RecordError> {
        RoundsFile::create(&self.file(names::ROUNDS), header)
    }

    fn try_write(&self) -> io::Result<()> {
        let probe = self.file(PROBE);
        File::create(&probe).and_then(|mut file| file.write_all(b"1"))?;
        fs::remove_file(&probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_exists_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a").join("b");
        let folder = RunFolder::create(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let message = RunFolder::create(&path).unwrap_err().to_string();
        assert!(message.ends_with("b already exists; choose another folder or remove it"), "{message}");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(RunFolder::create(&file), Err(RecordError::Exists { .. })));
        let error = RunFolder::create(&file.join("run")).unwrap_err();
        assert!(matches!(error, RecordError::Unwritable { .. }), "{error}");
    }

    #[test]
    fn files_are_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&dir.path().join("run")).unwrap();
        folder.write_config("rounds = 1\n").unwrap();
        folder.write_config("rounds = 2\n").unwrap();
        folder.write(names::PARTITION, b"{}").unwrap();
        assert_eq!(fs::read_to_string(folder.file(names::CONFIG)).unwrap(), "rounds = 2\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        fs::remove_dir_all(folder.path()).unwrap();
        let message = folder.write_config("x").unwrap_err().to_string();
        assert!(message.contains("config.toml: cannot write"), "{message}");
        assert!(folder.start_rounds(&Header::default()).is_err());
    }
}
