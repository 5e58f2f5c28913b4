//! The library, as a front end uses it.

#![allow(clippy::unwrap_used)]

mod bits;
mod config;
mod example;
mod halves;
mod memory;
mod optional;
mod policy;
mod preset;
mod privacy;
mod resume;

mod sites;
mod sweep;
