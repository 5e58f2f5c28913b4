//! The data sets available by name.

use std::path::Path;

use fedelity_keys::Choice;

use crate::dataset::{Dataset, ImageShape, Shape};
use crate::download::{self, Download};
use crate::error::DataError;
use crate::request::Request;
use crate::skipped::Skipped;
use crate::{agnews, cifar, cinic10, embedded, emnist, femnist, idx, sst5, tiny_imagenet};

/// A data set of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum SetName {
    FashionMnistMini,
    Mnist,
    FashionMnist,
    EmnistLetters,
    EmnistBalanced,
    EmnistByclass,
    Femnist,
    Cifar10,
    Cifar100,
    Cinic10,
    TinyImagenet,
    Agnews,
    Sst5,
}

/// What is known about a data set without reading it, and how to read it.
#[derive(Clone, Copy, Debug)]
pub struct CatalogueEntry {
    pub name: &'static str,
    /// The usual name.
    pub title: &'static str,
    pub task: &'static str,
    pub classes: usize,
    /// Samples in the training split, if their number is fixed.
    pub train: Option<usize>,
    /// Samples in the test split, if their number is fixed.
    pub test: Option<usize>,
    pub shape: Shape,
    /// Whether it is read from image files, which can be scaled.
    pub scaled: bool,
    /// The licence, as its authors state it.
    pub licence: &'static str,
    /// The home page, as a citation.
    pub source: &'static str,
    /// The official files that are read. Empty for the embedded set.
    pub files: &'static [&'static str],
    /// The subfolder in which they are searched for. None for the embedded set.
    pub folder: Option<&'static str>,
    pub download: Download,
    pub read: fn(&mut Request<'_>) -> Result<Dataset, DataError>,
}

impl CatalogueEntry {
    /// Whether the set is built into the program and needs no files.
    pub fn is_embedded(&self) -> bool {
        self.folder.is_none()
    }
}

const EMNIST_LICENCE: &str = "none stated; made from NIST Special Database 19, the authors ask for a citation";

/// The official files of an EMNIST selection: training images and labels, test images and labels.
macro_rules! emnist_files {
    ($selection:literal) => {
        &[
            concat!("emnist-", $selection, "-train-images-idx3-ubyte"),
            concat!("emnist-", $selection, "-train-labels-idx1-ubyte"),
            concat!("emnist-", $selection, "-test-images-idx3-ubyte"),
            concat!("emnist-", $selection, "-test-labels-idx1-ubyte"),
        ]
    };
}

/// Training images and labels, test images and labels.
const IDX_FILES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

const MINI: CatalogueEntry = CatalogueEntry {
    name: SetName::FashionMnistMini.name(),
    title: "Fashion-MNIST, small balanced subset",
    train: Some(6_000),
    test: Some(1_000),
    files: &[],
    folder: None,
    download: Download::NONE,
    read: embedded::read,
    ..FASHION_MNIST
};

const MNIST: CatalogueEntry = CatalogueEntry {
    name: SetName::Mnist.name(),
    title: "MNIST",
    task: "10 handwritten digits, grey images",
    classes: 10,
    train: Some(60_000),
    test: Some(10_000),
    shape: Shape::Image(idx::SHAPE),
    scaled: false,
    licence: "CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
    source: "LeCun, Cortes, Burges: The MNIST database of handwritten digits, \
             http://yann.lecun.com/exdb/mnist/",
    files: &IDX_FILES,
    folder: Some("mnist"),
    download: download::MNIST,
    read: idx::mnist,
};

const FASHION_MNIST: CatalogueEntry = CatalogueEntry {
    name: SetName::FashionMnist.name(),
    title: "Fashion-MNIST",
    task: "10 kinds of clothing, grey images",
    licence: "MIT, Zalando SE",
    source: "Xiao, Rasul, Vollgraf: Fashion-MNIST (2017), https://github.com/zalandoresearch/fashion-mnist",
    folder: Some("fashion-mnist"),
    download: download::FASHION_MNIST,
    read: idx::fashion_mnist,
    ..MNIST
};

const EMNIST_LETTERS: CatalogueEntry = CatalogueEntry {
    name: SetName::EmnistLetters.name(),
    title: "EMNIST letters",
    task: "26 handwritten letters, grey images",
    classes: 26,
    train: Some(124_800),
    test: Some(20_800),
    shape: Shape::Image(idx::SHAPE),
    scaled: false,
    licence: EMNIST_LICENCE,
    source: "Cohen, Afshar, Tapson, van Schaik: EMNIST (2017), \
             https://www.nist.gov/itl/products-and-services/emnist-dataset",
    files: emnist_files!("letters"),
    folder: Some("emnist"),
    download: download::EMNIST,
    read: emnist::letters,
};

