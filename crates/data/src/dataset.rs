//! A labelled set of samples in memory: images, rows of numbers or texts.

use std::borrow::Borrow;

use fedelity_keys::{KeyError, keys};

use crate::catalogue::SetName;
use crate::fingerprint::Fingerprint;
use crate::table::TableForm;

/// Channels, height and width of every image in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageShape {
    /// 1 for grey, 3 for red, green, blue.
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

impl ImageShape {
    /// Bytes of one image.
    pub fn pixels(&self) -> usize {
        self.channels.saturating_mul(self.height).saturating_mul(self.width)
    }
}

/// The kind and size of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    Image(ImageShape),
    /// A row of this many numbers: columns of numbers with mean 0 and standard deviation 1 over the training split, and
    /// categories as 0 and 1.
    Numbers(usize),
    Text,
}

impl Shape {
    /// The shape of an image, if it is one.
    pub fn image(&self) -> Option<ImageShape> {
        match self {
            Self::Image(shape) => Some(*shape),
            _ => None,
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Image(shape) => write!(f, "{}x{}x{}", shape.channels, shape.height, shape.width),
            Self::Numbers(1) => write!(f, "1 number"),
            Self::Numbers(width) => write!(f, "{width} numbers"),
            Self::Text => write!(f, "text"),
        }
    }
}

/// Mean and standard deviation: per channel, of pixels scaled to 0..1, or per column of numbers. Empty for texts.
///
/// A network sees `(pixel / 255 - mean) / std`. Numbers are stored as `(number - mean) / std`.
#[keys(check = Normalisation::lengths)]
#[derive(Default)]
pub struct Normalisation {
    /// One mean per channel or column.
    pub mean: Vec<f32>,
    /// One standard deviation per channel or column.
    #[key(above = 0)]
    pub std: Vec<f32>,
}

impl Normalisation {
    fn lengths(&self) -> Result<(), KeyError> {
        if self.mean.len() == self.std.len() && !self.mean.is_empty() {
            return Ok(());
        }
        let found = format!("{} numbers of mean and {} of std", self.mean.len(), self.std.len());
        Err(KeyError::new("std", format!("std: expected one number per channel in both, found {found}")))
    }
}

/// Texts as token IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens of all samples, one after the other.
    pub ids: Vec<u32>,
    /// Sample `i` is `ids[starts[i]..starts[i + 1]]`; there is one more entry than samples.
    pub starts: Vec<u32>,
}

/// The inputs of all samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Images one after the other, `[n][channel][row][column]`.
    Bytes(Vec<u8>),
    /// Rows of numbers one after the other.
    Floats(Vec<f32>),
    Texts(Vec<String>),
    /// Texts as token IDs.
    Tokens(Tokens),
}

impl Inputs {
    /// No samples of the same kind.
    pub(crate) fn none(&self) -> Self {
        match self {
            Self::Bytes(_) => Self::Bytes(Vec::new()),
            Self::Floats(_) => Self::Floats(Vec::new()),
            Self::Texts(_) => Self::Texts(Vec::new()),
            Self::Tokens(_) => Self::Tokens(Tokens { ids: Vec::new(), starts: vec![0] }),
        }
    }
}

/// Where samples come from: a writer, a user, a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaturalKeys {
    /// One key per sample, an index into `names`.
    pub of: Vec<u32>,
    pub names: Vec<String>,
}

/// Samples with their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    pub inputs: Inputs,
    pub labels: Vec<u16>,
    /// Where the samples come from, if known.
    pub keys: Option<NaturalKeys>,
}

impl Default for Split {
    /// No images.
    fn default() -> Self {
        Self::images(Vec::new(), Vec::new())
    }
}

impl Split {
    /// Images of bytes, `[n][channel][row][column]`.
    pub fn images(pixels: Vec<u8>, labels: Vec<u16>) -> Self {
        Self { inputs: Inputs::Bytes(pixels), labels, keys: None }
    }

