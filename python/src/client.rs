//! A client's half of a federation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fedelity_experiment as experiment;
use fedelity_experiment::{Agreement, Contents};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::config::{document, shared, study};
use crate::dataset::is_arrays;
use crate::entry::registry;
use crate::error::{raised, raised_by, refused, refused_by};
use crate::method::MethodClass;
use crate::samples::split_of;
use crate::study::Study;
use crate::whole::client_number;

/// A client of a federation: messages are bytes, and what carries them is up to the caller.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Client {
    client: Mutex<experiment::Client>,
    /// Methods in Python.
    methods: Vec<&'static MethodClass>,
}

impl Client {
    pub(crate) fn of(client: experiment::Client, methods: Vec<&'static MethodClass>) -> Self {
        Self { client: Mutex::new(client), methods }
    }

    fn with<T: Send>(&self, py: Python<'_>, act: impl Send + FnOnce(MutexGuard<'_, experiment::Client>) -> T) -> T {
        py.detach(|| act(self.client.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Client {
    /// A client with its number, and one of three kinds of data: `config`, the study of which it takes its part, with `data` if
    /// its samples are in memory, or a `Study` that is loaded; `data` alone, a site's own `[data]`; or arrays `x` and `y`.
    #[new]
    #[pyo3(signature = (agreement, client, *, config=None, data=None, x=None, y=None))]
    fn new(
        py: Python<'_>,
        agreement: &str,
        client: &Bound<'_, PyAny>,
        config: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        x: Option<&Bound<'_, PyAny>>,
        y: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (mut agreement, (registry, methods)) = (Agreement::from_json(agreement).map_err(raised)?, registry(py)?);
        agreement.know(&registry);
        // A number that the agreement does not have is the library's to refuse; others are no numbers of clients.
        let client = client.extract::<usize>().or_else(|_| client_number(client, agreement.clients))?;
        let made = match (config, data, x, y) {
            (Some(config), data, None, None) => {
                let study = match (config.cast::<Study>(), data) {
                    (Ok(study), None) => Arc::clone(&study.get().0),
                    (Ok(_), Some(_)) => return Err(PyTypeError::new_err("data: the study that is given has its data")),
                    (Err(_), data) => Arc::new(study(py, Some(config), data)?.0),
                };
                py.detach(|| experiment::Client::of_partition(&study, &agreement, client))
            }
            (None, Some(data), None, None) if is_arrays(data)? => {
                let message = "data: give the study, too, of which the client takes its part (config=...), or the client's own \
                               samples as x=... and y=...";
                return Err(PyTypeError::new_err(message));
            }
            (None, Some(data), None, None) => {
                let (document, resources) = (document(Some(&whole(data)?))?, shared()?);
                py.detach(|| experiment::Client::of_site(&agreement, client, &document, &resources))
            }
            (None, None, Some(x), Some(y)) => {
                let (split, resources) = (split_of(&agreement.card, x, y)?, shared()?);
                py.detach(|| experiment::Client::of_samples(&agreement, client, split, &resources))
            }
            _ => {
                let message = "a client's data are given once: config=..., data=..., or x=... with y=...; data in memory with config=...";
                return Err(PyTypeError::new_err(message));
            }
        };
        Ok(Self::of(made.map_err(|error| raised_by(py, error, &methods))?, methods))
    }

    /// Its number.
    #[getter]
    fn id(&self, py: Python<'_>) -> usize {
        self.with(py, |client| client.id())
    }

    /// Its number of samples.
    #[getter]
    fn samples(&self, py: Python<'_>) -> usize {
        self.with(py, |client| client.samples())
    }

    /// Trains for one round, given the server's message; returns what to send.
    fn train<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let upload = self.with(py, |mut client| client.train(message));
        let upload = upload.map_err(|error| refused_by(py, error, &self.methods))?;
        Ok(PyBytes::new(py, &upload))
    }

    /// What a message of the server contains: its round, and its arrays by name with how many numbers each has.
    fn received<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Bound<'py, PyDict>> {
        contents(py, self.with(py, |client| client.received(message)).map_err(refused)?)
    }

    /// What an upload of this client contains.
    fn sent<'py>(&self, py: Python<'py>, upload: &[u8]) -> PyResult<Bound<'py, PyDict>> {
        contents(py, self.with(py, |client| client.sent(upload)).map_err(refused)?)
    }

    /// What it remembers, for a restart.
    fn memory<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = self.with(py, |client| client.memory());
        PyBytes::new(py, &bytes)
    }

    /// Remembers nothing, as before its first round.
    fn forget(&self, py: Python<'_>) {
        self.with(py, |mut client| client.forget());
    }

    /// Remembers what `memory()` returned before a restart.
    fn remember(&self, py: Python<'_>, saved: &[u8]) -> PyResult<()> {
        self.with(py, |mut client| client.remember(saved)).map_err(refused)
    }
}

pub(crate) fn contents(py: Python<'_>, found: Contents) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("round", found.round)?;
    dict.set_item("arrays", found.arrays)?;
    Ok(dict)
}

/// A site's configuration: the keys of `[data]` as a dict, or a whole configuration that has them.
fn whole<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match data.cast::<PyDict>() {
        Ok(dict) if !dict.contains("data")? => {
            let whole = PyDict::new(data.py());
            whole.set_item("data", dict)?;
            Ok(whole.into_any())
        }
        _ => Ok(data.clone()),
    }
}
