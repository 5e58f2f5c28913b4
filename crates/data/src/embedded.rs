//! The default set, `fashion-mnist-mini`, which is built into the program.
//!
//! The first 600 training and the first 100 test images of each class of Fashion-MNIST, in the official order. The
//! files were made by `embedded/make.py`; their licence is `embedded/LICENSE-fashion-mnist`.

use crate::dataset::Dataset;
use crate::error::DataError;
use crate::idx;
use crate::request::Request;

const TRAIN_IMAGES: &[u8] = include_bytes!("../embedded/train-images-idx3-ubyte.gz");
const TRAIN_LABELS: &[u8] = include_bytes!("../embedded/train-labels-idx1-ubyte.gz");
const TEST_IMAGES: &[u8] = include_bytes!("../embedded/t10k-images-idx3-ubyte.gz");
const TEST_LABELS: &[u8] = include_bytes!("../embedded/t10k-labels-idx1-ubyte.gz");

/// Unpacks the embedded set: 6,000 training and 1,000 test images of 10 classes.
///
/// An error means that the program was built from damaged files.
pub(crate) fn read(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let train = idx::parse_split((TRAIN_IMAGES, "embedded train images"), (TRAIN_LABELS, "embedded train labels"))?;
    let test = idx::parse_split((TEST_IMAGES, "embedded test images"), (TEST_LABELS, "embedded test labels"))?;
    Ok(request.dataset(&idx::FASHION_CLASSES, train, test, idx::fashion_normalisation()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::load;

    #[test]
    fn content_matches_the_official_files() {
        let set = load("fashion-mnist-mini", None).unwrap();
        assert_eq!(set.train.len(), 6_000);
        assert_eq!(set.test.len(), 1_000);
        assert_eq!(set.train.label_counts(10), [600; 10]);
        assert_eq!(set.test.label_counts(10), [100; 10]);
        assert_eq!(set.train.labels[..5], [9, 0, 0, 3, 0]);
        assert_eq!(set.test.labels[..5], [9, 2, 1, 1, 6]);
        assert_eq!(set.fingerprint(), "cfaf98c5aa942521f16bea31706bea98270dd5f1f12d67301f094de664a80414");
    }

    /// Compared with the official files, if the environment names a folder with them.
    #[test]
    fn images_are_the_first_of_each_class() {
        let Some(dir) = std::env::var_os("FEDELITY_DATA") else {
            println!("skipped: FEDELITY_DATA names no folder");
            return;
        };
        let official = match load("fashion-mnist", Some(std::path::Path::new(&dir))) {
            Err(DataError::Missing { .. }) => {
                println!("skipped: no files of fashion-mnist");
                return;
            }
            other => other.unwrap(),
        };
        let set = load("fashion-mnist-mini", None).unwrap();
        for (small, large, per_class) in [(&set.train, &official.train, 600), (&set.test, &official.test, 100)] {
            let mut seen = [0; 10];
            let mut at = 0;
            for i in 0..large.len() {
                let count = &mut seen[usize::from(large.labels[i])];
                *count += 1;
                if *count <= per_class {
                    assert_eq!(small.labels[at], large.labels[i]);
                    assert_eq!(small.image(at), large.image(i));
                    at += 1;
                }
            }
            assert_eq!(at, small.len());
        }
    }

    #[test]
    fn size_and_licence() {
        let bytes = TRAIN_IMAGES.len() + TRAIN_LABELS.len() + TEST_IMAGES.len() + TEST_LABELS.len();
        assert!(bytes < 4_000_000, "{bytes}");
        assert!(include_str!("../embedded/LICENSE-fashion-mnist").contains("Zalando SE"));
    }
}
