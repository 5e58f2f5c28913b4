//! Reader of the binary files of CIFAR-10 and CIFAR-100.
//!
//! A file is a sequence of records: one label byte (CIFAR-10) or a coarse and a fine label byte (CIFAR-100), then 3,072
//! pixels as `[channel][row][column]`. There is no header, so the official length is the only check against a truncated
//! file.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, ImageShape, Normalisation, Split};
use crate::error::DataError;
use crate::files;
use crate::request::Request;

/// Read if it exists.
const NAMES_100: &str = "fine_label_names.txt";

pub(crate) const SHAPE: ImageShape = ImageShape { channels: 3, height: 32, width: 32 };
const PIXELS: usize = 3 * 32 * 32;
/// Records per read.
const BUFFERED: usize = 64;

pub(crate) const CLASSES_10: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

#[rustfmt::skip]
const CLASSES_100: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle",
    "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle",
    "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch",
    "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake",
    "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle",
    "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];

/// The range of each label byte before the pixels; the last one is used.
const LABELS_10: &[usize] = &[10];
const LABELS_100: &[usize] = &[20, 100];

/// Reads CIFAR-10 from `dir/cifar-10-batches-bin` or `dir`.
pub(crate) fn cifar10(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let paths = request.files(|name| vec![name.to_string()])?;
    let train = read_split(&paths[..5], 10_000, LABELS_10)?;
    let test = read_split(&paths[5..], 10_000, LABELS_10)?;
    let normalisation = Normalisation { mean: vec![0.4914, 0.4822, 0.4465], std: vec![0.2470, 0.2435, 0.2616] };
    Ok(request.dataset(&CLASSES_10, train, test, normalisation))
}

/// Reads CIFAR-100 with its fine labels from `dir/cifar-100-binary` or `dir`.
pub(crate) fn cifar100(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let paths = request.files(|name| vec![name.to_string()])?;
    let names_path = paths[0].with_file_name(NAMES_100);
    let names = if names_path.exists() { Some(read_names(&names_path, CLASSES_100.len())?) } else { None };
    let train = read_split(&paths[..1], 50_000, LABELS_100)?;
    let test = read_split(&paths[1..], 10_000, LABELS_100)?;
    let normalisation = Normalisation { mean: vec![0.5071, 0.4865, 0.4409], std: vec![0.2673, 0.2564, 0.2762] };
    let made = request.dataset(&CLASSES_100, train, test, normalisation);
    Ok(Dataset { classes: names.unwrap_or(made.classes), ..made })
}

/// Class names, one per line. At most 64 KiB are read: names need far less.
fn read_names(path: &Path, classes: usize) -> Result<Vec<String>, DataError> {
    let text = files::read_text(path, 1 << 16)?;
    let found: Vec<String> = text.lines().map(|line| line.trim().to_string()).filter(|line| !line.is_empty()).collect();
    if found.len() != classes {
        return Err(DataError::ClassNames { expected: classes, found: found.len(), path: path.to_path_buf() });
    }
    Ok(found)
}

/// Reads consecutive files of `records` records each.
fn read_split(paths: &[PathBuf], records: usize, ranges: &[usize]) -> Result<Split, DataError> {
    let record = ranges.len() + PIXELS;
    let expected = (records * record) as u64;
    // All lengths are checked before any memory is allocated.
    for path in paths {
        let (_, found) = files::open(path)?;
        DataError::length(path, expected, found, Some(found))?;
    }
    let mut pixels = Vec::with_capacity(paths.len() * records * PIXELS);
    let mut labels = Vec::with_capacity(paths.len() * records);
    // A small buffer stays in the CPU cache and is allocated once.
    let mut buffer = vec![0; record * BUFFERED];
    for path in paths {
        let (mut file, _) = files::open(path)?;
        for first in (0..records).step_by(BUFFERED) {
            let bytes = record * BUFFERED.min(records - first);
            let raw = &mut buffer[..bytes];
            file.read_exact(raw).map_err(DataError::io("read", path))?;
            split_records(raw, first, path, ranges, (&mut pixels, &mut labels))?;
        }
    }
    Ok(Split::images(pixels, labels))
}

