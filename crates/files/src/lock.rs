//! A folder that one process at a time writes to.
//!
//! The lock is the operating system's, on the file `.lock` in the folder, so it ends with its process however that
//! dies. The file says who holds it, and is removed with the lock.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::holder::{Holder, LONGEST};

const NAME: &str = ".lock";
/// Somebody who looks at a lock holds it for a moment.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A folder that belongs to this process until the value is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

/// Why a folder cannot be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held(Holder),
    Io(io::Error),
}

impl Lock {
    /// Locks an existing folder.
    ///
    /// # Errors
    /// [`LockError::Held`] if a living process holds it; a lock left behind by a dead one is taken over.
    pub fn acquire(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(NAME);
        for _ in 0..TRIES {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    describe(&file)?;
                    return Ok(Self { file, path });
                }
                // Its last holder has just removed it.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        Err(LockError::Held(Self::holder(folder).unwrap_or_default()))
    }

    /// Who holds a folder's lock now, if anybody does.
    pub fn holder(folder: &Path) -> Option<Holder> {
        let mut file = File::open(folder.join(NAME)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read(&mut file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still locked, so that nobody's lock is removed. A leftover file is harmless.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a folder's lock, whoever has it.
pub(crate) fn remove(folder: &Path) {
    let _ = fs::remove_file(folder.join(NAME));
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(holder) => write!(f, "{holder} is writing to it"),
            Self::Io(error) => write!(f, "cannot lock it: {error}"),
        }
    }
}

impl std::error::Error for LockError {}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes who holds the lock.
fn describe(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(Holder::here().lines().as_bytes())
}

/// What a lock file says.
fn read(file: &mut File) -> Holder {
    let mut text = String::new();
    let _ = file.take(LONGEST).read_to_string(&mut text);
    Holder::of(&text)
}

/// Whether the path still names this open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// An open file cannot be removed here.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Lock::holder(dir.path()), None);
        let lock = Lock::acquire(dir.path()).unwrap();
        let holder = Lock::holder(dir.path()).unwrap();
        assert_eq!(holder.process, Some(std::process::id()));
        assert!(holder.since.unwrap() > 1_700_000_000);
        match Lock::acquire(dir.path()) {
            Err(error @ LockError::Held(_)) => {
                let process = std::process::id();
                assert!(error.to_string().starts_with(&format!("process {process}")), "{error}");
            }
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert_eq!(Lock::holder(dir.path()), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        drop(Lock::acquire(dir.path()).unwrap());
    }

    #[test]
    fn a_dead_holder_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "host: gone\nprocess: 1\nsince: 1\n").unwrap();
        assert_eq!(Lock::holder(dir.path()), None);
        let _lock = Lock::acquire(dir.path()).unwrap();
        assert_eq!(Lock::holder(dir.path()).unwrap().process, Some(std::process::id()));
    }

    #[test]
    fn many_threads_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut got = 0;
                    while got < 20 {
                        let Ok(lock) = Lock::acquire(dir.path()) else { continue };
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                        got += 1;
                    }
                });
            }
        });
    }

    #[test]
    fn what_a_file_says_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        fs::write(&path, "host: a\u{1b}[31mb\nprocess: 99999999999999\nsince: x\n").unwrap();
        let held = File::open(&path).unwrap();
        held.try_lock().unwrap();
        let holder = Lock::holder(dir.path()).unwrap();
        assert_eq!(holder, Holder { host: "a[31mb".to_string(), process: None, since: None });
        assert_eq!(holder.to_string(), "another process on a[31mb");
    }
}
