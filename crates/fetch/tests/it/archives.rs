//! Archives that try to escape their folder, and some that are merely too large.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ::zip::ZipWriter;
use ::zip::write::SimpleFileOptions;
use fedelity_fetch::{FetchError, Limits, tar_gz, zip};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};

struct ArchivePlace {
    dir: tempfile::TempDir,
}

impl ArchivePlace {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        Self { dir }
    }

    fn inside(&self) -> PathBuf {
        self.dir.path().join("in")
    }

    /// Number of entries outside the folder, besides the archive.
    fn outside(&self) -> usize {
        fs::read_dir(self.dir.path()).unwrap().count() - 2
    }
}

/// A raw header with any name; the `tar` crate would refuse to write it.
fn raw(name: &str, kind: EntryType, link: &str, content: &[u8], size: u64) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o777);
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn gz(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    parts.iter().for_each(|part| encoder.write_all(part).unwrap());
    encoder.write_all(&[0; 1024]).unwrap();
    encoder.finish().unwrap()
}

fn unpack_tar(place: &ArchivePlace, parts: &[Vec<u8>], limits: Limits) -> Result<(), FetchError> {
    let archive = place.dir.path().join("a");
    fs::write(&archive, gz(parts)).unwrap();
    tar_gz(&archive, &place.inside(), limits)
}

fn refused(result: Result<(), FetchError>, what: &str) {
    let text = result.unwrap_err().to_string();
    assert!(text.contains(what), "{text}");
}

#[test]
fn tar_names_that_lead_out() {
    for name in ["../x", "/x", "a/../../x", "..", "a/../b", "C:\\x", "a\\..\\..\\x"] {
        let place = ArchivePlace::new();
        refused(
            unpack_tar(&place, &[raw(name, EntryType::Regular, "", b"x", 1)], Limits::default()),
            "outside its folder",
        );
        refused(
            unpack_tar(&place, &[raw(name, EntryType::Directory, "", b"", 0)], Limits::default()),
            "outside its folder",
        );
        assert_eq!(place.outside(), 0);
    }
    let place = ArchivePlace::new();
    unpack_tar(&place, &[raw("./a/b", EntryType::Regular, "", b"x", 1)], Limits::default()).unwrap();
    assert_eq!(fs::read(place.inside().join("a/b")).unwrap(), b"x");
}

#[test]
fn tar_links_and_devices() {
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let place = ArchivePlace::new();
        let parts = [raw("l", kind, "../", b"", 0), raw("l/x", EntryType::Regular, "", b"x", 1)];
        refused(unpack_tar(&place, &parts, Limits::default()), "neither a file nor a folder");
        assert_eq!(place.outside(), 0);
        assert_eq!(fs::read_dir(place.inside()).unwrap().count(), 0);
    }
}

#[test]
fn tar_bombs() {
    let limits = Limits { bytes: 1 << 20, entries: 5 };
    let place = ArchivePlace::new();
    let bomb = vec![0; 8 << 20];
    refused(
        unpack_tar(&place, &[raw("x", EntryType::Regular, "", &bomb, bomb.len() as u64)], limits),
        "exceeds the allowed size",
    );
    let many: Vec<Vec<u8>> = (0..9).map(|i| raw(&format!("f{i}"), EntryType::Regular, "", b"", 0)).collect();
    refused(unpack_tar(&ArchivePlace::new(), &many, limits), "exceeds the allowed number");
    let halves: Vec<Vec<u8>> =
        (0..3).map(|i| raw(&format!("f{i}"), EntryType::Regular, "", &bomb[..500_000], 500_000)).collect();
    refused(unpack_tar(&ArchivePlace::new(), &halves, limits), "exceeds the allowed size");
    let twice = [raw("f", EntryType::Regular, "", b"1", 1), raw("f", EntryType::Regular, "", b"2", 1)];
    refused(unpack_tar(&ArchivePlace::new(), &twice, limits), "occurs twice");
    // Names and attributes are read into memory, whatever the limit for files is.
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let long = raw("x", kind, "", &bomb, bomb.len() as u64);
        let entries = [long, raw("f", EntryType::Regular, "", b"1", 1)];
        refused(unpack_tar(&ArchivePlace::new(), &entries, Limits::default()), "more than 1048576 bytes");
    }
    let global: Vec<Vec<u8>> = (0..9).map(|_| raw("x", EntryType::XGlobalHeader, "", b"", 0)).collect();
    refused(unpack_tar(&ArchivePlace::new(), &global, limits), "exceeds the allowed number");
}

