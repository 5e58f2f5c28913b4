//! Downloads from a server that drops connections, lies, stalls and sends wrong bytes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::{Manner, Server};
use fedelity_data::catalogue::{self, CatalogueEntry};
use fedelity_data::download::{Checksum, Download, Remote, RemoteForm};
use fedelity_fetch::{Event, FetchError, Fetched, Patience, by_hand, fetch};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

const PATIENCE: Patience =
    Patience { stall: Duration::from_millis(400), attempts: 3, pause: Duration::from_millis(5), most_bytes: 1 << 20 };

fn content() -> Vec<u8> {
    (0..50_000u32).map(|i| ((i * 7919) >> 5) as u8).collect()
}

fn sha256(bytes: &[u8]) -> &'static str {
    let text: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    text.leak()
}

fn entry(
    form: RemoteForm,
    sha256: Option<&'static str>,
    content: &'static [(&'static str, &'static str)],
) -> CatalogueEntry {
    let remote = Remote { name: "a.bin", bytes: None, inside: None, checksum: sha256.map(Checksum::Sha256), form };
    let download =
        Download { mirrors: &["http://127.0.0.1:9/nowhere/"], files: vec![remote].leak(), content, by_hand: None };
    let files: &[&str] = if form == RemoteForm::File { &["a.bin"] } else { &["one.bin"] };
    CatalogueEntry { name: "set", folder: Some("home"), files, download, ..*catalogue::find("mnist").unwrap() }
}

struct FileCase {
    dir: tempfile::TempDir,
    server: Server,
    events: Vec<Event>,
}

impl FileCase {
    fn new(manner: Manner) -> Self {
        let server = Server::new(manner);
        server.put("a.bin", &content());
        Self { dir: tempfile::tempdir().unwrap(), server, events: Vec::new() }
    }

