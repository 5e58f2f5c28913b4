//! Finding the official files of a data set below a folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Place};

/// A file that is looked for: the name to show, and every name it may have.
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    pub(crate) variants: Vec<String>,
}

/// Looks for all `wanted` files in `dir/sub`, then in `dir`. Gives their paths in order.
///
/// `foreign` are folder names of other sets with the same file names: a `dir` so called is
/// not searched itself, so that one set is never read as the other.
pub(crate) fn locate(
    dataset: &'static str,
    dir: &Path,
    sub: &str,
    foreign: &[&str],
    wanted: &[Wanted],
) -> Result<Vec<PathBuf>, Error> {
    let mut folders = vec![dir.join(sub)];
    let own_name = dir.file_name().and_then(|name| name.to_str());
    if !own_name.is_some_and(|name| foreign.contains(&name)) {
        folders.push(dir.to_path_buf());
    }
    let mut places = Vec::new();
    for folder in folders {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for file in wanted {
            let hit = file.variants.iter().map(|name| folder.join(name)).find(|path| path.exists());
            match hit {
                Some(path) => found.push(path),
                None => missing.push(file.name.to_string()),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        places.push(Place { exists: folder.is_dir(), folder, missing });
    }
    Err(Error::Missing { dataset, places })
}

/// Opens a regular file and gives its length.
pub(crate) fn open(path: &Path) -> Result<(File, u64), Error> {
    let failed = |source| Error::Io { action: "open", source, path: path.to_path_buf() };
    // Looked at before opening: opening a pipe would wait for a writer.
    let about = fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(Error::NotAFile { path: path.to_path_buf() });
    }
    let file = File::open(path).map_err(failed)?;
    Ok((file, about.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Vec<Wanted> {
        vec![
            Wanted { name: "a", variants: vec!["a".to_string(), "a.gz".to_string()] },
            Wanted { name: "b", variants: vec!["b".to_string()] },
        ]
    }

    #[test]
    fn sub_folder_then_folder() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.gz"), "").unwrap();
        fs::write(dir.path().join("b"), "").unwrap();
        let found = locate("set", dir.path(), "sub", &[], &wanted()).unwrap();
        assert_eq!(found, [dir.path().join("a.gz"), dir.path().join("b")]);

        let sub = dir.path().join("sub");
        fs::create_dir(&sub).unwrap();
        fs::write(sub.join("a"), "").unwrap();
        fs::write(sub.join("b"), "").unwrap();
        let found = locate("set", dir.path(), "sub", &[], &wanted()).unwrap();
        assert_eq!(found, [sub.join("a"), sub.join("b")]);
    }

    #[test]
    fn missing_names_files_and_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        let text = locate("set", dir.path(), "sub", &[], &wanted()).unwrap_err().to_string();
        assert!(text.contains("'set'"), "{text}");
        assert!(text.contains("sub (no such folder)"), "{text}");
        assert!(text.contains("(lacks b)"), "{text}");
    }

    #[test]
    fn folder_of_another_set_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("a"), "").unwrap();
        fs::write(other.join("b"), "").unwrap();
        assert!(locate("set", &other, "sub", &[], &wanted()).is_ok());
        assert!(locate("set", &other, "sub", &["other"], &wanted()).is_err());
    }

    #[test]
    fn a_folder_is_not_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(open(dir.path()), Err(Error::NotAFile { .. })));
        let nothing = dir.path().join("nothing");
        assert!(matches!(open(&nothing), Err(Error::Io { .. })));
    }
}
