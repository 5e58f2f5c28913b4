//! The data sets that can be loaded by name.

use std::path::Path;

use crate::dataset::{Dataset, ImageShape, Shape};
use crate::download::{self, Download};
use crate::error::Error;
use crate::skipped::Skipped;
use crate::{agnews, cifar, cinic10, embedded, emnist, femnist, idx, sst5, tiny_imagenet};

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
    /// Samples of the training split, if they are always as many.
    pub train: Option<usize>,
    /// Samples of the test split, if they are always as many.
    pub test: Option<usize>,
    /// What a sample is.
    pub shape: Shape,
    /// The licence, as its authors state it.
    pub licence: &'static str,
    /// The home page, as a citation.
    pub source: &'static str,
    /// The official files that are read. Empty for the embedded set.
    pub files: &'static [&'static str],
    /// The sub folder that they are looked for in. None for the embedded set.
    pub folder: Option<&'static str>,
    /// How to get the files.
    pub download: Download,
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
const EMNIST_LICENCE: &str = "none stated; made from NIST Special Database 19, the authors ask for a citation";
const EMNIST_SOURCE: &str = "Cohen, Afshar, Tapson, van Schaik: EMNIST (2017), \
     https://www.nist.gov/itl/products-and-services/emnist-dataset";
const GREY: Shape = Shape::Image(idx::SHAPE);

