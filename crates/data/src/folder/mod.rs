//! The user's own images: one folder per class, PNG or JPEG.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fedelity_keys::{Choice, keys};

use crate::cache::{self, Cached};
use crate::dataset::{Dataset, NaturalKeys, Normalisation, Shape, Split};
use crate::decode::{self, ImageForm};
use crate::deviation::population_deviation;
use crate::error::DataError;
use crate::partition::hold_out;
use crate::skipped::Skipped;

/// What the folder levels mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum FolderLayout {
    /// `class/image`.
    #[default]
    Class,
    /// `key/class/image`: a folder per writer, user or site, and in it one per class.
    #[choice("key/class")]
    KeyClass,
    /// `class/key/image`.
    #[choice("class/key")]
    ClassKey,
}

impl FolderLayout {
    /// The likeliest layout of a folder by its levels, if there are two of them. Classes are named alike in every folder that
    /// has some, and are fewer than sites or users; nothing more can be seen.
    pub fn guess(dir: &Path) -> Option<Self> {
        let inside = |dir: &Path| entries(dir).unwrap_or_default().into_iter().filter(|(_, path)| path.is_dir());
        let split = dir.join("train");
        let root = if split.is_dir() && dir.join("test").is_dir() { &split } else { dir };
        let outer: Vec<PathBuf> = inside(root).map(|(_, path)| path).collect();
        let mut inner: BTreeMap<String, usize> = BTreeMap::new();
        outer.iter().flat_map(|path| inside(path)).for_each(|(name, _)| *inner.entry(name).or_default() += 1);
        let once = inner.values().filter(|&&times| times == 1).count();
        match inner.len() {
            0 => None,
            // Users of one class are not those of another.
            found if found > outer.len() && 2 * once > found => Some(Self::ClassKey),
            _ => Some(Self::KeyClass),
        }
    }

    /// The layout of a folder of images of these classes, if it has another level of folders and their names tell.
    pub fn among(dir: &Path, classes: &[String]) -> Option<Self> {
        let inside = |dir: &PathBuf| entries(dir).unwrap_or_default().into_iter().filter(|(_, path)| path.is_dir());
        let is_class = |(name, _): &(String, PathBuf)| classes.contains(name);
        let outer: Vec<(String, PathBuf)> = inside(&dir.to_path_buf()).collect();
        let inner: Vec<(String, PathBuf)> = outer.iter().flat_map(|(_, path)| inside(path)).collect();
        match (outer.iter().any(is_class), inner.iter().any(is_class)) {
            (true, _) if !inner.is_empty() => Some(Self::ClassKey),
            (false, true) => Some(Self::KeyClass),
            _ => None,
        }
    }
}

/// The channels that images are read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum Colour {
    Rgb,
    Grey,
}

/// A folder of images and how they are read.
#[keys]
pub struct Folder {
    /// The folder. If it has `train` and `test`, these are the splits; otherwise some images are kept for testing.
    #[key(what = "the path of a folder")]
    pub path: PathBuf,
    /// What the folder levels mean: `class`, one folder per class; with `key`, also one per writer, user or site.
    #[key(default = "class")]
    pub layout: FolderLayout,
    /// Height and width to scale to. Without it, all images must have the same size.
    #[key(min = 1, max = 4096, what = "[height, width], each 1 to 4096")]
    pub size: Option<(usize, usize)>,
    /// Three channels or one.
    #[key(default = "rgb")]
    pub colour: Colour,
    /// The share of each class that is kept for testing if there is no `test` folder.
    #[key(default = 0.2, above = 0, below = 1)]
    pub test_fraction: f64,
}

/// Images found, before any is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listing {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) labels: Vec<u16>,
    pub(crate) keys: Option<NaturalKeys>,
}

impl Folder {
    /// Whether the folder says which images are for testing.
    pub(crate) fn is_divided(&self) -> bool {
        self.path.join("train").is_dir() && self.path.join("test").is_dir()
    }
}

