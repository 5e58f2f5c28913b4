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
#[cfg(unix)]
mod flood;
mod folder;
mod https;
mod init;
mod keys;
mod latest;
#[cfg(unix)]
mod live;
mod methods;
mod models;
mod overwrite;
mod own_model;
mod place;
mod protection;
mod refused;
mod reproduce;
#[cfg(unix)]
mod resume;
mod saved;
#[cfg(unix)]
mod sharing;
#[cfg(unix)]
mod signals;
mod sites;
mod studies;
mod tables;
mod text;
mod trackers;
mod tune;
mod untrusted;
