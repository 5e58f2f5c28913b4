//! A study with its data, for clients that share them.

use std::sync::Arc;

use fedelity_experiment as experiment;
use pyo3::prelude::*;

use crate::config::study;

/// Everything that a configuration names, read once for many clients of one process.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Study(pub(crate) Arc<experiment::Study>);

#[pymethods]
impl Study {
    #[new]
    #[pyo3(signature = (config=None, *, data=None))]
    fn new(py: Python<'_>, config: Option<&Bound<'_, PyAny>>, data: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self(Arc::new(study(py, config, data)?.0)))
    }

    /// The number of clients.
    #[getter]
    fn clients(&self) -> usize {
        self.0.pool.partition.clients.len()
    }
}
