//! Fedelity in Python: `fedelity._fedelity`, which the package `fedelity` presents.

mod arrays;
mod client;
mod config;
mod error;
mod evaluation;
mod run;
mod samples;
mod server;
mod show;
mod site;
mod study;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Does what the command line says, with the first argument as the name of the program; returns its exit status.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| fedelity_cli::run(arguments)).code()
}

#[pymodule]
fn _fedelity(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(run::resume, module)?)?;
    module.add_function(wrap_pyfunction!(show::run_folders, module)?)?;
    module.add_function(wrap_pyfunction!(show::table, module)?)?;
    module.add_function(wrap_pyfunction!(show::picture, module)?)?;
    module.add_function(wrap_pyfunction!(show::weights, module)?)?;
    module.add_class::<server::Server>()?;
    module.add_class::<server::ClosedRound>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<site::Site>()?;
    module.add_class::<study::Study>()?;
    module.add_class::<evaluation::Evaluation>()
}