    fn fetch(&mut self, entry: &CatalogueEntry) -> Result<Fetched, FetchError> {
        let events = &mut self.events;
        fetch(entry, self.dir.path(), Some(&self.server.base), PATIENCE, &mut |event| events.push(event))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn checked() -> CatalogueEntry {
    entry(RemoteForm::File, Some(sha256(&content())), &[])
}

#[test]
fn a_file_arrives_whole_and_is_not_fetched_twice() {
    let mut case = FileCase::new(Manner::default());
    let home = case.dir.path().join("home");
    assert_eq!(case.fetch(&checked()).unwrap(), Fetched::New(home.clone()));
    assert_eq!(fs::read(home.join("a.bin")).unwrap(), content());
    assert_eq!(case.names(), ["home"]);
    assert_eq!(case.fetch(&checked()).unwrap(), Fetched::WasThere(home.clone()));
    assert_eq!(case.server.ranges().len(), 1);
    fs::write(home.join("a.bin"), "something else").unwrap();
    let text = case.fetch(&checked()).unwrap_err().to_string();
    assert!(text.contains("a.bin already exists and is not what was published"), "{text}");
}

#[test]
fn a_dropped_connection_is_resumed() {
    let mut case = FileCase::new(Manner { cut: Some(9_000), ..Manner::default() });
    case.fetch(&checked()).unwrap();
    assert_eq!(fs::read(case.dir.path().join("home/a.bin")).unwrap(), content());
    let ranges = case.server.ranges();
    assert_eq!(ranges.len(), 6);
    assert_eq!(ranges[0], None);
    assert_eq!(ranges[5].as_deref(), Some("bytes=45000-"));
    assert!(case.events.iter().any(|event| matches!(event, Event::Again { .. })));
}

#[test]
fn another_run_resumes_where_the_last_one_stopped() {
    let mut case = FileCase::new(Manner { stall: Some(30_000), ..Manner::default() });
    // Each attempt makes progress, so only the complete file or a stall ends this.
    case.server.behave(Manner { cut: Some(20_000), ..Manner::default() });
    let part = case.dir.path().join("set-a.bin.part");
    fs::write(&part, &content()[..12_345]).unwrap();
    case.fetch(&checked()).unwrap();
    assert_eq!(case.server.ranges()[0].as_deref(), Some("bytes=12345-"));
    assert!(!part.exists());
}

#[test]
fn a_server_that_ignores_ranges_starts_over() {
    let mut case = FileCase::new(Manner { ignore_range: true, ..Manner::default() });
    fs::write(case.dir.path().join("set-a.bin.part"), &content()[..12_345]).unwrap();
    case.fetch(&checked()).unwrap();
    assert_eq!(fs::read(case.dir.path().join("home/a.bin")).unwrap(), content());
}

#[test]
fn a_part_that_is_too_long_starts_over() {
    let mut case = FileCase::new(Manner::default());
    fs::write(case.dir.path().join("set-a.bin.part"), vec![0; 60_000]).unwrap();
    case.fetch(&checked()).unwrap();
    assert_eq!(case.server.ranges().len(), 2);
}

#[test]
fn a_whole_part_needs_no_more_bytes() {
    let mut case = FileCase::new(Manner::default());
    fs::write(case.dir.path().join("set-a.bin.part"), content()).unwrap();
    case.fetch(&checked()).unwrap();
    assert_eq!(case.server.ranges(), [Some("bytes=50000-".to_string())]);
}

#[test]
fn an_overstated_length_fails_in_the_end() {
    let mut case = FileCase::new(Manner { lie: 10, ..Manner::default() });
    let text = case.fetch(&checked()).unwrap_err().to_string();
    assert!(text.contains("does not belong to this file") || text.contains("lost at byte 50000 of 50010"), "{text}");
    assert!(!case.dir.path().join("home").exists());
    assert!(case.server.ranges().len() < 10);
}

#[test]
fn an_understated_length_is_caught_by_the_checksum() {
    let mut case = FileCase::new(Manner { lie: -10, ..Manner::default() });
    let error = case.fetch(&checked()).unwrap_err();
    assert!(matches!(error, FetchError::Checksum { .. }), "{error}");
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn wrong_bytes_are_removed() {
    let mut case = FileCase::new(Manner::default());
    let mut wrong = content();
    wrong[31_000] ^= 1;
    case.server.put("a.bin", &wrong);
    let error = case.fetch(&checked()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(sha256(&content())) && text.contains(sha256(&wrong)), "{text}");
    assert_eq!(case.names(), [""; 0]);
    // The next attempt does not resume from them.
    case.server.put("a.bin", &content());
    case.fetch(&checked()).unwrap();
}

#[test]
fn a_known_length_is_required() {
    let mut case = FileCase::new(Manner::default());
    let mut entry = checked();
    let remote = Remote { bytes: Some(50_001), ..entry.download.files[0] };
    entry.download.files = vec![remote].leak();
    let error = case.fetch(&entry).unwrap_err();
    assert!(matches!(error, FetchError::Length { expected: 50_001, found: 50_000, .. }), "{error}");
}

#[test]
fn an_endless_file_is_cut_off() {
    let mut case = FileCase::new(Manner { no_length: true, ..Manner::default() });
    case.server.put("a.bin", &vec![7; 2 << 20]);
    let error = case.fetch(&entry(RemoteForm::File, None, &[])).unwrap_err();
    assert!(matches!(error, FetchError::TooLong { most: 1_048_576, .. }), "{error}");
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_length_above_the_limit_is_reported() {
    let mut case = FileCase::new(Manner { lie: 2 << 20, ..Manner::default() });
    let text = case.fetch(&entry(RemoteForm::File, None, &[])).unwrap_err().to_string();
    assert!(text.contains("expected at most 1048576 bytes, found 2147152"), "{text}");
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_compressed_file_is_hardly_longer_than_its_known_content() {
    let gz = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let mut entry = entry(RemoteForm::File, None, vec![("b.gz", sha256(b"right"))].leak());
    entry.download.files = vec![Remote { name: "b.gz", inside: Some(5), ..entry.download.files[0] }].leak();
    for no_length in [false, true] {
        let mut case = FileCase::new(Manner { no_length, ..Manner::default() });
        // Nothing that can be compressed.
        let noise: Vec<u8> = (0..200u8).flat_map(|i| Sha256::digest([i])).collect();
        case.server.put("b.gz", &gz(&noise));
        let error = case.fetch(&entry).unwrap_err();
        assert!(matches!(error, FetchError::TooLong { most: 4_101, .. }), "{error}");
        // A short file whose content is long is not read to its end.
        case.server.put("b.gz", &gz(&vec![0; 1 << 20]));
        let error = case.fetch(&entry).unwrap_err().to_string();
        assert!(error.contains("it is longer than the published content"), "{error}");
        case.server.put("b.gz", &gz(b"right"));
        case.fetch(&entry).unwrap();
    }
}

#[test]
fn without_a_length_the_end_is_the_end() {
    let mut case = FileCase::new(Manner { no_length: true, ..Manner::default() });
    case.fetch(&checked()).unwrap();
}

#[test]
fn error_responses() {
    for status in [404, 403, 410] {
        let mut case = FileCase::new(Manner { status: Some(status), ..Manner::default() });
        let error = case.fetch(&checked()).unwrap_err();
        assert!(matches!(error, FetchError::Status { status: found, .. } if found == status), "{error}");
        assert_eq!(case.server.ranges().len(), 1);
    }
    let mut case = FileCase::new(Manner { busy: 2, ..Manner::default() });
    case.fetch(&checked()).unwrap();
    assert_eq!(case.server.ranges().len(), 3);
    let mut case = FileCase::new(Manner { status: Some(500), ..Manner::default() });
    assert!(case.fetch(&checked()).unwrap_err().to_string().contains("the server responded with status 500"));
    assert_eq!(case.server.ranges().len(), 3);
}

#[test]
fn redirects_are_followed() {
    let mut case = FileCase::new(Manner { redirect: true, ..Manner::default() });
    case.fetch(&checked()).unwrap();
    assert_eq!(case.server.ranges().len(), 2);
}

#[test]
fn a_silent_server_is_abandoned_and_a_slow_one_is_not() {
    let mut case = FileCase::new(Manner { stall: Some(0), ..Manner::default() });
    let start = Instant::now();
    let text = case.fetch(&checked()).unwrap_err().to_string();
    assert!(text.contains("no data received for 0.4 s"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(10));
    let mut case = FileCase::new(Manner { slow: Duration::from_millis(12), ..Manner::default() });
    case.fetch(&checked()).unwrap();
    assert!(!case.events.iter().any(|event| matches!(event, Event::Again { .. })));
}

#[test]
fn no_network_says_what_to_put_where() {
    let dir = tempfile::tempdir().unwrap();
    let entry = checked();
    let error = fetch(&entry, dir.path(), None, PATIENCE, &mut |_| {}).unwrap_err();
    assert!(matches!(error, FetchError::Unreachable { .. }), "{error}");
    let text = by_hand(catalogue::find("cifar10").unwrap(), dir.path());
    let command = format!("fedelity data fetch cifar10 --mirror FOLDER --data-dir {}", dir.path().display());
    let (first, second) = ("https://www.cs.toronto.edu/~kriz/", "or https://cave.cs.toronto.edu/kriz/");
    let addresses = [first, second].map(|home| format!("  {home}cifar-10-binary.tar.gz\n"));
    for part in [&addresses[0], &addresses[1], "cifar-10-batches-bin", &command] {
        assert!(text.contains(part), "{text}");
    }
    let text = by_hand(catalogue::find("cinic10").unwrap(), dir.path());
    assert!(text.contains("/content as CINIC-10.tar.gz\n") && text.contains("/3192/CINIC-10.tar.gz\n"), "{text}");
    let text = by_hand(catalogue::find("cifar10").unwrap(), Path::new("my data"));
    assert!(text.contains("--data-dir \"my data\""), "{text}");
    let error = fetch(catalogue::find("femnist").unwrap(), dir.path(), None, PATIENCE, &mut |_| {}).unwrap_err();
    let place = dir.path().join("femnist").display().to_string();
    assert!(error.to_string().contains("preprocess.sh") && error.to_string().contains(&place), "{error}");
}

#[test]
fn a_folder_is_a_mirror() {
    let (mut case, folder) = (FileCase::new(Manner::default()), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("a.bin"), content()).unwrap();
    let mirror = folder.path().display().to_string();
    let found = fetch(&checked(), case.dir.path(), Some(&mirror), PATIENCE, &mut |_| {}).unwrap();
    assert_eq!(found, Fetched::New(case.dir.path().join("home")));
    fs::remove_dir_all(case.dir.path().join("home")).unwrap();
    fs::remove_file(folder.path().join("a.bin")).unwrap();
    let error = fetch(&checked(), case.dir.path(), Some(&mirror), PATIENCE, &mut |_| {}).unwrap_err();
    assert!(matches!(error, FetchError::NotHere { .. }), "{error}");
    assert!(error.to_string().ends_with("a.bin: no such file"), "{error}");
    let nowhere = folder.path().join("nowhere").display().to_string();
    let error = fetch(&checked(), case.dir.path(), Some(&nowhere), PATIENCE, &mut |_| {}).unwrap_err();
    assert!(error.to_string().ends_with(&format!("no such folder: {nowhere}")), "{error}");
    case.fetch(&checked()).unwrap();
}

#[test]
fn unchecked_files_are_reported() {
    let mut case = FileCase::new(Manner::default());
    // A part of unknown origin is not resumed.
    fs::write(case.dir.path().join("set-a.bin.part"), "other").unwrap();
    case.fetch(&entry(RemoteForm::File, None, &[])).unwrap();
    assert!(case.events.contains(&Event::Unchecked { name: "a.bin".to_string() }));
    assert_eq!(fs::read(case.dir.path().join("home/a.bin")).unwrap(), content());
}

fn tar_gz(names: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in names {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn an_archive_is_unpacked_checked_and_moved_into_place() {
    let mut case = FileCase::new(Manner { cut: Some(300), ..Manner::default() });
    let archive = tar_gz(&[("inside/one.bin", b"one"), ("inside/sub/two.bin", b"two"), ("other", b"x")]);
    case.server.put("a.bin", &archive);
    let known: &'static [_] = vec![("one.bin", sha256(b"one"))].leak();
    let right = entry(RemoteForm::TarGz(Some("inside")), None, known);
    case.fetch(&right).unwrap();
    assert_eq!(case.names(), ["home"]);
    assert_eq!(fs::read(case.dir.path().join("home/sub/two.bin")).unwrap(), b"two");
    assert_eq!(case.fetch(&right).unwrap(), Fetched::WasThere(case.dir.path().join("home")));

    let wrong = entry(RemoteForm::TarGz(Some("inside")), None, vec![("one.bin", sha256(b"ONE"))].leak());
    assert!(matches!(case.fetch(&wrong).unwrap_err(), FetchError::InTheWay { .. }));
    fs::remove_dir_all(case.dir.path().join("home")).unwrap();
    assert!(matches!(case.fetch(&wrong).unwrap_err(), FetchError::Checksum { .. }));
    assert_eq!(case.names(), [""; 0]);
    let missing = entry(RemoteForm::TarGz(Some("nowhere")), None, &[]);
    assert!(case.fetch(&missing).unwrap_err().to_string().contains("no folder 'nowhere'"));
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_damaged_archive_leaves_nothing() {
    let archive = tar_gz(&[("inside/one.bin", &content())]);
    for damage in [0, archive.len() / 2, archive.len() - 6] {
        let mut case = FileCase::new(Manner::default());
        let mut damaged = archive.clone();
        damaged[damage] ^= 0x41;
        case.server.put("a.bin", &damaged);
        let error = case.fetch(&entry(RemoteForm::TarGz(Some("inside")), None, &[])).unwrap_err();
        assert!(matches!(error, FetchError::Archive { .. }), "{damage}: {error}");
        assert_eq!(case.names(), [""; 0]);
    }
}

#[test]
fn the_content_of_a_compressed_file_is_checked() {
    let mut case = FileCase::new(Manner::default());
    let gz = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    case.server.put("b.gz", &gz(b"right"));
    let mut entry = entry(RemoteForm::File, None, vec![("b.gz", sha256(b"right"))].leak());
    entry.download.files = vec![Remote { name: "b.gz", ..entry.download.files[0] }].leak();
    case.fetch(&entry).unwrap();
    fs::remove_dir_all(case.dir.path().join("home")).unwrap();
    case.server.put("b.gz", &gz(b"wrong"));
    assert!(matches!(case.fetch(&entry).unwrap_err(), FetchError::Checksum { .. }));
    case.server.put("b.gz", b"no gzip");
    assert!(matches!(case.fetch(&entry).unwrap_err(), FetchError::Checksum { .. }));
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_full_disk_keeps_the_part_and_nothing_else() {
    // /dev/full simulates a full disk.
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: there is no /dev/full");
        return;
    }
    let mut case = FileCase::new(Manner::default());
    std::os::unix::fs::symlink(full, case.dir.path().join("set-a.bin.part")).unwrap();
    let error = case.fetch(&checked()).unwrap_err();
    assert!(matches!(error, FetchError::Io { action: "write", .. }), "{error}");
    assert_eq!(case.names(), ["set-a.bin.part"]);
}

#[test]
fn md5_is_checked_if_there_is_nothing_better() {
    let mut case = FileCase::new(Manner::default());
    case.server.put("a.bin", b"message digest");
    let mut entry = checked();
    // From RFC 1321.
    let checksum = Some(Checksum::Md5("f96b697d7cb7938d525a2f31aaf161d0"));
    entry.download.files = vec![Remote { checksum, ..entry.download.files[0] }].leak();
    case.fetch(&entry).unwrap();
    assert!(!case.events.iter().any(|event| matches!(event, Event::Unchecked { .. })));
    fs::write(case.dir.path().join("home/a.bin"), "a").unwrap();
    let text = case.fetch(&entry).unwrap_err().to_string();
    assert!(text.contains("a.bin has MD5 0cc175b9c0f1b6a831c399e269772661, not f96b697d"), "{text}");
    fs::remove_dir_all(case.dir.path().join("home")).unwrap();
    case.server.put("a.bin", b"a");
    let text = case.fetch(&entry).unwrap_err().to_string();
    assert!(text.contains("expected MD5 f96b697d7cb7938d525a2f31aaf161d0, found 0cc175b9c0"), "{text}");
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn every_set_says_how_to_get_it() {
    for entry in catalogue::entries().filter(|entry| !entry.is_embedded()) {
        assert!(entry.download.by_hand.is_some() || !entry.download.files.is_empty(), "{}", entry.name);
        let hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Download { mirrors, files, content, .. } = entry.download;
        assert!(content.iter().all(|(_, sha256)| hex(sha256, 64)));
        for remote in files {
            assert!(remote.most_bytes().is_some_and(|most| most < 1 << 30), "{}", remote.name);
            match remote.checksum {
                Some(Checksum::Sha256(sha256)) => assert!(hex(sha256, 64), "{}", entry.name),
                Some(Checksum::Md5(md5)) => assert!(hex(md5, 32), "{}", entry.name),
                None => assert!(content.iter().any(|(name, _)| *name == remote.name), "{}", entry.name),
            }
        }
        assert_eq!(mirrors.is_empty(), files.is_empty(), "{}", entry.name);
        // Files do not share an address.
        assert!(files.len() < 2 || mirrors.iter().all(|mirror| mirror.ends_with('/')), "{}", entry.name);
    }
}
