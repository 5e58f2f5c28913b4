//! Data given as arrays.

use fedelity_data::{ArrayData, Dataset, ImageShape, Inputs, NaturalKeys, Normalisation, Shape, Split};
use fedelity_experiment::{Document, ExperimentError, Resources};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::config::shared;
use crate::error::raised;
use crate::samples::{labels, numbers};

/// What messages call values that follow from the arrays.
const GIVEN: &str = "data";

/// The engine, and data in memory if there are any; the configuration then says so.
pub(crate) fn resources(document: &mut Document, data: Option<&Bound<'_, PyAny>>) -> PyResult<Resources> {
    let resources = shared()?;
    let Some(data) = data else { return Ok(resources) };
    let dataset = dataset(data)?;
    document.put(&["data", "name"], "arrays".into(), GIVEN).map_err(raised)?;
    let divided = document.gives("partition.kind") || document.gives("partition.file");
    if dataset.train.keys.is_some() && !divided {
        document.put(&["partition", "kind"], "natural".into(), GIVEN).map_err(raised)?;
    }
    Ok(resources.with_data(dataset))
}

/// The engine and data in memory, for a configuration that says so.
pub(crate) fn given(data: &Bound<'_, PyAny>) -> PyResult<Resources> {
    Ok(shared()?.with_data(dataset(data)?))
}

/// Whether this is `fedelity.Data`.
pub(crate) fn is_arrays(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    data.is_instance(&data.py().import("fedelity._data")?.getattr("Data")?)
}

fn dataset(data: &Bound<'_, PyAny>) -> PyResult<Dataset> {
    if !is_arrays(data)? {
        let found = data.get_type().name()?;
        return Err(PyTypeError::new_err(format!("data: expected fedelity.Data, found {found}")));
    }
    let classes: Vec<String> = data.getattr("classes")?.extract()?;
    if classes.len() < 2 {
        let n = classes.len();
        return Err(PyValueError::new_err(format!("y: expected two classes or more, found {n}")));
    }
    let names: Vec<String> = data.getattr("clients")?.extract()?;
    let (train, shape) = split(data, "", &names)?;
    let test = match data.getattr("x_test")?.is_none() {
        true => None,
        false => {
            let (test, other) = split(data, "_test", &names)?;
            if other != shape {
                return Err(PyValueError::new_err(format!("x_test: expected samples of {shape}, found {other}")));
            }
            Some(test)
        }
    };
    let normalisation: Option<(Vec<f32>, Vec<f32>)> = data.getattr("normalisation")?.extract()?;
    let normalisation = normalisation.map(|(mean, std)| Normalisation { mean, std });
    if normalisation.iter().any(|found| found.std.iter().any(|std| !(std.is_finite() && *std > 0.0))) {
        return Err(PyValueError::new_err("normalisation: standard deviations are above 0"));
    }
    let made = ArrayData {
        name: data.getattr("name")?.extract()?,
        classes,
        shape,
        train,
        test,
        test_fraction: data.getattr("test_fraction")?.extract()?,
        normalisation,
    };
    made.dataset().map_err(|error| raised(ExperimentError::Data(error)))
}

/// The samples of one split, and their shape.
fn split(data: &Bound<'_, PyAny>, part: &str, names: &[String]) -> PyResult<(Split, Shape)> {
    let (x, y) = (data.getattr(format!("x{part}").as_str())?, data.getattr(format!("y{part}").as_str())?);
    let (x_name, y_name) = (format!("x{part}"), format!("y{part}"));
    let labels = labels(&y, &y_name)?;
    let (inputs, shape, n) = inputs(&x, &x_name)?;
    if n != labels.len() {
        let found = labels.len();
        return Err(PyValueError::new_err(format!("{x_name} has {n} samples, but {y_name} has {found} labels")));
    }
    let of = data.getattr(format!("client{part}").as_str())?;
    let keys = match of.is_none() {
        true => None,
        false => {
            let of: Vec<u32> = numbers::<i64>(&of, "client", "int64")?.into_iter().map(|one| one as u32).collect();
            if of.len() != n {
                let found = of.len();
                return Err(PyValueError::new_err(format!("client{part} has {found} entries for {n} samples")));
            }
            Some(NaturalKeys { of, names: names.to_vec() })
        }
    };
    Ok((Split { inputs, labels, keys }, shape))
}

fn inputs(x: &Bound<'_, PyAny>, name: &str) -> PyResult<(Inputs, Shape, usize)> {
    if let Ok(texts) = x.cast::<PyList>() {
        let texts: Vec<String> = texts
            .extract()
            .map_err(|_| PyTypeError::new_err(format!("{name}: a list is one of texts; others are numpy arrays")))?;
        let n = texts.len();
        return Ok((Inputs::Texts(texts), Shape::Text, n));
    }
    let Ok(array) = x.cast::<PyUntypedArray>() else {
        let found = x.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{name}: expected a numpy array or a list of texts, found {found}")));
    };
    let kind: String = array.dtype().getattr("kind")?.extract()?;
    match (kind.as_str(), array.shape()) {
        ("u", &[n, height, width]) => {
            let shape = Shape::Image(ImageShape { channels: 1, height, width });
            Ok((Inputs::Bytes(numbers::<u8>(x, name, "uint8")?), shape, n))
        }
        ("u", &[n, channels @ (1 | 3), height, width]) => {
            let shape = Shape::Image(ImageShape { channels, height, width });
            Ok((Inputs::Bytes(numbers::<u8>(x, name, "uint8")?), shape, n))
        }
        ("u", &[_, _, _, 1 | 3]) => {
            let how = format!("{name}.transpose(0, 3, 1, 2) puts them first");
            Err(PyValueError::new_err(format!("{name}: the channels of images come before height and width; {how}")))
        }
        ("f", &[n, width]) => {
            let single = x.call_method1("astype", ("float32",))?;
            let values = numbers::<f32>(&single, name, "float32")?;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let (row, column) = (at / width.max(1), at % width.max(1));
                return Err(PyValueError::new_err(format!("{name}[{row}, {column}] is not a finite number")));
            }
            Ok((Inputs::Floats(values), Shape::Numbers(width), n))
        }
        (_, shape) => {
            let (found, allowed) = (
                format!("{} of shape {shape:?}", array.dtype()),
                "images as uint8 ([n, height, width] or [n, channel, height, width]), numbers as float32 ([n, column])",
            );
            Err(PyTypeError::new_err(format!("{name}: expected {allowed}, found {found}")))
        }
    }
}
