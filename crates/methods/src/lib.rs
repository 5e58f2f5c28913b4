//! One file per federated method, and the registry that makes them by name.
//!
//! A method's file holds its hyper-parameters as a struct, the hooks of [`fedelity_fl::Method`] that it changes, and its
//! [`Entry`]. Adding a method is that file, its `mod` line here and one line in the registry.

mod error;
mod fedavg;
mod fedcad;
mod fedcurv;
mod feddf;
mod feddistill;
mod feddistill_plus;
mod fedgen;
mod fedgkd;
mod fedgkd_plus;
mod fedgkd_vote;
mod fedlsd;
mod fednova;
mod fedntd;
mod fedprox;
mod fedssd;
mod moon;
pub mod registry;
mod scaffold;
pub mod server;
mod trainable;
#[cfg(test)]
mod trial;

pub use error::{Error, Range};
pub use fedavg::FedAvg;
pub use fedcad::FedCad;
pub use fedcurv::FedCurv;
pub use feddf::FedDf;
pub use feddistill::{Alpha, FedDistill, Mass};
pub use feddistill_plus::FedDistillPlus;
pub use fedgen::FedGen;
pub use fedgkd::{Distance, FedGkd};
pub use fedgkd_plus::FedGkdPlus;
pub use fedgkd_vote::{FedGkdVote, InverseBuffer, Sharpness};
pub use fedlsd::FedLsd;
pub use fednova::{FedNova, effective_steps};
pub use fedntd::FedNtd;
pub use fedprox::FedProx;
pub use fedssd::{Credibility, FedSsd, Weight};
pub use moon::Moon;
pub use registry::{AtZero, Built, Entry, Hyper, Identity, Parameter, build, entries, find};
pub use scaffold::Scaffold;
pub use server::{Composed, Rule, ServerConfig, ServerError, ServerOptimizer, ServerSettings};
