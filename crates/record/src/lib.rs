//! What a run writes: a header, one record a round, a summary. All of it is versioned and can be read back.
//!
//! A run has a folder of its own ([`RunFolder`]). `rounds.jsonl` in it holds the [`Header`] and then one
//! [`RoundRecord`] a line, each flushed, so that a run that was stopped leaves what it had. Other files are written
//! aside and renamed, so they are whole or not there.

mod error;
mod folder;
mod header;
mod reader;
mod round;
mod rounds_file;
mod summary;

pub use error::Error;
pub use folder::{RunFolder, names};
pub use header::{FORMAT, Header, VERSION};
pub use reader::{Rounds, read_rounds, read_summary};
pub use round::{RoundRecord, Seconds};
pub use rounds_file::RoundsFile;
pub use summary::{Best, Status, Summary};
