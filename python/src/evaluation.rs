//! How good a model is on labelled samples.

use fedelity_fl as fl;
use pyo3::prelude::*;

/// How good a model is on labelled samples.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Evaluation {
    pub(crate) found: fl::Evaluation,
    /// JSON.
    pub(crate) details: String,
}

#[pymethods]
impl Evaluation {
    /// The share of samples that are classified correctly.
    #[getter]
    fn accuracy(&self) -> f64 {
        self.found.accuracy()
    }

    /// The mean cross-entropy; `None` without samples.
    #[getter]
    fn loss(&self) -> Option<f64> {
        self.found.loss()
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.found.samples()
    }

    /// The accuracy of each class; `None` where there are no samples of it.
    #[getter]
    fn class_accuracy(&self) -> Vec<Option<f64>> {
        self.found.class_accuracy()
    }

    /// All that `fedelity evaluate --json` prints; empty for a server and for arrays.
    #[getter]
    fn details<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.details.as_str(),))
    }

    fn __repr__(&self) -> String {
        let loss = self.found.loss().map_or("none".to_string(), |loss| format!("{loss:.4}"));
        format!("<accuracy {:.4}, loss {loss}, {} samples>", self.found.accuracy(), self.found.samples())
    }
}
