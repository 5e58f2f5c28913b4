#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions")]

mod browser;
mod damaged;
mod figures;
mod marked;
mod page;
mod records;
mod replication;
mod studies;
mod tuned;