/// Splits whole records; `first` is the position of the first one in its file.
fn split_records(
    raw: &[u8],
    first: usize,
    path: &Path,
    ranges: &[usize],
    (all_pixels, all_labels): (&mut Vec<u8>, &mut Vec<u16>),
) -> Result<(), DataError> {
    let record = ranges.len() + PIXELS;
    for (i, bytes) in raw.chunks_exact(record).enumerate() {
        let (labels, pixels) = bytes.split_at(ranges.len());
        for (at, (&label, &classes)) in labels.iter().zip(ranges).enumerate() {
            if usize::from(label) >= classes {
                return Err(DataError::Label {
                    offset: ((first + i) * record + at) as u64,
                    label: u16::from(label),
                    first: 0,
                    classes,
                    path: path.to_path_buf(),
                });
            }
        }
        all_labels.push(u16::from(labels[ranges.len() - 1]));
        all_pixels.extend_from_slice(pixels);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{SetName, load};
    use std::fs;

    /// Two records per file, so that tests stay small.
    fn file(dir: &Path, name: &str, records: &[(&[u8], u8)]) -> PathBuf {
        let mut raw = Vec::new();
        for (labels, pixel) in records {
            raw.extend_from_slice(labels);
            raw.extend(std::iter::repeat_n(*pixel, PIXELS));
        }
        let path = dir.join(name);
        fs::write(&path, raw).unwrap();
        path
    }

    #[test]
    fn records_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", &[(&[3], 30), (&[4], 40)]);
        let b = file(dir.path(), "b", &[(&[5], 50), (&[9], 90)]);
        let split = read_split(&[a, b], 2, LABELS_10).unwrap();
        assert_eq!(split.labels, [3, 4, 5, 9]);
        assert_eq!(split.image(2), [50; PIXELS]);
    }

    #[test]
    fn offsets_continue_across_buffers() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = vec![(&[1u8][..], 0); BUFFERED + 3];
        let a = file(dir.path(), "a", &records);
        let split = read_split(&[a], BUFFERED + 3, LABELS_10).unwrap();
        assert_eq!(split.len(), BUFFERED + 3);
        assert_eq!(split.pixels().len(), split.len() * PIXELS);
        records[BUFFERED + 1].0 = &[11];
        let a = file(dir.path(), "a", &records);
        let error = read_split(&[a], BUFFERED + 3, LABELS_10).unwrap_err();
        let at = ((BUFFERED + 1) * 3073) as u64;
        assert!(matches!(error, DataError::Label { offset, .. } if offset == at));
    }

    #[test]
    fn the_fine_label_counts() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", &[(&[19, 99], 1)]);
        assert_eq!(read_split(&[a], 1, LABELS_100).unwrap().labels, [99]);
        let a = file(dir.path(), "a", &[(&[1, 2], 1), (&[1, 100], 1)]);
        assert!(matches!(
            read_split(&[a], 2, LABELS_100).unwrap_err(),
            DataError::Label { offset: 3075, label: 100, classes: 100, .. }
        ));
        let a = file(dir.path(), "a", &[(&[20, 0], 1)]);
        assert!(matches!(
            read_split(&[a], 1, LABELS_100).unwrap_err(),
            DataError::Label { offset: 0, label: 20, classes: 20, .. }
        ));
    }

    #[test]
    fn lengths_and_labels_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let a = file(dir.path(), "a", &[(&[3], 0), (&[10], 0)]);
        let paths = [a];
        let error = read_split(&paths, 3, LABELS_10).unwrap_err();
        assert!(matches!(error, DataError::Truncated { offset: 6146, expected: 9219, .. }));
        let error = read_split(&paths, 1, LABELS_10).unwrap_err();
        assert!(matches!(error, DataError::Trailing { offset: 3073, found: Some(6146), .. }));
        let error = read_split(&paths, 2, LABELS_10).unwrap_err();
        assert!(matches!(error, DataError::Label { offset: 3073, .. }));
        assert!(error.to_string().contains("expected 0 to 9"), "{error}");
    }

    #[test]
    fn official_lengths_are_required() {
        let dir = tempfile::tempdir().unwrap();
        for name in SetName::Cifar10.entry().files.iter().chain(SetName::Cifar100.entry().files) {
            file(dir.path(), name, &[(&[0], 0)]);
        }
        assert!(matches!(
            load("cifar10", Some(dir.path())).unwrap_err(),
            DataError::Truncated { expected: 30_730_000, .. }
        ));
        assert!(matches!(
            load("cifar100", Some(dir.path())).unwrap_err(),
            DataError::Truncated { expected: 153_700_000, .. }
        ));
    }

    #[test]
    fn class_names_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAMES_100);
        fs::write(&path, "a\nb\n\n").unwrap();
        assert_eq!(read_names(&path, 2).unwrap(), ["a", "b"]);
        assert!(matches!(read_names(&path, 3).unwrap_err(), DataError::ClassNames { expected: 3, found: 2, .. }));
    }
}
