//! Reader of EMNIST: IDX files like those of MNIST, but with the rows and columns of every image swapped.

use std::path::Path;

use crate::dataset::{Dataset, Inputs, Split};
use crate::error::DataError;
use crate::folder::measure;
use crate::idx;
use crate::request::Request;

/// All characters, in label order.
pub(crate) const CHARACTERS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SIDE: usize = 28;

/// Upper and lower case together.
pub(crate) fn letters(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    read(request, 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

/// Lower case only where it differs from upper case.
pub(crate) fn balanced(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    read(request, 0, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")
}

/// Digits, upper and lower case.
pub(crate) fn by_class(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    read(request, 0, CHARACTERS)
}

/// Reads a selection from `dir/emnist`, `dir/emnist/gzip` or `dir`. Labels start at `first`.
fn read(request: &Request<'_>, first: u8, classes: &str) -> Result<Dataset, DataError> {
    let paths = request.files(|name| vec![name.to_string(), format!("{name}.gz"), format!("gzip/{name}.gz")])?;
    let split = |images: &Path, labels: &Path| -> Result<Split, DataError> {
        let mut split = idx::read_labelled(images, labels, first, classes.len())?;
        if let Inputs::Bytes(pixels) = &mut split.inputs {
            pixels.chunks_exact_mut(SIDE * SIDE).for_each(transpose);
        }
        Ok(split)
    };
    let (train, test) = (split(&paths[0], &paths[1])?, split(&paths[2], &paths[3])?);
    let normalisation = measure(&train, 1);
    Ok(request.dataset(&characters(classes), train, test, normalisation))
}

/// One name per character.
pub(crate) fn characters(classes: &str) -> Vec<&str> {
    classes.split("").filter(|name| !name.is_empty()).collect()
}

fn transpose(image: &mut [u8]) {
    for row in 0..SIDE {
        for column in 0..row {
            image.swap(row * SIDE + column, column * SIDE + row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{SetName, load};
    use std::fs;

    fn idx_file(magic: u32, sides: &[u32], content: &[u8]) -> Vec<u8> {
        let numbers = [magic].into_iter().chain(sides.iter().copied());
        numbers.flat_map(u32::to_be_bytes).chain(content.iter().copied()).collect()
    }

    /// One image per label; pixel = 28 * row + column of the stored image, truncated to a byte.
    fn write(dir: &Path, labels: &[u8]) {
        let n = labels.len() as u32;
        let image: Vec<u8> = (0..784).map(|i| (i % 256) as u8).collect();
        for name in SetName::EmnistLetters.entry().files {
            let raw = if name.contains("images") {
                idx_file(0x0803, &[n, 28, 28], &image.repeat(labels.len()))
            } else {
                idx_file(0x0801, &[n], labels)
            };
            fs::write(dir.join("emnist").join(name), raw).unwrap();
        }
    }

    #[test]
    fn images_are_upright_and_labels_start_at_zero() {
        let dir = tempfile::tempdir().unwrap();
        let read = || load("emnist-letters", Some(dir.path()));
        fs::create_dir(dir.path().join("emnist")).unwrap();
        write(dir.path(), &[1, 26]);
        let set = read().unwrap();
        assert_eq!((set.train.labels.clone(), set.classes.len()), (vec![0, 25], 26));
        assert_eq!(set.classes[25], "Z");
        // Row 1 of the upright image is column 1 of the stored one.
        assert_eq!(set.train.image(1)[28..31], [1, 29, 57]);
        write(dir.path(), &[1, 27]);
        let text = read().unwrap_err().to_string();
        assert!(text.ends_with("label at byte 9: expected 1 to 26, found 27"), "{text}");
        write(dir.path(), &[0, 1]);
        assert!(read().unwrap_err().to_string().contains("expected 1 to 26, found 0"));
        assert!(matches!(load("emnist-balanced", Some(dir.path())), Err(DataError::Missing { .. })));
    }
}
