//! A partition as a JSON file, for other runs, machines and tools.
//!
//! The file names the data set and contains the fingerprint of its labels, so a partition is never used with other
//! data. Each client is one line, so that two files can be compared with a diff.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use fedelity_files::Atomic;
use serde::Deserialize;

use super::{Partition, labels_fingerprint};
use crate::error::DataError;
use crate::files;

pub(super) const FORMAT: &str = "fedelity-partition";
/// The version written and read.
pub(super) const VERSION: u32 = 1;

/// The part common to all versions. Values are untyped, so that a wrong one can be named.
#[derive(Deserialize)]
struct FormatVersion {
    format: serde_json::Value,
    version: serde_json::Value,
}

impl Partition {
    /// Writes a file atomically. An existing file is replaced only with `overwrite`.
    pub fn write(&self, path: &Path, overwrite: bool) -> Result<(), DataError> {
        let written = Atomic::create(path).and_then(|mut file| {
            self.write_to(&mut file)?;
            if overwrite { file.commit() } else { file.commit_new() }
        });
        written.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => DataError::Exists { path: path.to_path_buf() },
            _ => DataError::io("write", path)(source),
        })
    }

    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write!(out, "{},\n  \"clients\": [", text.strip_suffix("\n}").unwrap_or(&text))?;
        for (i, client) in self.clients.iter().enumerate() {
            out.write_all(if i == 0 { b"\n    " } else { b",\n    " })?;
            serde_json::to_writer(&mut *out, client)?;
        }
        out.write_all(b"\n  ]\n}\n")
    }

    /// Reads a file and checks it: format, version, indices in range, no duplicates, no empty clients. Some samples may
    /// be unassigned.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let (mut file, _) = files::open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(DataError::io("read", path))?;
        let no_json =
            |error: serde_json::Error| DataError::Json { reason: error.to_string(), path: path.to_path_buf() };
        let head: FormatVersion = serde_json::from_slice(&text).map_err(no_json)?;
        let differs = |field, expected: String, found: String| DataError::PartitionHeader {
            field,
            expected,
            found,
            path: path.to_path_buf(),
        };
        if head.format != FORMAT {
            return Err(differs("format", format!("{FORMAT:?}"), head.format.to_string()));
        }
        if head.version != VERSION {
            return Err(differs("version", VERSION.to_string(), head.version.to_string()));
        }
        let found: Self = serde_json::from_slice(&text).map_err(no_json)?;
        if found.clients.is_empty() {
            return Err(differs("clients", "at least 1".to_string(), "0".to_string()));
        }
        check(path, found.samples, &found.clients)?;
        Ok(found)
    }

    /// As [`Partition::read`], and checks that the file was made for these labels.
    pub fn read_for(path: &Path, labels: &[u16]) -> Result<Self, DataError> {
        let file = Self::read(path)?;
        let found = labels_fingerprint(labels);
        if file.samples != labels.len() || file.labels_sha256 != found {
            return Err(DataError::OtherData {
                dataset: file.dataset,
                samples: file.samples,
                expected: file.labels_sha256,
                found_samples: labels.len(),
                found,
                path: path.to_path_buf(),
            });
        }
        Ok(file)
    }
}

/// Memory depends on what the clients hold, not on what the header claims.
fn check(path: &Path, samples: usize, clients: &[Vec<u32>]) -> Result<(), DataError> {
    let mut owned: Vec<(u32, usize)> = Vec::new();
    for (client, indices) in clients.iter().enumerate() {
        if indices.is_empty() {
            return Err(DataError::EmptyClient { client, path: path.to_path_buf() });
        }
        for &index in indices {
            if index as usize >= samples {
                return Err(DataError::IndexRange { client, index, samples, path: path.to_path_buf() });
            }
            owned.push((index, client));
        }
    }
    owned.sort_unstable();
    match owned.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(&[(_, owner), (index, client)]) => {
            Err(DataError::DuplicateIndex { client, index, owner, path: path.to_path_buf() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::labelled;
    use super::super::{Kind, partition};
    use super::*;

    fn labels() -> Vec<u16> {
        (0..60).map(|i| i % 3).collect()
    }

    fn made() -> Partition {
        partition(
            &labelled(&labels(), 3),
            &[false; 60],
            &Kind::Dirichlet { alpha: 0.3, min_size: 10 },
            Some(5),
            u64::MAX,
        )
        .unwrap()
    }

    #[test]
    fn round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        let file = made();
        file.write(&path, false).unwrap();
        assert_eq!(Partition::read(&path).unwrap(), file);
        assert_eq!(Partition::read_for(&path, &labels()).unwrap(), file);
        let text = fs::read_to_string(&path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("    [")).count();
        assert_eq!(rows, 5, "{text}");
        assert!(text.contains("\"min-size\": 10\n"), "{text}");
        assert!(text.contains("\"alpha\": 0.3"), "{text}");
    }

    #[test]
    fn files_are_overwritten_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        fs::write(&path, "mine").unwrap();
        assert!(matches!(made().write(&path, false).unwrap_err(), DataError::Exists { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        made().write(&path, true).unwrap();
        assert_eq!(Partition::read(&path).unwrap(), made());
        // No temporary file is left.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let nowhere = dir.path().join("no/p.json");
        assert!(matches!(made().write(&nowhere, false).unwrap_err(), DataError::Io { .. }));
        assert!(made().write(Path::new("/"), true).is_err());
    }

    fn read_changed(change: impl Fn(&mut serde_json::Value)) -> DataError {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        made().write(&path, false).unwrap();
        let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, value.to_string()).unwrap();
        Partition::read(&path).unwrap_err()
    }

    #[test]
    fn bad_files_are_refused() {
        let error = read_changed(|v| v["version"] = 2.into());
        assert!(error.to_string().contains("version: expected 1, found 2"));
        let error = read_changed(|v| v["format"] = "other".into());
        assert!(matches!(error, DataError::PartitionHeader { field: "format", .. }));
        let error = read_changed(|v| v["clients"][2] = serde_json::json!([]));
        assert!(matches!(error, DataError::EmptyClient { client: 2, .. }));
        let error = read_changed(|v| v["clients"][1][0] = 60.into());
        assert!(matches!(error, DataError::IndexRange { client: 1, index: 60, samples: 60, .. }));
        let error = read_changed(|v| v["clients"][4][0] = v["clients"][3][0].clone());
        assert!(matches!(error, DataError::DuplicateIndex { client: 4, owner: 3, .. }));
        let error = read_changed(|v| v["clients"] = serde_json::json!([]));
        assert!(error.to_string().contains("clients"), "{error}");
        for bad in [(-1).into(), serde_json::json!(4_294_967_296u64)] {
            let error = read_changed(|v| v["clients"][0][0] = bad.clone());
            assert!(matches!(error, DataError::Json { .. }), "{error}");
        }
        let error = read_changed(|v| v["sed"] = 1.into());
        assert!(error.to_string().contains("sed"), "{error}");
        let error = read_changed(|v| *v = serde_json::json!([1]));
        assert!(matches!(error, DataError::Json { .. }));
    }

    #[test]
    fn other_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        made().write(&path, false).unwrap();
        let mut other = labels();
        other[0] = 1;
        for labels in [&other[..], &labels()[..59]] {
            let error = Partition::read_for(&path, labels).unwrap_err();
            assert!(matches!(error, DataError::OtherData { .. }));
            assert!(error.to_string().contains("'toy'"), "{error}");
        }
    }
}