    /// Texts and their labels.
    pub(crate) fn texts(rows: Vec<(u16, String)>) -> Self {
        let (labels, texts) = rows.into_iter().unzip();
        Self { inputs: Inputs::Texts(texts), labels, keys: None }
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The bytes of all images; empty if the samples are not images.
    pub fn pixels(&self) -> &[u8] {
        match &self.inputs {
            Inputs::Bytes(pixels) => pixels,
            _ => &[],
        }
    }

    /// The bytes of image `i`, `[channel][row][column]`; empty if the samples are not images.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`Split::len`], as with a slice.
    pub fn image(&self, i: usize) -> &[u8] {
        let (n, pixels) = (self.len(), self.pixels());
        assert!(i < n, "image {i} of a split of {n}");
        let bytes = pixels.len() / n;
        &pixels[i * bytes..(i + 1) * bytes]
    }

    /// Bytes of memory for the inputs.
    pub fn bytes(&self) -> u64 {
        let bytes = match &self.inputs {
            Inputs::Bytes(pixels) => pixels.len(),
            Inputs::Floats(values) => 4 * values.len(),
            Inputs::Texts(texts) => texts.iter().map(|text| text.len() + size_of::<String>()).sum(),
            Inputs::Tokens(tokens) => 4 * (tokens.ids.len() + tokens.starts.len()),
        };
        bytes as u64
    }

    /// Samples of each of the first `classes` labels.
    pub fn label_counts(&self, classes: usize) -> Vec<usize> {
        label_counts(&self.labels, classes)
    }

    /// Whether the samples are tokenised texts.
    pub fn has_tokens(&self) -> bool {
        matches!(self.inputs, Inputs::Tokens(_))
    }

    /// Turns texts into tokens, one text after the other. Other inputs are left unchanged.
    pub fn tokenise<E>(&mut self, mut tokens: impl FnMut(&str) -> Result<Vec<u32>, E>) -> Result<(), E> {
        let Inputs::Texts(texts) = &self.inputs else { return Ok(()) };
        let mut made = Tokens { ids: Vec::new(), starts: Vec::with_capacity(texts.len() + 1) };
        made.starts.push(0);
        for text in texts {
            made.ids.extend(tokens(text)?);
            made.starts.push(made.ids.len() as u32);
        }
        self.inputs = Inputs::Tokens(made);
        Ok(())
    }

    /// Splits the samples in two: those for which `second` is false, and the others. Order is preserved.
    pub(crate) fn divide(self, second: &[bool]) -> (Self, Self) {
        (self.part(second, false), self.part(second, true))
    }

    /// The samples that are marked, in order.
    pub fn marked(&self, marks: &[bool]) -> Self {
        self.part(marks, true)
    }

    /// The samples for which `of` is `want`, in order.
    fn part(&self, of: &[bool], want: bool) -> Self {
        fn pick<T: Clone>(all: &[T], width: usize, of: &[bool], want: bool) -> Vec<T> {
            let rows = all.chunks(width.max(1)).zip(of).filter(|(_, is)| **is == want);
            rows.flat_map(|(row, _)| row.iter().cloned()).collect()
        }
        let width = |len: usize| len / self.labels.len().max(1);
        Self {
            inputs: match &self.inputs {
                Inputs::Bytes(all) => Inputs::Bytes(pick(all, width(all.len()), of, want)),
                Inputs::Floats(all) => Inputs::Floats(pick(all, width(all.len()), of, want)),
                Inputs::Texts(all) => Inputs::Texts(pick(all, 1, of, want)),
                Inputs::Tokens(tokens) => {
                    let mut made = Tokens { ids: Vec::new(), starts: vec![0] };
                    for (ends, _) in tokens.starts.windows(2).zip(of).filter(|(_, is)| **is == want) {
                        made.ids.extend_from_slice(&tokens.ids[ends[0] as usize..ends[1] as usize]);
                        made.starts.push(made.ids.len() as u32);
                    }
                    Inputs::Tokens(made)
                }
            },
            labels: pick(&self.labels, 1, of, want),
            keys: self
                .keys
                .as_ref()
                .map(|keys| NaturalKeys { of: pick(&keys.of, 1, of, want), names: keys.names.clone() }),
        }
    }
}

/// How many times each of the first `classes` labels occurs.
pub fn label_counts(labels: impl IntoIterator<Item = impl Borrow<u16>>, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    for label in labels {
        if let Some(count) = counts.get_mut(usize::from(*label.borrow())) {
            *count += 1;
        }
    }
    counts
}

/// A data set: a training split, a test split, and what is known about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The name in the catalogue.
    pub name: String,
    /// The class names; label `k` means `classes[k]`.
    pub classes: Vec<String>,
    pub shape: Shape,
    pub train: Split,
    pub test: Split,
    pub normalisation: Normalisation,
    /// How rows become numbers, if the data are a table.
    pub table: Option<TableForm>,
}

