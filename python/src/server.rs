//! The server's half of a federation.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fedelity_experiment as experiment;
use fedelity_experiment::{ExperimentError, RoundEnd};
use fedelity_record::Status;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrays::named;
use crate::config::study;
use crate::error::{Error, raised_by, refused, refused_by};
use crate::evaluation::Evaluation;
use crate::method::MethodClass;
use crate::run::threads_of;
use crate::whole::client_number;

/// A server of a federation: messages are bytes, and what carries them is up to the caller.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Server {
    server: Mutex<experiment::Server>,
    /// Methods in Python.
    methods: Vec<&'static MethodClass>,
}

impl Server {
    fn with<T: Send>(&self, py: Python<'_>, act: impl Send + FnOnce(MutexGuard<'_, experiment::Server>) -> T) -> T {
        py.detach(|| act(self.server.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn raised(&self, py: Python<'_>, error: ExperimentError) -> PyErr {
        raised_by(py, error, &self.methods)
    }

    /// The number of one of its clients.
    fn client(&self, number: &Bound<'_, PyAny>) -> PyResult<usize> {
        client_number(number, self.clients(number.py()))
    }
}

#[pymethods]
impl Server {
    /// A server before its first round. `data` are samples in memory, instead of `[data]`. With a folder as `output`, it records
    /// its rounds there, and goes on from what the folder has of this federation.
    #[new]
    #[pyo3(signature = (config=None, *, data=None, output=None, threads=None))]
    fn new(
        py: Python<'_>,
        config: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        output: Option<PathBuf>,
        threads: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let ((study, methods), threads) = (study(py, config, data)?, threads_of(threads)?);
        let made = py.detach(|| match output {
            Some(folder) => experiment::Server::in_folder(study, threads, &folder),
            None => experiment::Server::new(study, threads),
        });
        let server = made.map_err(|error| raised_by(py, error, &methods))?;
        Ok(Self { server: Mutex::new(server), methods })
    }

    /// A server as it was when it was saved, with the same configuration and data.
    #[staticmethod]
    #[pyo3(signature = (config, saved, *, data=None, threads=None))]
    fn restore(
        py: Python<'_>,
        config: Option<&Bound<'_, PyAny>>,
        saved: &[u8],
        data: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let ((study, methods), threads) = (study(py, config, data)?, threads_of(threads)?);
        let made = py.detach(|| experiment::Server::restore(study, threads, saved));
        let server = made.map_err(|error| refused_by(py, error, &methods))?;
        Ok(Self { server: Mutex::new(server), methods })
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

    /// The number of clients.
    #[getter]
    fn clients(&self, py: Python<'_>) -> usize {
        self.with(py, |server| server.agreement().clients)
    }

    /// The names of the clients, by number; empty if they have none.
    #[getter]
    fn names(&self, py: Python<'_>) -> Vec<String> {
        self.with(py, |server| server.names().to_vec())
    }

    /// How many uploads a round needs.
    #[getter]
    fn needed(&self, py: Python<'_>) -> usize {
        self.with(py, |server| server.needed())
    }

    /// Whether no round follows.
    #[getter]
    fn done(&self, py: Python<'_>) -> bool {
        self.with(py, |server| server.is_done())
    }

    /// What the user should know about a folder that it goes on with.
    #[getter]
    fn notes(&self, py: Python<'_>) -> Vec<String> {
        self.with(py, |server| server.notes().to_vec())
    }

    /// Opens the next round, if none is open; returns the numbers of its clients.
    fn open(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.with(py, |mut server| server.open()).map_err(|error| self.raised(py, error))
    }

    /// What a client of the open round is sent.
    fn message<'py>(&self, py: Python<'py>, client: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let client = self.client(client)?;
        match self.with(py, |mut server| server.message(client)) {
            Some(bytes) => Ok(PyBytes::new(py, &bytes)),
            None => Err(Error::new_err(format!("client {client} is not one of the open round's: see open()"))),
        }
    }

    /// Takes in what a client sent; raises `Refused`, with the reason, if it cannot be used.
    fn accept(&self, py: Python<'_>, client: &Bound<'_, PyAny>, upload: &[u8]) -> PyResult<()> {
        let client = self.client(client)?;
        self.with(py, |mut server| server.accept(client, upload)).map_err(refused)
    }

    /// Notes that a client of the open round will send nothing: it cannot be reached or, with a reason, it has failed.
    #[pyo3(signature = (client, reason=None))]
    fn absent(&self, py: Python<'_>, client: &Bound<'_, PyAny>, reason: Option<&str>) -> PyResult<()> {
        let client = self.client(client)?;
        self.with(py, |mut server| server.absent(client, reason));
        Ok(())
    }

    /// The clients of the open round that may still send their uploads.
    fn missing(&self, py: Python<'_>) -> Vec<usize> {
        self.with(py, |server| server.missing())
    }

    /// Ends the round with what has arrived.
    fn close(&self, py: Python<'_>) -> PyResult<ClosedRound> {
        self.with(py, |mut server| server.close()).map(ClosedRound).map_err(|error| self.raised(py, error))
    }

    /// Gives the open round up: everything is as it was before it.
    fn abandon(&self, py: Python<'_>) {
        self.with(py, |mut server| server.abandon());
    }

    /// Completes the record, if there is one; returns how the federation ended. If rounds are left, it is interrupted.
    fn finish(&self, py: Python<'_>) -> PyResult<&'static str> {
        let outcome = self.with(py, |mut server| server.finish()).map_err(|error| self.raised(py, error))?;
        Ok(match outcome.summary.status {
            Status::Finished => "finished",
            Status::StoppedEarly { .. } => "stopped early",
            Status::Diverged { .. } => "diverged",
            Status::Interrupted => "interrupted",
        })
    }

    /// The record of the last round, as a line of `rounds.jsonl`; nothing before the first.
    fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let line = self.with(py, |server| server.records().last().map(serde_json::to_string));
        match line {
            None => Ok(py.None().into_bound(py)),
            Some(Ok(line)) => py.import("json")?.call_method1("loads", (line,)),
            Some(Err(error)) => Err(Error::new_err(error.to_string())),
        }
    }

    /// The global model as the bytes of a safetensors file that describes itself.
    fn model<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |server| server.model_file()).map_err(|error| self.raised(py, error))?;
        Ok(PyBytes::new(py, &bytes))
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
        Evaluation { found: self.with(py, |mut server| server.evaluate()), details: "{}".to_string() }
    }
}

