//! Runs in MLflow's file store: one folder per experiment and run, one file per metric, parameter and tag.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::RecordError;
use crate::plain_name::{numbered, plain_name};
use crate::round::RoundRecord;
use crate::scalars::scalars;
use crate::summary::Status;

/// The file that describes an experiment or a run.
const META: &str = "meta.yaml";
/// MLflow reads longer values of parameters as errors.
const LONGEST_VALUE: usize = 6_000;

/// A run, as MLflow sees it.
#[derive(Clone, Debug)]
pub struct MlflowRun<'a> {
    /// 32 hexadecimal digits.
    pub id: &'a str,
    pub name: &'a str,
    pub status: Option<Status>,
    pub rounds: &'a [RoundRecord],
    pub classes: &'a [String],
    /// Settings by key.
    pub params: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    /// Files that belong to it, by name.
    pub files: Vec<(&'a str, Vec<u8>)>,
    /// When its first round began, in milliseconds since 1970.
    pub start: i64,
}

/// A folder that MLflow reads.
#[derive(Clone, Debug)]
pub struct MlflowStore {
    root: PathBuf,
}

impl MlflowStore {
    /// Opens the folder, or makes it.
    pub fn open(root: &Path) -> Result<Self, RecordError> {
        fs::create_dir_all(root).map_err(RecordError::io("create", root))?;
        // MLflow needs the whole path of what belongs to a run.
        let root = fs::canonicalize(root).map_err(RecordError::io("open", root))?;
        Ok(Self { root })
    }

    /// The folder of the experiment with this name, and its ID; a new one if there is none.
    fn experiment(&self, name: &str, time: i64) -> Result<(PathBuf, String), RecordError> {
        let entries = fs::read_dir(&self.root).map_err(RecordError::io("read", &self.root))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Ok(meta) = fedelity_files::read_text(&path.join(META), fedelity_files::TEXT) else { continue };
            let (Some(found), Some(id)) = (field(&meta, "name"), field(&meta, "experiment_id")) else { continue };
            let own = path.file_name().is_some_and(|folder| *folder == *id);
            if own && found == name && field(&meta, "lifecycle_stage").as_deref() == Some("active") {
                return Ok((path, id));
            }
        }
        // MLflow's own IDs have 18 digits.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut id = 100_000_000_000_000_000 + hash % 800_000_000_000_000_000;
        let mut folder = self.root.join(id.to_string());
        while let Err(error) = fs::create_dir(&folder) {
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(RecordError::io("create", &folder)(error));
            }
            id += 1;
            folder = self.root.join(id.to_string());
        }
        let meta = [
            ("artifact_location", quoted(&address(&folder))),
            ("creation_time", time.to_string()),
            ("experiment_id", quoted(&id.to_string())),
            ("last_update_time", time.to_string()),
            ("lifecycle_stage", "active".to_string()),
            ("name", quoted(name)),
        ];
        write(&folder.join(META), lines(&meta).as_bytes())?;
        Ok((folder, id.to_string()))
    }

    /// Adds a run to an experiment; returns its folder, or `None` if the store has the run already.
    pub fn add(&self, experiment: &str, run: &MlflowRun<'_>) -> Result<Option<PathBuf>, RecordError> {
        let id = plain_name(run.id);
        let (above, experiment) = self.experiment(experiment, run.start)?;
        let folder = above.join(&id);
        if fs::symlink_metadata(&folder).is_ok() {
            return Ok(None);
        }
        // It appears all at once, when it is complete.
        let part = above.join(format!(".{id}.part"));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(RecordError::io("remove", &part))?;
        }
        for name in ["metrics", "params", "tags", "artifacts"] {
            let path = part.join(name);
            fs::create_dir_all(&path).map_err(RecordError::io("create", &path))?;
        }
        let end = run.metrics(&part.join("metrics"))?;
        for (key, value) in &run.params {
            let value: String = value.chars().take(LONGEST_VALUE).collect();
            write(&part.join("params").join(plain_name(key)), value.as_bytes())?;
        }
        let named = ("mlflow.runName".to_string(), run.name.to_string());
        for (key, value) in run.tags.clone().into_iter().chain([named]) {
            write(&part.join("tags").join(plain_name(&key)), value.as_bytes())?;
        }
        for (name, bytes) in &run.files {
            write(&part.join("artifacts").join(plain_name(name)), bytes)?;
        }
        // The numbers of MLflow's RunStatus.
        let (status, end) = match run.status {
            Some(Status::Finished | Status::StoppedEarly { .. }) => (3, end.to_string()),
            Some(Status::Diverged { .. }) => (4, end.to_string()),
            Some(Status::Interrupted) => (5, end.to_string()),
            None => (1, "null".to_string()),
        };
        let meta = [
            ("artifact_uri", quoted(&address(&folder.join("artifacts")))),
            ("end_time", end),
            ("entry_point_name", "''".to_string()),
            ("experiment_id", quoted(&experiment)),
            ("lifecycle_stage", "active".to_string()),
            ("run_id", quoted(&id)),
            ("run_name", quoted(run.name)),
            ("run_uuid", quoted(&id)),
            ("source_name", "fedelity".to_string()),
            ("source_type", "4".to_string()),
            ("source_version", "''".to_string()),
            ("start_time", run.start.to_string()),
            ("status", status.to_string()),
            ("tags", "[]".to_string()),
            ("user_id", "''".to_string()),
        ];
        write(&part.join(META), lines(&meta).as_bytes())?;
        fs::rename(&part, &folder).map_err(RecordError::io("create", &folder))?;
        Ok(Some(folder))
    }
}