/// How the name ends of data that are tested on some of their training samples.
const HELD_OUT: &str = "-held-out";

impl Dataset {
    /// The same training samples, some of which stand in for the test samples. Its name says so.
    pub fn tested_on(&self, held_out: &[bool]) -> Self {
        let test = self.train.part(held_out, true);
        let (classes, train, normalisation) = (self.classes.clone(), self.train.clone(), self.normalisation.clone());
        Self {
            name: format!("{}{HELD_OUT}", self.name),
            classes,
            shape: self.shape,
            train,
            test,
            normalisation,
            table: self.table.clone(),
        }
    }

    pub fn splits(&self) -> [&Split; 2] {
        [&self.train, &self.test]
    }

    /// What a user may not expect: parts of a set whose size is known, classes without samples, and columns of a table.
    pub fn remarks(&self) -> Vec<String> {
        let table = self.table.iter().flat_map(|form| &form.notes).cloned();
        self.gaps().into_iter().chain(table).collect()
    }

    /// What the samples lack: some of an official set, all of a class, or a second class. Results depend on it.
    pub fn gaps(&self) -> Vec<String> {
        self.incomplete().into_iter().chain(self.absent()).chain(self.single()).collect()
    }

    /// That there is only one class, in words, if so.
    fn single(&self) -> Option<String> {
        let [class] = &self.classes[..] else { return None };
        Some(format!("there is only one class, '{class}': every answer is right, and nothing can be learnt"))
    }

    /// The parts that do not have the number of samples of the official set, in words, if any.
    pub(crate) fn incomplete(&self) -> Vec<String> {
        let held_out = self.name.strip_suffix(HELD_OUT);
        let name = held_out.unwrap_or(&self.name);
        let Some(entry) = SetName::from_name(name).map(SetName::entry) else { return Vec::new() };
        // Training samples that stand in for the test samples have no official number.
        let test = entry.test.filter(|_| held_out.is_none());
        let parts = [("training", &self.train, entry.train), ("test", &self.test, test)];
        let other = |(what, split, official): (&str, &Split, Option<usize>)| {
            let official = official.filter(|&official| official != split.len())?;
            let (found, name, official) = (grouped(split.len()), entry.title, grouped(official));
            Some(format!(
                "{found} {what} samples, but {name} has {official}: results cannot be compared with published ones"
            ))
        };
        parts.into_iter().filter_map(other).collect()
    }

    /// The classes without training samples and those without test samples, in words, if any.
    pub fn absent(&self) -> Vec<String> {
        const NAMED: usize = 5;
        let without = |(split, what): (&Split, &str)| {
            let counts = split.label_counts(self.classes.len());
            let without: Vec<String> =
                self.classes.iter().zip(counts).filter(|(_, n)| *n == 0).map(|(name, _)| format!("'{name}'")).collect();
            let more = if without.len() > NAMED { ", ..." } else { "" };
            let names = without.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let (some, all) = (without.len(), self.classes.len());
            (some > 0).then(|| format!("no {what} sample of {some} of {all} classes: {names}{more}"))
        };
        [(&self.train, "training"), (&self.test, "test")].into_iter().filter_map(without).collect()
    }

