//! A partition as a JSON file, for other runs, other machines and other tools.
//!
//! The file names the data set and holds the fingerprint of its labels, so a partition is never
//! used with other data. Each client is one line, so a difference of two files can be read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Partition, labels_fingerprint};
use crate::error::Error;
use crate::files;

/// The `format` of every partition file.
pub const FORMAT: &str = "fedelity-partition";
/// The `version` that this crate writes and reads.
pub const VERSION: u32 = 1;

/// The content of a partition file.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionFile {
    /// The data set that it was made for.
    pub dataset: String,
    /// The number of training samples of that set.
    pub samples: usize,
    /// The number of classes of that set.
    pub classes: usize,
    /// The name of the kind. Files of other tools may have names that this crate does not know.
    pub kind: String,
    /// The parameters of the kind.
    pub parameters: BTreeMap<String, f64>,
    /// The specification in words.
    pub spec: String,
    /// The seed it was made from.
    pub seed: u64,
    /// The random draws made.
    pub draws: u32,
    /// SHA-256 of the labels, see [`labels_fingerprint`].
    pub labels_sha256: String,
    /// What was done that the specification does not say.
    pub notes: Vec<String>,
    /// The natural keys of each client, where there are some; otherwise empty.
    pub names: Vec<String>,
    /// The sample indices of each client: in range, disjoint, none empty.
    pub clients: Vec<Vec<u32>>,
}

/// The form on disk, in the order on disk.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    format: String,
    version: u32,
    dataset: String,
    samples: usize,
    classes: usize,
    kind: String,
    parameters: BTreeMap<String, serde_json::Number>,
    spec: String,
    seed: u64,
    draws: u32,
    labels_sha256: String,
    notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    clients: Vec<Vec<u32>>,
}

/// The part that every version has. Values are free, to name a wrong one.
#[derive(Deserialize)]
struct Head {
    format: serde_json::Value,
    version: serde_json::Value,
}

impl PartitionFile {
    /// Binds a partition to the data set that it was made for.
    pub fn new(dataset: &str, labels: &[u16], classes: usize, partition: &Partition) -> Self {
        let kind = &partition.spec.kind;
        let parameters = kind.parameters().into_iter();
        Self {
            dataset: dataset.to_string(),
            samples: labels.len(),
            classes,
            kind: kind.name().to_string(),
            parameters: parameters.map(|(name, value)| (name.to_string(), value)).collect(),
            spec: partition.spec.to_string(),
            seed: partition.seed,
            draws: partition.draws,
            labels_sha256: labels_fingerprint(labels),
            notes: partition.notes.clone(),
            names: Vec::new(),
            clients: partition.clients.clone(),
        }
    }

    /// Writes the file whole or not at all. An existing file is replaced only with `overwrite`.
    pub fn write(&self, path: &Path, overwrite: bool) -> Result<(), Error> {
        let failed = |source| Error::Io { action: "write", source, path: path.to_path_buf() };
        let exists = || Error::Exists { path: path.to_path_buf() };
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let (file, beside) = create_beside(path).map_err(failed)?;
        let written = self.write_to(file).and_then(|()| {
            if overwrite {
                return fs::rename(&beside, path);
            }
            // A link does not replace a file that came into being meanwhile; a rename would.
            match fs::hard_link(&beside, path) {
                Ok(()) => fs::remove_file(&beside),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
                Err(_) => fs::rename(&beside, path),
            }
        });
        written.map_err(|error| {
            // The first error is the one to report.
            let _ = fs::remove_file(&beside);
            if error.kind() == ErrorKind::AlreadyExists { exists() } else { failed(error) }
        })
    }

