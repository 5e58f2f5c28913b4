//! The files of a table: one, several, or all of a folder. Each can be a site of its own.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use fedelity_keys::{Typed, ValueType};

use super::{TableFormat, TableSource};
use crate::error::DataError;
use crate::folder::entries;

/// Where the rows of a table are.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
pub enum TableFiles {
    /// A file, or a folder whose files are read.
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl Typed for TableFiles {
    const TYPE: ValueType = ValueType::Either(&[ValueType::Path, ValueType::List { of: &ValueType::Path, len: None }]);
}

/// A file with rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) path: PathBuf,
    /// Where its rows come from, if no column says so: the file is a site.
    pub(super) site: Option<String>,
}

impl TableFile {
    /// A file whose rows say where they come from, or do not.
    pub(super) fn alone(path: &Path) -> Self {
        Self { path: path.to_path_buf(), site: None }
    }
}

impl std::fmt::Display for TableFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(path) => path.display().fmt(f),
            Self::Several(paths) => {
                let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}

impl TableFiles {
    /// The paths as they were given.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            Self::One(path) => std::slice::from_ref(path),
            Self::Several(paths) => paths,
        }
    }

    /// The file or folder to name in an error about all of them.
    pub(crate) fn first(&self) -> &Path {
        self.paths().first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// The files. If there may be several and no column says where a row comes from, each is a site.
    pub(super) fn list(&self, format: TableFormat, table: &TableSource) -> Result<Vec<TableFile>, DataError> {
        let paths = match self {
            Self::One(path) if path.is_dir() => of_folder(path, format)?,
            Self::One(path) => return Ok(vec![TableFile::alone(path)]),
            Self::Several(paths) => {
                for (i, path) in paths.iter().enumerate() {
                    if path.is_dir() {
                        let reason = "expected a file: a list names files, and a folder is named alone";
                        return Err(DataError::unusable(path, None, reason));
                    }
                    if paths[..i].contains(path) {
                        return Err(DataError::unusable(path, None, "the file is named twice"));
                    }
                }
                paths.clone()
            }
        };
        let names =
            if table.key.is_none() { sites(&paths).into_iter().map(Some).collect() } else { vec![None; paths.len()] };
        Ok(paths.into_iter().zip(names).map(|(path, site)| TableFile { path, site }).collect())
    }
}

/// The files of a folder, sorted by name.
fn of_folder(folder: &Path, format: TableFormat) -> Result<Vec<PathBuf>, DataError> {
    let expected = format.endings().iter().map(|end| format!(".{end}")).collect::<Vec<_>>().join(" or ");
    let mut found = Vec::new();
    for (_, path) in entries(folder)? {
        if path.is_dir() || TableFormat::of(&path) != Some(format) {
            let reason = format!(
                "expected only files that end in {expected} in a folder of tables; a list of files leaves others out"
            );
            return Err(DataError::unusable(&path, None, reason));
        }
        found.push(path);
    }
    if found.is_empty() {
        return Err(DataError::unusable(folder, None, format!("the folder has no file that ends in {expected}")));
    }
    Ok(found)
}

/// A name for each file: its own without the ending, or that of its folder if these are different, or both.
fn sites(paths: &[PathBuf]) -> Vec<String> {
    let own = |path: &PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = |path: &PathBuf| {
        path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let both = |path: &PathBuf| format!("{}/{}", folder(path), own(path));
    let whole = |path: &PathBuf| path.display().to_string();
    let namings: [&dyn Fn(&PathBuf) -> String; 4] = [&own, &folder, &both, &whole];
    let made: Vec<Vec<String>> = namings.iter().map(|naming| paths.iter().map(naming).collect()).collect();
    let different = |names: &&Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    made.iter().find(different).or(made.last()).cloned().unwrap_or_default()
}

/// Checks that all files have the columns of the first, apart from those to ignore. `columns` are those of each file.
pub(super) fn same_columns(files: &[TableFile], columns: &[Vec<String>], ignore: &[String]) -> Result<(), DataError> {
    let (Some(first), Some(known)) = (files.first(), columns.first()) else { return Ok(()) };
    for (file, names) in files.iter().zip(columns).skip(1) {
        let other = |a: &[String], b: &[String]| {
            let known: HashSet<&String> = b.iter().chain(ignore).collect();
            a.iter().find(|name| !known.contains(name)).cloned()
        };
        let first = first.path.display();
        if let Some(name) = other(known, names) {
            let reason =
                format!("there is no column '{name}', which {first} has; data.ignore = [\"{name}\"] leaves it out");
            return Err(DataError::unusable(&file.path, Some(1), reason));
        }
        if let Some(name) = other(names, known) {
            let reason = format!("{first} has no column '{name}'; data.ignore = [\"{name}\"] leaves it out");
            return Err(DataError::unusable(&file.path, Some(1), reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_shortly_as_possible() {
        let names = |paths: &[&str]| sites(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["x/mercy.csv", "y/st-mary.v2.csv"]), ["mercy", "st-mary.v2"]);
        assert_eq!(names(&["mercy/rows.csv", "saint/rows.csv"]), ["mercy", "saint"]);
        assert_eq!(names(&["a/x.csv", "a/y.csv", "b/x.csv"]), ["a/x", "a/y", "b/x"]);
        assert_eq!(names(&["1/a/x.csv", "2/a/x.csv"]), ["1/a/x.csv", "2/a/x.csv"]);
        assert_eq!(names(&[]), Vec::<String>::new());
    }
}
