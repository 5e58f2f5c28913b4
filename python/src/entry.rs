//! Classes in Python as entries of the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedelity_fl::Needs;
use fedelity_keys::toml::{Table, Value};
use fedelity_keys::{AtZero, Bounds, Context, Key, KeyError, Schema, ValueType, inline};
use fedelity_methods::{Built, Entry, Identity, MethodMaker, Registry};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::config::toml_value;
use crate::method::{Hooks, MethodClass, PythonMethod, with_values};

/// Makes the methods of one class.
struct ClassMaker {
    class: &'static MethodClass,
    schema: &'static Schema,
    /// The attribute of each key.
    attributes: BTreeMap<&'static str, String>,
}

impl std::fmt::Debug for ClassMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClassMaker").field("name", &self.class.name).finish_non_exhaustive()
    }
}

impl MethodMaker for ClassMaker {
    fn build(&self, given: &Table, at: &str, context: &mut dyn Context) -> Result<Built, KeyError> {
        let keys = self.schema.fill(given, at, context)?;
        let made = Python::attach(|py| {
            let object = self.class.class.bind(py).call0()?;
            let values = PyDict::new(py);
            for (name, value) in &keys {
                let Some(attribute) = self.attributes.get(name.as_str()) else { continue };
                let number = matches!(self.schema.key(name).map(|key| key.value), Some(ValueType::Number { .. }));
                match value {
                    Value::Integer(value) if number => values.set_item(attribute, *value as f64)?,
                    Value::Integer(value) => values.set_item(attribute, value)?,
                    Value::Float(value) => values.set_item(attribute, value)?,
                    Value::Boolean(value) => values.set_item(attribute, value)?,
                    Value::String(value) => values.set_item(attribute, value)?,
                    _ => {}
                }
            }
            with_values(&object, &values)?;
            Ok::<_, PyErr>(object.unbind())
        });
        let name = self.class.name;
        let wrong = |error: PyErr| KeyError::new(at, format!("{at}: the method '{name}' cannot be made: {error}"));
        let method = PythonMethod::new(self.class, made.map_err(wrong)?);
        Ok(Built { method: Arc::new(method), keys })
    }
}

/// All methods that a configuration may name: the library's, and classes in Python. Each class is known to the library as
/// long as the process lives, so it is entered once.
pub(crate) fn registry(py: Python<'_>) -> PyResult<(Registry, Vec<&'static MethodClass>)> {
    let module = py.import("fedelity._method")?;
    let (mut registry, mut classes) = (Registry::default(), Vec::new());
    for class in module.call_method0("registered")?.call_method0("values")?.try_iter()? {
        let class = class?;
        // What the library keeps of a class is an attribute of the class itself.
        let kept = match class.getattr("__dict__")?.get_item("__fedelity__") {
            Ok(kept) => kept.cast_into::<KnownClass>().map_err(PyErr::from)?,
            Err(_) => {
                let made = Bound::new(py, enter(&module, &class)?)?;
                class.setattr("__fedelity__", &made)?;
                made
            }
        };
        let KnownClass { entry, class: known } = *kept.get();
        // What an earlier run raised is none of this one's.
        known.failure();
        registry = registry.with(entry).map_err(|error| PyValueError::new_err(error.to_string()))?;
        classes.push(known);
    }
    Ok((registry, classes))
}

/// What the library knows of a class.
#[pyclass(frozen)]
struct KnownClass {
    entry: Entry,
    class: &'static MethodClass,
}

