#![allow(clippy::unwrap_used)]

mod browser;
mod page;
mod records;
mod studies;
