//! Downloads data sets: resumed after a cut, checked by their checksums, unpacked without leaving their folder, and
//! moved into place whole.
//!
//! [`fetch`] does it all and tells what it does through a callback. Nothing here prints.

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
