//! One file per federated method, and the registry that builds them by name.
//!
//! A method's file has the equations of its paper, its hyper-parameters as a struct under
//! [`method`](macro@fedelity_keys::method), and the hooks of [`fedelity_fl::Method`] that it overrides. Code shared by
//! several methods has its own files.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

mod auxiliary;
mod distil;
mod generator;
mod history;
mod number_or;
pub mod registry;
pub mod server;
mod steps;
mod trainable;
#[cfg(test)]
mod trial;

pub use number_or::NumberOr;
pub use registry::{Built, Entry, Hyper, Identity, MethodMaker, Registry, build, entries, find};
pub use server::{Adaptive, Clip, Composed, Noise, NoiseAt, Rule, ServerOptimizer, refusal, unprotected};

macro_rules! methods {
    ($($module:ident::$method:ident),* $(,)?) => {
        $(
            mod $module;
            pub use $module::*;
        )*

        static ENTRIES: &[Entry] = &[$($module::$method::ENTRY),*];
    };
}

// All methods, in documentation order. A new method adds one line.
methods! {
    fedavg::FedAvg,
    fedprox::FedProx,
    fedcurv::FedCurv,
    fednova::FedNova,
    scaffold::Scaffold,
    moon::Moon,
    fedlsd::FedLsd,
    fedntd::FedNtd,
    fedcad::FedCad,
    fedssd::FedSsd,
    feddistill::FedDistill,
    fedgkd::FedGkd,
    fedgkd_vote::FedGkdVote,
    fedgkd_plus::FedGkdPlus,
    feddistill_plus::FedDistillPlus,
    fedgen::FedGen,
    feddf::FedDf,
    fedelity::Fedelity,
}
