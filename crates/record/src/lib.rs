//! What a run writes: a header, one record a round, a summary. All of it is versioned and can be read back.
//!
//! A run has a folder of its own ([`RunFolder`]). `rounds.jsonl` in it holds the [`Header`] and then one
//! [`RoundRecord`] a line, each flushed, so that a run that was stopped leaves what it had. Other files are written
//! aside and renamed, so they are whole or not there.

mod csv;
mod error;
mod events;
mod folder;
mod header;
mod holdings;
mod lenient;
mod local;
mod reader;
mod round;
mod rounds_file;
mod summary;
mod tags;

pub use csv::rounds_csv;
pub use error::Error;
pub use events::EventsFile;
pub use folder::{RunFolder, names};
pub use header::{FORMAT, Header, VERSION};
pub use holdings::Holdings;
pub use lenient::{Salvage, salvage_rounds};
pub use local::{ClientRecord, FocusRecord, LocalEvaluation, LocalRecord, Spread};
pub use reader::{Rounds, read_holdings, read_rounds, read_summary};
pub use round::{RoundRecord, Seconds};
pub use rounds_file::RoundsFile;
pub use summary::{Best, Status, Summary};
pub use tags::{read_tags, write_tags};
