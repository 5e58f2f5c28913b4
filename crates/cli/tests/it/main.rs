//! The program as its users see it.

#![allow(clippy::unwrap_used)]

#[cfg(unix)]
#[path = "../../../report/tests/it/browser.rs"]
mod browser;
mod cli;
mod data;
mod https;
#[cfg(unix)]
mod live;
mod methods;
mod own_model;
mod place;
mod saved;
mod studies;
mod tables;
mod text;
