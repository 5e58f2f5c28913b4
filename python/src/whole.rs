//! Whole numbers from Python, which have no largest one.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

/// A whole number within bounds; the message names the argument and what is allowed.
pub(crate) fn whole(value: &Bound<'_, PyAny>, name: &str, least: u64, most: u64) -> PyResult<u64> {
    let (expected, index) = (format!("expected a whole number from {least} to {most}"), value.py().import("operator")?);
    // Numbers of numpy are whole numbers, too; bools are meant to be something else.
    let found = index.call_method1("index", (value,)).ok().filter(|_| !value.is_instance_of::<PyBool>());
    let Some(found) = found else {
        return Err(PyTypeError::new_err(format!("{name}: {expected}, found {}", value.get_type().name()?)));
    };
    match found.extract::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(PyValueError::new_err(format!("{name} = {found}: {expected}"))),
    }
}

/// The number of a client, of which there are this many.
pub(crate) fn client_number(value: &Bound<'_, PyAny>, clients: usize) -> PyResult<usize> {
    whole(value, "client", 0, clients.saturating_sub(1) as u64).map(|number| number as usize)
}
