//! Unpacks archives strictly inside a folder.
//!
//! Only plain files and folders are accepted. Names that lead out of the folder, links, devices, duplicate files, and
//! more bytes or files than the limits allow are rejected; the caller removes what was already unpacked.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use crate::FetchError;

/// Limits on the size of an unpacked archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total bytes of all files.
    pub bytes: u64,
    /// Number of files and folders.
    pub entries: u64,
}

impl Default for Limits {
    /// 16 GiB and two million files.
    fn default() -> Self {
        Self { bytes: 16 << 30, entries: 2_000_000 }
    }
}

/// Maximum padding after the end of a tar archive.
const LONGEST_END: u64 = 1 << 20;

/// Maximum bytes before the content of an entry: its header, and headers with its name if that is long, which are read
/// into memory.
const LONGEST_HEADER: u64 = 1 << 20;

/// A stream of which only so much may be read.
struct Metered<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!("the header of an entry has more than {LONGEST_HEADER} bytes")));
        }
        let read = self.inner.read(&mut buffer[..most])?;
        self.left.set(self.left.get() - read as u64);
        Ok(read)
    }
}

/// Unpacking progress.
struct Unpacked<'a> {
    archive: &'a Path,
    into: &'a Path,
    left: Limits,
}

/// Unpacks a gzip-compressed tar archive.
pub fn tar_gz(archive: &Path, into: &Path, limits: Limits) -> Result<(), FetchError> {
    let mut unpacked = Unpacked { archive, into, left: limits };
    let damaged =
        |error: io::Error| FetchError::Archive { path: archive.to_path_buf(), reason: format!("damaged: {error}") };
    let file = open(archive)?;
    // A header that promises more than the limit for all files is not read to its end.
    let stream = MultiGzDecoder::new(BufReader::new(file)).take(limits.bytes.saturating_mul(2));
    let left = Rc::new(Cell::new(LONGEST_HEADER));
    let mut tar = tar::Archive::new(Metered { inner: stream, left: Rc::clone(&left) });
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        left.set(u64::MAX);
        let name = entry.path().map_err(damaged)?.into_owned();
        match entry.header().entry_type() {
            EntryType::Directory => unpacked.folder(&name)?,
            EntryType::Regular | EntryType::Continuous => {
                let length = entry.size();
                unpacked.file(&name, length, &mut entry)?;
            }
            EntryType::XGlobalHeader => unpacked.count(&name)?,
            other => return Err(unpacked.refuse(&name, &format!("is neither a file nor a folder ({other:?})"))),
        }
        left.set(LONGEST_HEADER);
    }
    left.set(u64::MAX);
    // The checksum of the compressed stream is at its end.
    let rest = io::copy(&mut tar.into_inner().take(LONGEST_END), &mut io::sink()).map_err(damaged)?;
    if rest == LONGEST_END {
        return Err(damaged(io::Error::other("there are bytes after its end")));
    }
    Ok(())
}

/// Unpacks a zip archive.
pub fn zip(archive: &Path, into: &Path, limits: Limits) -> Result<(), FetchError> {
    let mut unpacked = Unpacked { archive, into, left: limits };
    let damaged =
        |reason: String| FetchError::Archive { path: archive.to_path_buf(), reason: format!("damaged: {reason}") };
    let mut zip = zip::ZipArchive::new(BufReader::new(open(archive)?)).map_err(|error| damaged(error.to_string()))?;
    for i in 0..zip.len() {
        let mut entry = zip.by_index(i).map_err(|error| damaged(error.to_string()))?;
        let name = PathBuf::from(entry.name().map_err(|error| damaged(error.to_string()))?.into_owned());
        // The upper half of the attributes is the Unix mode, with the file type in its upper bits.
        let kind = entry.unix_mode().map_or(0, |mode| mode & 0o170_000);
        if entry.is_dir() {
            unpacked.folder(&name)?;
        } else if kind == 0 || kind == 0o100_000 {
            let length = entry.size();
            unpacked.file(&name, length, &mut entry)?;
        } else {
            return Err(unpacked.refuse(&name, "is neither a file nor a folder"));
        }
    }
    Ok(())
}

fn open(archive: &Path) -> Result<File, FetchError> {
    File::open(archive).map_err(FetchError::io("open", archive))
}

impl Unpacked<'_> {
    fn refuse(&self, name: &Path, what: &str) -> FetchError {
        let reason = format!("the entry '{}' {what}", name.display());
        FetchError::Archive { path: self.archive.to_path_buf(), reason }
    }

    fn count(&mut self, name: &Path) -> Result<(), FetchError> {
        let left = self.left.entries.checked_sub(1);
        self.left.entries = left.ok_or_else(|| self.refuse(name, "exceeds the allowed number of entries"))?;
        Ok(())
    }

    /// The path of an entry: inside the folder, whatever its name.
    fn place(&mut self, name: &Path) -> Result<PathBuf, FetchError> {
        self.count(name)?;
        let text = name.to_str().unwrap_or("\\");
        // On other systems a backslash or a colon could lead elsewhere.
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if text.is_empty() || text.contains(['\\', ':', '\0']) || !name.components().all(plain) {
            return Err(self.refuse(name, "would be written outside its folder"));
        }
        Ok(self.into.join(name.components().filter(|part| matches!(part, Component::Normal(_))).collect::<PathBuf>()))
    }

    fn folder(&mut self, name: &Path) -> Result<(), FetchError> {
        let path = self.place(name)?;
        fs::create_dir_all(&path).map_err(FetchError::io("create", &path))
    }

    fn file(&mut self, name: &Path, length: u64, content: &mut dyn Read) -> Result<(), FetchError> {
        let path = self.place(name)?;
        if length > self.left.bytes {
            return Err(self.refuse(name, "exceeds the allowed size"));
        }
        let failed = FetchError::io("write", &path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(&failed)?;
        }
        let file = File::create_new(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => self.refuse(name, "occurs twice"),
            _ => failed(error),
        })?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        let (mut buffer, mut written) = (vec![0; 1 << 16], 0u64);
        loop {
            let n = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.refuse(name, &format!("is damaged: {error}"))),
            };
            written += n as u64;
            // A header may state less than the actual size.
            if written > self.left.bytes {
                return Err(self.refuse(name, "exceeds the allowed size"));
            }
            out.write_all(&buffer[..n]).map_err(&failed)?;
        }
        if written != length {
            return Err(self.refuse(name, &format!("has {written} bytes, but its header says {length}")));
        }
        self.left.bytes -= written;
        out.flush().map_err(&failed)
    }
}
