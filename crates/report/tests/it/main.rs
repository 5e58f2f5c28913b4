#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions")]

mod browser;
mod page;
mod records;
mod replication;
mod studies;
