//! Checksums of files and of compressed contents.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use fedelity_data::download::Checksum;
use flate2::bufread::MultiGzDecoder;
use md5::Md5;
use sha2::{Digest, Sha256};

/// A file's checksum of the same kind as this one, as hex.
pub(crate) fn alike(path: &Path, checksum: Checksum) -> io::Result<String> {
    match checksum {
        Checksum::Sha256(_) => hash::<Sha256>(File::open(path)?),
        Checksum::Md5(_) => hash::<Md5>(File::open(path)?),
    }
}

/// SHA-256 of a file's content, as hex: uncompressed if its name, which a part file does not have, ends in `.gz`. A
/// content of more bytes than `most` is an error: a small file can promise any length.
pub(crate) fn content(path: &Path, name: &str, most: Option<u64>) -> io::Result<String> {
    let file = File::open(path)?;
    let most = most.unwrap_or(u64::MAX);
    if name.ends_with(".gz") {
        hash::<Sha256>(AtMost { from: MultiGzDecoder::new(BufReader::new(file)), left: most })
    } else {
        hash::<Sha256>(AtMost { from: file, left: most })
    }
}

/// Reads up to a number of bytes; more are an error.
struct AtMost<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for AtMost<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buffer)?;
        let left = self.left.checked_sub(n as u64);
        self.left = left.ok_or_else(|| io::Error::other("it is longer than the published content"))?;
        Ok(n)
    }
}

fn hash<D: Digest>(mut from: impl Read) -> io::Result<String> {
    let (mut sum, mut buffer) = (D::new(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => sum.update(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
