//! Reader of Tiny-ImageNet: folders of JPEG images, decoded once.
//!
//! `wnids.txt` lists the classes, `words.txt` describes them, `train/<class>/images` has the training images, and
//! `val/val_annotations.txt` the classes of those in `val/images`, which are used for testing: `test` has no labels.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::cache;
use crate::dataset::{Dataset, Normalisation};
use crate::decode::ImageForm;
use crate::error::DataError;
use crate::files;
use crate::folder::{self, Listing};
use crate::request::Request;
use crate::skipped::Skipped;

/// The maximum length of a text file.
const LONGEST: u64 = 1 << 26;

/// Reads Tiny-ImageNet from `dir/tiny-imagenet-200`, `dir/tiny-imagenet` or `dir`. Classes are ordered by ID.
pub(crate) fn read(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let name = request.entry.name;
    let root = request.root(&["tiny-imagenet-200", name, ""], |root| {
        let missing = request.entry.files.iter().filter(|name| !root.join(name).exists());
        missing.map(|name| name.to_string()).collect()
    })?;
    let mut ids: Vec<String> = text(&root.join("wnids.txt"))?.split_whitespace().map(String::from).collect();
    ids.sort();
    ids.dedup();
    if ids.is_empty() {
        return Err(DataError::unusable(&root.join("wnids.txt"), None, "the file lists no class"));
    }
    let before = request.skipped.count;
    let skipped = &mut *request.skipped;
    let (train, test) = (train(&root, &ids, skipped)?, test(&root, &ids, skipped)?);
    let form = ImageForm { size: request.size, grey: false };
    let images = cache::decoded(&root, name, &format!("{form:?}"), (&[&train, &test], form), (skipped, before))?;
    let normalisation = Normalisation { mean: vec![0.4802, 0.4481, 0.3975], std: vec![0.2770, 0.2691, 0.2821] };
    Ok(images.dataset(name, names(&root, &ids)?, normalisation))
}

fn train(root: &Path, ids: &[String], skipped: &mut Skipped) -> Result<Listing, DataError> {
    let mut listing = Listing::default();
    for (label, id) in ids.iter().enumerate() {
        let folder = root.join("train").join(id).join("images");
        let before = listing.paths.len();
        folder::images(&folder, skipped, |path| listing.paths.push(path))?;
        if listing.paths.len() == before {
            return Err(DataError::unusable(&folder, None, format!("class '{id}' has no images")));
        }
        listing.labels.resize(listing.paths.len(), label as u16);
    }
    Ok(listing)
}

fn test(root: &Path, ids: &[String], skipped: &mut Skipped) -> Result<Listing, DataError> {
    let path = root.join("val/val_annotations.txt");
    let mut listing = Listing::default();
    for (number, line) in (1..).zip(text(&path)?.lines()) {
        // The name, the class and a box.
        let mut fields = line.split('\t');
        let (Some(name), Some(id)) = (fields.next(), fields.next()) else {
            return Err(DataError::unusable(&path, Some(number), "expected a name and a class, separated by a tab"));
        };
        let Ok(label) = ids.binary_search_by(|known| known.as_str().cmp(id)) else {
            return Err(DataError::unusable(&path, Some(number), format!("class '{id}' is not in wnids.txt")));
        };
        if name.contains(['/', '\\']) || name == ".." {
            return Err(DataError::unusable(&path, Some(number), format!("'{name}' is not the name of an image")));
        }
        listing.paths.push(root.join("val/images").join(name));
        listing.labels.push(label as u16);
    }
    let named: HashSet<PathBuf> = listing.paths.iter().cloned().collect();
    let mut nameless = Vec::new();
    folder::images(&root.join("val/images"), skipped, |image| {
        nameless.extend((!named.contains(&image)).then_some(image))
    })?;
    for image in nameless {
        skipped.bad(&image, None, "the image is not listed in val_annotations.txt")?;
    }
    Ok(listing)
}

/// The first word of each class; its ID if there is none.
fn names(root: &Path, ids: &[String]) -> Result<Vec<String>, DataError> {
    let words = text(&root.join("words.txt"))?;
    let words: HashMap<&str, &str> = words.lines().filter_map(|line| line.split_once('\t')).collect();
    let name =
        |id: &String| words.get(id.as_str()).and_then(|words| words.split(',').next()).unwrap_or(id).trim().to_string();
    Ok(ids.iter().map(name).collect())
}

fn text(path: &Path) -> Result<String, DataError> {
    files::read_text(path, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::SetName;

    fn read(dir: &Path, size: Option<(usize, usize)>) -> Result<Dataset, DataError> {
        SetName::TinyImagenet.entry().load(Some(dir), size, &mut Skipped::default())
    }

    use std::fs;

    fn tree(dir: &Path) -> PathBuf {
        let root = dir.join("tiny-imagenet-200");
        let jpeg = include_bytes!("folder/small.jpg");
        for id in ["n02", "n01"] {
            fs::create_dir_all(root.join("train").join(id).join("images")).unwrap();
            for i in 0..2 {
                fs::write(root.join(format!("train/{id}/images/{id}_{i}.JPEG")), jpeg).unwrap();
            }
            fs::write(root.join(format!("train/{id}/{id}_boxes.txt")), "").unwrap();
        }
        fs::create_dir_all(root.join("val/images")).unwrap();
        fs::write(root.join("val/images/val_0.JPEG"), jpeg).unwrap();
        fs::write(root.join("val/val_annotations.txt"), "val_0.JPEG\tn02\t0\t0\t3\t3\n").unwrap();
        fs::write(root.join("wnids.txt"), "n02\nn01\n").unwrap();
        fs::write(root.join("words.txt"), "n00\tnothing\nn01\tgoldfish, Carassius auratus\nn02\tbrain coral\n")
            .unwrap();
        root
    }

    #[test]
    fn the_official_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = tree(dir.path());
        let set = read(dir.path(), None).unwrap();
        assert_eq!(set.classes, ["goldfish", "brain coral"]);
        assert_eq!((set.train.labels.clone(), set.test.labels.clone()), (vec![0, 0, 1, 1], vec![1]));
        assert!(root.join(".fedelity-cache/tiny-imagenet.images").exists());
        assert_eq!(read(dir.path(), None).unwrap(), set);
        assert_eq!(read(dir.path(), Some((2, 2))).unwrap().train.image(0).len(), 12);
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = tree(dir.path());
        fs::write(root.join("val/val_annotations.txt"), "val_0.JPEG\tn02\nx\tn03\n").unwrap();
        let text = read(dir.path(), None).unwrap_err().to_string();
        assert!(text.ends_with("val_annotations.txt:2: class 'n03' is not in wnids.txt"), "{text}");
        fs::write(root.join("val/val_annotations.txt"), "../../x\tn02\n").unwrap();
        assert!(read(dir.path(), None).unwrap_err().to_string().contains("is not the name of an image"));
        fs::write(root.join("val/val_annotations.txt"), "val_0.JPEG\tn02\n").unwrap();
        fs::write(root.join("train/n01/images/n01_1.JPEG"), "broken").unwrap();
        let text = read(dir.path(), None).unwrap_err().to_string();
        assert!(text.contains("n01_1.JPEG: neither PNG nor JPEG"), "{text}");
        assert!(!root.join(".fedelity-cache").exists());
        fs::remove_file(root.join("wnids.txt")).unwrap();
        assert!(read(dir.path(), None).unwrap_err().to_string().contains("lacks wnids.txt"));
    }
}