const ENTRIES: [Entry; 13] = [
    Entry {
        name: embedded::NAME,
        title: "Fashion-MNIST, small balanced selection",
        task: "10 kinds of clothing, grey images",
        classes: 10,
        train: Some(6_000),
        test: Some(1_000),
        shape: GREY,
        licence: "MIT, Zalando SE",
        source: FASHION_SOURCE,
        files: &[],
        folder: None,
        download: Download::NONE,
    },
    Entry {
        name: "mnist",
        title: "MNIST",
        task: "10 handwritten digits, grey images",
        classes: 10,
        train: Some(60_000),
        test: Some(10_000),
        shape: GREY,
        licence: "CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
        source: "LeCun, Cortes, Burges: The MNIST database of handwritten digits, \
                 http://yann.lecun.com/exdb/mnist/",
        files: &idx::FILES,
        folder: Some("mnist"),
        download: download::MNIST,
    },
    Entry {
        name: "fashion-mnist",
        title: "Fashion-MNIST",
        task: "10 kinds of clothing, grey images",
        classes: 10,
        train: Some(60_000),
        test: Some(10_000),
        shape: GREY,
        licence: "MIT, Zalando SE",
        source: FASHION_SOURCE,
        files: &idx::FILES,
        folder: Some("fashion-mnist"),
        download: download::FASHION_MNIST,
    },
    Entry {
        name: emnist::LETTERS.name,
        title: "EMNIST letters",
        task: "26 handwritten letters, grey images",
        classes: 26,
        train: Some(124_800),
        test: Some(20_800),
        shape: GREY,
        licence: EMNIST_LICENCE,
        source: EMNIST_SOURCE,
        files: &emnist::LETTERS.files,
        folder: Some(emnist::FOLDER),
        download: download::EMNIST,
    },
    Entry {
        name: emnist::BALANCED.name,
        title: "EMNIST balanced",
        task: "47 handwritten characters, equally many of each, grey images",
        classes: 47,
        train: Some(112_800),
        test: Some(18_800),
        shape: GREY,
        licence: EMNIST_LICENCE,
        source: EMNIST_SOURCE,
        files: &emnist::BALANCED.files,
        folder: Some(emnist::FOLDER),
        download: download::EMNIST,
    },
    Entry {
        name: emnist::BY_CLASS.name,
        title: "EMNIST byclass",
        task: "62 handwritten characters, grey images",
        classes: 62,
        train: Some(697_932),
        test: Some(116_323),
        shape: GREY,
        licence: EMNIST_LICENCE,
        source: EMNIST_SOURCE,
        files: &emnist::BY_CLASS.files,
        folder: Some(emnist::FOLDER),
        download: download::EMNIST,
    },
    Entry {
        name: "femnist",
        title: "FEMNIST of LEAF",
        task: "62 handwritten characters by writer, grey images",
        classes: 62,
        train: None,
        test: None,
        shape: GREY,
        licence: "none stated; made from NIST Special Database 19, the authors ask for a citation",
        source: "Caldas et al.: LEAF (2018), https://leaf.cmu.edu",
        files: &femnist::FILES,
        folder: Some(femnist::FOLDER),
        download: download::FEMNIST,
    },
    Entry {
        name: "cifar10",
        title: "CIFAR-10",
        task: "10 kinds of animals and vehicles, colour images",
        classes: 10,
        train: Some(50_000),
        test: Some(10_000),
        shape: Shape::Image(cifar::SHAPE),
        licence: CIFAR_LICENCE,
        source: CIFAR_SOURCE,
        files: &cifar::FILES_10,
        folder: Some("cifar-10-batches-bin"),
        download: download::CIFAR10,
    },
    Entry {
        name: "cifar100",
        title: "CIFAR-100",
        task: "100 kinds of things, fine labels, colour images",
        classes: 100,
        train: Some(50_000),
        test: Some(10_000),
        shape: Shape::Image(cifar::SHAPE),
        licence: CIFAR_LICENCE,
        source: CIFAR_SOURCE,
        files: &cifar::FILES_100,
        folder: Some("cifar-100-binary"),
        download: download::CIFAR100,
    },
    Entry {
        name: "cinic10",
        title: "CINIC-10",
        task: "10 kinds of animals and vehicles, colour images",
        classes: 10,
        train: Some(90_000),
        test: Some(90_000),
        shape: Shape::Image(cifar::SHAPE),
        licence: "CC BY 4.0; the images are from CIFAR-10 and ImageNet",
        source: "Darlow, Crowley, Antoniou, Storkey: CINIC-10 (2018), https://datashare.ed.ac.uk/handle/10283/3192",
        files: &cinic10::FILES,
        folder: Some(cinic10::FOLDER),
        download: download::CINIC10,
    },
    Entry {
        name: "tiny-imagenet",
        title: "Tiny-ImageNet",
        task: "200 kinds of things, colour images",
        classes: 200,
        train: Some(100_000),
        test: Some(10_000),
        shape: Shape::Image(ImageShape { channels: 3, height: 64, width: 64 }),
        licence: "for research and education, without commerce, as ImageNet",
        source: "Le, Yang: Tiny ImageNet Visual Recognition Challenge (2015), http://cs231n.stanford.edu",
        files: &tiny_imagenet::FILES,
        folder: Some(tiny_imagenet::FOLDER),
        download: download::TINY_IMAGENET,
    },
    Entry {
        name: "agnews",
        title: "AG News",
        task: "4 topics of news, texts",
        classes: 4,
        train: Some(120_000),
        test: Some(7_600),
        shape: Shape::Text,
        licence: "for research, without commerce",
        source: "Zhang, Zhao, LeCun: Character-level Convolutional Networks for Text Classification (2015), \
                 http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
        files: &agnews::FILES,
        folder: Some(agnews::FOLDER),
        download: download::AGNEWS,
    },
    Entry {
        name: "sst5",
        title: "SST-5",
        task: "5 degrees of praise in film reviews, texts",
        classes: 5,
        train: Some(8_544),
        test: Some(2_210),
        shape: Shape::Text,
        licence: "none stated; the authors ask for a citation",
        source: "Socher et al.: Recursive Deep Models for Semantic Compositionality (2013), \
                 https://nlp.stanford.edu/sentiment/",
        files: &sst5::FILES,
        folder: Some(sst5::FOLDER),
        download: download::SST5,
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
    load_sized(name, data_dir, None, &mut Skipped::default())
}

/// As [`load`], with images of another size where they are read from image files. Images and texts that cannot be used
/// are refused or left out, as `skipped` says.
pub(crate) fn load_sized(
    name: &str,
    data_dir: Option<&Path>,
    size: Option<(usize, usize)>,
    skipped: &mut Skipped,
) -> Result<Dataset, Error> {
    let entry = find(name)?;
    let Some(folder) = entry.folder else {
        return embedded::read();
    };
    let dir = data_dir.ok_or(Error::NoFolder { dataset: entry.name, folder, files: entry.files })?;
    match entry.name {
        "mnist" => idx::read_mnist(dir),
        "fashion-mnist" => idx::read_fashion_mnist(dir),
        "emnist-letters" => emnist::read(dir, &emnist::LETTERS),
        "emnist-balanced" => emnist::read(dir, &emnist::BALANCED),
        "emnist-byclass" => emnist::read(dir, &emnist::BY_CLASS),
        "femnist" => femnist::read(dir),
        "cinic10" => cinic10::read(dir, size, skipped),
        "tiny-imagenet" => tiny_imagenet::read(dir, size, skipped),
        "agnews" => agnews::read(dir, skipped),
        "sst5" => sst5::read(dir, skipped),
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
        assert_eq!(entry.train, Some(set.train.len()));
        assert_eq!(entry.test, Some(set.test.len()));
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
            assert!(matches!(error, Error::Missing { .. }), "{error}");
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
            for (split, samples) in [(&set.train, entry.train), (&set.test, entry.test)] {
                // A smaller selection of AG News may be there.
                let part = entry.name == "agnews" && samples.is_some_and(|samples| split.len() < samples);
                assert!(part || samples.is_none_or(|samples| samples == split.len()), "{}", entry.name);
                assert_eq!(split.pixels().len(), split.len() * entry.shape.image().map_or(0, |shape| shape.pixels()));
                assert!(split.label_counts(entry.classes).iter().all(|&n| n > 0));
            }
            let Some(shape) = entry.shape.image() else { continue };
            let pixels = shape.height * shape.width;
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
