//! Reader of EMNIST: IDX files as those of MNIST, but with rows and columns of every image swapped.

use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, ImageShape, Inputs, Shape, Split};
use crate::error::Error;
use crate::files::{self, Wanted};
use crate::folder::measure;
use crate::idx;

/// A selection of EMNIST.
pub(crate) struct Selection {
    pub(crate) name: &'static str,
    /// The official files: training images and labels, test images and labels.
    pub(crate) files: [&'static str; 4],
    /// The label of the first class.
    first: u8,
    /// The classes, one character each.
    classes: &'static str,
}

/// Upper and lower case together.
pub(crate) const LETTERS: Selection = Selection {
    name: "emnist-letters",
    files: [
        "emnist-letters-train-images-idx3-ubyte",
        "emnist-letters-train-labels-idx1-ubyte",
        "emnist-letters-test-images-idx3-ubyte",
        "emnist-letters-test-labels-idx1-ubyte",
    ],
    first: 1,
    classes: "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
};

/// Lower case only where it looks unlike upper case.
pub(crate) const BALANCED: Selection = Selection {
    name: "emnist-balanced",
    files: [
        "emnist-balanced-train-images-idx3-ubyte",
        "emnist-balanced-train-labels-idx1-ubyte",
        "emnist-balanced-test-images-idx3-ubyte",
        "emnist-balanced-test-labels-idx1-ubyte",
    ],
    first: 0,
    classes: "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt",
};

/// Digits, upper and lower case.
pub(crate) const BY_CLASS: Selection = Selection {
    name: "emnist-byclass",
    files: [
        "emnist-byclass-train-images-idx3-ubyte",
        "emnist-byclass-train-labels-idx1-ubyte",
        "emnist-byclass-test-images-idx3-ubyte",
        "emnist-byclass-test-labels-idx1-ubyte",
    ],
    first: 0,
    classes: CHARACTERS,
};

/// All characters, in the order of their labels.
pub(crate) const CHARACTERS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The sub folder of the files.
pub(crate) const FOLDER: &str = "emnist";
const SIDE: usize = 28;

/// One name a character.
pub(crate) fn names(classes: &str) -> Vec<String> {
    classes.chars().map(String::from).collect()
}

/// Reads a selection from `dir/emnist`, `dir/emnist/gzip` or `dir`.
pub(crate) fn read(dir: &Path, selection: &Selection) -> Result<Dataset, Error> {
    let wanted: Vec<Wanted> = selection
        .files
        .iter()
        .map(|&name| Wanted { name, variants: vec![name.to_string(), format!("{name}.gz"), format!("gzip/{name}.gz")] })
        .collect();
    let paths = files::locate(selection.name, dir, FOLDER, &[], &wanted)?;
    let split = |images: &PathBuf, labels: &PathBuf| -> Result<Split, Error> {
        let mut split = idx::read_labelled(images, labels, selection.first, selection.classes.len())?;
        if let Inputs::Bytes(pixels) = &mut split.inputs {
            pixels.chunks_exact_mut(SIDE * SIDE).for_each(transpose);
        }
        Ok(split)
    };
    let (train, test) = (split(&paths[0], &paths[1])?, split(&paths[2], &paths[3])?);
    Ok(Dataset {
        name: selection.name.to_string(),
        classes: names(selection.classes),
        shape: Shape::Image(ImageShape { channels: 1, height: SIDE, width: SIDE }),
        normalisation: measure(&train, 1),
        train,
        test,
    })
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
    use std::fs;

    fn idx_file(magic: u32, sides: &[u32], content: &[u8]) -> Vec<u8> {
        let numbers = [magic].into_iter().chain(sides.iter().copied());
        numbers.flat_map(u32::to_be_bytes).chain(content.iter().copied()).collect()
    }

    /// As many images as labels; pixel = 28 * row + column of the stored image, cut to a byte.
    fn write(dir: &Path, selection: &Selection, labels: &[u8]) {
        let n = labels.len() as u32;
        let image: Vec<u8> = (0..784).map(|i| (i % 256) as u8).collect();
        for name in selection.files {
            let raw = if name.contains("images") {
                idx_file(0x0803, &[n, 28, 28], &image.repeat(labels.len()))
            } else {
                idx_file(0x0801, &[n], labels)
            };
            fs::write(dir.join(name), raw).unwrap();
        }
    }

    #[test]
    fn images_stand_upright_and_labels_start_at_zero() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("emnist")).unwrap();
        write(&dir.path().join("emnist"), &LETTERS, &[1, 26]);
        let set = read(dir.path(), &LETTERS).unwrap();
        assert_eq!((set.train.labels.clone(), set.classes.len()), (vec![0, 25], 26));
        assert_eq!(set.classes[25], "Z");
        // Row 1 of the upright image is column 1 of the stored one.
        assert_eq!(set.train.image(1)[28..31], [1, 29, 57]);
        write(&dir.path().join("emnist"), &LETTERS, &[1, 27]);
        let text = read(dir.path(), &LETTERS).unwrap_err().to_string();
        assert!(text.ends_with("label at byte 9: expected 1 to 26, found 27"), "{text}");
        write(&dir.path().join("emnist"), &LETTERS, &[0, 1]);
        assert!(read(dir.path(), &LETTERS).unwrap_err().to_string().contains("expected 1 to 26, found 0"));
        assert!(matches!(read(dir.path(), &BALANCED), Err(Error::Missing { .. })));
    }

    #[test]
    fn selections_have_their_official_classes() {
        assert_eq!([LETTERS, BALANCED, BY_CLASS].map(|selection| selection.classes.len()), [26, 47, 62]);
    }
}
