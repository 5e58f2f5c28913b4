//! The core from outside.

#![allow(clippy::unwrap_used)]

mod accountant;
mod common;
mod coordinator;
mod golden_metrics;
mod training;
mod wire;
