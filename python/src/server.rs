//! The server's half of a federation.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fedelity_experiment as experiment;
use fedelity_experiment::RoundEnd;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrays::named;
use crate::config::{document, study};
use crate::error::{Error, raised, refused};
use crate::evaluation::Evaluation;

/// A server of a federation: messages are bytes, and what carries them is up to the caller.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Server(Mutex<experiment::Server>);

impl Server {
    fn with<T: Send>(&self, py: Python<'_>, act: impl Send + FnOnce(MutexGuard<'_, experiment::Server>) -> T) -> T {
        py.detach(|| act(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Server {
    /// A server before its first round.
    #[new]
    #[pyo3(signature = (config=None))]
    fn new(py: Python<'_>, config: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let study = study(py, &document(config)?)?;
        let made = py.detach(|| experiment::Server::new(study)).map_err(raised)?;
        Ok(Self(Mutex::new(made)))
    }

    /// A server as it was when it was saved, with the same configuration.
    #[staticmethod]
    fn restore(py: Python<'_>, config: Option<&Bound<'_, PyAny>>, saved: &[u8]) -> PyResult<Self> {
        let study = study(py, &document(config)?)?;
        let made = py.detach(|| experiment::Server::restore(study, saved)).map_err(refused)?;
        Ok(Self(Mutex::new(made)))
    }

    /// What clients need to know before they start, as JSON.
    #[getter]
    fn agreement(&self, py: Python<'_>) -> String {
        self.with(py, |server| server.agreement().to_json())
    }

    /// The number of closed rounds.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> usize {
        self.with(py, |server| server.rounds())
    }

    /// Opens the next round; returns the numbers of its clients.
    fn open(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.with(py, |mut server| server.open()).map_err(raised)
    }

    /// What a client of the open round is sent.
    fn message<'py>(&self, py: Python<'py>, client: usize) -> PyResult<Bound<'py, PyBytes>> {
        match self.with(py, |server| server.message(client)) {
            Some(bytes) => Ok(PyBytes::new(py, &bytes)),
            None => Err(Error::new_err(format!("client {client} is not one of the open round's: see open()"))),
        }
    }

    /// Takes in what a client sent; raises `Refused`, with the reason, if it cannot be used.
    fn accept(&self, py: Python<'_>, client: usize, upload: &[u8]) -> PyResult<()> {
        self.with(py, |mut server| server.accept(client, upload)).map_err(refused)
    }

    /// The clients of the open round whose uploads have not arrived.
    fn missing(&self, py: Python<'_>) -> Vec<usize> {
        self.with(py, |server| server.missing())
    }

    /// Ends the round with what has arrived.
    fn close(&self, py: Python<'_>) -> PyResult<ClosedRound> {
        self.with(py, |mut server| server.close()).map(ClosedRound).map_err(raised)
    }

    /// Gives the open round up: everything is as it was before it.
    fn abandon(&self, py: Python<'_>) {
        self.with(py, |mut server| server.abandon());
    }

    /// Its state between rounds.
    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = self.with(py, |server| server.save());
        PyBytes::new(py, &bytes)
    }

    /// The global weights by the names of their tensors.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (model, params) = self.with(py, |server| (server.model().clone(), server.weights().clone()));
        named(py, model.layout(), &params)
    }

    /// SHA-256 of the global weights: that of `rounds.jsonl` after the same round of `fedelity run`.
    #[getter]
    fn hash(&self, py: Python<'_>) -> String {
        self.with(py, |server| server.weights().hash())
    }

    /// The global model on the test samples.
    fn evaluate(&self, py: Python<'_>) -> Evaluation {
        Evaluation { found: self.with(py, |server| server.evaluate()), details: "{}".to_string() }
    }
}

/// How a round of a server ended.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct ClosedRound(RoundEnd);

#[pymethods]
impl ClosedRound {
    /// Whether the weights are new. If not, too few uploads had arrived, and the next round has other clients.
    #[getter]
    fn closed(&self) -> bool {
        matches!(self.0, RoundEnd::Closed { .. })
    }

    /// Clients whose uploads counted.
    #[getter]
    fn counted(&self) -> Vec<usize> {
        match &self.0 {
            RoundEnd::Closed { counted, .. } => counted.clone(),
            RoundEnd::Repeated { .. } => Vec::new(),
        }
    }

    /// Clients whose uploads the aggregation rule left out.
    #[getter]
    fn left_out(&self) -> Vec<usize> {
        match &self.0 {
            RoundEnd::Closed { left_out, .. } => left_out.clone(),
            RoundEnd::Repeated { .. } => Vec::new(),
        }
    }

    fn __bool__(&self) -> bool {
        self.closed()
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            RoundEnd::Closed { counted, left_out } => format!("<closed: counted {counted:?}, left out {left_out:?}>"),
            RoundEnd::Repeated { arrived, needed } => format!("<to be repeated: {arrived} of {needed} uploads>"),
        }
    }
}
