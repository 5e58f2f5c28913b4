//! Data sets, readers of their official files, and partitions over clients.
//!
//! [`catalogue::load`] gives a [`Dataset`] by name: the embedded default, or one read from a
//! folder of official files. [`partition::partition`] splits its training labels over clients.
//! Nothing here prints, opens a socket or starts a thread.

pub mod catalogue;
pub mod cifar;
mod dataset;
pub mod embedded;
mod error;
mod fingerprint;
mod folder;
pub mod idx;
pub mod partition;

pub use catalogue::load;
pub use dataset::{Dataset, ImageShape, Normalisation, Split};
pub use error::{Error, Place};
pub use partition::{Kind, Partition, Spec, partition};
