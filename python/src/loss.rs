//! The loss of a method on arrays.

use fedelity_fl as fl;
use fedelity_fl::{AloneGradient, GivenOutputs};
use fedelity_methods::Registry;
use fedelity_nn::Outputs;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::array;
use crate::config::{shared, table};
use crate::error::ConfigError;
use crate::samples::labels;
use crate::views::payload;
use crate::whole::whole;

/// The loss of a method with its hyper-parameters, for logits of a width.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct AloneLoss {
    loss: fl::AloneLoss,
    classes: usize,
    features: usize,
}

#[pymethods]
impl AloneLoss {
    #[new]
    fn new(method: &str, classes: usize, features: usize, hyper: &Bound<'_, PyDict>) -> PyResult<Self> {
        let methods = Registry::default();
        let Some(entry) = methods.find(method) else {
            let known = methods.names().join(", ");
            return Err(ConfigError::new_err(format!("method '{method}': expected one of {known}")));
        };
        // In Python, names have underscores.
        let given = table(hyper, "", 0)?.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect();
        let built = entry.build(&given, method, &mut ()).map_err(|error| ConfigError::new_err(error.message))?;
        if classes < 2 {
            return Err(PyValueError::new_err(
                "logits: expected an array of shape (samples, classes), with two classes or more",
            ));
        }
        let loss = fl::AloneLoss::new(built.method, classes, features, shared()?.engine);
        let loss = loss.map_err(|error| ConfigError::new_err(error.to_string()))?;
        Ok(Self { loss, classes, features })
    }

    /// The loss, and its gradients with respect to the logits, the features, and the weights and the bias of the head.
    #[allow(clippy::too_many_arguments, reason = "the parts of a batch")]
    fn compute<'py>(
        &self,
        py: Python<'py>,
        logits: &Bound<'py, PyAny>,
        labels: &Bound<'py, PyAny>,
        teachers: Vec<Bound<'py, PyAny>>,
        received: &Bound<'py, PyAny>,
        counts: Option<&Bound<'py, PyAny>>,
        features: Option<&Bound<'py, PyAny>>,
        teacher_features: Vec<Bound<'py, PyAny>>,
        head: Option<HeadArrays<'py>>,
        teacher_heads: Vec<HeadArrays<'py>>,
        seed: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (y, seed) = (class_numbers(labels, "labels", self.classes)?, whole(seed, "seed", 0, u64::MAX)?);
        let n = y.len();
        let logits = Matrix::of(logits, "logits", n, self.classes)?;
        let features = features.map(|found| Matrix::of(found, "features", n, self.features)).transpose()?;
        let named = |kind: &str, k: usize| format!("{kind}[{k}]");
        let rows =
            |(k, found): (usize, &Bound<'py, PyAny>)| Matrix::of(found, &named("teacher_logits", k), n, self.classes);
        let teachers: Vec<Matrix<'_>> = teachers.iter().enumerate().map(rows).collect::<PyResult<_>>()?;
        let rows = |(k, found): (usize, &Bound<'py, PyAny>)| {
            Matrix::of(found, &named("teacher_features", k), n, self.features)
        };
        let teacher_features: Vec<Matrix<'_>> =
            teacher_features.iter().enumerate().map(rows).collect::<PyResult<_>>()?;
        if !teacher_features.is_empty() && !teachers.is_empty() && teacher_features.len() != teachers.len() {
            return Err(PyValueError::new_err("teacher_features and teacher_logits are of the same teachers"));
        }
        let counts: Vec<usize> = match counts {
            Some(found) => sizes(found, self.classes)?,
            None => (0..self.classes).map(|class| y.iter().filter(|&&y| usize::from(y) == class).count()).collect(),
        };
        let head = head.map(|found| self.head("head", &found)).transpose()?.unwrap_or_default();
        let heads = teacher_heads.iter().enumerate().map(|(k, found)| self.head(&named("teacher_heads", k), found));
        let teacher_heads: Vec<Vec<f32>> = heads.collect::<PyResult<_>>()?;
        let (zeros, none) = (vec![0.0; n * self.features.max(self.classes)], fl::Payload::new());
        let absent = Absent { samples: n, logits: &zeros[..n * self.classes], features: &zeros[..n * self.features] };
        let student = absent.or(Some(&logits), features.as_ref())?;
        let absent = Absent { features: &[], ..absent };
        let known = teachers.len().max(teacher_features.len());
        let teachers = (0..known).map(|k| absent.or(teachers.get(k), teacher_features.get(k)));
        let teachers: Vec<Outputs<'_>> = teachers.collect::<PyResult<_>>()?;
        let down = payload(received, "received")?;
        let given = GivenOutputs {
            labels: &y,
            student,
            teachers: &teachers,
            head: &head,
            teacher_heads: &teacher_heads,
            seed,
            down: &down,
            memory: &none,
            counts: &counts,
        };
        let (terms, gradient) = self.loss.compute(&given).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let AloneGradient { logits: d_logits, features: d_features, head: d_head } = gradient;
        if d_features.is_some() && features.is_none() {
            return Err(PyTypeError::new_err("the loss depends on the model's features: give features=..."));
        }
        let d_features = d_features.unwrap_or_else(|| vec![0.0; n * self.features]);
        let (d_weight, d_bias) = d_head.split_at(self.classes * self.features);
        let parts = [
            terms.total().into_pyobject(py)?.into_any(),
            array(py, &d_logits, &[n, self.classes])?,
            array(py, &d_features, &[n, self.features])?,
            array(py, d_weight, &[self.classes, self.features])?,
            array(py, d_bias, &[self.classes])?,
        ];
        PyTuple::new(py, parts)
    }
}

