//! Archives of data sets.

use std::fs;
use std::io::Write;
use std::path::Path;

use fedelity_fetch::{FetchError, Limits};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Read;
use crate::place::Place;

const LIMITS: Limits = Limits { bytes: 1 << 20, entries: 200 };

/// What is inside a compressed archive.
pub(crate) fn tar() -> Read {
    unpack(fedelity_fetch::tar_gz, |bytes| {
        let mut out = GzEncoder::new(Vec::new(), Compression::none());
        out.write_all(bytes).and_then(|()| out.finish()).expect("memory can be written")
    })
}

pub(crate) fn tar_gz() -> Read {
    unpack(fedelity_fetch::tar_gz, <[u8]>::to_vec)
}

pub(crate) fn zip() -> Read {
    unpack(fedelity_fetch::zip, <[u8]>::to_vec)
}

type Unpack = fn(&Path, &Path, Limits) -> Result<(), FetchError>;

fn unpack(unpack: Unpack, packed: fn(&[u8]) -> Vec<u8>) -> Read {
    let place = Place::with(&[]);
    Box::new(move |bytes| {
        place.write("archive", &packed(bytes));
        place.remove("into");
        fs::create_dir(place.file("into")).expect("a temporary folder");
        let unpacked = unpack(&place.file("archive"), &place.file("into"), LIMITS).map_err(|error| error.to_string());
        let beside = fs::read_dir(place.folder()).expect("a temporary folder").count();
        assert_eq!(beside, 2, "something was written outside the folder");
        assert!(below(&place.file("into")) <= LIMITS.bytes, "more was written than is allowed");
        unpacked
    })
}

/// Bytes of all files in a folder; a link is an error.
fn below(folder: &Path) -> u64 {
    let size = |path: &Path| {
        let about = fs::symlink_metadata(path).expect("a file that exists");
        assert!(about.is_dir() || about.is_file(), "neither a file nor a folder");
        if about.is_dir() { below(path) } else { about.len() }
    };
    fs::read_dir(folder).expect("a folder").map(|entry| size(&entry.expect("an entry").path())).sum()
}
