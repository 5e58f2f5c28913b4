//! The program as its users see it.

#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod book;
#[cfg(unix)]
#[path = "../../../report/tests/it/browser.rs"]
mod browser;
mod cli;
mod data;
mod data_folder;
mod https;
mod init;
mod latest;
#[cfg(unix)]
mod live;
mod methods;
mod models;
mod overwrite;
mod own_model;
mod place;
mod saved;
mod studies;
mod tables;
mod text;
mod tune;
