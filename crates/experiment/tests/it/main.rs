//! The library, as a front end uses it.

#![allow(clippy::unwrap_used)]

mod config;
mod example;
mod memory;
mod sweep;
