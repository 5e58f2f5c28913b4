//! What people call a run: a list of words beside its files.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::Error;
use crate::folder::names;

/// The tags of a run folder; none if there is no such file.
pub fn read_tags(folder: &Path) -> Result<Vec<String>, Error> {
    let path = folder.join(names::TAGS);
    match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", &path)(error)),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| Error::Line {
            line: e.line().max(1),
            reason: format!("not a list of tags: {e}"),
            path,
        }),
    }
}

/// Writes the tags of a run folder, sorted, each once.
pub fn write_tags(folder: &Path, tags: &[String]) -> Result<(), Error> {
    let (path, aside) = (folder.join(names::TAGS), folder.join(".tags.part"));
    let mut tags: Vec<&String> = tags.iter().collect();
    tags.sort();
    tags.dedup();
    let text = serde_json::to_string(&tags).map_err(|error| Error::io("write", &path)(error.into()))?;
    fs::write(&aside, text + "\n").and_then(|()| fs::rename(&aside, &path)).map_err(|error| {
        let _ = fs::remove_file(&aside);
        Error::io("write", &path)(error)
    })
}

#[cfg(test)]
mod tests {
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