impl AloneLoss {
    /// The weights of a head, and then its bias.
    fn head(&self, name: &str, (weight, bias): &HeadArrays<'_>) -> PyResult<Vec<f32>> {
        let weight = Matrix::of(weight, &format!("{name}: weight"), self.classes, self.features)?;
        let found = bias.extract::<PyReadonlyArray1<'_, f32>>().ok().filter(|bias| bias.len() == self.classes);
        let Some(bias) = found else {
            let classes = self.classes;
            return Err(PyTypeError::new_err(format!(
                "{name}: bias: expected {classes} numbers, as an array of float32"
            )));
        };
        Ok(weight.values()?.iter().copied().chain(bias.as_array().iter().copied()).collect())
    }
}

/// The weights, `[class, feature]`, and the bias of a linear layer.
type HeadArrays<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Stands in for outputs that were not given.
struct Absent<'a> {
    samples: usize,
    logits: &'a [f32],
    features: &'a [f32],
}

impl<'a> Absent<'a> {
    fn or(&self, logits: Option<&'a Matrix<'_>>, features: Option<&'a Matrix<'_>>) -> PyResult<Outputs<'a>> {
        let logits = logits.map_or(Ok(self.logits), Matrix::values)?;
        let features = features.map_or(Ok(self.features), Matrix::values)?;
        Ok(Outputs { features, logits, samples: self.samples })
    }
}

/// Rows of numbers in one piece.
struct Matrix<'py>(PyReadonlyArray2<'py, f32>);

impl<'py> Matrix<'py> {
    fn of(found: &Bound<'py, PyAny>, name: &str, rows: usize, columns: usize) -> PyResult<Self> {
        let Ok(array) = found.extract::<PyReadonlyArray2<'py, f32>>() else {
            let found = match found.cast::<PyUntypedArray>() {
                Ok(array) => format!("{} of shape {:?}", array.dtype(), array.shape()),
                Err(_) => found.get_type().to_string(),
            };
            return Err(PyTypeError::new_err(format!("{name}: expected a matrix of float32, found {found}")));
        };
        if array.shape() != [rows, columns] {
            let found = array.shape();
            return Err(PyValueError::new_err(format!("{name}: expected shape ({rows}, {columns}), found {found:?}")));
        }
        if !array.is_c_contiguous() {
            let how = "numpy.ascontiguousarray makes it so";
            return Err(PyValueError::new_err(format!("{name}: expected an array in one piece, row by row; {how}")));
        }
        Ok(Self(array))
    }

    fn values(&self) -> PyResult<&[f32]> {
        Ok(self.0.as_slice()?)
    }
}

fn class_numbers(found: &Bound<'_, PyAny>, name: &str, classes: usize) -> PyResult<Vec<u16>> {
    let y = match found.extract::<PyReadonlyArray1<'_, u16>>() {
        Ok(plain) => plain.as_array().to_vec(),
        Err(_) => labels(found, name)?,
    };
    match y.iter().find(|y| usize::from(**y) >= classes) {
        Some(y) => {
            Err(PyValueError::new_err(format!("{name}: {y} is not one of {classes} classes, 0 to {}", classes - 1)))
        }
        None => Ok(y),
    }
}

fn sizes(found: &Bound<'_, PyAny>, classes: usize) -> PyResult<Vec<usize>> {
    let counts: Vec<Bound<'_, PyAny>> = found
        .call_method0("tolist")
        .and_then(|list| list.extract())
        .map_err(|_| PyTypeError::new_err("counts: expected an array with the number of samples of each class"))?;
    let count = |(class, count): (usize, &Bound<'_, PyAny>)| {
        whole(count, &format!("counts[{class}]"), 0, u32::MAX.into()).map(|count| count as usize)
    };
    let counts: Vec<usize> = counts.iter().enumerate().map(count).collect::<PyResult<_>>()?;
    if counts.len() != classes {
        let n = counts.len();
        return Err(PyValueError::new_err(format!(
            "counts: expected one number for each of {classes} classes, found {n}"
        )));
    }
    Ok(counts)
}
