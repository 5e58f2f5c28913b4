//! Data sets, readers for their official files and for the user's own files, and partitions over clients.
//!
//! [`catalogue::load`] loads a [`Dataset`] by name: the embedded default, or one read from a folder of official files.
//! [`DataSource`] covers these and the user's own images, CSV or JSON Lines. [`partition::partition`] splits training
//! labels over clients. Nothing here prints or opens a socket; only image decoding uses threads.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod agnews;
mod arrays;
pub mod augment;
mod cache;
pub mod catalogue;
mod cifar;
mod cinic10;
mod csv_file;
mod dataset;
mod decode;
mod deviation;
pub mod download;
mod embedded;
mod emnist;
mod error;
mod femnist;
mod files;
mod fingerprint;
pub mod folder;
mod idx;
mod part;
pub mod partition;
mod request;
pub mod shuffle;
mod skipped;
mod source;
mod sst5;
pub mod table;
mod tiny_imagenet;

pub use arrays::{ArrayData, ArraySource};
pub use augment::{Augmentation, Augmenter};
pub use catalogue::{SetName, load};
pub use dataset::{Dataset, ImageShape, Inputs, NaturalKeys, Normalisation, Shape, Split, Tokens, label_counts};
pub use decode::images;
pub use error::{DataError, SearchedFolder, quoted};
pub use folder::{Colour, Folder, FolderLayout};
pub use part::{NewData, Part};
pub use partition::{Kind, Partition, partition};
pub use request::Request;
pub use skipped::Skipped;
pub use source::{DataSource, NamedSource};
pub use table::{Column, ColumnGuess, ColumnKind, TableFiles, TableForm, TableFormat, TableGuess, TableSource};
