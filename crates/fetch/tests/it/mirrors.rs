//! Data sets with several addresses: if one does not deliver the file, the next one is tried.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::server::{Manner, Server};
use fedelity_data::catalogue::{self, CatalogueEntry};
use fedelity_data::download::{Checksum, Download, Remote, RemoteForm};
use fedelity_fetch::{Event, FetchError, Fetched, Patience, fetch};
use sha2::{Digest, Sha256};

const PATIENCE: Patience =
    Patience { stall: Duration::from_millis(400), attempts: 2, pause: Duration::from_millis(5), most_bytes: 1 << 20 };

fn content() -> Vec<u8> {
    (0..50_000u32).map(|i| ((i * 7919) >> 5) as u8).collect()
}

/// Two servers; the second one has the file.
struct MirrorCase {
    dir: tempfile::TempDir,
    servers: [Server; 2],
    entry: CatalogueEntry,
    events: Vec<Event>,
}

impl MirrorCase {
    fn new(manner: Manner) -> Self {
        let servers = [Server::new(manner), Server::new(Manner::default())];
        servers.iter().for_each(|server| server.put("a.bin", &content()));
        let sha256: String = Sha256::digest(content()).iter().map(|byte| format!("{byte:02x}")).collect();
        let checksum = Some(Checksum::Sha256(sha256.leak()));
        let remote = Remote { name: "a.bin", bytes: Some(50_000), inside: None, checksum, form: RemoteForm::File };
        let mirrors = servers.iter().map(|server| &*format!("{}/", server.base).leak()).collect::<Vec<_>>().leak();
        let download = Download { mirrors, files: vec![remote].leak(), ..Download::NONE };
        let mnist = catalogue::find("mnist").unwrap();
        let entry = CatalogueEntry { name: "set", folder: Some("home"), files: &["a.bin"], download, ..*mnist };
        Self { dir: tempfile::tempdir().unwrap(), servers, entry, events: Vec::new() }
    }

    fn fetch(&mut self) -> Result<Fetched, FetchError> {
        let events = &mut self.events;
        fetch(&self.entry, self.dir.path(), None, PATIENCE, &mut |event| events.push(event))
    }

    /// Fetches the file from the second server; returns why the first one failed.
    fn fetch_elsewhere(&mut self) -> String {
        self.fetch().unwrap();
        assert_eq!(fs::read(self.dir.path().join("home/a.bin")).unwrap(), content());
        assert_eq!(fs::read_dir(self.dir.path()).unwrap().count(), 1);
        let mut told = self.events.iter().filter_map(|event| match event {
            Event::Elsewhere { reason, url } => Some((reason, url)),
            _ => None,
        });
        let (reason, url) = told.next().unwrap();
        assert_eq!(*url, format!("{}/a.bin", self.servers[1].base));
        assert_eq!(told.next(), None);
        reason.clone()
    }
}

#[test]
fn the_first_address_is_enough() {
    let mut case = MirrorCase::new(Manner::default());
    case.fetch().unwrap();
    assert_eq!(case.servers[1].ranges().len(), 0);
    assert!(!case.events.iter().any(|event| matches!(event, Event::Elsewhere { .. })));
}

#[test]
fn after_an_error_response_the_next_server_is_tried() {
    for status in [404, 403, 500] {
        let reason = MirrorCase::new(Manner { status: Some(status), ..Manner::default() }).fetch_elsewhere();
        assert!(reason.ends_with(&format!("/data/a.bin: the server responded with status {status}")), "{reason}");
    }
    let mut case = MirrorCase::new(Manner::default());
    let mirrors: &'static [_] = vec!["http://127.0.0.1:9/", case.entry.download.mirrors[1]].leak();
    case.entry.download.mirrors = mirrors;
    assert!(case.fetch_elsewhere().starts_with("cannot get http://127.0.0.1:9/a.bin: "));
}

#[test]
fn after_wrong_bytes_the_next_server_is_tried() {
    let mut case = MirrorCase::new(Manner::default());
    case.servers[0].put("a.bin", &vec![7; 50_000]);
    let reason = case.fetch_elsewhere();
    assert!(reason.contains("a.bin: expected SHA-256"), "{reason}");
    assert_eq!(case.servers[1].ranges(), [None]);
}

#[test]
fn a_page_is_not_resumed() {
    let page = b"<!DOCTYPE html><html>This item has moved</html>";
    let mut case = MirrorCase::new(Manner::default());
    case.servers[0].put("a.bin", page);
    let reason = case.fetch_elsewhere();
    assert!(reason.ends_with("a.bin: expected 50000 bytes, found 47"), "{reason}");
    assert_eq!(case.servers[1].ranges(), [None]);
    // A page of unknown length is at first stored as a part of the file.
    let mut case = MirrorCase::new(Manner { no_length: true, ignore_range: true, ..Manner::default() });
    case.servers[0].put("a.bin", page);
    case.fetch_elsewhere();
    assert_eq!(case.servers[1].ranges(), [None]);
}

#[test]
fn a_part_is_resumed_from_another_server() {
    let mut case = MirrorCase::new(Manner { status: Some(404), ..Manner::default() });
    fs::write(case.dir.path().join("set-a.bin.part"), &content()[..12_345]).unwrap();
    case.fetch_elsewhere();
    assert_eq!(case.servers[1].ranges(), [Some("bytes=12345-".to_string())]);
    // But not if a mismatched part would go unnoticed.
    let mut case =
        MirrorCase::new(Manner { stall: Some(1_000), no_length: true, ignore_range: true, ..Manner::default() });
    case.entry.download.files = vec![Remote { checksum: None, ..case.entry.download.files[0] }].leak();
    case.fetch_elsewhere();
    assert_eq!(case.servers[1].ranges(), [None]);
}

#[test]
fn an_address_without_a_slash_is_the_files_own() {
    let mut case = MirrorCase::new(Manner::default());
    case.servers[0].put("bitstreams/17/content", &content());
    let address = format!("{}/bitstreams/17/content", case.servers[0].base).leak();
    case.entry.download.mirrors = vec![&*address].leak();
    case.fetch().unwrap();
    assert_eq!(fs::read(case.dir.path().join("home/a.bin")).unwrap(), content());
}

#[test]
fn the_last_address_determines_the_error() {
    let mut case = MirrorCase::new(Manner { status: Some(403), ..Manner::default() });
    case.servers[1].behave(Manner { status: Some(410), ..Manner::default() });
    let error = case.fetch().unwrap_err();
    assert!(matches!(error, FetchError::Status { status: 410, .. }), "{error}");
    assert_eq!(case.events.iter().filter(|event| matches!(event, Event::Elsewhere { .. })).count(), 1);
}

#[test]
fn a_mirror_replaces_all_addresses() {
    let case = MirrorCase::new(Manner::default());
    let mirror = Server::new(Manner::default());
    let error = fetch(&case.entry, case.dir.path(), Some(&mirror.base), PATIENCE, &mut |_| {}).unwrap_err();
    assert!(matches!(error, FetchError::Status { status: 404, .. }), "{error}");
    assert!(case.servers.iter().all(|server| server.ranges().is_empty()));
}

#[test]
fn a_full_disk_stops_all_attempts() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: there is no /dev/full");
        return;
    }
    let mut case = MirrorCase::new(Manner::default());
    std::os::unix::fs::symlink(full, case.dir.path().join("set-a.bin.part")).unwrap();
    assert!(matches!(case.fetch().unwrap_err(), FetchError::Io { action: "write", .. }));
    assert_eq!(case.servers[1].ranges().len(), 0);
}
