//! Samples given as arrays.

use fedelity_data::{Inputs, Split};
use fedelity_nn::{Card, Input};
use numpy::{PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The samples of a client, as the model of the agreement reads them.
pub(crate) fn split_of(card: &Card, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Split> {
    let labels = labels(y, "y")?;
    let shape = shape(x, "x")?;
    if shape.first() != Some(&labels.len()) {
        let (found, n) = (shape.first().copied().unwrap_or(0), labels.len());
        return Err(PyValueError::new_err(format!("x has {found} samples, but y has {n} labels")));
    }
    match card.input {
        Input::Image { channels, height, width } => {
            let fits = shape[1..] == [channels, height, width] || (channels == 1 && shape[1..] == [height, width]);
            if !fits {
                let message = format!(
                    "x: the model reads images of shape ({channels}, {height}, {width}), found {:?}",
                    &shape[1..]
                );
                return Err(PyValueError::new_err(message));
            }
            Ok(Split::images(numbers::<u8>(x, "x", "uint8")?, labels))
        }
        Input::Numbers { width } => {
            if card.table.is_some() {
                let message = "x: the model reads the columns of a table by name; give the client a file with data=...";
                return Err(PyTypeError::new_err(message));
            }
            if shape[1..] != [width] {
                let message = format!("x: the model reads rows of {width} numbers, found shape {:?}", &shape[1..]);
                return Err(PyValueError::new_err(message));
            }
            let mut values = numbers::<f32>(x, "x", "float32")?;
            for row in values.chunks_exact_mut(width) {
                for (i, value) in row.iter_mut().enumerate() {
                    *value = (*value - card.mean[i]) / card.std[i];
                }
            }
            Ok(Split { inputs: Inputs::Floats(values), labels, keys: None })
        }
        other => Err(PyTypeError::new_err(format!("x: the model reads {other}; give the client a file with data=..."))),
    }
}

fn shape(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<usize>> {
    match array.cast::<PyUntypedArray>() {
        Ok(array) => Ok(array.shape().to_vec()),
        Err(_) => {
            let found = array.get_type().name()?;
            Err(PyTypeError::new_err(format!("{name}: expected a numpy array, found {found}")))
        }
    }
}

/// The numbers of an array of one type.
pub(crate) fn numbers<T: numpy::Element + Copy>(array: &Bound<'_, PyAny>, name: &str, kind: &str) -> PyResult<Vec<T>> {
    match array.extract::<PyReadonlyArrayDyn<'_, T>>() {
        // In the order of the indices, however the array lies in memory.
        Ok(values) => Ok(values.as_array().iter().copied().collect()),
        Err(_) => {
            let found = array.getattr("dtype")?;
            Err(PyTypeError::new_err(format!(
                "{name}: expected an array of {kind}, found {found}; convert it with {name}.astype(\"{kind}\")"
            )))
        }
    }
}

/// Class numbers from any array of whole numbers.
pub(crate) fn labels(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u16>> {
    let found = shape(array, name)?;
    if found.len() != 1 {
        return Err(PyValueError::new_err(format!(
            "{name}: expected one label for each sample, found shape {found:?}"
        )));
    }
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    if kind != "i" && kind != "u" {
        let found = array.getattr("dtype")?;
        return Err(PyTypeError::new_err(format!("{name}: expected class numbers (whole numbers), found {found}")));
    }
    let wide = array.call_method1("astype", ("int64",))?;
    let wide = numbers::<i64>(&wide, name, "int64")?;
    let narrow = wide.iter().map(|&label| u16::try_from(label).map_err(|_| label)).collect::<Result<_, i64>>();
    narrow.map_err(|label| PyValueError::new_err(format!("{name}: {label} is not a class number, which are 0 and up")))
}
