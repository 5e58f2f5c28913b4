//! The files of a run: a header, one record per round, a summary. All of it is versioned and can be read back.
//!
//! Each run has its own folder ([`RunFolder`]). Its `rounds.jsonl` contains the [`Header`] and then one [`RoundRecord`]
//! per line, each flushed, so that a stopped run loses nothing. Other files are complete or absent.

mod clients;
mod csv;
mod error;
mod events;
mod folder;
mod guessing;
mod header;
mod holdings;
mod incident;
mod local;
mod mlflow;
mod notice;
mod numbers;
mod plain_name;
mod protection;
mod reader;
mod round;
mod rounds_file;
mod scalars;
mod scores;
mod summary;
mod tags;

pub use clients::{ClientReport, ClientsReport, LocalScores, TestedOn};
pub use csv::{rounds_csv, runs_csv};
pub use error::RecordError;
pub use events::EventsFile;
pub use folder::{RunFolder, names};
pub use guessing::{Guessing, LEARNT, Learning, Unlearnt};
pub use header::{FORMAT, Header, Stamp, VERSION};
pub use holdings::Holdings;
pub use incident::{Incident, IncidentCounts, IncidentKind};
pub use local::{ClientOwn, ClientRecord, FocusRecord, LocalEvaluation, LocalRecord, Spread, mean_and_sd};
pub use mlflow::{MlflowRun, MlflowStore};
pub use notice::{Measure, Notice, RoundNotice, client_name};
pub use numbers::round_numbers;
pub use plain_name::{numbered, plain_name};
pub use protection::{Leaves, PrivacySpent, ProtectionRecord, shown_epsilon, what_leaves};
pub use reader::{Salvage, last_round, read_clients, read_holdings, read_summary, salvage_rounds, salvage_rounds_of};
pub use round::{ChosenBy, EarlyStop, RoundRecord, Seconds, ValidationRecord, WeightHashes};
pub use rounds_file::RoundsFile;
pub use scores::{Ranged, Scores};
pub use summary::{Best, BestModel, Status, Summary};
pub use tags::{read_tags, write_tags};
