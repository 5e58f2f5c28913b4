//! How good a model is on labelled samples.

use fedelity_fl as fl;
use pyo3::prelude::*;

/// How good a model is on labelled samples.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Evaluation(pub(crate) fl::Evaluation);

#[pymethods]
impl Evaluation {
    /// The share of samples that are classified correctly.
    #[getter]
    fn accuracy(&self) -> f64 {
        self.0.accuracy()
    }

    /// The mean cross-entropy; `None` without samples.
    #[getter]
    fn loss(&self) -> Option<f64> {
        self.0.loss()
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.0.samples()
    }

    /// The accuracy of each class; `None` where there are no samples of it.
    #[getter]
    fn class_accuracy(&self) -> Vec<Option<f64>> {
        self.0.class_accuracy()
    }

    fn __repr__(&self) -> String {
        let loss = self.0.loss().map_or("none".to_string(), |loss| format!("{loss:.4}"));
        format!("<accuracy {:.4}, loss {loss}, {} samples>", self.0.accuracy(), self.0.samples())
    }
}
