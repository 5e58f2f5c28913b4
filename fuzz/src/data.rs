//! Data sets, tables, images and partitions.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fedelity_data::folder::{Colour, FolderLayout};
use fedelity_data::table::{texts, unlabelled};
use fedelity_data::{
    DataError, DataSource, Dataset, Folder, ImageShape, Inputs, Kind, Partition, SetName, Shape, Skipped, Split,
    TableFiles, TableSource, images, load, partition,
};

use crate::Read;
use crate::place::{Place, seed};

/// Samples of a set that takes long to look through.
const LARGE: usize = 50_000;

/// A set of the catalogue, of which one file varies.
pub(crate) fn set(name: &'static str, file: &'static str) -> Read {
    let number = |number: u32| number.to_be_bytes();
    let grey = [&number(0x803)[..], &number(2), &number(28), &number(28), &[7; 2 * 784]].concat();
    let digits = [&number(0x801)[..], &number(2), &[3, 9]].concat();
    let leaf = format!(r#"{{"user_data": {{"w": {{"x": [[{}0.5]], "y": [1]}}}}}}"#, "0,".repeat(783));
    let files: Vec<(&str, &[u8])> = match name {
        "mnist" => vec![
            ("train-images-idx3-ubyte", &grey),
            ("train-labels-idx1-ubyte", &digits),
            ("t10k-images-idx3-ubyte", &grey),
            ("t10k-labels-idx1-ubyte", &digits),
        ],
        "cifar10" => cifar_10().iter().map(|name| (*name, &[1; 3073][..])).collect(),
        "cifar100" => vec![("train.bin", &[1; 3074]), ("test.bin", &[1; 3074])],
        "femnist" => vec![("train/a.json", leaf.as_bytes()), ("test/a.json", leaf.as_bytes())],
        "agnews" => vec![("train.csv", b"\"1\",\"a\",\"b\"\n"), ("test.csv", b"\"1\",\"a\",\"b\"\n")],
        "sst5" => vec![("train.txt", b"(3 (2 a) (4 b))\n"), ("test.txt", b"(3 (2 a) (4 b))\n")],
        other => panic!("no set {other}"),
    };
    let place = Place::with(&files);
    files.iter().for_each(|(name, _)| fill_up(&place, name));
    Box::new(move |bytes| {
        place.write(file, bytes);
        fill_up(&place, file);
        checked(load(name, Some(place.folder())))
    })
}

fn cifar_10() -> &'static [&'static str] {
    SetName::Cifar10.entry().files
}

/// Gives a file of CIFAR that has a record its official length, which no seed has: the rest are zeros, on disk a hole.
fn fill_up(place: &Place, name: &str) {
    let (record, records) = match name {
        "train.bin" => (3074, 50_000),
        "test.bin" => (3074, 10_000),
        name if cifar_10().contains(&name) => (3073, 10_000),
        _ => return,
    };
    let file = File::options().write(true).open(place.file(name)).expect("a temporary file");
    let length = file.metadata().expect("a temporary file").len();
    if (record..record * records).contains(&length) {
        file.set_len(record * records).expect("a temporary file");
    }
}

/// What every data set must be, and what is done with it first, unless it is as large as CIFAR.
fn checked(read: Result<Dataset, DataError>) -> Result<(), String> {
    let dataset = read.map_err(said)?;
    for split in dataset.splits() {
        fits(split, &dataset);
    }
    let train = &dataset.train;
    if train.len() >= LARGE {
        return Ok(());
    }
    let _ = (dataset.remarks(), dataset.fingerprint(), train.shared_with(&dataset.test));
    let withheld = vec![false; train.len()];
    for kind in [Kind::Iid, Kind::Natural] {
        let clients = (kind == Kind::Iid).then_some(1);
        let made = partition(&dataset, &withheld, &kind, clients, 1);
        assert!(kind == Kind::Natural || made.is_ok() || train.is_empty(), "{made:?}");
    }
    Ok(())
}

