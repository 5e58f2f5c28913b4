//! Reading files that may be anything: a pipe would be waited for, and a device or a very large file would take all memory.

use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// What a file that people write, or a summary, has at most: 64 MiB.
pub const TEXT: u64 = 1 << 26;
/// What a file about every client has at most: 512 MiB.
pub const LISTING: u64 = 1 << 29;
/// What a record of rounds has at most: 4 GiB.
pub const RECORD: u64 = 1 << 32;
/// What weights have at most: 1 TiB.
pub const WEIGHTS: u64 = 1 << 40;

/// Opens a regular file.
///
/// # Errors
/// When it cannot be opened, or is something else.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before opening: opening a pipe would wait for a writer.
    if fs::metadata(path)?.is_file() { File::open(path) } else { Err(Error::other("it is not a file")) }
}

/// Reads a regular file of at most this many bytes.
///
/// # Errors
/// As [`open`], and when it is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_long(most));
    }
    bounded(file, most)
}

/// Reads a regular text file of at most this many bytes.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// Reads text that a user names, at most this many bytes, also from a pipe or a terminal.
///
/// # Errors
/// When it cannot be read, is longer or is not UTF-8.
pub fn read_named(path: &Path, most: u64) -> io::Result<String> {
    text(bounded(File::open(path)?, most)?)
}

fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

fn too_long(most: u64) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MB", most >> 20))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        Error::new(ErrorKind::InvalidData, format!("invalid UTF-8 at byte {}", error.utf8_error().valid_up_to()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_long_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "äbc").unwrap();
        assert_eq!(read(&path, 4).unwrap(), "äbc".as_bytes());
        assert_eq!(read(&path, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_named(&path, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!((read_text(&path, 9).unwrap(), read_named(&path, 9).unwrap()), ("äbc".into(), "äbc".into()));
        fs::write(&path, b"ab\xff").unwrap();
        assert_eq!(read_text(&path, 9).unwrap_err().to_string(), "invalid UTF-8 at byte 2");
        assert_eq!(read(dir.path(), 9).unwrap_err().to_string(), "it is not a file");
        assert_eq!(open(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        // Holes take no room on disk.
        File::create(&path).unwrap().set_len(TEXT + 1).unwrap();
        assert_eq!(read(&path, TEXT).unwrap_err().to_string(), "it has more than 64 MB");
    }

    #[test]
    #[cfg(unix)]
    fn neither_a_pipe_nor_a_device_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
            assert_eq!(read_text(&pipe, 9).unwrap_err().to_string(), "it is not a file");
        }
        let zero = dir.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        assert_eq!(read(&zero, 9).unwrap_err().to_string(), "it is not a file");
        assert_eq!(read_named(&zero, 1 << 20).unwrap_err().to_string(), "it has more than 1 MB");
    }
}
