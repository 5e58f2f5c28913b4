//! Opening and reading files.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::DataError;

/// The maximum length of a line in bytes.
const LONGEST: u64 = 1 << 24;

/// Opens a regular file and returns its length.
pub(crate) fn open(path: &Path) -> Result<(File, u64), DataError> {
    // Checked before opening: opening a pipe would wait for a writer.
    let about = fs::metadata(path).map_err(DataError::io("open", path))?;
    if !about.is_file() {
        return Err(DataError::NotAFile { path: path.to_path_buf() });
    }
    let file = File::open(path).map_err(DataError::io("open", path))?;
    Ok((file, about.len()))
}

/// Reads at most `most` bytes of text.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, DataError> {
    let (file, _) = open(path)?;
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(DataError::io("read", path))?;
    Ok(text)
}

/// Calls `each` for the non-empty lines of a file with their numbers, until it returns false.
pub(crate) fn lines(path: &Path, mut each: impl FnMut(u64, &[u8]) -> Result<bool, DataError>) -> Result<(), DataError> {
    let (file, _) = open(path)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut text = Vec::new();
    let mut number = 0;
    loop {
        text.clear();
        number += 1;
        let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut text);
        if read.map_err(DataError::io("read", path))? == 0 {
            return Ok(());
        }
        if text.len() as u64 == LONGEST && text.last() != Some(&b'\n') {
            let reason = format!("the line is longer than {LONGEST} bytes");
            return Err(DataError::unusable(path, Some(number), reason));
        }
        let line = text.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(&text).trim_ascii();
        if !line.is_empty() && !each(number, line)? {
            return Ok(());
        }
    }
}

/// A line as text.
pub(crate) fn utf8(line: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(line).map_err(|error| format!("invalid UTF-8 at byte {} of the line", error.valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_not_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(open(dir.path()), Err(DataError::NotAFile { .. })));
        let nothing = dir.path().join("nothing");
        assert!(matches!(open(&nothing), Err(DataError::Io { .. })));
    }
}
