//! Trained models, partitions and the list of methods.

use std::ffi::OsString;
use std::path::PathBuf;
use std::thread;

use fedelity_cli::{ExitStatus, attempt, evaluated, find_run};
use fedelity_data::{Inputs, Split};
use fedelity_experiment::{Pool, Saved, Settings, TextReader};
use fedelity_keys::toml::Table;
use fedelity_methods::Registry;
use fedelity_nn::Input;
use numpy::PyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value, json};

use crate::arrays::array;
use crate::config::{document, shared, warn};
use crate::dataset::resources;
use crate::entry::registry;
use crate::error::{DataError, Error, raised};
use crate::evaluation::Evaluation;
use crate::samples::split_of;

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn open(py: Python<'_>, target: PathBuf) -> PyResult<Saved> {
    let target = find_run(&target).map_err(|error| DataError::new_err(format!("{error:#}")))?;
    let resources = shared()?;
    let saved = py.detach(|| Saved::open(&target, None, None, &resources)).map_err(raised)?;
    saved.stale.iter().try_for_each(|stale| warn(py, stale))?;
    Ok(saved)
}

/// A trained model on labelled arrays.
#[pyfunction]
pub(crate) fn evaluate_arrays(
    py: Python<'_>,
    target: PathBuf,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
) -> PyResult<Evaluation> {
    let saved = open(py, target)?;
    let split = samples(&saved, x, Some(y))?;
    let found = py.detach(|| saved.portrait(&split, cores())).evaluation;
    Ok(Evaluation { found, details: "{}".to_string() })
}

/// A trained model on data that `fedelity evaluate` reads.
#[pyfunction]
pub(crate) fn evaluate_files(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<Evaluation> {
    let arguments = ["fedelity", "evaluate"].map(OsString::from).into_iter().chain(arguments);
    let done = py.detach(|| evaluated(arguments));
    let (found, details) = done.map_err(|error| Error::new_err(format!("{error:#}")))?;
    Ok(Evaluation { found, details: details.to_string() })
}

/// Does what the command line says; what it would print as an error is an exception.
#[pyfunction]
pub(crate) fn perform(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<bool> {
    let arguments = [OsString::from("fedelity")].into_iter().chain(arguments);
    let done = py.detach(|| attempt(arguments, &Registry::default()));
    Ok(done.map_err(|error| Error::new_err(format!("{error:#}")))? == ExitStatus::Done)
}

/// The logits of a trained model, and the names of its classes.
#[pyfunction]
pub(crate) fn logits<'py>(
    py: Python<'py>,
    target: PathBuf,
    x: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
    let saved = open(py, target)?;
    let split = samples(&saved, x, None)?;
    let found = py.detach(|| saved.logits(&split, cores()));
    let classes = saved.card.classes.clone();
    Ok((array(py, &found, &[split.len(), classes.len()])?, classes))
}

/// Samples as a trained model reads them.
fn samples(saved: &Saved, x: &Bound<'_, PyAny>, y: Option<&Bound<'_, PyAny>>) -> PyResult<Split> {
    let py = x.py();
    let n = x.len()?;
    let zeros = PyArray1::from_vec(py, vec![0_i64; n]).into_any();
    let y = y.unwrap_or(&zeros);
    if !matches!(saved.card.input, Input::Tokens { .. }) {
        return split_of(&saved.card, x, y);
    }
    let texts: Vec<String> = match x.cast::<PyList>() {
        Ok(list) => list.extract()?,
        Err(_) => return Err(PyTypeError::new_err("x: the model reads texts: give a list of them")),
    };
    let reader = TextReader::of(&saved.card, &saved.path).map_err(raised)?;
    let inputs = Inputs::Tokens(reader.encode(&texts).map_err(raised)?);
    let labels = crate::samples::labels(y, "y")?;
    Ok(Split { inputs, labels, keys: None })
}

/// Who holds which training samples: their places, names, counts by class, and a description.
#[pyfunction]
#[pyo3(signature = (config, data))]
pub(crate) fn partition<'py>(
    py: Python<'py>,
    config: Option<&Bound<'py, PyAny>>,
    data: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut document = document(config)?;
    // Who trains how does not matter here.
    document.remove("method");
    let resources = resources(&mut document, data)?;
    let settings = Settings::read(&document).map_err(raised)?;
    let pool = py.detach(|| Pool::load(&document, &settings, &resources)).map_err(raised)?;
    for note in settings.notes.iter().chain(&pool.skipped.note()).chain(&pool.notes) {
        warn(py, note)?;
    }
    let clients = PyList::empty(py);
    for indices in &pool.partition.clients {
        clients.append(PyArray1::from_vec(py, indices.iter().map(|&i| i64::from(i)).collect()))?;
    }
    let found = PyDict::new(py);
    found.set_item("clients", clients)?;
    found.set_item("names", &pool.partition.names)?;
    found.set_item("classes", &pool.dataset.classes)?;
    found.set_item("labels", PyArray1::from_slice(py, &pool.dataset.train.labels))?;
    found.set_item("description", &pool.partition.spec)?;
    Ok(found)
}

/// All methods with their keys, as JSON.
#[pyfunction]
pub(crate) fn methods(py: Python<'_>) -> PyResult<String> {
    let (registry, _) = registry(py)?;
    let mut all = Map::new();
    for entry in registry.entries() {
        let defaults = entry.schema.fill(&Table::new(), "method", &mut ()).unwrap_or_default();
        let mut keys = Map::new();
        for key in entry.schema.keys {
            let default = defaults.get(key.name).and_then(|value| serde_json::to_value(value).ok());
            let about =
                json!({ "default": default, "about": key.about, "expected": key.expected(), "paper": key.paper });
            keys.insert(key.name.to_string(), about);
        }
        let entry = json!({
            "title": entry.title, "summary": entry.summary, "reference": entry.reference, "equation": entry.equation,
            "helps": entry.helps, "keys": keys, "order": all.len(),
        });
        let id = registry.entries()[all.len()].id;
        all.insert(id.to_string(), entry);
    }
    Ok(Value::Object(all).to_string())
}
