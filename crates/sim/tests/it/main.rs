//! The simulator from outside.

#![allow(clippy::unwrap_used)]

mod rounds;
mod sites;
