//! The core: the [`Method`] trait, the only training loop, the round, sampling, metrics, randomness.
//!
//! There are no clocks, files, sockets or threads here. A simulator and a real federation run the same code: a
//! [`Coordinator`] opens a round, folds in uploads and closes the round; [`client`] runs on one client, with a
//! [`Trainer`] that owns all scratch memory and is reused across clients and rounds.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod accountant;
mod alone;
mod augmented;
mod client;
mod coordinator;
mod error;
mod evaluation;
mod extra;
mod federation;
mod gather;
mod held_out;
mod local;
mod method;
pub mod metrics;
pub mod observe;
mod payload;
mod rejection;
pub mod rng;
mod round;
mod sample;
mod samples;
mod schedule;
mod scores;
mod server;
mod settings;
mod step;
mod teacher;
mod terms;
mod train;
mod upload;
pub mod wire;

pub use accountant::Accountant;
pub use alone::{AloneGradient, AloneLoss, GivenOutputs};
pub use client::{ClientObjective, Finished, Task, client};
pub use coordinator::{Broadcast, Coordinator, ServerState};
pub use error::{FlError, Result};
pub use evaluation::{CHUNK, Evaluation, largest};
pub use extra::{Extra, Presence};
pub use federation::Federation;
pub use gather::{Gather, Mean};
pub use held_out::{HeldOut, HoldOut};
pub use local::{Local, Outbox, Scratch, Trained};
pub use method::{Method, Named, Needs};
pub use payload::Payload;
pub use rejection::Rejection;
pub use rng::{Purpose, stream};
pub use round::{ClientMemory, Memories, keep, round};
pub use sample::{sample_clients, sample_others};
pub use samples::{Samples, Scaling};
pub use schedule::longest_first;
pub use scores::{ClassCounts, Rate, auc, wilson};
pub use server::{Held, Server, ServerData};
pub use settings::{Training, Weighting};
pub use step::Step;
pub use teacher::{Frozen, Teacher};
pub use terms::{TermMeans, Terms};
pub use train::{Fit, FitReport, Judge, Objective, Site, Trainer};
pub use upload::{Received, Upload};
