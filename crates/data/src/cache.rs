//! A file cache of decoded images, so that a set is decoded only once.
//!
//! The file is named after the set and starts with a version and a key: a fingerprint of the images' names, lengths and
//! times and of how they were read. A file with another key or version, or a damaged one, is ignored. If it cannot be
//! written, the images are decoded again next time.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use fedelity_files::Atomic;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, ImageShape, NaturalKeys, Normalisation, Shape, Split};
use crate::decode::ImageForm;
use crate::error::DataError;
use crate::fingerprint::Fingerprint;
use crate::folder::{self, Listing};
use crate::skipped::Skipped;

const MAGIC: &[u8; 16] = b"fedelity images\n";
const VERSION: u32 = 1;
/// The cache folder, next to the images.
const FOLDER: &str = ".fedelity-cache";
/// The maximum length of a header.
const LONGEST_HEAD: u64 = 1 << 28;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cached {
    pub(crate) shape: ImageShape,
    pub(crate) splits: Vec<Split>,
}

impl Cached {
    /// Whether these are images of the listings, all of them, in this form.
    fn is_of(&self, listings: &[&Listing], form: ImageForm) -> bool {
        let ImageShape { channels, height, width } = self.shape;
        let of = |(split, listing): (&Split, &&Listing)| split.labels == listing.labels && split.keys == listing.keys;
        channels == if form.grey { 1 } else { 3 }
            && form.size.unwrap_or((height.max(1), width.max(1))) == (height, width)
            && self.splits.len() == listings.len()
            && self.splits.iter().zip(listings).all(of)
    }

    /// The data set of the two splits.
    pub(crate) fn dataset(mut self, name: &str, classes: Vec<String>, normalisation: Normalisation) -> Dataset {
        let test = self.splits.pop().unwrap_or_default();
        let train = self.splits.pop().unwrap_or_default();
        Dataset {
            name: name.to_string(),
            classes,
            shape: Shape::Image(self.shape),
            train,
            test,
            normalisation,
            table: None,
        }
    }
}

/// The images of these listings in a folder: from its cache, or decoded, and cached if none was skipped.
pub(crate) fn decoded(
    dir: &Path,
    name: &str,
    options: &str,
    (listings, form): (&[&Listing], ImageForm),
    (skipped, before): (&mut Skipped, usize),
) -> Result<Cached, DataError> {
    let cache = Cache::new(dir, name, options, listings)?;
    if let Some(cached) = cache.read().filter(|cached| cached.is_of(listings, form)) {
        return Ok(cached);
    }
    let made = folder::decode(listings, form, skipped)?;
    if skipped.count == before {
        cache.write(&made);
    }
    Ok(made)
}

/// The location of a cache, and the key it must have.
struct Cache {
    path: PathBuf,
    key: String,
}

/// The header before the bytes.
#[derive(Serialize, Deserialize)]
struct CacheHead {
    version: u32,
    key: String,
    shape: [usize; 3],
    splits: Vec<CachedSplit>,
}

#[derive(Serialize, Deserialize)]
struct CachedSplit {
    samples: usize,
    key_names: Option<Vec<String>>,
}

impl Cache {
    /// The cache in this folder for these images, read this way.
    fn new(dir: &Path, name: &str, options: &str, listings: &[&Listing]) -> Result<Self, DataError> {
        let mut print = Fingerprint::new();
        print.bytes(options.as_bytes());
        for listing in listings {
            print.number(listing.paths.len());
            print.labels(&listing.labels);
            for path in &listing.paths {
                let about = fs::metadata(path).map_err(DataError::io("look at", path))?;
                let time = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let name = path.strip_prefix(dir).unwrap_or(path).as_os_str().as_encoded_bytes();
                print.number(name.len());
                print.bytes(name);
                print.number(about.len() as usize);
                print.number(time.map_or(0, |time| time.as_nanos() as usize));
            }
        }
        Ok(Self { path: dir.join(FOLDER).join(format!("{name}.images")), key: print.hex() })
    }

