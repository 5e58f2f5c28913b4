//! Reader of IDX files, the format of MNIST and Fashion-MNIST.
//!
//! A file is a magic number, one 32-bit big-endian count per dimension, and the bytes. It may be plain or gzip, as its
//! first bytes show. Memory is bounded before it is allocated: by the length of a plain file, and by deflate's maximum
//! ratio for a compressed one.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;

use crate::dataset::{Dataset, ImageShape, Normalisation, Split};
use crate::error::DataError;
use crate::files;
use crate::request::Request;

const MAGIC_LABELS: u32 = 0x0801;
const MAGIC_IMAGES: u32 = 0x0803;
/// No set in this format comes near this; a greater count means a damaged header.
const LARGEST_COUNT: u32 = 1_000_000;
/// Deflate cannot expand by more than this.
const DEFLATE_RATIO: u64 = 1032;
const SIDE: usize = 28;

pub(crate) const SHAPE: ImageShape = ImageShape { channels: 1, height: SIDE, width: SIDE };

pub(crate) const FASHION_CLASSES: [&str; 10] =
    ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"];

const MNIST_CLASSES: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Reads MNIST from `dir/mnist` or `dir`.
pub(crate) fn mnist(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    read(request, &MNIST_CLASSES, Normalisation { mean: vec![0.1307], std: vec![0.3081] })
}

/// Reads Fashion-MNIST from `dir/fashion-mnist` or `dir`.
pub(crate) fn fashion_mnist(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    read(request, &FASHION_CLASSES, fashion_normalisation())
}

pub(crate) fn fashion_normalisation() -> Normalisation {
    Normalisation { mean: vec![0.2860], std: vec![0.3530] }
}

fn read(request: &Request<'_>, classes: &[&str], normalisation: Normalisation) -> Result<Dataset, DataError> {
    let paths = request.files(|name| {
        let dotted = name.replace("-idx", ".idx");
        vec![name.to_string(), format!("{name}.gz"), format!("{dotted}.gz"), dotted]
    })?;
    let train = read_labelled(&paths[0], &paths[1], 0, classes.len())?;
    let test = read_labelled(&paths[2], &paths[3], 0, classes.len())?;
    Ok(request.dataset(classes, train, test, normalisation))
}

/// Reads a split whose labels are `classes` consecutive numbers starting at `first`.
pub(crate) fn read_labelled(
    images_path: &Path,
    labels_path: &Path,
    first: u8,
    classes: usize,
) -> Result<Split, DataError> {
    let (images, length) = files::open(images_path)?;
    let pixels = parse(BufReader::with_capacity(1 << 16, images), length, images_path, &IMAGES)?;
    let (labels, length) = files::open(labels_path)?;
    let labels = parse(BufReader::new(labels), length, labels_path, &LABELS)?;
    join((pixels, images_path), (labels, labels_path), first, classes)
}

/// Reads a split from bytes in memory; `name` is used in error messages.
pub(crate) fn parse_split(images: (&[u8], &str), labels: (&[u8], &str)) -> Result<Split, DataError> {
    let (images_path, labels_path) = (Path::new(images.1), Path::new(labels.1));
    let pixels = parse(images.0, images.0.len() as u64, images_path, &IMAGES)?;
    let labels = parse(labels.0, labels.0.len() as u64, labels_path, &LABELS)?;
    join((pixels, images_path), (labels, labels_path), 0, MNIST_CLASSES.len())
}

fn join(
    (pixels, images_path): (Vec<u8>, &Path),
    (labels, labels_path): (Vec<u8>, &Path),
    first: u8,
    classes: usize,
) -> Result<Split, DataError> {
    let images = pixels.len() / (SIDE * SIDE);
    if images != labels.len() {
        return Err(DataError::Counts {
            images: images as u64,
            labels: labels.len() as u64,
            images_path: images_path.to_path_buf(),
            labels_path: labels_path.to_path_buf(),
        });
    }
    let wrong = |label: u8| label.checked_sub(first).is_none_or(|label| usize::from(label) >= classes);
    if let Some(at) = labels.iter().position(|&label| wrong(label)) {
        return Err(DataError::Label {
            offset: LABELS.header() + at as u64,
            label: u16::from(labels[at]),
            first: u16::from(first),
            classes,
            path: labels_path.to_path_buf(),
        });
    }
    Ok(Split::images(pixels, labels.into_iter().map(|label| u16::from(label - first)).collect()))
}

/// The expected dimensions after the count.
struct IdxLayout {
    magic: u32,
    count: &'static str,
    sides: &'static [(&'static str, u32)],
}

const LABELS: IdxLayout = IdxLayout { magic: MAGIC_LABELS, count: "number of labels", sides: &[] };
const IMAGES: IdxLayout = IdxLayout {
    magic: MAGIC_IMAGES,
    count: "number of images",
    sides: &[("number of rows", SIDE as u32), ("number of columns", SIDE as u32)],
};

