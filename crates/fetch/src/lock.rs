//! A lock that lets one process at a time fetch a data set into a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::{Event, FetchError};

/// Held until it is dropped or the process ends.
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits for another process that holds the lock.
    pub(crate) fn take(path: &Path, name: &str, event: &mut dyn FnMut(Event)) -> Result<Self, FetchError> {
        loop {
            let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = open.map_err(FetchError::io("open", path))?;
            match file.try_lock() {
                // File systems without locks work without one.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) => {
                    event(Event::Waiting { name: name.to_string() });
                    file.lock().map_err(FetchError::io("lock", path))?;
                }
            }
            if is_at(&file, path).map_err(FetchError::io("open", path))? {
                return Ok(Self { path: path.to_path_buf(), _file: file });
            }
        }
    }
}

/// Whether the file still has this name: the previous holder of the lock removes it.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let here = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// On other systems it is never removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

impl Drop for Lock {
    fn drop(&mut self) {
        if cfg!(unix) {
            // While the lock is held, so that only our own file is removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}