#[test]
fn truncated_tar() {
    let whole = gz(&[raw("f", EntryType::Regular, "", &[7; 5_000], 5_000)]);
    for end in [0, 5, 20, whole.len() / 2, whole.len() - 1] {
        let place = ArchivePlace::new();
        let archive = place.dir.path().join("a");
        fs::write(&archive, &whole[..end]).unwrap();
        assert!(
            matches!(tar_gz(&archive, &place.inside(), Limits::default()), Err(FetchError::Archive { .. })),
            "{end}"
        );
    }
}

fn zipped(write: impl FnOnce(&mut ZipWriter<fs::File>), path: &Path) {
    let mut writer = ZipWriter::new(fs::File::create(path).unwrap());
    write(&mut writer);
    writer.finish().unwrap();
}

#[test]
fn zip_names_links_and_bombs() {
    let options = SimpleFileOptions::default().compression_method(::zip::CompressionMethod::Deflated);
    for name in ["../x", "/x", "a/../../x", "a\\..\\..\\x"] {
        let place = ArchivePlace::new();
        let archive = place.dir.path().join("a");
        zipped(
            |zip| {
                // The writer may refuse the name.
                if zip.start_file(name, options).is_ok() {
                    zip.write_all(b"x").unwrap();
                }
            },
            &archive,
        );
        // The writer may have sanitised the name; either way nothing escapes.
        let _ = zip(&archive, &place.inside(), Limits::default());
        assert_eq!(place.outside(), 0, "{name}");
    }
    let place = ArchivePlace::new();
    let archive = place.dir.path().join("a");
    zipped(|zip| zip.add_symlink("l", "/etc", options).unwrap(), &archive);
    refused(zip(&archive, &place.inside(), Limits::default()), "neither a file nor a folder");
    zipped(
        |zip| {
            zip.start_file("x", options).unwrap();
            zip.write_all(&vec![0; 8 << 20]).unwrap();
        },
        &archive,
    );
    refused(zip(&archive, &place.inside(), Limits { bytes: 1 << 20, entries: 5 }), "exceeds the allowed size");
    zipped(
        |zip| {
            zip.add_directory("d", options).unwrap();
            zip.start_file("d/x", options).unwrap();
            zip.write_all(b"content").unwrap();
        },
        &archive,
    );
    zip(&archive, &place.inside(), Limits::default()).unwrap();
    assert_eq!(fs::read(place.inside().join("d/x")).unwrap(), b"content");
    let whole = fs::read(&archive).unwrap();
    for end in (0..whole.len()).step_by(9) {
        fs::write(&archive, &whole[..end]).unwrap();
        assert!(
            matches!(zip(&archive, &ArchivePlace::new().inside(), Limits::default()), Err(FetchError::Archive { .. })),
            "{end}"
        );
    }
}

#[test]
fn raw_zip_names_that_lead_out() {
    // The name is patched in the bytes, so that no writer sanitises it.
    let place = ArchivePlace::new();
    let archive = place.dir.path().join("a");
    zipped(
        |zip| {
            zip.start_file("AAxxxxxx", SimpleFileOptions::default()).unwrap();
            zip.write_all(b"x").unwrap();
        },
        &archive,
    );
    let bytes = fs::read(&archive).unwrap();
    for name in [b"../xxxxx", b"/tmp/xxx", b"a/../../", b"..\\xxxxx"] {
        let mut changed = bytes.clone();
        for at in 0..changed.len() - 8 {
            if &changed[at..at + 8] == b"AAxxxxxx" {
                changed[at..at + 8].copy_from_slice(name);
            }
        }
        fs::write(&archive, changed).unwrap();
        assert!(zip(&archive, &place.inside(), Limits::default()).is_err(), "{}", String::from_utf8_lossy(name));
        assert_eq!(place.outside(), 0);
    }
}
