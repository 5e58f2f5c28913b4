//! The two halves of a federation, for whatever carries messages between them: bytes in, bytes out.
//!
//! A [`Server`] and its [`Client`]s start from one [`Agreement`], and every message carries its digest. The server opens a
//! round, and each client of it gets a message and answers with an upload; the server folds in what has arrived, in the order
//! of the simulation whatever came first, so the weights are those of `fedelity run`, bit for bit.
//!
//! Neither half keeps anything but its state, and both can be saved as bytes and rebuilt between rounds.

mod agreement;
mod client;
mod contents;
mod envelope;
mod server;
mod site;

pub use agreement::Agreement;
pub use client::Client;
pub use contents::Contents;
pub use envelope::ExchangeError;
pub use server::{RoundEnd, Server};
pub use site::{PolicyKeys, Site, SiteKeys, SiteReport};
