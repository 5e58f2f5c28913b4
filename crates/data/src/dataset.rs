//! A labelled set of images in memory.

use crate::fingerprint::Fingerprint;

/// Channels, height and width of every image of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageShape {
    /// 1 for grey, 3 for red, green, blue.
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
}

impl ImageShape {
    /// Bytes of one image.
    pub fn pixels(&self) -> usize {
        self.channels.saturating_mul(self.height).saturating_mul(self.width)
    }
}

/// Mean and standard deviation per channel, of pixels scaled to 0..1.
///
/// A network sees `(pixel / 255 - mean) / std`.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalisation {
    /// One mean per channel.
    pub mean: Vec<f32>,
    /// One standard deviation per channel.
    pub std: Vec<f32>,
}

/// Images with their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// All images one after the other, `[n][channel][row][column]`.
    pub pixels: Vec<u8>,
    /// One label per image.
    pub labels: Vec<u16>,
}

impl Split {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The bytes of image `i`, `[channel][row][column]`.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`Split::len`], as a slice does.
    pub fn image(&self, i: usize) -> &[u8] {
        let n = self.len();
        assert!(i < n, "image {i} of a split of {n}");
        let bytes = self.pixels.len() / n;
        &self.pixels[i * bytes..(i + 1) * bytes]
    }

    /// How many images each of the first `classes` labels has.
    pub fn label_counts(&self, classes: usize) -> Vec<usize> {
        let mut counts = vec![0; classes];
        for &label in &self.labels {
            if let Some(count) = counts.get_mut(usize::from(label)) {
                *count += 1;
            }
        }
        counts
    }
}

/// A data set: a training split, a test split, and what is known about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The name in the catalogue.
    pub name: String,
    /// The class names; label `k` means `classes[k]`.
    pub classes: Vec<String>,
    /// The shape of every image.
    pub shape: ImageShape,
    /// Images to train on.
    pub train: Split,
    /// Images to test on.
    pub test: Split,
    /// How pixels are normalised.
    pub normalisation: Normalisation,
}

impl Dataset {
    /// SHA-256 over the shape, the labels and the pixels of both splits, as hex.
    ///
    /// It is computed on each call: keep the result. Names and normalisation do not enter.
    pub fn fingerprint(&self) -> String {
        let mut print = Fingerprint::new();
        print.number(self.shape.channels);
        print.number(self.shape.height);
        print.number(self.shape.width);
        for split in [&self.train, &self.test] {
            print.labels(&split.labels);
            print.bytes(&split.pixels);
        }
        print.hex()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Dataset {
        Dataset {
            name: "tiny".to_string(),
            classes: vec!["a".to_string(), "b".to_string()],
            shape: ImageShape { channels: 1, height: 1, width: 2 },
            train: Split { pixels: vec![1, 2, 3, 4], labels: vec![0, 1] },
            test: Split { pixels: vec![5, 6], labels: vec![1] },
            normalisation: Normalisation { mean: vec![0.5], std: vec![0.5] },
        }
    }

    #[test]
    fn images_and_counts() {
        let set = tiny();
        assert_eq!(set.train.image(1), [3, 4]);
        assert_eq!(set.train.label_counts(3), [1, 1, 0]);
        assert_eq!(set.train.label_counts(1), [1]);
        assert_eq!(set.shape.pixels(), 2);
        assert!(!set.train.is_empty());
        assert!(Split::default().is_empty());
    }

    #[test]
    fn fingerprint_follows_content() {
        let set = tiny();
        let first = set.fingerprint();
        assert_eq!(first.len(), 64);
        let mut other = tiny();
        other.name.push('x');
        assert_eq!(first, other.fingerprint());
        other.train.pixels[0] = 9;
        assert_ne!(first, other.fingerprint());
        let mut other = tiny();
        other.train.labels[0] = 1;
        assert_ne!(first, other.fingerprint());
        let mut other = tiny();
        (other.shape.height, other.shape.width) = (2, 1);
        assert_ne!(first, other.fingerprint());
    }
}
