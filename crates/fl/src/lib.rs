//! The core: the [`Method`] trait, the one training loop, the one round, sampling, metrics, randomness.
//!
//! There is no clock, file, socket or thread here. What a simulator and a real federation do is the same code:
//! a [`Coordinator`] opens a round, folds uploads in and closes the round; [`client`] is what runs on one client,
//! with a [`Trainer`] that owns all scratch memory and is kept over clients and rounds.

mod augmented;
mod coordinator;
mod error;
mod evaluation;
mod gather;
mod held_out;
mod method;
pub mod metrics;
pub mod observe;
mod payload;
pub mod rng;
mod round;
mod sample;
mod samples;
mod schedule;
mod settings;
mod step;
mod teacher;
mod terms;
mod train;

pub use coordinator::{Broadcast, Coordinator, Federation, Held, ServerData};
pub use error::{Error, Result};
pub use evaluation::{CHUNK, Evaluation};
pub use gather::{Gather, Mean};
pub use held_out::{HeldOut, HoldOut};
pub use method::{Method, Needs};
pub use payload::Payload;
pub use rng::{Purpose, stream};
pub use round::{ClientObjective, Done, Local, Outbox, Scratch, Server, Task, Trained, Upload, client};
pub use sample::sample_clients;
pub use samples::{Samples, Scaling};
pub use schedule::longest_first;
pub use settings::{Training, Weighting};
pub use step::Step;
pub use teacher::{Frozen, Teacher, Weights};
pub use terms::{TermMeans, Terms};
pub use train::{Fitted, Job, Judge, Objective, Place, Trainer};
