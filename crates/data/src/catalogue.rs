//! The data sets that can be loaded by name.

use std::path::Path;

use crate::dataset::{Dataset, ImageShape};
use crate::error::Error;
use crate::{cifar, embedded, idx};

/// What is known about a data set without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name that [`load`] takes.
    pub name: &'static str,
    /// The name that people use.
    pub title: &'static str,
    /// What is to be learnt.
    pub task: &'static str,
    /// The number of classes.
    pub classes: usize,
    /// Images of the training split.
    pub train: usize,
    /// Images of the test split.
    pub test: usize,
    /// The shape of an image.
    pub shape: ImageShape,
    /// The licence, as its authors state it.
    pub licence: &'static str,
    /// The home page, as a citation.
    pub source: &'static str,
    /// The official files that are read. Empty for the embedded set.
    pub files: &'static [&'static str],
    /// The sub folder that they are looked for in. None for the embedded set.
    pub folder: Option<&'static str>,
}

impl Entry {
    /// Whether the set is part of the program and needs no files.
    pub fn is_embedded(&self) -> bool {
        self.folder.is_none()
    }
}

const FASHION_SOURCE: &str = "Xiao, Rasul, Vollgraf: Fashion-MNIST (2017), \
     https://github.com/zalandoresearch/fashion-mnist";
const CIFAR_LICENCE: &str = "none stated; the authors ask for a citation of the report";
const CIFAR_SOURCE: &str = "Krizhevsky: Learning Multiple Layers of Features from Tiny Images \
     (2009), https://www.cs.toronto.edu/~kriz/cifar.html";

const ENTRIES: [Entry; 5] = [
    Entry {
        name: embedded::NAME,
        title: "Fashion-MNIST, small balanced selection",
        task: "10 kinds of clothing, grey images",
        classes: 10,
        train: 6_000,
        test: 1_000,
        shape: idx::SHAPE,
        licence: "MIT, Zalando SE",
        source: FASHION_SOURCE,
        files: &[],
        folder: None,
    },
    Entry {
        name: "mnist",
        title: "MNIST",
        task: "10 handwritten digits, grey images",
        classes: 10,
        train: 60_000,
        test: 10_000,
        shape: idx::SHAPE,
        licence: "CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
        source: "LeCun, Cortes, Burges: The MNIST database of handwritten digits, \
                 http://yann.lecun.com/exdb/mnist/",
        files: &idx::FILES,
        folder: Some("mnist"),
    },
    Entry {
        name: "fashion-mnist",
        title: "Fashion-MNIST",
        task: "10 kinds of clothing, grey images",
        classes: 10,
        train: 60_000,
        test: 10_000,
        shape: idx::SHAPE,
        licence: "MIT, Zalando SE",
        source: FASHION_SOURCE,
        files: &idx::FILES,
        folder: Some("fashion-mnist"),
    },
    Entry {
        name: "cifar10",
        title: "CIFAR-10",
        task: "10 kinds of animals and vehicles, colour images",
        classes: 10,
        train: 50_000,
        test: 10_000,
        shape: cifar::SHAPE,
        licence: CIFAR_LICENCE,
        source: CIFAR_SOURCE,
        files: &cifar::FILES_10,
        folder: Some("cifar-10-batches-bin"),
    },
    Entry {
        name: "cifar100",
        title: "CIFAR-100",
        task: "100 kinds of things, fine labels, colour images",
        classes: 100,
        train: 50_000,
        test: 10_000,
        shape: cifar::SHAPE,
        licence: CIFAR_LICENCE,
        source: CIFAR_SOURCE,
        files: &cifar::FILES_100,
        folder: Some("cifar-100-binary"),
    },
];

/// All data sets, the embedded one first.
pub fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// The entry of a name.
pub fn find(name: &str) -> Result<&'static Entry, Error> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| Error::UnknownDataset {
        name: name.to_string(),
        known: ENTRIES.iter().map(|entry| entry.name).collect(),
    })
}