    /// The images, if the cache is valid.
    fn read(&self) -> Option<Cached> {
        let file = fedelity_files::open(&self.path).ok()?;
        let length = file.metadata().ok()?.len();
        let mut file = BufReader::with_capacity(1 << 16, file);
        let mut start = [0; 24];
        file.read_exact(&mut start).ok()?;
        let (magic, size) = start.split_at(16);
        let size = u64::from_le_bytes(size.try_into().ok()?);
        if magic != MAGIC || size > LONGEST_HEAD.min(length) {
            return None;
        }
        let mut head = vec![0; size as usize];
        file.read_exact(&mut head).ok()?;
        let head: CacheHead = serde_json::from_slice(&head).ok()?;
        if head.version != VERSION || head.key != self.key {
            return None;
        }
        let [channels, height, width] = head.shape;
        let shape = ImageShape { channels, height, width };
        let bytes = |split: &CachedSplit| {
            let keys = if split.key_names.is_some() { 4 } else { 0 };
            shape.pixels().checked_add(2 + keys)?.checked_mul(split.samples)
        };
        let all = head.splits.iter().try_fold(0usize, |sum, split| sum.checked_add(bytes(split)?))?;
        // The length is checked before memory is allocated.
        if length != 24 + size + all as u64 + 4 {
            return None;
        }
        let mut sum = crc32fast::Hasher::new();
        let mut take = |bytes: usize| -> Option<Vec<u8>> {
            let mut part = vec![0; bytes];
            file.read_exact(&mut part).ok()?;
            sum.update(&part);
            Some(part)
        };
        let mut splits = Vec::new();
        for split in head.splits {
            let labels = take(2 * split.samples)?.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            let keys = match split.key_names {
                None => None,
                Some(names) => {
                    let of = take(4 * split.samples)?;
                    let of = of.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
                    Some(NaturalKeys { of, names })
                }
            };
            let mut made = Split::images(take(split.samples * shape.pixels())?, labels);
            made.keys = keys;
            splits.push(made);
        }
        let mut end = [0; 4];
        file.read_exact(&mut end).ok()?;
        (u32::from_le_bytes(end) == sum.finalize()).then_some(Cached { shape, splits })
    }

    /// Writes the images atomically. Failure is not an error: the next run decodes again.
    fn write(&self, images: &Cached) {
        let Some(folder) = self.path.parent() else { return };
        let made_folder = !folder.exists();
        let written = fs::create_dir_all(folder).and_then(|()| Atomic::create(&self.path)).and_then(|mut out| {
            self.write_to(&mut out, images)?;
            out.commit()
        });
        if written.is_err() && made_folder {
            // Nothing is left behind, not even the folder.
            let _ = fs::remove_dir(folder);
        }
    }

    fn write_to(&self, out: &mut Atomic, images: &Cached) -> std::io::Result<()> {
        let shape = images.shape;
        let split = |split: &Split| CachedSplit {
            samples: split.len(),
            key_names: split.keys.as_ref().map(|keys| keys.names.clone()),
        };
        let head = CacheHead {
            version: VERSION,
            key: self.key.clone(),
            shape: [shape.channels, shape.height, shape.width],
            splits: images.splits.iter().map(split).collect(),
        };
        let head = serde_json::to_vec(&head)?;
        out.write_all(MAGIC)?;
        out.write_all(&(head.len() as u64).to_le_bytes())?;
        out.write_all(&head)?;
        let mut sum = crc32fast::Hasher::new();
        let mut put = |bytes: &[u8]| {
            sum.update(bytes);
            out.write_all(bytes)
        };
        for split in &images.splits {
            put(&split.labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<u8>>())?;
            if let Some(keys) = &split.keys {
                put(&keys.of.iter().flat_map(|key| key.to_le_bytes()).collect::<Vec<u8>>())?;
            }
            put(split.pixels())?;
        }
        let sum = sum.finalize();
        out.write_all(&sum.to_le_bytes())
    }
}
