//! The simulator from outside.

#![allow(clippy::unwrap_used)]

mod faults;
mod rounds;
mod sites;