impl MlflowRun<'_> {
    /// Writes one file for each number, with a line per round; returns when the last round ended.
    fn metrics(&self, folder: &Path) -> Result<i64, RecordError> {
        let mut files: BTreeMap<(&str, String), String> = BTreeMap::new();
        let mut time = self.start as f64;
        for round in self.rounds {
            time += 1_000.0 * round.seconds.total();
            for (group, name, value) in scalars(round, self.classes) {
                let line = format!("{} {value} {}\n", time as i64, round.round);
                files.entry((group, name)).or_default().push_str(&line);
            }
        }
        let mut taken: BTreeSet<PathBuf> = BTreeSet::new();
        for ((group, name), text) in files {
            let below = if group.is_empty() { folder.to_path_buf() } else { folder.join(group) };
            fs::create_dir_all(&below).map_err(RecordError::io("create", &below))?;
            let free = numbered(&plain_name(&name)).map(|name| below.join(name)).find(|path| !taken.contains(path));
            let Some(path) = free else { continue };
            write(&path, text.as_bytes())?;
            taken.insert(path);
        }
        Ok(time as i64)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    fedelity_files::write(path, bytes).map_err(RecordError::io("write", path))
}

/// A string that YAML reads as it is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn lines(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// The value of a field in a file like these.
fn field(meta: &str, key: &str) -> Option<String> {
    let value = meta.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim();
    if let Ok(text) = serde_json::from_str::<String>(value) {
        return Some(text);
    }
    let bare = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
    Some(bare.map_or_else(|| value.to_string(), |text| text.replace("''", "'")))
}

/// A path as a file address.
fn address(path: &Path) -> String {
    let mut out = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(*byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::Seconds;

    #[test]
    fn a_store_has_what_was_recorded_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a store");
        let store = MlflowStore::open(&root).unwrap();
        let round = |n: u64| RoundRecord {
            round: n,
            accuracy: Some(n as f64 / 10.0),
            class_accuracy: Some(vec![Some(0.5), None, Some(0.25)]),
            train_terms: [("../../../x".to_string(), 0.5)].into(),
            seconds: Seconds { train: 2.0, ..Seconds::default() },
            ..RoundRecord::default()
        };
        let rounds = [round(1), round(2)];
        let classes = ["cat/dog", "b", "../../y"].map(String::from);
        let run = MlflowRun {
            id: "0123456789abcdef0123456789abcdef",
            name: "it's: a \"run\"",
            status: Some(Status::Finished),
            rounds: &rounds,
            classes: &classes,
            params: [("../../z".to_string(), "1".to_string())].into(),
            tags: [("/etc/w".to_string(), "t".to_string())].into(),
            files: vec![("../../v", b"v".to_vec())],
            start: 1_000,
        };
        let folder = store.add("study", &run).unwrap().unwrap();
        assert!(store.add("study", &run).unwrap().is_none());
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("metrics/accuracy"), "3000 0.1 1\n5000 0.2 2\n");
        assert_eq!(read("metrics/class-accuracy/cat-dog"), "3000 0.5 1\n5000 0.5 2\n");
        assert_eq!(read("metrics/class-accuracy/-..-y"), "3000 0.25 1\n5000 0.25 2\n");
        assert_eq!(read("params/-..-z"), "1");
        assert_eq!(field(&read(META), "run_name").as_deref(), Some(run.name));
        assert_eq!(field(&read(META), "status").as_deref(), Some("3"));
        assert_eq!(field("name: 'it''s'\n", "name").as_deref(), Some("it's"));
        // One experiment, whoever asks, and nothing outside the store.
        let other = MlflowRun { id: "f".repeat(32).leak(), status: None, ..run.clone() };
        assert_eq!(store.add("study", &other).unwrap().unwrap().parent(), folder.parent());
        assert_ne!(store.add("../../u", &run).unwrap().unwrap().parent(), folder.parent());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2);
        assert!(address(Path::new("/a b/ü")).ends_with("/a%20b/%C3%BC"));
    }
}
