//! From a configuration to its results: all of Fedelity, independent of the front end.
//!
//! A [`Document`] is a configuration as written; [`Settings`] is the same with every value checked and every default
//! filled in; a [`Study`] has loaded everything it names and is ready to run. [`Study::run`] writes run folders,
//! [`Sweep`] runs many studies in parallel, [`Preset`] is a published table as a sweep, [`Saved`] opens trained models
//! and [`estimate()`] estimates the cost of a run.

mod assemble;
mod best;
mod checkpoint;
mod config;
mod earlier;
mod error;
mod estimate;
mod features;
mod halves;
mod header;
mod incomplete;
mod machine;
mod observer;
mod preset;
mod privacy;
mod progress;
mod rehearsal;
mod resources;
mod run;
mod saved;
mod stop;
mod study;
mod sweep;
mod synthetic;
mod travel;
mod verify;

pub use assemble::text::TextReader;
pub use assemble::{Pool, Study, model_file, own_architecture, table_form};
pub use checkpoint::Checkpoints;
pub use config::{
    BestRound, Change, ClientChoice, ClientKeys, Config, DataKeys, Document, EvaluationKeys, MethodChoice, ModelKeys,
    OptimizerKeys, Origin, PartitionKeys, PrivacyKeys, ServerKeys, Settings, StepRule, StopKeys,
};
pub use error::{ExperimentError, Result};
pub use estimate::{Estimate, estimate};
pub use halves::{
    Agreement, Client, Contents, ExchangeError, PolicyKeys, RoundEnd, Server, Site, SiteKeys, SiteReport,
};
pub use incomplete::Incomplete;
pub use observer::{FrontError, Observer};
pub use preset::{Exactness, PRESETS, Paces, PlannedCell, PlannedRow, Preset, PresetChoice, PresetPlan, absent};
pub use privacy::PrivacyPlan;
pub use rehearsal::{Rehearsal, rehearse};
pub use resources::{Loaded, Resources};
pub use run::{Outcome, Run};
pub use saved::{Saved, is_model_file};
pub use stop::StopSign;
pub use sweep::{
    Chosen, Elsewhere, Job, JobEnd, JobState, Shard, Sharing, Sweep, SweepObserver, SweepStatus, is_sweep,
};
pub use synthetic::Synthetic;
pub use travel::{Travel, Trial};
pub use verify::{Difference, Repetition, Verification, verify};
