//! `latest` in the path of a run: the run that was written to last.
//!
//! It is looked up rather than linked, so it works on every file system and never points to a run that is gone.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Result, anyhow};
use fedelity_record::names;

use crate::printer::Printer;

/// The word.
const LATEST: &str = "latest";
/// Where `latest` alone looks, and where `run` writes by default.
const RUNS: &str = "runs";
/// Maximum depth of a run in its folder.
const DEPTH: usize = 6;

/// The path with `latest` replaced by a folder, unless there is a file or folder of that name. `latest` alone is
/// `runs/latest`.
pub fn find(path: &Path) -> Result<PathBuf> {
    let mut found = PathBuf::new();
    let mut changed = false;
    for part in path.components() {
        let next = found.join(part);
        if part != Component::Normal(LATEST.as_ref()) || changed || next.exists() {
            found = next;
            continue;
        }
        let folder = if found.as_os_str().is_empty() { Path::new(RUNS) } else { &found };
        found =
            newest_in(folder).ok_or_else(|| anyhow!("{}: there is no run in {}", path.display(), folder.display()))?;
        changed = true;
    }
    Ok(if changed { found } else { path.to_path_buf() })
}

/// As [`find`], and says what was found.
pub(crate) fn resolve(path: &Path, printer: &Printer) -> Result<PathBuf> {
    let found = find(path)?;
    if found != path {
        printer.say(format_args!("{} is {}", path.display(), found.display()));
    }
    Ok(found)
}

/// As [`resolve`], for several paths.
pub(crate) fn resolve_all(paths: &[PathBuf], printer: &Printer) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| resolve(path, printer)).collect()
}

/// How to name a new run in a command that comes next.
pub(crate) fn name_of(folder: &Path) -> PathBuf {
    let newest = || newest_in(Path::new(RUNS));
    if newest().is_some_and(|newest| newest == folder) { Path::new(RUNS).join(LATEST) } else { folder.to_path_buf() }
}

/// The folder in a folder in which a run recorded something last.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let found = subfolders(folder).into_iter().filter_map(|path| Some((recorded(&path, DEPTH)?, path)));
    found.max().map(|(_, path)| path)
}

/// When a run in or below a folder recorded something last, if there is one.
fn recorded(folder: &Path, depth: usize) -> Option<SystemTime> {
    let rounds = fs::metadata(folder.join(names::ROUNDS)).and_then(|file| file.modified()).ok();
    if rounds.is_some() || depth == 0 {
        return rounds;
    }
    subfolders(folder).iter().filter_map(|below| recorded(below, depth - 1)).max()
}

/// The folders in a folder that are complete: links and names that start with a dot are not followed.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_hidden = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_hidden(entry));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_that_recorded_last() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        let of = |path: &str| find(&runs.join(path)).map_err(|error| error.to_string());
        assert!(of("latest").unwrap_err().ends_with(&format!("there is no run in {}", runs.display())));
        let at = |path: &str, seconds: u64| {
            fs::create_dir_all(runs.join(path)).unwrap();
            let file = fs::File::create(runs.join(path).join(names::ROUNDS)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        at("b", 10);
        at("a/fedntd/seed-1", 20);
        at(".c", 30);
        fs::create_dir_all(runs.join("z/notes")).unwrap();
        assert_eq!(of("latest").unwrap(), runs.join("a"));
        assert_eq!(of("latest/fedntd/seed-1").unwrap(), runs.join("a/fedntd/seed-1"));
        assert_eq!(of("b").unwrap(), runs.join("b"));
        at("b", 40);
        assert_eq!(of("latest").unwrap(), runs.join("b"));
        // A folder of that name is what it says.
        fs::create_dir(runs.join("latest")).unwrap();
        assert_eq!(of("latest").unwrap(), runs.join("latest"));
    }
}
