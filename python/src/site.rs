//! A site of a federation, and what it allows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fedelity_cli::place_data;
use fedelity_experiment as experiment;
use fedelity_experiment::{Agreement, Document};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::{Client, contents};
use crate::config::shared;
use crate::error::{DataError, raised, refused};

/// A site of a federation: where its server is, what data it has, and what it allows.
#[pyclass(frozen, module = "fedelity")]
pub(crate) struct Site(experiment::Site);

#[pymethods]
impl Site {
    /// Reads the file of a site.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let unread = |error| DataError::new_err(format!("cannot read {}: {error}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(unread)?;
        // The server is told where a refusal comes from, and folders of the site are none of its business.
        let name = path.file_name().map_or_else(String::new, |name| name.display().to_string());
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let mut document = Document::parse(name, folder, &text).map_err(raised)?;
        place_data(&mut document, None).map_err(raised)?;
        experiment::Site::of(document).map(Self).map_err(raised)
    }

    /// Its number among the clients.
    #[getter]
    fn client_number(&self) -> usize {
        self.0.keys.client
    }

    /// Where things are: `server`, `state` and, if the site has them, `certificate` and `key`.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (keys, dict) = (&self.0.keys, PyDict::new(py));
        dict.set_item("server", &keys.server)?;
        dict.set_item("state", &keys.state)?;
        if let Some(certificate) = &keys.certificate {
            dict.set_item("certificate", certificate)?;
        }
        if let Some(key) = &keys.key {
            dict.set_item("key", key)?;
        }
        Ok(dict)
    }

    /// The client of this site; raises `Refused` if the site does not allow what the agreement asks for, and `DataError` if its
    /// data cannot be used under it. Noise is drawn from `entropy`: 32 random bytes that nobody else knows.
    fn client(&self, py: Python<'_>, agreement: &str, entropy: [u8; 32]) -> PyResult<Client> {
        let (agreement, resources) = (Agreement::from_json(agreement).map_err(raised)?, shared()?);
        let client = py.detach(|| self.0.client(&agreement, entropy, &resources)).map_err(raised)?;
        Ok(Client::of(client, Vec::new()))
    }

    /// What a message of the server contains, whether or not the site allows what it asks for.
    #[staticmethod]
    fn received<'py>(py: Python<'py>, agreement: &str, message: &[u8]) -> PyResult<Bound<'py, PyDict>> {
        let agreement = Agreement::from_json(agreement).map_err(raised)?;
        contents(py, agreement.received(message).map_err(refused)?)
    }

    /// Reads the data before there is an agreement; returns how many samples each class has.
    fn look(&self, py: Python<'_>) -> PyResult<BTreeMap<String, usize>> {
        let resources = shared()?;
        py.detach(|| self.0.look(&resources)).map_err(raised)
    }

    /// Reads the data, and returns as JSON what would leave in a round.
    fn report(&self, py: Python<'_>, agreement: &str) -> PyResult<String> {
        let (agreement, resources) = (Agreement::from_json(agreement).map_err(raised)?, shared()?);
        let report = py.detach(|| self.0.report(&agreement, &resources)).map_err(raised)?;
        Ok(serde_json::to_string(&report).unwrap_or_default())
    }
}