    fn write_to(&self, file: File) -> io::Result<()> {
        let form = Form {
            format: FORMAT.to_string(),
            version: VERSION,
            dataset: self.dataset.clone(),
            samples: self.samples,
            classes: self.classes,
            kind: self.kind.clone(),
            parameters: self
                .parameters
                .iter()
                .filter_map(|(name, &value)| Some((name.clone(), number(value)?)))
                .collect(),
            spec: self.spec.clone(),
            seed: self.seed,
            draws: self.draws,
            labels_sha256: self.labels_sha256.clone(),
            notes: self.notes.clone(),
            names: self.names.clone(),
            clients: Vec::new(),
        };
        // `clients` is the last field: its empty list is replaced by one line a client.
        let text = serde_json::to_string_pretty(&form)?;
        let head = text.strip_suffix("[]\n}").unwrap_or(&text);
        let mut out = BufWriter::new(file);
        write!(out, "{head}[")?;
        for (i, client) in self.clients.iter().enumerate() {
            out.write_all(if i == 0 { b"\n    " } else { b",\n    " })?;
            serde_json::to_writer(&mut out, client)?;
        }
        out.write_all(b"\n  ]\n}\n")?;
        out.into_inner()?.sync_all()
    }

    /// Reads a file and checks it: format, version, indices in range, none twice, no empty
    /// client. Samples may be left out.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let (mut file, _) = files::open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|source| Error::Io { action: "read", source, path: path.to_path_buf() })?;
        let no_json = |error: serde_json::Error| Error::Json { reason: error.to_string(), path: path.to_path_buf() };
        let head: Head = serde_json::from_slice(&text).map_err(no_json)?;
        let differs = |field, expected: String, found: &serde_json::Value| Error::PartitionHeader {
            field,
            expected,
            found: found.to_string(),
            path: path.to_path_buf(),
        };
        if head.format != FORMAT {
            return Err(differs("format", format!("{FORMAT:?}"), &head.format));
        }
        if head.version != VERSION {
            return Err(differs("version", VERSION.to_string(), &head.version));
        }
        let form: Form = serde_json::from_slice(&text).map_err(no_json)?;
        if form.clients.is_empty() {
            return Err(Error::PartitionHeader {
                field: "clients",
                expected: "at least 1".to_string(),
                found: "0".to_string(),
                path: path.to_path_buf(),
            });
        }
        check(path, form.samples, &form.clients)?;
        Ok(Self {
            dataset: form.dataset,
            samples: form.samples,
            classes: form.classes,
            kind: form.kind,
            parameters: form.parameters.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect(),
            spec: form.spec,
            seed: form.seed,
            draws: form.draws,
            labels_sha256: form.labels_sha256,
            notes: form.notes,
            names: form.names,
            clients: form.clients,
        })
    }

    /// Reads a file as [`PartitionFile::read`] does, and checks that it was made for these
    /// labels.
    pub fn read_for(path: &Path, labels: &[u16]) -> Result<Self, Error> {
        let file = Self::read(path)?;
        let found = labels_fingerprint(labels);
        if file.samples != labels.len() || file.labels_sha256 != found {
            return Err(Error::OtherData {
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

/// Whole numbers without a fraction. None for what JSON cannot say.
fn number(value: f64) -> Option<serde_json::Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if (0.0..EXACT).contains(&value) && value.fract() == 0.0 {
        Some(serde_json::Number::from(value as u64))
    } else {
        serde_json::Number::from_f64(value)
    }
}

/// Memory is taken by what the clients hold, not by what the header says.
fn check(path: &Path, samples: usize, clients: &[Vec<u32>]) -> Result<(), Error> {
    let mut owned: Vec<(u32, usize)> = Vec::new();
    for (client, indices) in clients.iter().enumerate() {
        if indices.is_empty() {
            return Err(Error::EmptyClient { client, path: path.to_path_buf() });
        }
        for &index in indices {
            if index as usize >= samples {
                return Err(Error::IndexRange { client, index, samples, path: path.to_path_buf() });
            }
            owned.push((index, client));
        }
    }
    owned.sort_unstable();
    match owned.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Error::DuplicateIndex {
            client: pair[1].1,
            index: pair[1].0,
            owner: pair[0].1,
            path: path.to_path_buf(),
        }),
        None => Ok(()),
    }
}

/// A new file in the same folder, where a rename cannot cross file systems.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the path names no file"))?;
    let mut tries = 0;
    loop {
        let mut own = std::ffi::OsString::from(".");
        own.push(name);
        own.push(format!(".{}-{tries}.tmp", std::process::id()));
        let beside = path.with_file_name(own);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < 100 => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Spec, partition};
    use super::*;

    fn labels() -> Vec<u16> {
        (0..60).map(|i| i % 3).collect()
    }

    fn made() -> PartitionFile {
        let spec = Spec { kind: Kind::dirichlet(0.3), clients: 5 };
        let made = partition(&labels(), 3, &spec, u64::MAX).unwrap();
        PartitionFile::new("toy", &labels(), 3, &made)
    }

    #[test]
    fn round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        let file = made();
        file.write(&path, false).unwrap();
        assert_eq!(PartitionFile::read(&path).unwrap(), file);
        assert_eq!(PartitionFile::read_for(&path, &labels()).unwrap(), file);
        let text = fs::read_to_string(&path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("    [")).count();
        assert_eq!(rows, 5, "{text}");
        assert!(text.contains("\"min-size\": 10\n"), "{text}");
        assert!(text.contains("\"alpha\": 0.3"), "{text}");
    }

    #[test]
    fn nothing_is_overwritten_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        fs::write(&path, "mine").unwrap();
        assert!(matches!(made().write(&path, false).unwrap_err(), Error::Exists { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        made().write(&path, true).unwrap();
        assert_eq!(PartitionFile::read(&path).unwrap(), made());
        // No temporary file stays.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let nowhere = dir.path().join("no/p.json");
        assert!(matches!(made().write(&nowhere, false).unwrap_err(), Error::Io { .. }));
        assert!(made().write(Path::new("/"), true).is_err());
    }

    fn read_changed(change: impl Fn(&mut serde_json::Value)) -> Error {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        made().write(&path, false).unwrap();
        let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, value.to_string()).unwrap();
        PartitionFile::read(&path).unwrap_err()
    }

    #[test]
    fn bad_files_are_refused() {
        let error = read_changed(|v| v["version"] = 2.into());
        assert!(error.to_string().contains("version: expected 1, found 2"));
        let error = read_changed(|v| v["format"] = "other".into());
        assert!(matches!(error, Error::PartitionHeader { field: "format", .. }));
        let error = read_changed(|v| v["clients"][2] = serde_json::json!([]));
        assert!(matches!(error, Error::EmptyClient { client: 2, .. }));
        let error = read_changed(|v| v["clients"][1][0] = 60.into());
        assert!(matches!(error, Error::IndexRange { client: 1, index: 60, samples: 60, .. }));
        let error = read_changed(|v| v["clients"][4][0] = v["clients"][3][0].clone());
        assert!(matches!(error, Error::DuplicateIndex { client: 4, owner: 3, .. }));
        let error = read_changed(|v| v["clients"] = serde_json::json!([]));
        assert!(error.to_string().contains("clients"), "{error}");
        for bad in [(-1).into(), serde_json::json!(4_294_967_296u64)] {
            let error = read_changed(|v| v["clients"][0][0] = bad.clone());
            assert!(matches!(error, Error::Json { .. }), "{error}");
        }
        let error = read_changed(|v| v["sed"] = 1.into());
        assert!(error.to_string().contains("sed"), "{error}");
        let error = read_changed(|v| *v = serde_json::json!([1]));
        assert!(matches!(error, Error::Json { .. }));
    }

    #[test]
    fn other_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        made().write(&path, false).unwrap();
        let mut other = labels();
        other[0] = 1;
        for labels in [&other[..], &labels()[..59]] {
            let error = PartitionFile::read_for(&path, labels).unwrap_err();
            assert!(matches!(error, Error::OtherData { .. }));
            assert!(error.to_string().contains("'toy'"), "{error}");
        }
    }
}