impl IdxLayout {
    /// Bytes before the content.
    fn header(&self) -> u64 {
        8 + 4 * self.sides.len() as u64
    }
}

/// Reads one file of `length` bytes, plain or gzip, and returns its content after the header.
fn parse(mut input: impl BufRead, length: u64, path: &Path, layout: &IdxLayout) -> Result<Vec<u8>, DataError> {
    let start = input.fill_buf().map_err(DataError::io("read", path))?;
    if !start.starts_with(&[0x1f, 0x8b]) {
        return content(&mut input, Some(length), length, path, layout);
    }
    let mut decoder = GzDecoder::new(&mut input);
    let most = length.saturating_mul(DEFLATE_RATIO);
    let bytes = content(&mut decoder, None, most, path, layout)?;
    let rest = input.fill_buf().map_err(DataError::io("read", path))?;
    if !rest.is_empty() {
        let end = layout.header() + bytes.len() as u64;
        return Err(DataError::Trailing { offset: end, expected: end, found: None, path: path.to_path_buf() });
    }
    Ok(bytes)
}

/// Reads header and content. `total` is the length if known, `most` its upper bound.
fn content(
    input: &mut impl Read,
    total: Option<u64>,
    most: u64,
    path: &Path,
    layout: &IdxLayout,
) -> Result<Vec<u8>, DataError> {
    let header = layout.header();
    let mut head = Vec::new();
    fill(input, &mut head, header, 0, path)?;
    if let Some(&magic) = head.first_chunk() {
        let found = u32::from_be_bytes(magic);
        if found != layout.magic {
            return Err(DataError::Magic { expected: layout.magic, found, path: path.to_path_buf() });
        }
    }
    DataError::length(path, header, head.len() as u64, None)?;
    let numbers: Vec<u32> = head.as_chunks().0.iter().skip(1).map(|&bytes| u32::from_be_bytes(bytes)).collect();
    let bad = |field, place: usize, expected: String| DataError::Header {
        field,
        offset: 4 + 4 * place as u64,
        expected,
        found: u64::from(numbers[place]),
        path: path.to_path_buf(),
    };
    let count = numbers[0];
    if count == 0 || count > LARGEST_COUNT {
        return Err(bad(layout.count, 0, format!("1 to {LARGEST_COUNT}")));
    }
    let mut bytes = u64::from(count);
    for (place, &(field, side)) in layout.sides.iter().enumerate() {
        if numbers[place + 1] != side {
            return Err(bad(field, place + 1, side.to_string()));
        }
        bytes *= u64::from(side);
    }
    let expected = header + bytes;
    if expected > most {
        // Nothing is allocated for a count that the file cannot hold.
        return Err(match total {
            Some(found) => DataError::Truncated { offset: found, expected, found, path: path.to_path_buf() },
            None => bad(layout.count, 0, format!("content of at most {most} bytes, all that this gzip file can hold")),
        });
    }
    let mut body = Vec::with_capacity(usize::try_from(bytes + 1).unwrap_or(0).min(1 << 26));
    let whole = fill(input, &mut body, bytes + 1, header, path)?;
    let found = header + body.len() as u64;
    DataError::length(path, expected, found, total)?;
    if !whole {
        return Err(DataError::Gzip {
            offset: found,
            reason: "the file ends before its checksum".to_string(),
            path: path.to_path_buf(),
        });
    }
    Ok(body)
}