/// How a round of a server ended.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct ClosedRound(RoundEnd);

#[pymethods]
impl ClosedRound {
    /// Whether the weights are new. If not, too few uploads had arrived, and the round is open again for other clients, or the
    /// global model diverged.
    #[getter]
    fn closed(&self) -> bool {
        matches!(self.0, RoundEnd::Closed { .. })
    }

    /// Clients whose uploads counted.
    #[getter]
    fn counted(&self) -> Vec<usize> {
        match &self.0 {
            RoundEnd::Closed { counted, .. } => counted.clone(),
            RoundEnd::Repeated { .. } | RoundEnd::Diverged { .. } => Vec::new(),
        }
    }

    /// Clients whose uploads the aggregation rule left out.
    #[getter]
    fn left_out(&self) -> Vec<usize> {
        match &self.0 {
            RoundEnd::Closed { left_out, .. } => left_out.clone(),
            RoundEnd::Repeated { .. } | RoundEnd::Diverged { .. } => Vec::new(),
        }
    }

    fn __bool__(&self) -> bool {
        self.closed()
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            RoundEnd::Closed { counted, left_out } => format!("<closed: counted {counted:?}, left out {left_out:?}>"),
            RoundEnd::Repeated { arrived, needed } => format!("<to be repeated: {arrived} of {needed} uploads>"),
            RoundEnd::Diverged { reason } => format!("<diverged: {reason}>"),
        }
    }
}
