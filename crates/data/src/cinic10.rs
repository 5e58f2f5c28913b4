//! Reader of CINIC-10: folders of PNG images, decoded once.

use std::path::Path;

use crate::cache::{self, Cached};
use crate::dataset::{Dataset, Normalisation, Shape};
use crate::decode::Form;
use crate::error::{Error, Place};
use crate::folder::{self, Layout};
use crate::skipped::Skipped;

/// The sub folder of the files.
pub(crate) const FOLDER: &str = "CINIC-10";
/// What is looked for in it. `valid` is not read.
pub(crate) const FILES: [&str; 2] = ["train/<class>/*.png", "test/<class>/*.png"];
const NAME: &str = "cinic10";
const CLASSES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Reads CINIC-10 from `dir/CINIC-10`, `dir/cinic10` or `dir`: its `train` part to train on, its `test` part to test.
pub(crate) fn read(dir: &Path, size: Option<(usize, usize)>, skipped: &mut Skipped) -> Result<Dataset, Error> {
    let mut places = Vec::new();
    for root in [dir.join(FOLDER), dir.join(NAME), dir.to_path_buf()] {
        // The classes that a part lacks, or all of it.
        let lacks = |(part, all): (&str, &str)| {
            let missing = CLASSES.iter().filter(|class| !root.join(part).join(class).is_dir());
            let missing: Vec<String> = missing.map(|class| format!("{part}/{class}/*.png")).collect();
            if missing.len() == CLASSES.len() { vec![all.to_string()] } else { missing }
        };
        let missing: Vec<String> = ["train", "test"].into_iter().zip(FILES).flat_map(lacks).collect();
        if !missing.is_empty() {
            places.push(Place { exists: root.is_dir(), folder: root, missing });
            continue;
        }
        let before = skipped.count;
        let (train, classes) = folder::list(&root.join("train"), Layout::Class, None, skipped)?;
        let (test, _) = folder::list(&root.join("test"), Layout::Class, Some(&classes), skipped)?;
        if classes != CLASSES {
            let reason = format!("expected the classes {}, found {}", CLASSES.join(", "), classes.join(", "));
            return Err(Error::Unusable { path: root.join("train"), line: None, reason });
        }
        let form = Form { size, grey: false };
        let place = cache::Place::new(&root, NAME, &format!("{form:?}"), &[&train, &test])?;
        let Cached { shape, mut splits } = match place.read() {
            Some(cached) => cached,
            None => {
                let made = folder::decode(&[&train, &test], form, skipped)?;
                if skipped.count == before {
                    place.write(&made);
                }
                made
            }
        };
        let test = splits.pop().unwrap_or_default();
        return Ok(Dataset {
            name: NAME.to_string(),
            classes,
            shape: Shape::Image(shape),
            train: splits.pop().unwrap_or_default(),
            test,
            normalisation: Normalisation { mean: vec![0.4789, 0.4723, 0.4305], std: vec![0.2421, 0.2383, 0.2587] },
        });
    }
    Err(Error::Missing { dataset: NAME, places })
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::RgbImage;
    use std::fs;

    #[test]
    fn folders_of_the_official_names() {
        let dir = tempfile::tempdir().unwrap();
        for part in ["train", "valid", "test"] {
            for (label, class) in CLASSES.iter().enumerate() {
                let folder = dir.path().join(FOLDER).join(part).join(class);
                fs::create_dir_all(&folder).unwrap();
                let image = RgbImage::from_pixel(32, 32, image::Rgb([label as u8, 7, 9]));
                image.save(folder.join("cifar10-train-1.png")).unwrap();
            }
        }
        for _ in 0..2 {
            let set = read(dir.path(), None, &mut Skipped::default()).unwrap();
            assert_eq!((set.train.len(), set.test.len()), (10, 10));
            assert_eq!(set.train.labels, (0..10).collect::<Vec<u16>>());
            assert_eq!(set.test.image(4)[..3], [4, 4, 4]);
        }
        assert_eq!(read(dir.path(), Some((8, 8)), &mut Skipped::default()).unwrap().train.image(3).len(), 3 * 64);
        fs::remove_dir_all(dir.path().join(FOLDER).join("test/frog")).unwrap();
        let text = read(dir.path(), None, &mut Skipped::default()).unwrap_err().to_string();
        assert!(text.contains("lacks test/frog/*.png"), "{text}");
    }
}
