//! Everything that can go wrong in this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A folder that was searched, and the files it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// Whether the folder exists.
    pub exists: bool,
    /// Names of the files that are not in it.
    pub missing: Vec<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exists {
            write!(f, "{} (lacks {})", self.folder.display(), self.missing.join(", "))
        } else {
            write!(f, "{} (no such folder)", self.folder.display())
        }
    }
}

fn join(places: &[Place]) -> String {
    let shown: Vec<String> = places.iter().map(Place::to_string).collect();
    shown.join("; ")
}

/// A file, with the line if there is one.
fn at(path: &Path, line: Option<u64>) -> String {
    line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
}

/// An error of this crate. Each one carries the values that explain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // The catalogue.
    /// No data set has this name.
    #[error("unknown data set '{name}': known are {}", known.join(", "))]
    UnknownDataset {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// The data set is read from a folder, and none was given.
    #[error(
        "data set '{dataset}' is read from a folder: give one with --data-dir or the environment \
         variable FEDELITY_DATA, and put into it, or into its sub folder {folder}/, the files {}; \
         'fedelity data fetch {dataset}' gets them",
        files.join(", ")
    )]
    NoFolder {
        /// The data set.
        dataset: &'static str,
        /// Its official sub folder.
        folder: &'static str,
        /// Its official files.
        files: &'static [&'static str],
    },
    /// The files of a data set are in none of the folders searched.
    #[error(
        "data set '{dataset}': files not found; looked in {}; 'fedelity data fetch {dataset}' gets them",
        join(places)
    )]
    Missing {
        /// The data set.
        dataset: &'static str,
        /// Each folder searched and what it lacks.
        places: Vec<Place>,
    },

    // Data files.
    /// The system refused to open, read or write a file.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// The path names something that is not a regular file.
    #[error("{}: expected a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file ends too early.
    #[error("{}: truncated at byte {offset}: expected {expected} bytes, found {found}", path.display())]
    Truncated {
        /// Where the content ends, uncompressed.
        offset: u64,
        /// Bytes that should be there in total, uncompressed.
        expected: u64,
        /// Bytes that are there.
        found: u64,
        /// The file.
        path: PathBuf,
    },
    /// The file goes on after its content.
    #[error("{}: trailing bytes from byte {offset}: expected {expected} bytes, found {}", path.display(), found.map_or("more".to_string(), |n| n.to_string()))]
    Trailing {
        /// Where the content should end.
        offset: u64,
        /// Bytes that should be there in total.
        expected: u64,
        /// Bytes that are there, when known without reading them all.
        found: Option<u64>,
        /// The file.
        path: PathBuf,
    },
    /// The file does not start as its format must.
    #[error("{}: wrong magic number at byte 0: expected {expected:#010x}, found {found:#010x}", path.display())]
    Magic {
        /// The number of the format.
        expected: u32,
        /// The number in the file.
        found: u32,
        /// The file.
        path: PathBuf,
    },
    /// A number in the header cannot be right.
    #[error("{}: {field} at byte {offset}: expected {expected}, found {found}", path.display())]
    Header {
        /// What the number means.
        field: &'static str,
        /// Where it is.
        offset: u64,
        /// What is allowed.
        expected: String,
        /// What the file says.
        found: u64,
        /// The file.
        path: PathBuf,
    },
    /// A label is not one of the classes.
    #[error(
        "{}: label at byte {offset}: expected {first} to {}, found {label}",
        path.display(), (usize::from(*first) + classes).saturating_sub(1)
    )]
    Label {
        /// Where it is, uncompressed.
        offset: u64,
        /// The label.
        label: u16,
        /// The label of the first class.
        first: u16,
        /// The number of classes.
        classes: usize,
        /// The file.
        path: PathBuf,
    },
    /// The compressed stream is damaged.
    #[error("{}: damaged gzip stream after byte {offset} of its content: {reason}", path.display())]
    Gzip {
        /// Bytes of content read before the damage.
        offset: u64,
        /// What the decoder said.
        reason: String,
        /// The file.
        path: PathBuf,
    },
    /// Images and labels do not belong together.
    #[error("{} has {images} images (byte 4) but {} has {labels} labels (byte 4)", images_path.display(), labels_path.display())]
    Counts {
        /// Images in the image file.
        images: u64,
        /// Labels in the label file.
        labels: u64,
        /// The image file.
        images_path: PathBuf,
        /// The label file.
        labels_path: PathBuf,
    },
    /// A file of class names has the wrong number of names.
    #[error("{}: expected {expected} class names, one a line, found {found}", path.display())]
    ClassNames {
        /// The number of classes.
        expected: usize,
        /// The number of names.
        found: usize,
        /// The file.
        path: PathBuf,
    },

    /// A sample cannot be used. It may be left out where the reader is told so.
    #[error("{}: {reason}; --skip-bad leaves out what cannot be used, and counts it", at(path, *line))]
    Bad {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, where there are lines.
        line: Option<u64>,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or folder is not as it must be.
    #[error("{}: {reason}", at(path, *line))]
    Unusable {
        /// The file or folder.
        path: PathBuf,
        /// The line, counted from 1, where there is one.
        line: Option<u64>,
        /// What is wrong with it.
        reason: String,
    },

    // Partitions.
    /// The data set does not say where its samples come from.
    #[error("data set '{dataset}' has no natural keys: a partition by them needs data with data.key or data.layout")]
    NoKeys {
        /// The data set.
        dataset: String,
    },
    /// A parameter of a partition is out of range.
    #[error("partition parameter {parameter} = {value}: allowed is {allowed}")]
    Parameter {
        /// The parameter.
        parameter: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A label is not below the number of classes.
    #[error("label {label} of sample {index} is out of range: allowed is below {classes}")]
    LabelRange {
        /// The sample.
        index: usize,
        /// Its label.
        label: u16,
        /// The number of classes.
        classes: usize,
    },
    /// A client holds a sample that the labels do not have.
    #[error("client {client} holds sample {index}, but there are only {samples} samples")]
    SampleRange {
        /// The client.
        client: usize,
        /// The sample.
        index: u32,
        /// The number of samples.
        samples: usize,
    },

    // Partition files.
    /// The file exists and may not be replaced.
    #[error("{} exists already and is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is not JSON of the right form.
    #[error("{}: not a partition file: {reason}", path.display())]
    Json {
        /// What the parser said, with line and column.
        reason: String,
        /// The file.
        path: PathBuf,
    },
    /// The file is of another format or version.
    #[error("{}: {field}: expected {expected}, found {found}", path.display())]
    PartitionHeader {
        /// The field of the header.
        field: &'static str,
        /// What this version reads.
        expected: String,
        /// What the file says.
        found: String,
        /// The file.
        path: PathBuf,
    },
    /// A client has no samples.
    #[error("{}: client {client} has no samples", path.display())]
    EmptyClient {
        /// The client.
        client: usize,
        /// The file.
        path: PathBuf,
    },
    /// A client has a sample that does not exist.
    #[error("{}: client {client} has index {index}, but there are only {samples} samples", path.display())]
    IndexRange {
        /// The client.
        client: usize,
        /// The index.
        index: u32,
        /// The number of samples.
        samples: usize,
        /// The file.
        path: PathBuf,
    },
    /// A sample is given out twice.
    #[error("{}: client {client} has index {index}, which client {owner} has already", path.display())]
    DuplicateIndex {
        /// The client.
        client: usize,
        /// The index.
        index: u32,
        /// The client that has it first.
        owner: usize,
        /// The file.
        path: PathBuf,
    },
    /// The partition was made for other labels.
    #[error(
        "{}: made for other data ('{dataset}', {samples} samples, labels {expected}); the labels \
         given are {found_samples} samples, {found}", path.display()
    )]
    OtherData {
        /// The data set that the file names.
        dataset: String,
        /// The number of samples that the file names.
        samples: usize,
        /// The fingerprint in the file.
        expected: String,
        /// The number of labels given.
        found_samples: usize,
        /// The fingerprint of the labels given.
        found: String,
        /// The file.
        path: PathBuf,
    },
}