fn enter(module: &Bound<'_, PyModule>, class: &Bound<'_, PyAny>) -> PyResult<KnownClass> {
    let title: String = class.getattr("__name__")?.extract()?;
    let id: &'static str = String::leak(class.getattr("name")?.extract()?);
    let base = module.getattr("Method")?;
    let changes = |hook: &str| Ok::<_, PyErr>(!class.getattr(hook)?.is(&base.getattr(hook)?));
    let hooks = Hooks {
        sends: changes("sends")?,
        receives: changes("receives")?,
        init: changes("init")?,
        prepare: changes("prepare")?,
        teachers: changes("teachers")?,
        loss: changes("loss")?,
        adjust: changes("adjust")?,
        finish: changes("finish")?,
        collect: changes("collect")?,
        conclude: changes("conclude")?,
    };
    let known = MethodClass::new(id, class.clone().unbind(), hooks, needs(class, &title)?);
    let known: &'static MethodClass = Box::leak(Box::new(known));
    let (mut keys, mut attributes) = (Vec::new(), BTreeMap::new());
    for found in module.call_method1("keys", (class,))?.try_iter()? {
        let (attribute, name, default, about, bounds, choices): Found<'_> = found?.extract()?;
        let key = key(&title, &attribute, name, &default, about, bounds, choices)?;
        attributes.insert(key.name, attribute);
        keys.push(key);
    }
    let schema: &'static Schema = Box::leak(Box::new(Schema { keys: Vec::leak(keys), selectors: &[] }));
    // Its defaults are values like any others.
    schema
        .fill(&Table::new(), "method", &mut ())
        .map_err(|error| PyValueError::new_err(format!("{title}: {error}")))?;
    let maker: &'static ClassMaker = Box::leak(Box::new(ClassMaker { class: known, schema, attributes }));
    let summary: Option<String> = class.getattr("__doc__")?.extract()?;
    let summary = summary.unwrap_or_default().trim().lines().next().unwrap_or_default().to_string();
    let place: String = class.getattr("__module__")?.extract()?;
    let entry = Entry {
        id,
        title: String::leak(title.clone()),
        summary: String::leak(summary),
        reference: String::leak(format!("the class {title} of {place}, in Python")),
        equation: "",
        helps: "",
        identity: Identity::Unknown,
        schema,
        maker,
    };
    Ok(KnownClass { entry, class: known })
}

/// A hyper-parameter: attribute, name, default, description, bounds and words.
type Found<'py> = (String, String, Bound<'py, PyAny>, String, [Option<f64>; 4], Vec<String>);

fn key(
    title: &str,
    attribute: &str,
    name: String,
    default: &Bound<'_, PyAny>,
    about: String,
    [min, above, max, below]: [Option<f64>; 4],
    choices: Vec<String>,
) -> PyResult<Key> {
    let at = format!("{title}.{attribute}");
    let default = toml_value(default, &at, 0)?;
    let value = match (&default, choices.is_empty()) {
        (Value::Boolean(_), true) => ValueType::Flag,
        (Value::Integer(_), true) => ValueType::Whole,
        (Value::Float(_), true) => ValueType::Number { single: false },
        (Value::String(_), true) => ValueType::Text,
        (Value::String(_), false) => {
            let words = choices.into_iter().map(|word| &*String::leak(word)).collect();
            ValueType::Word(Vec::leak(words))
        }
        _ => return Err(PyTypeError::new_err(format!("{at}: choices are for texts, and the default is one of them"))),
    };
    Ok(Key {
        name: String::leak(name),
        about: String::leak(about),
        value,
        optional: false,
        default: Some(String::leak(inline(&default))),
        bounds: Bounds { min, above, max, below },
        what: "",
        symbol: "",
        paper: "",
        zero: Some(AtZero::Does("")),
        only: None,
        unless: None,
        instead: None,
    })
}

fn needs(class: &Bound<'_, PyAny>, title: &str) -> PyResult<Needs> {
    let mut needs = Needs::default();
    for word in class.getattr("needs")?.try_iter()? {
        let word: String = word?.extract()?;
        let need = match word.as_str() {
            "auxiliary" => &mut needs.auxiliary,
            "validation" => &mut needs.validation,
            "unlabelled" => &mut needs.unlabelled,
            "client-memory" => &mut needs.client_memory,
            "each-upload" => &mut needs.each_upload,
            "label-counts-leave-client" => &mut needs.label_counts_leave_client,
            _ => {
                let known = "auxiliary, validation, unlabelled, client-memory, each-upload, label-counts-leave-client";
                return Err(PyValueError::new_err(format!("{title}.needs: '{word}': expected some of {known}")));
            }
        };
        *need = true;
    }
    Ok(needs)
}
