//! Runs federated rounds in one process on worker threads.
//!
//! A [`Simulation`] is driven round by round with [`Simulation::step`], so progress, records and interruption stay with
//! the caller. It is given a method and never names one. Results are bit-identical with any number of threads: clients
//! are folded in a fixed order, and evaluation chunks have fixed boundaries.

mod client_book;
mod evaluate;
mod experiment;
mod faults;
mod keeper;
mod lookout;
mod observe;
mod score;
mod simulation;
mod sites;
mod workers;

pub use evaluate::evaluate;
pub use experiment::Experiment;
pub use faults::{Attack, Faults};
pub use keeper::Keeper;
pub use observe::{Metrics, Observation, observed_samples};
pub use score::scores;
pub use simulation::{Absent, Closing, Features, OpenRound, Progress, Simulation};
pub use workers::waiting_bytes;
