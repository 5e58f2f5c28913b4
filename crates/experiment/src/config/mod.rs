//! The configuration: TOML, checked once on entry, and written back in full.
//!
//! A [`Document`] is the configuration as written, with the origin of each value. [`Settings`] is its meaning: the keys
//! of [`Config`], which carry their own description, bounds and defaults.

mod data;
mod document;
mod sections;
mod settings;

pub use data::{Change, DataKeys};
pub use document::{Document, Origin};
pub use sections::{
    BestRound, ClientChoice, ClientKeys, Config, EvaluationKeys, ModelKeys, OptimizerKeys, PartitionKeys, PrivacyKeys,
    ServerKeys, StepRule, StopKeys,
};
pub(crate) use settings::Origins;
pub use settings::{MethodChoice, Settings};
