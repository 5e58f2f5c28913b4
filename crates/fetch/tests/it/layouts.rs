//! Small archives with the internal layout of the published ones: fetched, checked, unpacked and read.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use ::zip::ZipWriter;
use ::zip::write::SimpleFileOptions;
use fedelity_data::Dataset;
use fedelity_data::catalogue::{self, CatalogueEntry};
use fedelity_data::download::{Checksum, Remote};
use fedelity_fetch::{Event, Fetched, Patience, fetch};
use flate2::Compression;
use flate2::write::GzEncoder;
use image::{ImageFormat, Rgb, RgbImage};
use sha2::{Digest, Sha256};

/// Files by name in an archive; a name that ends in a slash is a folder.
type Files = Vec<(String, Vec<u8>)>;

fn zip(files: &Files) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        match name.strip_suffix('/') {
            Some(folder) => zip.add_directory(folder, SimpleFileOptions::default()).unwrap(),
            None => {
                zip.start_file(name.as_str(), SimpleFileOptions::default()).unwrap();
                zip.write_all(content).unwrap();
            }
        }
    }
    zip.finish().unwrap().into_inner()
}

fn gz(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn tar_gz(files: &Files) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        tar.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    gz(&tar.into_inner().unwrap())
}

/// Fetches the archive as the only file of a data set, under its published name, and reads the data set.
fn fetch_and_read(name: &str, archive: &[u8], dir: &Path) -> Dataset {
    let mut entry: CatalogueEntry = *catalogue::find(name).unwrap();
    let [published] = entry.download.files else { panic!("{name} has several files") };
    let sha256: String = Sha256::digest(archive).iter().map(|byte| format!("{byte:02x}")).collect();
    let checksum = Some(Checksum::Sha256(sha256.leak()));
    entry.download.files = vec![Remote { bytes: Some(archive.len() as u64), checksum, ..*published }].leak();
    let (data, mirror) = (dir.join("data"), dir.join("mirror"));
    fs::create_dir(&mirror).unwrap();
    fs::write(mirror.join(published.name), archive).unwrap();
    let mut unchecked = false;
    let found = fetch(&entry, &data, mirror.to_str(), Patience::default(), &mut |event| {
        unchecked |= matches!(event, Event::Unchecked { .. });
    });
    assert_eq!(found.unwrap(), Fetched::New(data.join(entry.folder.unwrap())));
    assert!(!unchecked);
    catalogue::load(name, Some(&data)).unwrap()
}

/// An IDX file whose images are all this shade of grey.
fn idx(samples: u8, grey: u8) -> Vec<u8> {
    let head = [0, 0, 8, 3, 0, 0, 0, samples, 0, 0, 0, 28, 0, 0, 0, 28];
    head.into_iter().chain(vec![grey; 28 * 28 * usize::from(samples)]).collect()
}

fn labels(labels: &[u8]) -> Vec<u8> {
    [0, 0, 8, 1, 0, 0, 0, labels.len() as u8].iter().chain(labels).copied().collect()
}

