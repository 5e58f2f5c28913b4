//! Where data come from: the catalogue, or files that people bring.

use std::path::PathBuf;

use crate::catalogue;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::folder::{self, Folder};
use crate::skipped::Skipped;
use crate::table::{self, Table};

/// Where data come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A data set of the catalogue.
    Named {
        /// Its name.
        name: String,
        /// The folder of its files. The embedded set needs none.
        dir: Option<PathBuf>,
        /// Height and width to scale images to, for sets that are read from image files.
        size: Option<(usize, usize)>,
    },
    /// A folder of images.
    Folder(Folder),
    /// Rows of text or numbers.
    Table(Table),
}

/// The names of what people bring, beside those of the catalogue.
pub const OWN: [&str; 3] = ["folder", "csv", "jsonl"];

impl Source {
    /// Reads the data. What cannot be used is refused or left out, as `skipped` says.
    pub fn load(&self, skipped: &mut Skipped) -> Result<Dataset, Error> {
        match self {
            Self::Named { name, dir, size } => catalogue::load_sized(name, dir.as_deref(), *size),
            Self::Folder(folder) => folder::read(folder, skipped),
            Self::Table(table) => table::read(table, skipped),
        }
    }
}
