//! Downloads data sets: resumes interrupted downloads, verifies checksums, unpacks archives without leaving their folder,
//! and moves complete data sets into place.
//!
//! [`fetch`] does it all and reports progress through a callback. Nothing here prints.

mod check;
mod connection;
mod error;
mod listed;
mod lock;
mod set;
mod transfer;
mod unpack;

pub use error::FetchError;
pub use set::{Fetched, by_hand, fetch};
pub use transfer::{Event, Patience};
pub use unpack::{Limits, tar_gz, zip};
