//! Incomplete data sets, and processes that were killed or run concurrently.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use ::zip::ZipWriter;
use ::zip::write::SimpleFileOptions;
use fedelity_data::catalogue::{self, CatalogueEntry};
use fedelity_data::download::Remote;
use fedelity_fetch::{Event, FetchError, Fetched, Patience, fetch};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A data set whose files may contain anything.
fn unchecked(name: &str) -> CatalogueEntry {
    let mut entry = *catalogue::find(name).unwrap();
    let files = entry.download.files.iter().map(|remote| Remote { bytes: None, checksum: None, ..*remote });
    entry.download.files = files.collect::<Vec<_>>().leak();
    entry
}

/// A folder of data and a mirror that is a folder.
struct SetCase {
    root: tempfile::TempDir,
    events: Vec<Event>,
}

impl SetCase {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        ["data", "mirror"].iter().for_each(|name| fs::create_dir(root.path().join(name)).unwrap());
        Self { root, events: Vec::new() }
    }

    fn fetch(&mut self, name: &str) -> Result<Fetched, FetchError> {
        let (dir, mirror) = (self.root.path().join("data"), self.root.path().join("mirror"));
        let events = &mut self.events;
        let mirror = Some(mirror.to_str().unwrap());
        fetch(&unchecked(name), &dir, mirror, Patience::default(), &mut |event| events.push(event))
    }

    fn refused(&mut self, name: &str, what: &str) {
        let text = self.fetch(name).unwrap_err().to_string();
        assert!(text.contains(what), "{text}");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn put(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn zip(&self, name: &str, files: &[(String, &str)]) {
        let mut zip = ZipWriter::new(File::create(self.path(name)).unwrap());
        for (name, content) in files {
            zip.start_file(name.as_str(), SimpleFileOptions::default()).unwrap();
            zip.write_all(content.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
    }

    fn sst5(&self, files: &[(&str, &str)]) {
        let files: Vec<_> = files.iter().map(|(name, content)| (format!("trees/{name}"), *content)).collect();
        self.zip("mirror/trainDevTestTrees_PTB.zip", &files);
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path("data"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

const TREES: [(&str, &str); 2] = [("train.txt", "(4 good)\n"), ("test.txt", "(0 bad)\n")];

#[test]
fn an_empty_folder_is_not_a_data_set() {
    let mut case = SetCase::new();
    fs::create_dir_all(case.path("data/sst5/trees")).unwrap();
    case.refused("sst5", "trainDevTestTrees_PTB.zip: no such file");
    assert!(case.path("data/sst5/trees").is_dir());
    case.sst5(&TREES);
    case.events.clear();
    assert_eq!(case.fetch("sst5").unwrap(), Fetched::New(case.path("data/sst5/trees")));
    let (path, missing) = (case.path("data/sst5/trees"), "train.txt is missing".to_string());
    assert_eq!(case.events.iter().filter(|&event| matches!(event, Event::Incomplete { .. })).count(), 1);
    assert!(case.events.contains(&Event::Incomplete { path, missing }));
    assert_eq!(case.fetch("sst5").unwrap(), Fetched::WasThere(case.path("data/sst5/trees")));
    assert_eq!(case.names(), ["sst5"]);
}

#[test]
fn an_archive_that_lacks_a_file_is_not_kept() {
    let mut case = SetCase::new();
    case.sst5(&TREES[..1]);
    case.refused("sst5", "test.txt is missing; nothing was kept");
    case.sst5(&[TREES[0], ("test.txt", "")]);
    case.refused("sst5", "test.txt is empty");
    assert_eq!(case.names(), [""; 0]);
    case.sst5(&TREES);
    case.fetch("sst5").unwrap();
}

#[test]
fn partial_data_sets_are_left_alone() {
    let mut case = SetCase::new();
    case.sst5(&TREES);
    case.put("data/sst5/trees/train.txt", b"(1 mine)\n");
    case.refused("sst5", "test.txt is missing; move it away");
    case.put("data/sst5/trees/test.txt", b"\n <HTML><body>");
    case.refused("sst5", "test.txt is an HTML page; move it away");
    assert_eq!(fs::read(case.path("data/sst5/trees/train.txt")).unwrap(), b"(1 mine)\n");
    assert_eq!(case.names(), ["sst5"]);
}

#[cfg(unix)]
#[test]
fn a_link_to_an_empty_folder_is_left_alone() {
    let mut case = SetCase::new();
    case.sst5(&TREES);
    fs::create_dir_all(case.path("data/sst5")).unwrap();
    std::os::unix::fs::symlink(case.path("elsewhere"), case.path("data/sst5/trees")).unwrap();
    case.refused("sst5", "train.txt is missing; move it away");
    fs::create_dir(case.path("elsewhere")).unwrap();
    case.refused("sst5", "train.txt is missing; move it away");
}

#[test]
fn emnist_has_its_files_in_a_folder() {
    let mut case = SetCase::new();
    fs::create_dir(case.path("data/emnist")).unwrap();
    let entry = catalogue::find("emnist-letters").unwrap();
    let files: Vec<_> = entry.files.iter().map(|name| (format!("gzip/{name}.gz"), "x")).collect();
    case.zip("mirror/gzip.zip", &files[..3]);
    case.refused("emnist-letters", "emnist-letters-test-labels-idx1-ubyte is missing");
    case.zip("mirror/gzip.zip", &files);
    assert_eq!(case.fetch("emnist-letters").unwrap(), Fetched::New(case.path("data/emnist")));
    assert_eq!(case.fetch("emnist-letters").unwrap(), Fetched::WasThere(case.path("data/emnist")));
    case.refused("emnist-balanced", "emnist-balanced-train-images-idx3-ubyte is missing; move it away");
}

#[test]
fn every_class_needs_an_image() {
    let mut case = SetCase::new();
    fs::create_dir(case.path("data/CINIC-10")).unwrap();
    let pack = |case: &SetCase, leave: &str| {
        let file = File::create(case.path("mirror/CINIC-10.tar.gz")).unwrap();
        let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
        for (part, class) in ["train", "test"].iter().flat_map(|part| (0..10).map(move |class| (part, class))) {
            let name = format!("{part}/c{class}/1.png");
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_size(if name == leave { 0 } else { 1 });
            if leave != format!("{part}/c{class}") {
                let content: &[u8] = if name == leave { b"" } else { b"x" };
                tar.append_data(&mut header, &name, content).unwrap();
            }
        }
        tar.into_inner().unwrap().finish().unwrap();
    };
    pack(&case, "test/c3");
    case.refused("cinic10", "test has 9 of 10 classes");
    pack(&case, "train/c7/1.png");
    case.refused("cinic10", "train/c7 has no image");
    assert_eq!(case.names(), ["CINIC-10"]);
    pack(&case, "");
    case.fetch("cinic10").unwrap();
    fs::remove_file(case.path("data/CINIC-10/test/c5/1.png")).unwrap();
    case.refused("cinic10", "test/c5 has no image; move it away");
}

#[test]
fn a_page_is_not_data() {
    for page in ["<html>not here</html>", "\u{feff}\r\n <!DocType html>"] {
        let mut case = SetCase::new();
        case.put("mirror/train.csv", page.as_bytes());
        case.refused("agnews", "train.csv is an HTML page; the download was removed");
        case.put("mirror/gzip.zip", page.as_bytes());
        case.refused("emnist-letters", "gzip.zip is an HTML page");
        case.put("mirror/train.csv", b"");
        case.refused("agnews", "train.csv is empty");
        assert_eq!(case.names(), [""; 0]);
        case.put("data/ag_news_csv/train.csv", page.as_bytes());
        case.refused("agnews", "train.csv is an HTML page; move it away");
    }
    let mut case = SetCase::new();
    case.put("mirror/train.csv", b"\"1\",\"<html>\",\"x\"\n");
    case.refused("agnews", "test.csv: no such file");
    assert!(case.path("data/ag_news_csv/train.csv").exists());
}

#[test]
fn leftovers_of_a_killed_process_are_removed() {
    let mut case = SetCase::new();
    case.sst5(&TREES);
    let leave = |case: &SetCase| {
        case.put("data/.sst5.unpack/trees/train.txt", b"(4 go");
        case.put("data/.sst5.lock", b"");
    };
    leave(&case);
    case.fetch("sst5").unwrap();
    assert_eq!(case.names(), ["sst5"]);
    // Killed just before the last step.
    leave(&case);
    case.put("data/sst5-trainDevTestTrees_PTB.zip.part", b"PK");
    assert_eq!(case.fetch("sst5").unwrap(), Fetched::WasThere(case.path("data/sst5/trees")));
    assert_eq!(case.names(), ["sst5"]);
}

#[test]
fn two_at_once_wait_for_each_other() {
    let case = SetCase::new();
    case.sst5(&TREES);
    let held = File::create(case.path("data/.sst5.lock")).unwrap();
    held.lock().unwrap();
    case.put("data/.sst5.unpack/trees/train.txt", b"(4 go");
    let (tell, told) = channel();
    let (dir, mirror) = (case.path("data"), case.path("mirror"));
    let other = thread::spawn(move || {
        fetch(&unchecked("sst5"), &dir, mirror.to_str(), Patience::default(), &mut |event| tell.send(event).unwrap())
            .unwrap()
    });
    assert_eq!(told.recv().unwrap(), Event::Waiting { name: "sst5".to_string() });
    assert!(case.path("data/.sst5.unpack/trees/train.txt").exists());
    // The holder moves the data into place, removes the lock file, and releases the lock.
    fs::remove_dir_all(case.path("data/.sst5.unpack")).unwrap();
    TREES.iter().for_each(|(name, content)| case.put(&format!("data/sst5/trees/{name}"), content.as_bytes()));
    fs::remove_file(case.path("data/.sst5.lock")).unwrap();
    drop(held);
    assert_eq!(other.join().unwrap(), Fetched::WasThere(case.path("data/sst5/trees")));
    assert_eq!(case.names(), ["sst5"]);
}

#[test]
fn many_at_once_fetch_it_once() {
    let case = SetCase::new();
    case.sst5(&TREES);
    let (dir, mirror) = (case.path("data"), case.path("mirror"));
    let one = |dir: &Path| fetch(&unchecked("sst5"), dir, mirror.to_str(), Patience::default(), &mut |_| {}).unwrap();
    let found: Vec<Fetched> = thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| one(&dir))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(found.iter().filter(|found| matches!(found, Fetched::New(_))).count(), 1, "{found:?}");
    assert_eq!(case.names(), ["sst5"]);
}

#[cfg(unix)]
#[test]
fn a_complete_read_only_folder_is_enough() {
    use std::os::unix::fs::PermissionsExt;
    let mut case = SetCase::new();
    case.sst5(&TREES);
    case.fetch("sst5").unwrap();
    let mode = |mode| fs::set_permissions(case.path("data"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    if File::create(case.path("data/x")).is_ok() {
        println!("skipped: this user may write anywhere");
        return;
    }
    let found = case.fetch("sst5");
    fs::set_permissions(case.path("data"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(found.unwrap(), Fetched::WasThere(_)));
}