    /// SHA-256 over the shape, the labels and the inputs of both splits, as hex.
    ///
    /// It is computed on each call: keep the result. Names, keys and normalisation are not included.
    pub fn fingerprint(&self) -> String {
        let mut print = Fingerprint::new();
        let shape = match self.shape {
            Shape::Image(ImageShape { channels, height, width }) => [channels, height, width],
            // No image has 0 channels.
            Shape::Numbers(width) => [0, 1, width],
            Shape::Text => [0, 2, 0],
        };
        shape.into_iter().for_each(|number| print.number(number));
        for split in self.splits() {
            print.labels(&split.labels);
            match &split.inputs {
                Inputs::Bytes(pixels) => print.bytes(pixels),
                Inputs::Floats(values) => print.words(values.iter().map(|value| value.to_bits())),
                Inputs::Texts(texts) => {
                    for text in texts {
                        print.number(text.len());
                        print.bytes(text.as_bytes());
                    }
                }
                Inputs::Tokens(tokens) => {
                    print.words(tokens.starts.iter().copied());
                    print.words(tokens.ids.iter().copied());
                }
            }
        }
        print.hex()
    }
}

/// A number with separated thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Dataset {
        Dataset {
            name: "tiny".to_string(),
            classes: vec!["a".to_string(), "b".to_string()],
            shape: Shape::Image(ImageShape { channels: 1, height: 1, width: 2 }),
            train: Split::images(vec![1, 2, 3, 4], vec![0, 1]),
            test: Split::images(vec![5, 6], vec![1]),
            normalisation: Normalisation { mean: vec![0.5], std: vec![0.5] },
            table: None,
        }
    }

    fn texts() -> Split {
        let texts = ["one two", "", "three"].map(String::from).to_vec();
        let keys = NaturalKeys { of: vec![1, 0, 1], names: vec!["x".to_string(), "y".to_string()] };
        Split { inputs: Inputs::Texts(texts), labels: vec![0, 1, 0], keys: Some(keys) }
    }

    #[test]
    fn images_and_counts() {
        let set = tiny();
        assert_eq!(set.train.image(1), [3, 4]);
        assert_eq!(set.train.label_counts(3), [1, 1, 0]);
        assert_eq!(set.train.label_counts(1), [1]);
        assert_eq!(set.shape.image().unwrap().pixels(), 2);
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
        other.train.inputs = Inputs::Bytes(vec![9, 2, 3, 4]);
        assert_ne!(first, other.fingerprint());
        let mut other = tiny();
        other.train.labels[0] = 1;
        assert_ne!(first, other.fingerprint());
        let mut other = tiny();
        other.shape = Shape::Image(ImageShape { channels: 1, height: 2, width: 1 });
        assert_ne!(first, other.fingerprint());
    }

    #[test]
    fn texts_become_tokens_and_keep_their_order() {
        let mut split = texts();
        let whole = split.clone();
        split.tokenise(|text| Ok::<_, ()>(text.split_whitespace().map(|word| word.len() as u32).collect())).unwrap();
        assert_eq!(split.inputs, Inputs::Tokens(Tokens { ids: vec![3, 3, 5], starts: vec![0, 2, 2, 3] }));
        assert_eq!(
            whole.clone().tokenise(|text| if text.is_empty() { Err("empty") } else { Ok(vec![]) }),
            Err("empty")
        );
        let (rest, taken) = split.divide(&[false, true, false]);
        assert_eq!(rest.inputs, Inputs::Tokens(Tokens { ids: vec![3, 3, 5], starts: vec![0, 2, 3] }));
        assert_eq!(taken.inputs, Inputs::Tokens(Tokens { ids: vec![], starts: vec![0, 0] }));
        let (rest, taken) = whole.divide(&[true, false, false]);
        assert_eq!(rest.inputs, Inputs::Texts(vec![String::new(), "three".to_string()]));
        assert_eq!((rest.labels, rest.keys.unwrap().of), (vec![1, 0], vec![0, 1]));
        assert_eq!((taken.labels, taken.keys.unwrap().of), (vec![0], vec![1]));
    }
}
