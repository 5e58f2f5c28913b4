//! All methods: golden vectors, small federations, and properties that every method of the registry must have.

#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions")]

mod drift;
mod federation;
mod golden;
mod golden_teachers;
mod own;
mod protection;
mod registry;
mod scene;
mod self_distillation;
mod server_teachers;
mod trajectories;
mod tutorial;