#[test]
fn emnist_is_a_folder_of_compressed_files() {
    let mut files: Files = vec![("gzip/".to_string(), Vec::new())];
    for set in ["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] {
        files.push((format!("gzip/emnist-{set}-mapping.txt"), b"1 65 97\n".to_vec()));
        for (part, grey) in [("train", 3), ("test", 4)] {
            files.push((format!("gzip/emnist-{set}-{part}-images-idx3-ubyte.gz"), gz(&idx(2, grey))));
            files.push((format!("gzip/emnist-{set}-{part}-labels-idx1-ubyte.gz"), gz(&labels(&[1, 26]))));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let set = fetch_and_read("emnist-letters", &zip(&files), dir.path());
    assert_eq!(set.train.labels, [0, 25]);
    assert_eq!((set.train.image(0)[0], set.test.image(1)[783]), (3, 4));
    // The other selections are there too.
    let set = catalogue::load("emnist-byclass", Some(&dir.path().join("data"))).unwrap();
    assert_eq!(set.test.labels, [1, 26]);
}

#[test]
fn cinic_has_its_parts_at_the_top() {
    let classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    let mut files: Files = ["README.md", "imagenet-contributors.csv", "synsets-to-cifar-10-classes.txt"]
        .map(|name| (name.to_string(), b"text".to_vec()))
        .to_vec();
    for (number, part) in (0u8..).zip(["train", "valid", "test"]) {
        files.push((format!("{part}/"), Vec::new()));
        for (label, class) in (0u8..).zip(classes) {
            let mut png = Cursor::new(Vec::new());
            RgbImage::from_pixel(32, 32, Rgb([label, number, 0])).write_to(&mut png, ImageFormat::Png).unwrap();
            files.push((format!("{part}/{class}/"), Vec::new()));
            files.push((format!("{part}/{class}/cifar10-train-{label}.png"), png.get_ref().clone()));
            files.push((format!("{part}/{class}/n02690373_{label}.png"), png.into_inner()));
        }
    }
    // Packed directly, and as by 'tar -C folder -c .'.
    for start in ["", "./"] {
        let files = files.iter().map(|(name, content)| (format!("{start}{name}"), content.clone())).collect();
        let dir = tempfile::tempdir().unwrap();
        let set = fetch_and_read("cinic10", &tar_gz(&files), dir.path());
        assert_eq!(set.classes, classes);
        assert_eq!((set.train.len(), set.test.len()), (20, 20));
        assert_eq!((set.train.image(19)[0], set.train.image(0)[1024], set.test.image(0)[1024]), (9, 0, 2));
    }
}

#[test]
fn tiny_imagenet_is_in_a_folder_of_its_name() {
    let jpeg = include_bytes!("../../../data/src/folder/small.jpg").to_vec();
    let ids: Vec<String> = (0..200).map(|i| format!("n{i:08}")).collect();
    let file = |name: String, content: &[u8]| (format!("tiny-imagenet-200/{name}"), content.to_vec());
    let mut files: Files = vec![file(String::new(), b""), file("words.txt".to_string(), b"n00000000\tegyptian cat\n")];
    // Unsorted, as published.
    let listed: Vec<&str> = ids.iter().rev().map(String::as_str).collect();
    files.push(file("wnids.txt".to_string(), (listed.join("\n") + "\n").as_bytes()));
    for folder in ["val/", "val/images/", "test/", "test/images/", "train/"] {
        files.push(file(folder.to_string(), b""));
    }
    files.push(file("test/images/test_0.JPEG".to_string(), &jpeg));
    let mut lines = String::new();
    for (i, id) in ids.iter().enumerate() {
        files.push(file(format!("train/{id}/{id}_boxes.txt"), b"x\t0\t0\t3\t3\n"));
        files.push(file(format!("train/{id}/images/{id}_0.JPEG"), &jpeg));
        files.push(file(format!("val/images/val_{i}.JPEG"), &jpeg));
        lines += &format!("val_{i}.JPEG\t{id}\t0\t0\t3\t3\n");
    }
    files.push(file("val/val_annotations.txt".to_string(), lines.as_bytes()));
    let dir = tempfile::tempdir().unwrap();
    let set = fetch_and_read("tiny-imagenet", &zip(&files), dir.path());
    assert_eq!((set.train.len(), set.test.len(), set.classes.len()), (200, 200, 200));
    assert_eq!((set.classes[0].as_str(), set.test.labels[199]), ("egyptian cat", 199));
}

#[test]
fn sst_is_three_files_of_trees() {
    let tree = |label: u8| format!("({label} (2 A) ({label} (2 fine) (2 film)))\n").into_bytes();
    let files = vec![
        ("trees/".to_string(), Vec::new()),
        ("trees/dev.txt".to_string(), tree(2)),
        ("trees/test.txt".to_string(), tree(0)),
        ("trees/train.txt".to_string(), tree(4)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let set = fetch_and_read("sst5", &zip(&files), dir.path());
    assert_eq!((set.train.labels, set.test.labels), (vec![4], vec![0]));
}

/// The official files, if the environment names a folder with them.
#[test]
fn real_files_have_the_published_checksums() {
    let Some(dir) = std::env::var_os("FEDELITY_DATA") else {
        println!("skipped: FEDELITY_DATA names no folder");
        return;
    };
    for name in ["mnist", "fashion-mnist", "cifar10", "cifar100", "sst5"] {
        let entry = catalogue::find(name).unwrap();
        let home = Path::new(&dir).join(entry.folder.unwrap());
        if !home.exists() {
            println!("skipped: no files of {name}");
            continue;
        }
        let found = fetch(entry, Path::new(&dir), Some("/no/mirror"), Patience::default(), &mut |_| {});
        assert_eq!(found.unwrap(), Fetched::WasThere(home));
    }
}
