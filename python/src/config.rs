//! Configurations as Python gives them: a dict, a path or TOML.

use std::path::{Path, PathBuf};

use fedelity_cli::{place_data, resources};
use fedelity_experiment::{Document, Resources, Study};
use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};

use crate::entry::registry;
use crate::error::{ConfigError, Error, raised, raised_by};
use crate::method::MethodClass;

/// What messages call a value from a dict.
const GIVEN: &str = "config";

/// The configuration: nothing for the built-in one, a dict, a path, or TOML as text. A text is TOML if it has more than
/// one line or a `=`, unless it ends in `.toml`.
pub(crate) fn document(config: Option<&Bound<'_, PyAny>>) -> PyResult<Document> {
    let mut document = match config {
        None => Document::default(),
        Some(config) => read(config)?,
    };
    place_data(&mut document, None).map_err(raised)?;
    Ok(document)
}

fn read(config: &Bound<'_, PyAny>) -> PyResult<Document> {
    if let Ok(dict) = config.cast::<PyDict>() {
        return of_table(&table(dict, "", 0)?);
    }
    if let Ok(text) = config.cast::<PyString>() {
        let text = text.to_str()?;
        let is_path = !text.contains('\n') && (text.ends_with(".toml") || !text.contains('='));
        return if is_path {
            Document::read(Path::new(text)).map_err(raised)
        } else {
            Document::parse(GIVEN.to_string(), PathBuf::new(), text).map_err(raised)
        };
    }
    match config.extract::<PathBuf>() {
        Ok(path) => Document::read(&path).map_err(raised),
        Err(_) => {
            let found = config.get_type().name()?;
            Err(PyTypeError::new_err(format!("config: expected a dict, a path or TOML as text, found {found}")))
        }
    }
}

/// A document whose values come from a table, each with its own place.
pub(crate) fn of_table(table: &Table) -> PyResult<Document> {
    fn put(document: &mut Document, path: &mut Vec<String>, table: &Table) -> PyResult<()> {
        for (key, value) in table {
            path.push(key.clone());
            match value {
                Value::Table(inner) if !inner.is_empty() => put(document, path, inner)?,
                other => {
                    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
                    document.put(&keys, other.clone(), GIVEN).map_err(raised)?;
                }
            }
            path.pop();
        }
        Ok(())
    }
    let mut document = Document::default();
    put(&mut document, &mut Vec::new(), table)?;
    Ok(document)
}

/// Dicts in dicts are read by functions that call themselves.
const DEEPEST: usize = 32;

/// A dict as a table of TOML. `at` is its dotted path.
pub(crate) fn table(dict: &Bound<'_, PyDict>, at: &str, depth: usize) -> PyResult<Table> {
    if depth > DEEPEST {
        return Err(ConfigError::new_err(format!("config: {at}: dicts in more than {DEEPEST} dicts")));
    }
    let mut table = Table::new();
    for (key, value) in dict {
        let name: String = key.extract().map_err(|_| {
            let place = if at.is_empty() { String::new() } else { format!("{at}: ") };
            ConfigError::new_err(format!("config: {place}keys are str, found {key}"))
        })?;
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        table.insert(name, toml_value(&value, &path, depth + 1)?);
    }
    Ok(table)
}

/// A value as one of TOML. `at` is its dotted path.
pub(crate) fn toml_value(value: &Bound<'_, PyAny>, at: &str, depth: usize) -> PyResult<Value> {
    let wrong = |what: String| ConfigError::new_err(format!("config: {at}: {what}"));
    if depth > DEEPEST {
        return Err(wrong(format!("values in more than {DEEPEST} others")));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Value::Table(table(dict, at, depth)?));
    }
    if value.is_none() {
        return Err(wrong("None is not a value: leave the key out for its default".to_string()));
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().map(Value::Integer).map_err(|_| wrong(format!("{value} is too large")));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Value::String(value.extract()?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.enumerate();
        let items = items.map(|(i, item)| toml_value(&item?, &format!("{at}.{i}"), depth + 1));
        return items.collect::<PyResult<_>>().map(Value::Array);
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(Value::String(path.display().to_string()));
    }
    // Numbers of numpy.
    for method in ["item", "tolist"] {
        if let Ok(plain) = value.call_method0(method)
            && !plain.get_type().is(value.get_type())
        {
            return toml_value(&plain, at, depth + 1);
        }
    }
    Err(wrong(format!("a value is a str, a number, a bool, a list or a dict, found {}", value.get_type().name()?)))
}

/// What studies share in one call: the engine that the environment names, or the fastest one.
pub(crate) fn shared() -> PyResult<Resources> {
    resources().map_err(|error| Error::new_err(format!("{error:#}")))
}

/// Loads everything that a configuration names, with samples in memory if there are any, and warns of what the user may not expect. Returns the methods in Python that
/// it may name, too.
pub(crate) fn study(
    py: Python<'_>,
    config: Option<&Bound<'_, PyAny>>,
    data: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Study, Vec<&'static MethodClass>)> {
    let ((registry, methods), mut document) = (registry(py)?, document(config)?);
    document.know(&registry);
    let resources = crate::dataset::resources(&mut document, data)?;
    let study = py.detach(|| Study::load_with(&document, &resources));
    let study = study.map_err(|error| raised_by(py, error, &methods))?;
    let skipped = study.pool.skipped.note();
    for note in study.settings.notes.iter().chain(&skipped).chain(&study.pool.notes) {
        warn(py, note)?;
    }
    Ok((study, methods))
}

/// A warning of Python, from the line that called Fedelity.
pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = std::ffi::CString::new(text.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)
}
