//! All methods: golden vectors, small federations, and what every method of the registry must hold.
#![allow(clippy::unwrap_used)]

mod drift;
mod federation;
mod golden;
mod golden_teachers;
mod registry;
mod scene;
mod self_distillation;
mod server_teachers;
mod trajectories;
