//! Files that are written whole or not at all, folders that one process at a time writes to, and work that several
//! processes share. And files that are read only if they are files, and no further than a bound.
//!
//! Bytes go to a temporary file in the target's folder, which is synced and then renamed. After an error nothing is
//! left behind and an existing file is untouched. Leftovers of a killed process are removed by the next writer of the
//! same file.

mod claims;
mod holder;
mod lock;
mod reading;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

pub use claims::{Claim, ClaimState, Claims, Listing, Taking, Worker};
pub use holder::Holder;
pub use lock::{Lock, LockError};
pub use reading::{LISTING, RECORD, TEXT, WEIGHTS, open, read, read_named, read_text};

const SUFFIX: &str = ".part";

/// Writes a file, replacing an existing one.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Atomic::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// Writes a file that does not exist yet.
///
/// # Errors
/// When the file cannot be written; [`ErrorKind::AlreadyExists`] if the file exists, even if it has just appeared.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Atomic::create(path)?;
    file.write_all(bytes)?;
    file.commit_new()
}

/// Waits until files of one folder are on disk.
///
/// # Errors
/// When one of them cannot be opened or written.
pub fn sync<'a>(folder: &Path, files: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
    files.into_iter().try_for_each(|path| File::options().write(true).open(path)?.sync_all())?;
    sync_folder(folder)
}

/// Parts a folder from a process that seems dead and may have it open: its lock and the files that it has not finished are
/// removed. What it does to them from now on happens nowhere.
///
/// # Errors
/// When the folder cannot be read.
pub fn detach(folder: &Path) -> io::Result<()> {
    lock::remove(folder);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b".") && name.ends_with(SUFFIX.as_bytes()) && entry.file_type()?.is_file() {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// A file being written in pieces. [`Atomic::commit`] makes it appear under its name; otherwise it is discarded.
#[derive(Debug)]
pub struct Atomic {
    file: BufWriter<File>,
    temporary: TempPath,
    path: PathBuf,
}

impl Atomic {
    /// Starts a file that will appear at this path.
    ///
    /// # Errors
    /// When its folder is not writable, or the path does not name a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the path names no file"))?;
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        remove_abandoned(folder_of(path), prefix.as_encoded_bytes());
        let (file, temporary) = create_locked(folder_of(path), &prefix)?.into_parts();
        Ok(Self { file: BufWriter::with_capacity(1 << 16, file), temporary, path: path.to_path_buf() })
    }

    /// Moves the file into place, replacing an existing one.
    ///
    /// # Errors
    /// When the rest cannot be written or the file cannot be renamed.
    pub fn commit(self) -> io::Result<()> {
        self.place(|temporary, path| temporary.persist(path).map_err(|error| error.error))
    }

    /// Moves the file into place, where no file may exist.
    ///
    /// # Errors
    /// As [`Atomic::commit`]; [`ErrorKind::AlreadyExists`] if a file exists.
    pub fn commit_new(self) -> io::Result<()> {
        self.place(|temporary, path| temporary.persist_noclobber(path).map_err(|error| error.error))
    }

    /// Moves the file into place without waiting for the disk: it survives the end of the process, but not a power cut
    /// before [`sync`].
    ///
    /// # Errors
    /// As [`Atomic::commit`].
    pub fn commit_unsynced(self) -> io::Result<()> {
        self.file.into_inner().map_err(|error| error.into_error())?;
        self.temporary.persist(&self.path).map_err(|error| error.error)
    }

    fn place(self, rename: impl FnOnce(TempPath, &Path) -> io::Result<()>) -> io::Result<()> {
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        rename(self.temporary, &self.path)?;
        sync_folder(folder_of(&self.path))
    }
}

impl Write for Atomic {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file whose lock shows other processes that its writer is alive.
fn create_locked(folder: &Path, prefix: &OsStr) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new()
            .prefix(prefix)
            .suffix(SUFFIX)
            .make_in(folder, |path| File::options().write(true).create_new(true).open(path))?;
        // Before it was locked, another process may have considered it abandoned.
        let taken = matches!(file.as_file().try_lock(), Err(TryLockError::WouldBlock));
        if !taken && file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files that nobody has locked. Failures are harmless and ignored.
fn remove_abandoned(folder: &Path, prefix: &[u8]) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(prefix)
            && name.ends_with(SUFFIX.as_bytes())
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes a rename survive a power cut.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot sync a folder, and some folders can be written to but not read.
        Err(error) if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::PermissionDenied) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_complete_or_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mut file = Atomic::create(&path).unwrap();
        file.write_all(&[7; 200_000]).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["a.json"]);
        let mut file = Atomic::create(&path).unwrap();
        (0..1000).for_each(|i| file.write_all(&[i as u8; 100]).unwrap());
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 100_000);
    }

    #[test]
    fn an_existing_file_is_refused_on_demand() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let late = Atomic::create(&path).unwrap();
        write_new(&path, b"one").unwrap();
        assert_eq!(late.commit_new().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(write_new(&path, b"two").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn errors_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        assert!(write(&dir.path().join("a"), b"x").is_err(), "a folder is in its place");
        assert_eq!(names(dir.path()), ["a"]);
        let error = write(&dir.path().join("none/a"), b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(!error.to_string().contains(".part"), "{error}");
        assert_eq!(write(Path::new("/"), b"x").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn only_leftovers_of_killed_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut other = Atomic::create(&path).unwrap();
        fs::write(dir.path().join(".a.left.part"), b"x").unwrap();
        fs::write(dir.path().join(".b.left.part"), b"x").unwrap();
        write(&path, b"one").unwrap();
        other.write_all(b"two").unwrap();
        other.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), [".b.left.part", "a"]);
    }

    #[test]
    fn a_folder_is_parted_from_whoever_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = Lock::acquire(dir.path()).unwrap();
        let mut open = Atomic::create(&dir.path().join("a")).unwrap();
        open.write_all(b"x").unwrap();
        fs::create_dir(dir.path().join(".b.part")).unwrap();
        fs::write(dir.path().join("c"), b"x").unwrap();
        detach(dir.path()).unwrap();
        assert_eq!(names(dir.path()), [".b.part", "c"]);
        assert!(open.commit().is_err());
        let _second = Lock::acquire(dir.path()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn permissions_follow_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), b"x").unwrap();
        write(&dir.path().join("b"), b"x").unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("a"), mode("b"));
    }
}