/// Loads a data set by name. All but the embedded one need the folder of their files.
pub fn load(name: &str, data_dir: Option<&Path>) -> Result<Dataset, Error> {
    let entry = find(name)?;
    let Some(folder) = entry.folder else {
        return embedded::read();
    };
    let dir = data_dir.ok_or(Error::NoFolder { dataset: entry.name, folder, files: entry.files })?;
    match entry.name {
        "mnist" => idx::read_mnist(dir),
        "fashion-mnist" => idx::read_fashion_mnist(dir),
        "cifar10" => cifar::read_cifar10(dir),
        _ => cifar::read_cifar100(dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_default_needs_nothing() {
        let set = load("fashion-mnist-mini", None).unwrap();
        let entry = find("fashion-mnist-mini").unwrap();
        assert!(entry.is_embedded());
        assert_eq!(entry.name, set.name);
        assert_eq!(entry.train, set.train.len());
        assert_eq!(entry.test, set.test.len());
        assert_eq!(entry.classes, set.classes.len());
    }

    #[test]
    fn unknown_names_are_told_the_known_ones() {
        let text = load("cifar", None).unwrap_err().to_string();
        for entry in entries() {
            assert!(text.contains(entry.name), "{text}");
        }
    }

    #[test]
    fn no_folder_says_what_to_do() {
        for entry in entries().iter().filter(|entry| !entry.is_embedded()) {
            let text = load(entry.name, None).unwrap_err().to_string();
            assert!(text.contains("--data-dir"), "{text}");
            assert!(text.contains("FEDELITY_DATA"), "{text}");
            assert!(text.contains(entry.folder.unwrap()), "{text}");
            for file in entry.files {
                assert!(text.contains(file), "{text}");
            }
        }
    }

    #[test]
    fn an_empty_folder_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        for entry in entries().iter().filter(|entry| !entry.is_embedded()) {
            let error = load(entry.name, Some(dir.path())).unwrap_err();
            assert!(matches!(error, Error::Missing { .. }));
            let text = error.to_string();
            assert!(text.contains(entry.files[0]), "{text}");
            assert!(text.contains(entry.folder.unwrap()), "{text}");
        }
    }

    /// The official files, where the environment names a folder of them.
    #[test]
    fn real_files() {
        let Some(dir) = std::env::var_os("FEDELITY_DATA") else {
            println!("skipped: FEDELITY_DATA names no folder");
            return;
        };
        let dir = Path::new(&dir);
        for entry in entries() {
            let start = Instant::now();
            let set = match load(entry.name, Some(dir)) {
                Err(Error::Missing { dataset, .. }) => {
                    println!("skipped: no files of {dataset}");
                    continue;
                }
                other => other.unwrap(),
            };
            println!("{}: {:?}", entry.name, start.elapsed());
            assert_eq!(set.name, entry.name);
            assert_eq!(set.shape, entry.shape);
            assert_eq!(set.classes.len(), entry.classes);
            for (split, images) in [(&set.train, entry.train), (&set.test, entry.test)] {
                assert_eq!(split.len(), images);
                assert_eq!(split.pixels.len(), images * entry.shape.pixels());
                assert!(split.label_counts(entry.classes).iter().all(|&n| n > 0));
            }
            let pixels = entry.shape.height * entry.shape.width;
            for (channel, (&mean, &std)) in set.normalisation.mean.iter().zip(&set.normalisation.std).enumerate() {
                let (mut sum, mut square, mut n) = (0u64, 0u64, 0u64);
                for i in 0..set.train.len() {
                    for &p in &set.train.image(i)[channel * pixels..(channel + 1) * pixels] {
                        sum += u64::from(p);
                        square += u64::from(p) * u64::from(p);
                        n += 1;
                    }
                }
                let m = sum as f64 / n as f64;
                let s = (square as f64 / n as f64 - m * m).sqrt();
                assert!((m / 255.0 - f64::from(mean)).abs() < 0.003, "{m}");
                assert!((s / 255.0 - f64::from(std)).abs() < 0.003, "{s}");
            }
        }
    }
}