/// Reads a folder of images. If it does not say which are for testing, some of them are if `divide` is set, and all
/// otherwise. Unusable files are rejected or skipped, depending on `skipped`.
pub(crate) fn read(folder: &Folder, divide: bool, skipped: &mut Skipped) -> Result<Dataset, DataError> {
    let dir = &folder.path;
    let (train_dir, test_dir) = (dir.join("train"), dir.join("test"));
    let divided = folder.is_divided();
    // A folder that has only images for testing may say so.
    let only_test = !divide && test_dir.is_dir() && entries(dir)?.len() == 1;
    let root = if divided {
        &train_dir
    } else if only_test {
        &test_dir
    } else {
        dir
    };
    let before = skipped.count;
    let (train, mut classes) = list(root, folder.layout, None, skipped)?;
    let test = if divided { Some(list(&test_dir, folder.layout, Some(&classes), skipped)?.0) } else { None };
    for (dir, listing) in [(root, Some(&train)), (&test_dir, test.as_ref())] {
        if listing.is_some_and(|listing| listing.paths.is_empty()) {
            return Err(unusable(dir, "no PNG or JPEG images in class folders"));
        }
    }
    let form = ImageForm { size: folder.size, grey: folder.colour == Colour::Grey };
    let options = format!("folder {} {:?} {form:?}", folder.layout.name(), folder.test_fraction.to_bits());
    let listings: Vec<&Listing> = [Some(&train), test.as_ref()].into_iter().flatten().collect();
    let cached = cache::decoded(dir, "folder", &options, (&listings, form), (&mut *skipped, before))?;
    let Cached { shape, mut splits } = cached;
    let test = (splits.len() > 1).then(|| splits.pop()).flatten();
    if test.as_ref().is_some_and(Split::is_empty) {
        return Err(unusable(&test_dir, "there are no test samples: no image can be used"));
    }
    let train = splits.pop().unwrap_or_default();
    let (train, test) = match test {
        Some(test) => (train, test),
        None if !divide => (Split::default(), train),
        None => {
            let held = hold_out(&train.labels, folder.test_fraction);
            train.divide(&held)
        }
    };
    let counts = if train.is_empty() { &test } else { &train }.label_counts(classes.len());
    if let Some(class) = counts.iter().position(|&count| count == 0) {
        // Only skipped images can empty a class.
        return Err(unusable(root, &format!("class '{}' has no usable image", classes.swap_remove(class))));
    }
    Ok(Dataset {
        name: "folder".to_string(),
        classes,
        shape: Shape::Image(shape),
        normalisation: measure(&train, shape.channels),
        train,
        test,
        table: None,
    })
}

/// Decodes listed images into splits of one shape.
pub(crate) fn decode(listings: &[&Listing], form: ImageForm, skipped: &mut Skipped) -> Result<Cached, DataError> {
    let mut shape = None;
    let mut splits = Vec::new();
    for listing in listings {
        let made = decode::decode(&listing.paths, form, skipped)?;
        if let Some(&first) = made.kept.first()
            && shape.is_some_and(|shape| shape != made.shape)
            && form.size.is_none()
        {
            let (h, w) = (made.shape.height, made.shape.width);
            let path = &listing.paths[first];
            let reason = format!("the image is {h}x{w}, but the training images have another size: set data.size");
            return Err(unusable(path, &reason));
        }
        shape.get_or_insert(made.shape);
        let take = |all: &[u32]| made.kept.iter().map(|&i| all[i]).collect();
        let mut split = Split::images(made.pixels, made.kept.iter().map(|&i| listing.labels[i]).collect());
        split.keys = listing.keys.as_ref().map(|keys| NaturalKeys { of: take(&keys.of), names: keys.names.clone() });
        splits.push(split);
    }
    let shape = shape.unwrap_or(crate::dataset::ImageShape { channels: 3, height: 1, width: 1 });
    Ok(Cached { shape, splits })
}

/// Lists images by class, sorted by name. `known` are the allowed classes.
pub(crate) fn list(
    root: &Path,
    layout: FolderLayout,
    known: Option<&[String]>,
    skipped: &mut Skipped,
) -> Result<(Listing, Vec<String>), DataError> {
    // Class, key, path.
    let mut found: Vec<(String, String, PathBuf)> = Vec::new();
    let mut classes: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (first, path) in folders(root, skipped)? {
        if layout == FolderLayout::Class {
            images(&path, skipped, |image| found.push((first.clone(), String::new(), image)))?;
            classes.insert(first, path);
            continue;
        }
        if layout == FolderLayout::ClassKey {
            classes.insert(first.clone(), path.clone());
        }
        for (second, path) in folders(&path, skipped)? {
            let (class, key) = if layout == FolderLayout::KeyClass { (&second, &first) } else { (&first, &second) };
            images(&path, skipped, |image| found.push((class.clone(), key.clone(), image)))?;
            classes.entry(class.clone()).or_insert(path);
        }
    }
    found.sort();
    let held: BTreeSet<&String> = found.iter().map(|(class, ..)| class).collect();
    for (class, path) in classes.iter().filter(|(class, _)| !held.contains(class)) {
        skipped.bad(path, None, format!("class '{class}' has no images"))?;
    }
    let names: Vec<String> = match known {
        Some(known) => known.to_vec(),
        None => held.into_iter().cloned().collect(),
    };
    if names.len() > 1 << 16 {
        return Err(unusable(root, &format!("found {} classes; at most 65536 are allowed", names.len())));
    }
    let mut keys: Vec<&String> = found.iter().map(|(_, key, _)| key).collect();
    keys.sort();
    keys.dedup();
    let mut listing = Listing::default();
    let mut of = Vec::new();
    for (class, key, path) in &found {
        let Ok(label) = names.binary_search(class) else {
            skipped.bad(path, None, format!("class '{class}' has no training images"))?;
            continue;
        };
        listing.labels.push(label as u16);
        of.push(keys.binary_search(&key).unwrap_or(0) as u32);
        listing.paths.push(path.clone());
    }
    if layout != FolderLayout::Class {
        listing.keys = Some(NaturalKeys { of, names: keys.into_iter().cloned().collect() });
    }
    Ok((listing, names))
}

