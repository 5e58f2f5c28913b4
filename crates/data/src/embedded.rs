//! The default set, `fashion-mnist-mini`, which is part of the program.
//!
//! The first 600 training and the first 100 test images of each class of Fashion-MNIST, in the
//! official order. `embedded/make.py` made the files; `embedded/LICENSE-fashion-mnist` is their
//! licence.

use crate::dataset::{Dataset, Split};
use crate::error::Error;
use crate::idx;

/// The name of the set in the catalogue.
pub const NAME: &str = "fashion-mnist-mini";

/// The licence of the embedded images and labels.
pub const LICENCE: &str = include_str!("../embedded/LICENSE-fashion-mnist");

const TRAIN_IMAGES: &[u8] = include_bytes!("../embedded/train-images-idx3-ubyte.gz");
const TRAIN_LABELS: &[u8] = include_bytes!("../embedded/train-labels-idx1-ubyte.gz");
const TEST_IMAGES: &[u8] = include_bytes!("../embedded/t10k-images-idx3-ubyte.gz");
const TEST_LABELS: &[u8] = include_bytes!("../embedded/t10k-labels-idx1-ubyte.gz");

/// Unpacks the embedded set: 6,000 training and 1,000 test images of 10 classes.
///
/// An error means that the program was built from damaged files.
pub fn read() -> Result<Dataset, Error> {
    Ok(Dataset {
        name: NAME.to_string(),
        classes: idx::names(&idx::FASHION_CLASSES),
        shape: idx::SHAPE,
        train: split(
            TRAIN_IMAGES,
            TRAIN_LABELS,
            "embedded train images",
            "embedded train labels",
        )?,
        test: split(
            TEST_IMAGES,
            TEST_LABELS,
            "embedded test images",
            "embedded test labels",
        )?,
        normalisation: idx::fashion_normalisation(),
    })
}

fn split(images: &[u8], labels: &[u8], images_name: &str, labels_name: &str) -> Result<Split, Error> {
    idx::parse_split((images, images_name), (labels, labels_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_one_made_from_the_official_files() {
        let set = read().unwrap();
        assert_eq!(set.train.len(), 6_000);
        assert_eq!(set.test.len(), 1_000);
        assert_eq!(set.train.label_counts(10), [600; 10]);
        assert_eq!(set.test.label_counts(10), [100; 10]);
        assert_eq!(set.train.labels[..5], [9, 0, 0, 3, 0]);
        assert_eq!(set.test.labels[..5], [9, 2, 1, 1, 6]);
        assert_eq!(
            set.fingerprint(),
            "FILL"
        );
    }

    #[test]
    fn size_and_licence() {
        let bytes =
            TRAIN_IMAGES.len() + TRAIN_LABELS.len() + TEST_IMAGES.len() + TEST_LABELS.len();
        assert!(bytes < 4_000_000, "{bytes}");
        assert!(LICENCE.contains("Zalando SE"));
    }
}
