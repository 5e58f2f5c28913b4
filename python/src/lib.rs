//! Fedelity in Python: `fedelity._fedelity`, which the package `fedelity` presents.

mod arrays;
mod client;
mod config;
mod dataset;
mod entry;
mod error;
mod evaluation;
mod loss;
mod method;
mod run;
mod samples;
mod server;
mod show;
mod site;
mod study;
mod trained;
mod views;
mod whole;

use std::ffi::OsString;
use std::thread;

use pyo3::prelude::*;

/// Does what the command line says, with the first argument as the name of the program; returns its exit status.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let (methods, _) = entry::registry(py)?;
    // Not on the main thread of Python, on which its signals would interrupt hooks.
    let work = move || fedelity_cli::run(arguments, &methods).code();
    let started = thread::Builder::new().name("fedelity".to_string()).stack_size(run::STACK).spawn(work);
    let started = started.map_err(|error| error::Error::new_err(format!("cannot start a thread: {error}")))?;
    py.detach(|| started.join()).map_err(|_| error::Error::new_err("the command ended without a word"))
}

#[pymodule]
fn _fedelity(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(run::resume, module)?)?;
    module.add_function(wrap_pyfunction!(trained::evaluate_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(trained::evaluate_files, module)?)?;
    module.add_function(wrap_pyfunction!(trained::perform, module)?)?;
    module.add_function(wrap_pyfunction!(trained::logits, module)?)?;
    module.add_function(wrap_pyfunction!(trained::partition, module)?)?;
    module.add_function(wrap_pyfunction!(trained::methods, module)?)?;
    module.add_function(wrap_pyfunction!(show::run_folders, module)?)?;
    module.add_function(wrap_pyfunction!(show::round_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(show::table, module)?)?;
    module.add_function(wrap_pyfunction!(show::picture, module)?)?;
    module.add_function(wrap_pyfunction!(show::weights, module)?)?;
    module.add_class::<server::Server>()?;
    module.add_class::<server::ClosedRound>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<site::Site>()?;
    module.add_class::<study::Study>()?;
    module.add_class::<loss::AloneLoss>()?;
    module.add_class::<views::ModelView>()?;
    module.add_class::<views::ClientView>()?;
    module.add_class::<views::StepView>()?;
    module.add_class::<views::UploadView>()?;
    module.add_class::<views::ServerView>()?;
    module.add_class::<evaluation::Evaluation>()
}
