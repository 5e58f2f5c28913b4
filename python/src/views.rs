//! What the hooks of a method in Python see. Arrays are copies, so nothing outlives what it shows.

use fedelity_fl::{Local, Payload, Received, Samples, Server, Step};
use fedelity_nn::{Model, Outputs};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::arrays::array;

/// Named arrays as a dict.
pub(crate) fn dict<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, values) in payload.iter() {
        dict.set_item(name, PyArray1::from_slice(py, values))?;
    }
    Ok(dict)
}

/// A mapping of names to arrays, in one piece and as f32.
pub(crate) fn payload(found: &Bound<'_, PyAny>, hook: &str) -> PyResult<Payload> {
    let mut payload = Payload::new();
    if found.is_none() {
        return Ok(payload);
    }
    for item in found.call_method0("items")?.try_iter()? {
        let (name, values): (String, Bound<'_, PyAny>) = item?.extract()?;
        payload.put(name.clone(), flat(&values, &format!("{hook}: '{name}'"))?);
    }
    Ok(payload)
}

/// The numbers of anything that numpy takes for an array, as f32.
pub(crate) fn flat(values: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<f32>> {
    if let Ok(plain) = values.extract::<PyReadonlyArray1<'_, f32>>() {
        return Ok(plain.as_array().iter().copied().collect());
    }
    let numpy = values.py().import("numpy")?;
    let made = numpy.call_method1("asarray", (values, "float32")).and_then(|made| made.call_method0("ravel"));
    let made = made.and_then(|made| Ok(made.extract::<PyReadonlyArray1<'_, f32>>()?.as_array().to_vec()));
    made.map_err(|error| {
        pyo3::exceptions::PyTypeError::new_err(format!("{what}: expected an array of float32: {error}"))
    })
}

/// The model that is trained.
#[pyclass(frozen, get_all, module = "fedelity")]
pub(crate) struct ModelView {
    /// How many weights it has.
    weights: usize,
    classes: usize,
    /// The width of its features, which its head turns into logits.
    features: usize,
    /// The shapes of its weights, by name, in their order.
    tensors: Py<PyDict>,
}

impl ModelView {
    pub(crate) fn of(py: Python<'_>, model: &Model) -> PyResult<Self> {
        let tensors = PyDict::new(py);
        for tensor in model.layout().tensors() {
            tensors.set_item(&tensor.name, PyTuple::new(py, &tensor.shape)?)?;
        }
        let (weights, classes, features) = (model.layout().len(), model.classes(), model.features());
        Ok(Self { weights, classes, features, tensors: tensors.unbind() })
    }
}

/// What hooks can read on a client.
#[pyclass(frozen, get_all, module = "fedelity")]
pub(crate) struct ClientView {
    /// Its number.
    id: usize,
    /// The round, counted from 0.
    round: usize,
    /// The learning rate of this round.
    lr: f32,
    /// The weights at the start of training, one after the other.
    weights: Py<PyAny>,
    /// Which of the weights are trained; running statistics are not.
    trainable: Py<PyAny>,
    /// What the server sent beyond the weights.
    received: Py<PyDict>,
    /// What this client remembers; empty the first time.
    memory: Py<PyDict>,
    /// Its samples per class.
    counts: Py<PyAny>,
}

impl ClientView {
    pub(crate) fn of(py: Python<'_>, local: &Local<'_>) -> PyResult<Self> {
        let mut trainable = vec![false; local.model.layout().len()];
        local.model.layout().trainable().iter().for_each(|range| trainable[range.clone()].fill(true));
        let counts: Vec<i64> = local.counts.iter().map(|&count| count as i64).collect();
        Ok(Self {
            id: local.client,
            round: local.round,
            lr: local.lr,
            weights: PyArray1::from_slice(py, local.global).into_any().unbind(),
            trainable: PyArray1::from_vec(py, trainable).into_any().unbind(),
            received: dict(py, local.down)?.unbind(),
            memory: dict(py, local.memory)?.unbind(),
            counts: PyArray1::from_vec(py, counts).into_any().unbind(),
        })
    }
}

/// One batch of a client's training. Matrices have a row for each sample.
#[pyclass(frozen, get_all, module = "fedelity")]
pub(crate) struct StepView {
    client: Py<ClientView>,
    /// The local epoch, counted from 0.
    epoch: usize,
    /// The client's step in this round, counted from 0.
    index: usize,
    labels: Py<PyAny>,
    logits: Py<PyAny>,
    features: Py<PyAny>,
    /// The logits of each teacher.
    teachers: Py<PyList>,
    /// The features of each teacher; empty for one that was declared without.
    teacher_features: Py<PyList>,
}

impl StepView {
    pub(crate) fn of(py: Python<'_>, client: Py<ClientView>, step: &Step<'_>) -> PyResult<Self> {
        let (n, classes, features) = (step.samples(), step.classes, step.features);
        let rows = |outputs: &Outputs<'_>| match outputs.features.is_empty() {
            true => array(py, &[], &[0, features]),
            false => array(py, outputs.features, &[n, features]),
        };
        let (teachers, teacher_features) = (PyList::empty(py), PyList::empty(py));
        for k in 0..step.teachers() {
            let outputs = step.teacher(k);
            teachers.append(array(py, outputs.logits, &[n, classes])?)?;
            teacher_features.append(rows(&outputs)?)?;
        }
        Ok(Self {
            client,
            epoch: step.epoch,
            index: step.step,
            labels: PyArray1::from_slice(py, step.labels).into_any().unbind(),
            logits: array(py, step.student.logits, &[n, classes])?.unbind(),
            features: rows(&step.student)?.unbind(),
            teachers: teachers.unbind(),
            teacher_features: teacher_features.unbind(),
        })
    }
}

/// What a client sent.
#[pyclass(frozen, get_all, module = "fedelity")]
pub(crate) struct UploadView {
    client: usize,
    weights: Py<PyAny>,
    /// The client's number of samples.
    samples: usize,
    steps: usize,
    /// How much it counts in the mean.
    weight: f64,
    /// What was sent beyond the weights.
    extra: Py<PyDict>,
}

impl UploadView {
    pub(crate) fn of(py: Python<'_>, upload: &Received) -> PyResult<Self> {
        Ok(Self {
            client: upload.client,
            weights: PyArray1::from_slice(py, &upload.params).into_any().unbind(),
            samples: upload.examples,
            steps: upload.steps,
            weight: upload.weight,
            extra: dict(py, &upload.extra)?.unbind(),
        })
    }
}

/// What hooks can read on the server.
#[pyclass(module = "fedelity")]
pub(crate) struct ServerView {
    /// The round, counted from 0.
    #[pyo3(get)]
    round: usize,
    /// The number of clients in the federation.
    #[pyo3(get)]
    clients: usize,
    #[pyo3(get)]
    model: Py<ModelView>,
    /// The global weights at the start of the round.
    #[pyo3(get)]
    weights: Py<PyAny>,
    /// The method's state; what `conclude` puts into it is there in the next round.
    #[pyo3(get)]
    pub(crate) state: Py<PyDict>,
    /// For this round: what one hook puts here, the next ones find.
    #[pyo3(get)]
    pub(crate) scratch: Py<PyDict>,
    /// In `conclude`: the weighted mean of the uploads.
    #[pyo3(get)]
    pub(crate) mean: Option<Py<PyAny>>,
    /// In `conclude`: further means, by the names that `add` was given.
    #[pyo3(get)]
    pub(crate) means: Py<PyDict>,
    /// In `conclude`, if the method needs each upload: all of them.
    #[pyo3(get)]
    pub(crate) uploads: Py<PyList>,
    /// In `prepare`, if the method needs them: the global model's logits on the server's labelled samples, and the labels.
    #[pyo3(get)]
    pub(crate) auxiliary: Option<Py<PyAny>>,
    /// In `prepare`, if the method needs them: the global model's logits on the validation part, and the labels.
    #[pyo3(get)]
    pub(crate) validation: Option<Py<PyAny>>,
    /// In `prepare`, if the method needs them: the global model's logits on the server's unlabelled samples.
    #[pyo3(get)]
    pub(crate) unlabelled: Option<Py<PyAny>>,
    /// What `collect` adds.
    pub(crate) added: Vec<Added>,
}

/// A vector that a hook adds to a mean: of the weights, or of a name.
pub(crate) struct Added {
    pub(crate) name: Option<String>,
    pub(crate) weight: f64,
    pub(crate) values: Vec<f32>,
}

impl ServerView {
    pub(crate) fn of(py: Python<'_>, server: &Server<'_>) -> PyResult<Self> {
        Ok(Self {
            round: server.round,
            clients: server.clients,
            model: Py::new(py, ModelView::of(py, server.model)?)?,
            weights: PyArray1::from_slice(py, server.global).into_any().unbind(),
            state: dict(py, server.state)?.unbind(),
            scratch: dict(py, server.scratch)?.unbind(),
            mean: None,
            means: PyDict::new(py).unbind(),
            uploads: PyList::empty(py).unbind(),
            auxiliary: None,
            validation: None,
            unlabelled: None,
            added: Vec::new(),
        })
    }
}

#[pymethods]
impl ServerView {
    /// In `collect`: adds to the mean of the weights, or to a further one by its name.
    #[pyo3(signature = (weights, weight, name=None))]
    fn add(&mut self, weights: &Bound<'_, PyAny>, weight: f64, name: Option<String>) -> PyResult<()> {
        let values = flat(weights, "add")?;
        self.added.push(Added { name, weight, values });
        Ok(())
    }
}

/// The global model's logits on samples of the server, and their labels.
pub(crate) fn logits<'py>(
    py: Python<'py>,
    server: &mut Server<'_>,
    samples: Samples<'_>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut found = Vec::new();
    let (trainer, global) = (&mut *server.trainer, server.global);
    trainer.evaluate(global, samples, &mut |outputs, _| found.extend_from_slice(outputs.logits));
    let labels: Vec<u16> = samples.labels().collect();
    let classes = server.model.classes();
    Ok((array(py, &found, &[labels.len(), classes])?, PyArray1::from_vec(py, labels).into_any()))
}
