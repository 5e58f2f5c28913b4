//! A request to a catalogue reader, and its search for files.

use std::path::{Path, PathBuf};

use crate::catalogue::{self, CatalogueEntry};
use crate::dataset::{Dataset, Normalisation, Split};
use crate::error::{DataError, SearchedFolder};
use crate::skipped::Skipped;

/// Which data set is read, from where and how.
pub struct Request<'a> {
    pub(crate) entry: &'static CatalogueEntry,
    pub(crate) dir: &'a Path,
    /// Height and width to scale images to.
    pub(crate) size: Option<(usize, usize)>,
    pub(crate) skipped: &'a mut Skipped,
}

impl Request<'_> {
    /// The first of these folders in `dir` that lacks nothing. An empty name is `dir` itself.
    pub(crate) fn root(&self, folders: &[&str], lacks: impl Fn(&Path) -> Vec<String>) -> Result<PathBuf, DataError> {
        let mut places = Vec::new();
        for name in folders {
            let folder = if name.is_empty() { self.dir.to_path_buf() } else { self.dir.join(name) };
            let missing = lacks(&folder);
            if missing.is_empty() {
                return Ok(folder);
            }
            places.push(SearchedFolder { exists: folder.is_dir(), folder, missing });
        }
        Err(DataError::Missing { dataset: self.entry.name, dir: self.dir.to_path_buf(), places })
    }

    /// The official files, in order, each under the first of its names that exists.
    ///
    /// They are searched for in the set's folder, then in `dir`, unless `dir` is named like another set's folder with
    /// the same files: one set is never read as another.
    pub(crate) fn files(&self, names: impl Fn(&str) -> Vec<String>) -> Result<Vec<PathBuf>, DataError> {
        let entry = self.entry;
        let find =
            |folder: &Path, name: &str| names(name).iter().map(|name| folder.join(name)).find(|path| path.exists());
        let own_name = self.dir.file_name().and_then(|name| name.to_str());
        let foreign = catalogue::entries().any(|other| {
            other.files == entry.files
                && other.folder != entry.folder
                && other.folder.is_some_and(|f| Some(f) == own_name)
        });
        let folders = [entry.folder.unwrap_or_default(), ""];
        let root = self.root(if foreign { &folders[..1] } else { &folders }, |folder| {
            let missing = entry.files.iter().filter(|name| find(folder, name).is_none());
            missing.map(|name| name.to_string()).collect()
        })?;
        Ok(entry.files.iter().map(|name| find(&root, name).unwrap_or_else(|| root.join(name))).collect())
    }

    /// The data set, with its shape from the catalogue.
    pub(crate) fn dataset(&self, classes: &[&str], train: Split, test: Split, normalisation: Normalisation) -> Dataset {
        let classes = classes.iter().map(|class| class.to_string()).collect();
        Dataset {
            name: self.entry.name.to_string(),
            classes,
            shape: self.entry.shape,
            train,
            test,
            normalisation,
            table: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::catalogue::SetName;

    fn locate(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
        let mut skipped = Skipped::default();
        let request = Request { entry: SetName::Sst5.entry(), dir, size: None, skipped: &mut skipped };
        request.files(|name| vec![name.to_string(), format!("{name}.gz")])
    }

    #[test]
    fn sub_folder_then_folder() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("train.txt.gz"), "").unwrap();
        let text = locate(dir.path()).unwrap_err().to_string();
        assert!(text.contains("'sst5'"), "{text}");
        assert!(text.contains("trees (no such folder)"), "{text}");
        assert!(text.contains("(lacks test.txt)"), "{text}");
        fs::write(dir.path().join("test.txt"), "").unwrap();
        assert_eq!(locate(dir.path()).unwrap(), ["train.txt.gz", "test.txt"].map(|name| dir.path().join(name)));
        let sub = dir.path().join("sst5/trees");
        fs::create_dir_all(&sub).unwrap();
        let names = ["train.txt", "test.txt"].map(|name| sub.join(name));
        names.iter().for_each(|path| fs::write(path, "").unwrap());
        assert_eq!(locate(dir.path()).unwrap(), names);
    }
}
