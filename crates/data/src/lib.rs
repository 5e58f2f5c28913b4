//! Data sets, readers of their official files and of files that people bring, and partitions over clients.
//!
//! [`catalogue::load`] gives a [`Dataset`] by name: the embedded default, or one read from a folder of official files.
//! [`Source`] names these and a folder of images, CSV or JSON lines. [`partition::partition`] splits training labels over
//! clients. Nothing here prints or opens a socket; images are decoded on all cores, and nothing else starts a thread.

mod agnews;
pub mod augment;
mod cache;
pub mod catalogue;
pub mod cifar;
mod cinic10;
mod csv_file;
mod dataset;
mod decode;
pub mod download;
pub mod embedded;
mod emnist;
mod error;
mod femnist;
mod files;
mod fingerprint;
pub mod folder;
pub mod idx;
pub mod partition;
mod skipped;
mod source;
mod sst5;
pub mod table;
mod tiny_imagenet;

pub use augment::{Augmentation, Augmenter};
pub use catalogue::load;
pub use dataset::{Dataset, ImageShape, Inputs, Keys, Normalisation, Shape, Split, Tokens};
pub use decode::images;
pub use error::{Error, Place};
pub use folder::Folder;
pub use partition::{Kind, Partition, Spec, partition};
pub use skipped::Skipped;
pub use source::{OWN, Source};
pub use table::Table;