/// The folders in a folder, sorted by name. A file among them is an error.
fn folders(root: &Path, skipped: &mut Skipped) -> Result<Vec<(String, PathBuf)>, DataError> {
    let mut found = Vec::new();
    for (name, path) in entries(root)? {
        if path.is_dir() {
            found.push((name, path));
        } else {
            skipped.bad(&path, None, "expected a folder of images, found a file")?;
        }
    }
    Ok(found)
}

pub(crate) fn images(root: &Path, skipped: &mut Skipped, mut each: impl FnMut(PathBuf)) -> Result<(), DataError> {
    for (name, path) in entries(root)? {
        let end = name.rsplit_once('.').map_or("", |(_, end)| end).to_ascii_lowercase();
        if path.is_dir() {
            skipped.bad(&path, None, UNEXPECTED)?;
        } else if ["png", "jpg", "jpeg"].contains(&end.as_str()) {
            each(path);
        } else {
            skipped.bad(&path, None, "the name does not end in .png, .jpg or .jpeg")?;
        }
    }
    Ok(())
}

/// The reason if there are more levels of folders than the layout has.
const UNEXPECTED: &str = "unexpected folder among images: with a folder per site and in it one per class, set data.layout = \
                          \"key/class\"; the other way round, \"class/key\"";

/// What file managers and archives leave behind.
const STRAY: [&str; 5] = ["thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx"];

/// Texts about the images: a name without its end, and the ends.
const ABOUT: [&str; 4] = ["readme", "license", "licence", "copying"];
const TEXTS: [&str; 6] = ["", "txt", "md", "rst", "pdf", "html"];

/// Whether a name is nothing of the data.
fn is_stray(name: &str, path: &Path) -> bool {
    let name = name.to_lowercase();
    let (start, end) = name.rsplit_once('.').unwrap_or((&name, ""));
    STRAY.contains(&name.as_str()) || ABOUT.contains(&start) && TEXTS.contains(&end) && path.is_file()
}

/// The contents of a folder, sorted by name, without texts about it, names that start with a dot and what file managers leave behind.
pub(crate) fn entries(root: &Path) -> Result<Vec<(String, PathBuf)>, DataError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).map_err(DataError::io("read", root))? {
        let path = entry.map_err(DataError::io("read", root))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(unusable(&path, "the name is not valid UTF-8"));
        };
        if !name.starts_with('.') && !is_stray(name, &path) {
            found.push((name.to_string(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

/// Mean and standard deviation of each channel, of pixels scaled to 0..1.
pub(crate) fn measure(split: &Split, channels: usize) -> Normalisation {
    let area = (split.pixels().len() / split.len().max(1) / channels).max(1);
    let mut counts = vec![[0u64; 256]; channels];
    for (plane, pixels) in split.pixels().chunks_exact(area).enumerate() {
        let counts = &mut counts[plane % channels];
        pixels.iter().for_each(|&pixel| counts[usize::from(pixel)] += 1);
    }
    let mut made = Normalisation::default();
    for counts in counts {
        let average = |of: fn(f64) -> f64| -> f64 {
            let sum: f64 = (0..256).map(|value| counts[value] as f64 * of(value as f64 / 255.0)).sum();
            sum / (counts.iter().sum::<u64>().max(1)) as f64
        };
        let mean = average(|pixel| pixel);
        let std = population_deviation(average(|pixel| pixel * pixel) - mean * mean);
        made.mean.push(mean as f32);
        // Constant images still need a scale.
        made.std.push(if std > 1e-6 { std as f32 } else { 1.0 });
    }
    made
}

fn unusable(path: &Path, reason: &str) -> DataError {
    DataError::unusable(path, None, reason)
}

#[cfg(test)]
mod tests;
