//! Errors as Python's exceptions, with their text as it is.

use fedelity_experiment::{ExchangeError, ExperimentError};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::{PyErr, create_exception};

use crate::method::MethodClass;

create_exception!(fedelity, Error, PyException, "What Fedelity could not do. The message says what to change.");
create_exception!(fedelity, ConfigError, Error, "The configuration: the message names the key and where it was given.");
create_exception!(fedelity, DataError, Error, "A file, a folder or data that cannot be used.");
create_exception!(
    fedelity,
    MethodError,
    Error,
    "An exception in a hook of a method in Python: the cause has its traceback."
);
create_exception!(fedelity, Refused, Error, "A message of a federation that is not used; nothing has changed.");

/// Adds the exceptions to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("ConfigError", py.get_type::<ConfigError>())?;
    module.add("DataError", py.get_type::<DataError>())?;
    module.add("MethodError", py.get_type::<MethodError>())?;
    module.add("Refused", py.get_type::<Refused>())
}

/// An error of the library as an exception.
pub(crate) fn raised(error: ExperimentError) -> PyErr {
    let text = error.to_string();
    match error {
        ExperimentError::Config(_) => ConfigError::new_err(text),
        ExperimentError::Policy(_) => Refused::new_err(text),
        ExperimentError::SiteData(_)
        | ExperimentError::Path { .. }
        | ExperimentError::Data(_)
        | ExperimentError::Text(_) => DataError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// The same, if one of these methods in Python may have raised an exception.
pub(crate) fn raised_by(py: Python<'_>, error: ExperimentError, methods: &[&MethodClass]) -> PyErr {
    caused(py, error.to_string(), methods).unwrap_or_else(|| raised(error))
}

/// An error of a federation's message as an exception, if one of these methods in Python may have raised one.
pub(crate) fn refused_by(py: Python<'_>, error: ExchangeError, methods: &[&MethodClass]) -> PyErr {
    let caused = matches!(error, ExchangeError::Round(_)).then(|| caused(py, error.to_string(), methods)).flatten();
    caused.unwrap_or_else(|| refused(error))
}

/// The exception of a hook, if there was one.
fn caused(py: Python<'_>, text: String, methods: &[&MethodClass]) -> Option<PyErr> {
    let cause = methods.iter().find_map(|method| method.failure())?;
    let made = MethodError::new_err(text);
    made.set_cause(py, Some(cause));
    Some(made)
}

/// An error of a federation's message as an exception.
pub(crate) fn refused(error: ExchangeError) -> PyErr {
    let text = error.to_string();
    match error {
        ExchangeError::Round(_) | ExchangeError::Study(_) => Error::new_err(text),
        _ => Refused::new_err(text),
    }
}