/// Every sample has an input of the right size and a label that is a class.
fn fits(split: &Split, dataset: &Dataset) {
    let n = split.len();
    assert!(split.labels.iter().all(|&label| usize::from(label) < dataset.classes.len()), "a label is no class");
    match (&split.inputs, dataset.shape) {
        (Inputs::Bytes(pixels), Shape::Image(shape)) => assert_eq!(pixels.len(), n * shape.pixels()),
        (Inputs::Floats(numbers), Shape::Numbers(width)) => {
            assert_eq!(numbers.len(), n * width);
            assert!(numbers.iter().all(|number| number.is_finite()), "a number is not finite");
        }
        (Inputs::Texts(texts), Shape::Text) => assert_eq!(texts.len(), n),
        (_, shape) => panic!("inputs are not {shape}"),
    }
    if let Some(keys) = &split.keys {
        assert_eq!(keys.of.len(), n);
        assert!(keys.of.iter().all(|&key| (key as usize) < keys.names.len()), "a key has no name");
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub(crate) fn csv() -> Read {
    table("rows.csv", DataSource::Csv)
}

pub(crate) fn jsonl() -> Read {
    table("rows.jsonl", DataSource::Jsonl)
}

/// Rows: as a table with all its columns, with a key and categories, and without labels.
fn table(name: &'static str, source: fn(TableSource) -> DataSource) -> Read {
    let place = Place::with(&[]);
    let plain = TableSource {
        train: TableFiles::One(place.file(name)),
        test: None,
        test_fraction: Some(0.2),
        label: "label".to_string(),
        text: None,
        features: None,
        categories: Vec::new(),
        ignore: Vec::new(),
        key: None,
    };
    let sites = TableSource { key: Some("site".to_string()), categories: vec!["ward".to_string()], ..plain.clone() };
    let (plain, sites) = (source(plain), source(sites));
    Box::new(move |bytes| {
        place.write(name, bytes);
        let path = place.file(name);
        let mut skipped = Skipped::new(true);
        let _ = checked(sites.load(&mut skipped));
        let _ = (skipped.note(), texts(&path, "text", &mut Skipped::new(true)).map_err(said));
        let read = plain.load(&mut Skipped::new(false));
        if let Some(form) = read.as_ref().ok().and_then(|read| read.table.as_ref()).filter(|form| form.text.is_none()) {
            let rows = unlabelled(&path, form, &[], &mut Skipped::new(false)).expect("the same rows by their own form");
            assert_eq!(rows.numbers.len(), rows.lines.len() * form.width());
        }
        checked(read)
    })
}

/// An image in a folder of images, and scaled.
pub(crate) fn image() -> Read {
    let place = Place::with(&[("b/1.png", &seed("image/valid-grey.png"))]);
    let source = folder(place.folder());
    let shape = ImageShape { channels: 1, height: 5, width: 3 };
    Box::new(move |bytes| {
        place.write("a/1.png", bytes);
        let _ = checked(source.load(&mut Skipped::new(true)));
        let read = images(&[place.file("a/1.png")], shape, &mut Skipped::new(false));
        read.map(|(pixels, _)| assert_eq!(pixels.len(), shape.pixels())).map_err(said)
    })
}

fn folder(path: &Path) -> DataSource {
    let (layout, colour) = (FolderLayout::Class, Colour::Grey);
    DataSource::Folder(Folder { path: path.to_path_buf(), layout, size: None, colour, test_fraction: 0.5 })
}

/// The file beside images that spares decoding them again. What it claims to be made from is always the same.
pub(crate) fn image_cache() -> Read {
    let names = ["a/1.png", "a/2.png", "b/1.png", "b/2.png"];
    let grey = seed("image/valid-grey.png");
    let place = Place::with(&names.map(|name| (name, &grey[..])));
    for name in names {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = File::options().write(true).open(place.file(name)).expect("a temporary file");
        file.set_modified(time).expect("a time of a file");
    }
    let source = folder(place.folder());
    let expected = source.load(&mut Skipped::new(false)).expect("images").fingerprint();
    Box::new(move |bytes| {
        let signed = signed(bytes);
        place.write(".fedelity-cache/folder.images", &signed);
        let dataset = source.load(&mut Skipped::new(false)).expect("images");
        // Other pixels can be told from the right ones only by the checksum.
        let used = std::fs::read(place.file(".fedelity-cache/folder.images")).expect("a file") == signed;
        assert!(used || dataset.fingerprint() == expected, "the images are not those of the folder");
        checked(Ok(dataset))?;
        if used { Ok(()) } else { Err("decoded again".to_string()) }
    })
}

/// A cache whose checksum is right.
fn signed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let head = bytes.get(16..24).map_or(0, |size| u64::from_le_bytes(size.try_into().unwrap_or_default()));
    let start = usize::try_from(head).unwrap_or(usize::MAX).saturating_add(24);
    let Some(end) = bytes.len().checked_sub(4).filter(|&end| end >= start) else { return bytes };
    let sum = crc32fast::hash(&bytes[start..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(crate) fn partition_file() -> Read {
    let place = Place::with(&[]);
    let path: PathBuf = place.file("partition.json");
    Box::new(move |bytes| {
        place.write("partition.json", bytes);
        let _ = Partition::read_for(&path, &[0, 1, 2, 0, 1, 2]);
        let mut found = Partition::read(&path).map_err(said)?;
        let _ = found.fingerprint();
        found.write(&path, true).map_err(said)?;
        assert_eq!(Partition::read(&path).as_ref().ok(), Some(&found), "it comes back");
        if found.samples < 1 << 20 {
            let _ = found.withhold(&vec![true; found.samples]);
        }
        Ok(())
    })
}
