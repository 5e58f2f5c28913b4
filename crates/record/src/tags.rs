//! The user's tags for a run: a list of words next to its files.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::RecordError;
use crate::folder::names;

/// The tags of a run folder; none if there is no such file.
pub fn read_tags(folder: &Path) -> Result<Vec<String>, RecordError> {
    let path = folder.join(names::TAGS);
    match fedelity_files::read(&path, fedelity_files::TEXT) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(RecordError::io("read", &path)(error)),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| RecordError::Line {
            line: e.line().max(1),
            reason: format!("not a list of tags: {e}"),
            path,
        }),
    }
}

/// Writes the tags of a run folder, sorted and without duplicates.
pub fn write_tags(folder: &Path, tags: &[String]) -> Result<(), RecordError> {
    let path = folder.join(names::TAGS);
    let mut tags: Vec<&String> = tags.iter().collect();
    tags.sort();
    tags.dedup();
    let text = serde_json::to_string(&tags).map_err(|error| RecordError::io("write", &path)(error.into()))?;
    fedelity_files::write(&path, (text + "\n").as_bytes()).map_err(RecordError::io("write", &path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tags_come_back_sorted() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_tags(dir.path()).unwrap(), Vec::<String>::new());
        write_tags(dir.path(), &["b", "a", "b"].map(String::from)).unwrap();
        assert_eq!(read_tags(dir.path()).unwrap(), ["a", "b"]);
        fs::write(dir.path().join(names::TAGS), "{").unwrap();
        assert!(read_tags(dir.path()).unwrap_err().to_string().contains("not a list of tags"));
    }
}