const EMNIST_BALANCED: CatalogueEntry = CatalogueEntry {
    name: SetName::EmnistBalanced.name(),
    title: "EMNIST balanced",
    task: "47 handwritten characters, balanced, grey images",
    classes: 47,
    train: Some(112_800),
    test: Some(18_800),
    files: emnist_files!("balanced"),
    read: emnist::balanced,
    ..EMNIST_LETTERS
};

const EMNIST_BYCLASS: CatalogueEntry = CatalogueEntry {
    name: SetName::EmnistByclass.name(),
    title: "EMNIST byclass",
    task: "62 handwritten characters, grey images",
    classes: 62,
    train: Some(697_932),
    test: Some(116_323),
    files: emnist_files!("byclass"),
    read: emnist::by_class,
    ..EMNIST_LETTERS
};

const FEMNIST: CatalogueEntry = CatalogueEntry {
    name: SetName::Femnist.name(),
    title: "FEMNIST from LEAF",
    task: "62 handwritten characters by writer, grey images",
    classes: 62,
    train: None,
    test: None,
    shape: Shape::Image(idx::SHAPE),
    scaled: false,
    licence: EMNIST_LICENCE,
    source: "Caldas et al.: LEAF (2018), https://leaf.cmu.edu",
    files: &["train/*.json and test/*.json", "or all_data/*.json"],
    folder: Some("femnist"),
    download: download::FEMNIST,
    read: femnist::read,
};

const CIFAR10: CatalogueEntry = CatalogueEntry {
    name: SetName::Cifar10.name(),
    title: "CIFAR-10",
    task: "10 kinds of animals and vehicles, colour images",
    classes: 10,
    train: Some(50_000),
    test: Some(10_000),
    shape: Shape::Image(cifar::SHAPE),
    scaled: false,
    licence: "none stated; the authors ask for a citation of the report",
    source: "Krizhevsky: Learning Multiple Layers of Features from Tiny Images \
             (2009), https://www.cs.toronto.edu/~kriz/cifar.html",
    files: &[
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
        "test_batch.bin",
    ],
    folder: Some("cifar-10-batches-bin"),
    download: download::CIFAR10,
    read: cifar::cifar10,
};

const CIFAR100: CatalogueEntry = CatalogueEntry {
    name: SetName::Cifar100.name(),
    title: "CIFAR-100",
    task: "100 kinds of things, fine labels, colour images",
    classes: 100,
    files: &["train.bin", "test.bin"],
    folder: Some("cifar-100-binary"),
    download: download::CIFAR100,
    read: cifar::cifar100,
    ..CIFAR10
};

const CINIC10: CatalogueEntry = CatalogueEntry {
    name: SetName::Cinic10.name(),
    title: "CINIC-10",
    train: Some(90_000),
    test: Some(90_000),
    scaled: true,
    licence: "CC BY 4.0; the images are from CIFAR-10 and ImageNet",
    source: "Darlow, Crowley, Antoniou, Storkey: CINIC-10 (2018), https://datashare.ed.ac.uk/handle/10283/3192",
    files: &["train/<class>/*.png", "test/<class>/*.png"],
    folder: Some("CINIC-10"),
    download: download::CINIC10,
    read: cinic10::read,
    ..CIFAR10
};

const TINY_IMAGENET: CatalogueEntry = CatalogueEntry {
    name: SetName::TinyImagenet.name(),
    title: "Tiny-ImageNet",
    task: "200 kinds of things, colour images",
    classes: 200,
    train: Some(100_000),
    test: Some(10_000),
    shape: Shape::Image(ImageShape { channels: 3, height: 64, width: 64 }),
    scaled: true,
    licence: "for non-commercial research and education, as for ImageNet",
    source: "Le, Yang: Tiny ImageNet Visual Recognition Challenge (2015), http://cs231n.stanford.edu",
    files: &["wnids.txt", "words.txt", "train", "val/val_annotations.txt"],
    folder: Some("tiny-imagenet-200"),
    download: download::TINY_IMAGENET,
    read: tiny_imagenet::read,
};

const AGNEWS: CatalogueEntry = CatalogueEntry {
    name: SetName::Agnews.name(),
    title: "AG News",
    task: "4 news topics, texts",
    classes: 4,
    train: Some(120_000),
    test: Some(7_600),
    shape: Shape::Text,
    scaled: false,
    licence: "for non-commercial research",
    source: "Zhang, Zhao, LeCun: Character-level Convolutional Networks for Text Classification (2015), \
             http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
    files: &["train.csv", "test.csv"],
    folder: Some("ag_news_csv"),
    download: download::AGNEWS,
    read: agnews::read,
};

const SST5: CatalogueEntry = CatalogueEntry {
    name: SetName::Sst5.name(),
    title: "SST-5",
    task: "5 levels of sentiment in film reviews, texts",
    classes: 5,
    train: Some(8_544),
    test: Some(2_210),
    licence: "none stated; the authors ask for a citation",
    source: "Socher et al.: Recursive Deep Models for Semantic Compositionality (2013), \
             https://nlp.stanford.edu/sentiment/",
    files: &["train.txt", "test.txt"],
    folder: Some("sst5/trees"),
    download: download::SST5,
    read: sst5::read,
    ..AGNEWS
};