/// Reads up to `most` bytes; fewer if the input ends. `offset` is the current position. False means that a compressed
/// input is truncated.
fn fill(input: &mut impl Read, out: &mut Vec<u8>, most: u64, offset: u64, path: &Path) -> Result<bool, DataError> {
    match input.take(most).read_to_end(out) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
            Err(DataError::Gzip {
                offset: offset + out.len() as u64,
                reason: error.to_string(),
                path: path.to_path_buf(),
            })
        }
        Err(error) => Err(DataError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{SetName, load};
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write;

    fn images(count: u32, content: usize) -> Vec<u8> {
        let mut raw = Vec::new();
        for number in [MAGIC_IMAGES, count, 28, 28] {
            raw.extend_from_slice(&number.to_be_bytes());
        }
        raw.extend((0..content).map(|i| (i % 251) as u8));
        raw
    }

    fn labels(content: &[u8]) -> Vec<u8> {
        let mut raw = Vec::new();
        for number in [MAGIC_LABELS, content.len() as u32] {
            raw.extend_from_slice(&number.to_be_bytes());
        }
        raw.extend_from_slice(content);
        raw
    }

    fn gz(raw: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(raw).unwrap();
        encoder.finish().unwrap()
    }

    fn split(images: &[u8], labels: &[u8]) -> Result<Split, DataError> {
        parse_split((images, "images"), (labels, "labels"))
    }

    #[test]
    fn plain_and_gzip_give_the_same() {
        let (images, labels) = (images(2, 2 * 784), labels(&[3, 9]));
        let plain = split(&images, &labels).unwrap();
        assert_eq!(plain.len(), 2);
        assert_eq!(plain.labels, [3, 9]);
        assert_eq!(plain.image(1), &images[16 + 784..]);
        assert_eq!(split(&gz(&images), &gz(&labels)).unwrap(), plain);
    }

    #[test]
    fn files_are_found_under_each_official_name() {
        for (suffix, dotted, sub) in [("", false, true), (".gz", false, true), ("", true, false), (".gz", true, false)]
        {
            let dir = tempfile::tempdir().unwrap();
            let folder = if sub { dir.path().join("mnist") } else { dir.path().to_path_buf() };
            fs::create_dir_all(&folder).unwrap();
            for &name in SetName::Mnist.entry().files {
                let raw = if name.contains("images") { images(1, 784) } else { labels(&[7]) };
                let raw = if suffix.is_empty() { raw } else { gz(&raw) };
                let name = if dotted { name.replace("-idx", ".idx") } else { name.to_string() };
                fs::write(folder.join(format!("{name}{suffix}")), raw).unwrap();
            }
            let set = load("mnist", Some(dir.path())).unwrap();
            assert_eq!(set.train.labels, [7]);
            assert_eq!(set.test.len(), 1);
            assert_eq!(load("fashion-mnist", Some(dir.path())).is_ok(), !sub);
        }
    }

    #[test]
    fn truncated_files_at_every_byte() {
        let whole = images(1, 784);
        let packed = gz(&whole);
        for end in 0..whole.len() {
            let error = split(&whole[..end], &labels(&[0])).unwrap_err();
            match error {
                DataError::Truncated { offset, found, .. } => {
                    assert_eq!((offset, found), (end as u64, end as u64));
                }
                other => panic!("{end}: {other}"),
            }
        }
        for end in 0..packed.len() {
            let error = split(&packed[..end], &labels(&[0])).unwrap_err();
            assert!(matches!(error, DataError::Truncated { .. } | DataError::Gzip { .. }), "{end}: {error}");
        }
    }

    #[test]
    fn damaged_gzip_never_passes() {
        let packed = gz(&images(1, 784));
        for at in 10..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x5a;
            assert!(split(&damaged, &labels(&[0])).is_err(), "{at}");
        }
    }

    #[test]
    fn wrong_magic() {
        let error = split(&labels(&[0; 20]), &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Magic { expected: MAGIC_IMAGES, found: MAGIC_LABELS, .. }));
        assert!(error.to_string().contains("0x00000803"), "{error}");
    }

    #[test]
    fn counts_that_lie() {
        // More than the file has: truncated. Less: trailing.
        let error = split(&images(3, 2 * 784), &labels(&[0, 0])).unwrap_err();
        assert!(matches!(error, DataError::Truncated { expected: 2368, .. }));
        let error = split(&images(1, 2 * 784), &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Trailing { offset: 800, found: Some(1584), .. }));
        let error = split(&gz(&images(1, 2 * 784)), &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Trailing { offset: 800, .. }));
        // Absurdly large, and zero.
        for count in [u32::MAX, LARGEST_COUNT + 1, 0] {
            let error = split(&images(count, 784), &labels(&[0])).unwrap_err();
            assert!(matches!(error, DataError::Header { offset: 4, .. }), "{error}");
        }
        // Below the limit, but more than a gzip file of this length can hold.
        let error = split(&gz(&images(LARGEST_COUNT, 10)), &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Header { offset: 4, .. }), "{error}");
        assert!(error.to_string().contains("gzip"), "{error}");
    }

    #[test]
    fn a_gzip_bomb_is_not_unpacked() {
        // 64 MB of zeros after a header for one image: reading stops one byte after it.
        let mut raw = images(1, 784);
        raw.resize(64 << 20, 0);
        let error = split(&gz(&raw), &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Trailing { expected: 800, .. }));
    }

    #[test]
    fn bytes_after_the_gzip_stream() {
        let mut packed = gz(&images(1, 784));
        packed.push(0);
        let error = split(&packed, &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Trailing { offset: 800, .. }));
    }

    #[test]
    fn other_image_sizes() {
        let mut raw = images(1, 784);
        raw[11] = 27;
        let error = split(&raw, &labels(&[0])).unwrap_err();
        assert!(matches!(error, DataError::Header { field: "number of rows", offset: 8, found: 27, .. }));
    }

    #[test]
    fn labels_out_of_range_and_of_another_count() {
        let error = split(&images(2, 2 * 784), &labels(&[9, 10])).unwrap_err();
        assert!(matches!(error, DataError::Label { offset: 9, label: 10, .. }));
        let error = split(&images(2, 2 * 784), &labels(&[9])).unwrap_err();
        assert!(matches!(error, DataError::Counts { images: 2, labels: 1, .. }));
    }
}
