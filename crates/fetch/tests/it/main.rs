#![allow(clippy::unwrap_used)]

mod archives;
mod complete;
mod files;
mod layouts;
mod mirrors;
mod server;
