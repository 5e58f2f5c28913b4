//! Reader of CINIC-10: folders of PNG images, decoded once.

use crate::cache;
use crate::cifar::CLASSES_10 as CLASSES;
use crate::dataset::{Dataset, Normalisation};
use crate::decode::ImageForm;
use crate::error::DataError;
use crate::folder::{self, FolderLayout};
use crate::request::Request;

/// Reads CINIC-10 from `dir/CINIC-10`, `dir/cinic10` or `dir`: `train` for training, `test` for testing.
pub(crate) fn read(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let name = request.entry.name;
    let root = request.root(&["CINIC-10", name, ""], |root| {
        // The classes that a part lacks, or the whole part.
        let lacks = |(part, all): (&str, &&str)| {
            let missing = CLASSES.iter().filter(|class| !root.join(part).join(class).is_dir());
            let missing: Vec<String> = missing.map(|class| format!("{part}/{class}/*.png")).collect();
            if missing.len() == CLASSES.len() { vec![all.to_string()] } else { missing }
        };
        ["train", "test"].into_iter().zip(request.entry.files).flat_map(lacks).collect()
    })?;
    let before = request.skipped.count;
    let skipped = &mut *request.skipped;
    let (train, classes) = folder::list(&root.join("train"), FolderLayout::Class, None, skipped)?;
    let (test, _) = folder::list(&root.join("test"), FolderLayout::Class, Some(&classes), skipped)?;
    if classes != CLASSES {
        let reason = format!("expected the classes {}, found {}", CLASSES.join(", "), classes.join(", "));
        return Err(DataError::unusable(&root.join("train"), None, reason));
    }
    let form = ImageForm { size: request.size, grey: false };
    let images = cache::decoded(&root, name, &format!("{form:?}"), (&[&train, &test], form), (skipped, before))?;
    let normalisation = Normalisation { mean: vec![0.4789, 0.4723, 0.4305], std: vec![0.2421, 0.2383, 0.2587] };
    Ok(images.dataset(name, classes, normalisation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{SetName, load};
    use crate::skipped::Skipped;
    use image::RgbImage;
    use std::fs;

    #[test]
    fn folders_of_the_official_names() {
        let dir = tempfile::tempdir().unwrap();
        for part in ["train", "valid", "test"] {
            for (label, class) in CLASSES.iter().enumerate() {
                let folder = dir.path().join("CINIC-10").join(part).join(class);
                fs::create_dir_all(&folder).unwrap();
                let image = RgbImage::from_pixel(32, 32, image::Rgb([label as u8, 7, 9]));
                image.save(folder.join("cifar10-train-1.png")).unwrap();
            }
        }
        for _ in 0..2 {
            let set = load("cinic10", Some(dir.path())).unwrap();
            assert_eq!((set.train.len(), set.test.len()), (10, 10));
            assert_eq!(set.train.labels, (0..10).collect::<Vec<u16>>());
            assert_eq!(set.test.image(4)[..3], [4, 4, 4]);
        }
        let small = SetName::Cinic10.entry().load(Some(dir.path()), Some((8, 8)), &mut Skipped::default()).unwrap();
        assert_eq!(small.train.image(3).len(), 3 * 64);
        fs::remove_dir_all(dir.path().join("CINIC-10").join("test/frog")).unwrap();
        let text = load("cinic10", Some(dir.path())).unwrap_err().to_string();
        assert!(text.contains("lacks test/frog/*.png"), "{text}");
    }
}