impl SetName {
    pub fn entry(self) -> &'static CatalogueEntry {
        match self {
            Self::FashionMnistMini => &MINI,
            Self::Mnist => &MNIST,
            Self::FashionMnist => &FASHION_MNIST,
            Self::EmnistLetters => &EMNIST_LETTERS,
            Self::EmnistBalanced => &EMNIST_BALANCED,
            Self::EmnistByclass => &EMNIST_BYCLASS,
            Self::Femnist => &FEMNIST,
            Self::Cifar10 => &CIFAR10,
            Self::Cifar100 => &CIFAR100,
            Self::Cinic10 => &CINIC10,
            Self::TinyImagenet => &TINY_IMAGENET,
            Self::Agnews => &AGNEWS,
            Self::Sst5 => &SST5,
        }
    }
}

/// All data sets, the embedded one first.
pub fn entries() -> impl Iterator<Item = &'static CatalogueEntry> {
    SetName::ALL.into_iter().map(SetName::entry)
}

pub fn find(name: &str) -> Result<&'static CatalogueEntry, DataError> {
    SetName::from_name(name)
        .map(SetName::entry)
        .ok_or_else(|| DataError::UnknownDataset { name: name.to_string(), known: &SetName::NAMES })
}

/// Loads a data set by name. All except the embedded one need a folder with their files.
pub fn load(name: &str, data_dir: Option<&Path>) -> Result<Dataset, DataError> {
    find(name)?.load(data_dir, None, &mut Skipped::default())
}

impl CatalogueEntry {
    /// Whether files of the set may be in this folder: something is where its files are. Reading them tells for certain.
    pub fn may_be_in(&self, dir: &Path) -> bool {
        let Some(folder) = self.folder else { return true };
        let plain = |name: &&&str| !name.contains('<');
        let beside = |name: &&str| [name.to_string(), format!("{name}.gz")].iter().any(|name| dir.join(name).exists());
        dir.join(folder).is_dir() || self.files.iter().find(plain).is_some_and(beside)
    }

    /// As [`load`], scaling images if they are read from image files. Unusable images and texts are rejected or
    /// skipped, depending on `skipped`.
    pub(crate) fn load(
        &'static self,
        dir: Option<&Path>,
        size: Option<(usize, usize)>,
        skipped: &mut Skipped,
    ) -> Result<Dataset, DataError> {
        let dir = match (dir, self.folder) {
            (Some(dir), _) => dir,
            (None, None) => Path::new(""),
            (None, Some(_)) => return Err(DataError::NoFolder { dataset: self.name }),
        };
        (self.read)(&mut Request { entry: self, dir, size, skipped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn names_are_written_once() {
        for name in SetName::ALL {
            assert_eq!(name.entry().name, name.name());
            assert_eq!(serde_json::to_value(name).unwrap(), name.name());
        }
    }

    #[test]
    fn the_default_needs_nothing() {
        let set = load("fashion-mnist-mini", None).unwrap();
        let entry = find("fashion-mnist-mini").unwrap();
        assert!(entry.is_embedded());
        assert_eq!(entry.name, set.name);
        assert_eq!(entry.train, Some(set.train.len()));
        assert_eq!(entry.test, Some(set.test.len()));
        assert_eq!(entry.classes, set.classes.len());
        assert!(set.remarks().is_empty(), "{:?}", set.remarks());
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let text = load("cifar", None).unwrap_err().to_string();
        for entry in entries() {
            assert!(text.contains(entry.name), "{text}");
        }
    }

    #[test]
    fn no_folder_says_what_to_do() {
        for entry in entries().filter(|entry| !entry.is_embedded()) {
            assert!(matches!(load(entry.name, None), Err(DataError::NoFolder { .. })), "{}", entry.name);
            let text = load(entry.name, Some(Path::new("no such"))).unwrap_err().to_string();
            let fetch = format!("'fedelity data fetch {} --data-dir \"no such\"' puts them there", entry.name);
            for said in ["--data-dir, FEDELITY_DATA or data.dir", entry.folder.unwrap(), &fetch] {
                assert!(text.contains(said), "{text}");
            }
        }
    }

    #[test]
    fn an_empty_folder_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        for entry in entries().filter(|entry| !entry.is_embedded()) {
            let error = load(entry.name, Some(dir.path())).unwrap_err();
            assert!(matches!(error, DataError::Missing { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(entry.files[0]), "{text}");
            assert!(text.contains(entry.folder.unwrap()), "{text}");
        }
    }

    /// The official files, if the environment names a folder with them.
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
                Err(DataError::Missing { dataset, .. }) => {
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
                // AG News may be a smaller selection.
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
