//! Arrays of numpy, in and out.

use fedelity_nn::{Layout, Params};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A new array with these numbers.
pub(crate) fn array<'py>(py: Python<'py>, values: &[f32], shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyArray1::from_slice(py, values).reshape(shape.to_vec())?.into_any())
}

/// The weights of a model by the names of their tensors, in the order of the model.
pub(crate) fn named<'py>(py: Python<'py>, layout: &Layout, params: &Params) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for tensor in layout.tensors() {
        dict.set_item(&tensor.name, array(py, &params[tensor.range()], &tensor.shape)?)?;
    }
    Ok(dict)
}
