//! One file per federated method, and the registry that makes them by name.
//!
//! A method's file holds its hyper-parameters as a struct, the hooks of [`fedelity_fl::Method`] that it changes, and its
//! [`Entry`](registry::Entry). Adding a method is that file, its `mod` line here and one line in the registry.

mod error;
mod fedavg;
pub mod registry;

pub use error::{Error, Range};
pub use fedavg::FedAvg;
pub use registry::{Built, Entry, Hyper, Parameter, build, entries, find};
