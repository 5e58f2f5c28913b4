//! The configuration: TOML, checked once, where it enters, and written back in full.
//!
//! A [`Document`] is what was written, and where. [`Settings`] is what it means: the keys of [`Config`], which carry
//! their own description, bounds and defaults.

mod data;
mod document;
mod sections;
mod settings;

pub use data::{Change, DataKeys};
pub use document::{Document, Origin};
pub use sections::{ClientKeys, Config, EvaluationKeys, ModelKeys, OptimizerKeys, PartitionKeys, ServerKeys, StepRule};
pub use settings::{MethodChoice, Settings};
