//! The engine and other shared resources.

use anyhow::{Context, Result};
use fedelity_experiment::Resources;
use fedelity_nn::engine_named;

/// The environment variable that selects the engine, by its instruction set.
const VARIABLE: &str = "FEDELITY_ISA";

/// Resources with the engine that the environment names, or the fastest one on this machine.
pub fn resources() -> Result<Resources> {
    match std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        None => Ok(Resources::default()),
        Some(name) => Ok(Resources::on(engine_named(&name.to_string_lossy()).context(VARIABLE)?)),
    }
}
