//! A method written in Python, on the training loop of all methods.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use fedelity_fl::{
    Extra, FlError, Gather, Local, Method, Named, Needs, Outbox, Payload, Received, Result, Server, Step, Teacher,
    Terms, Trained,
};
use fedelity_nn::{Model, Params};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::views::{ClientView, ModelView, ServerView, StepView, UploadView, dict, flat, logits, payload};
use crate::whole::whole;

/// Most terms that one hook returns: together they fit into a loss.
const MOST_TERMS: usize = 4;
/// Most names of terms and means of a method.
const MOST_NAMES: usize = 8;

/// What a class in Python is to the library, as long as the process lives.
pub(crate) struct MethodClass {
    pub(crate) name: &'static str,
    pub(crate) class: Py<PyAny>,
    /// Which hooks it changes.
    pub(crate) hooks: Hooks,
    pub(crate) needs: Needs,
    /// Names that hooks have used; the library keeps them as long as the process lives.
    names: Mutex<Vec<&'static str>>,
    /// The exception that ended a run.
    failed: Mutex<Option<PyErr>>,
}

/// Which hooks a class changes; others are those of the library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) sends: bool,
    pub(crate) receives: bool,
    pub(crate) init: bool,
    pub(crate) prepare: bool,
    pub(crate) teachers: bool,
    pub(crate) loss: bool,
    pub(crate) adjust: bool,
    pub(crate) finish: bool,
    pub(crate) collect: bool,
    pub(crate) conclude: bool,
}

impl MethodClass {
    pub(crate) fn new(name: &'static str, class: Py<PyAny>, hooks: Hooks, needs: Needs) -> Self {
        Self { name, class, hooks, needs, names: Mutex::default(), failed: Mutex::default() }
    }

    /// The exception that ended a run, if one did.
    pub(crate) fn failure(&self) -> Option<PyErr> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A name that lives as long as the process.
    fn interned(&self, name: &str) -> PyResult<&'static str> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.iter().find(|known| **known == name) {
            return Ok(known);
        }
        if names.len() == MOST_NAMES {
            let known = names.join(", ");
            return Err(PyValueError::new_err(format!("'{name}' is one name too many: there are already {known}")));
        }
        let kept: &'static str = String::leak(name.to_string());
        names.push(kept);
        Ok(kept)
    }
}

/// A method written in Python, with the values of its keys.
pub(crate) struct PythonMethod {
    class: &'static MethodClass,
    object: Py<PyAny>,
}

impl fmt::Debug for PythonMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonMethod").field("name", &self.class.name).finish_non_exhaustive()
    }
}

type WeightsAndGradient = (Py<PyArray1<f32>>, Py<PyArray1<f32>>);

/// What a client keeps between hooks of one round.
struct ClientScratch {
    view: Py<ClientView>,
    /// The weights and their gradient, as `adjust` sees them.
    arrays: Option<WeightsAndGradient>,
}

impl PythonMethod {
    pub(crate) fn new(class: &'static MethodClass, object: Py<PyAny>) -> Self {
        Self { class, object }
    }

    /// Calls Python; an exception becomes an error with its traceback.
    fn call<T>(&self, hook: &'static str, act: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| {
            act(py, self.object.bind(py)).map_err(|error| {
                let traceback = error.traceback(py).and_then(|traceback| traceback.format().ok()).unwrap_or_default();
                let reason = format!("its hook {hook} raised {error}\n{traceback}").trim_end().to_string();
                let mut failed = self.class.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
                FlError::Method { method: self.class.name, reason }
            })
        })
    }

    /// The terms that a hook returns: a number, or several by name.
    fn terms(&self, found: &Bound<'_, PyAny>, name: &str) -> PyResult<Terms> {
        if let Ok(value) = found.extract::<f64>() {
            return Ok(Terms::of(self.class.interned(name)?, value as f32));
        }
        let items = found.call_method0("items").map_err(|_| {
            PyTypeError::new_err(format!("expected the loss as a number or a dict of numbers, found {found}"))
        })?;
        let mut terms = Terms::default();
        for (i, item) in items.try_iter()?.enumerate() {
            if i == MOST_TERMS {
                return Err(PyValueError::new_err(format!("a hook returns at most {MOST_TERMS} terms")));
            }
            let (name, value): (String, f64) = item?.extract()?;
            terms = terms.with(self.class.interned(&name)?, value as f32);
        }
        Ok(terms)
    }

    fn declared(&self, hook: &'static str, model: &Model) -> Result<Vec<Extra>> {
        self.call(hook, |py, object| {
            let found = object.call_method1(hook, (ModelView::of(py, model)?,))?;
            let items = found.call_method0("items")?;
            let extra = |item: PyResult<Bound<'_, PyAny>>| {
                let (name, len): (String, Bound<'_, PyAny>) = item?.extract()?;
                let len = whole(&len, &format!("the length of '{name}'"), 0, u32::MAX.into())?;
                Ok(Extra::sometimes(name, len as usize))
            };
            items.try_iter()?.map(extra).collect()
        })
    }

    /// The client's view, made once per round.
    fn scratch<'a>(py: Python<'_>, local: &'a mut Local<'_>) -> PyResult<&'a mut ClientScratch> {
        let made = if local.scratch.has::<ClientScratch>() { None } else { Some(ClientView::of(py, local)?) };
        let made = made.map(|view| Py::new(py, view)).transpose()?;
        let fresh = || ClientScratch { view: made.expect("it was made just above"), arrays: None };
        Ok(local.scratch.typed(fresh))
    }
}

/// Adds a gradient of a shape to a slice.
fn add(gradient: &Bound<'_, PyAny>, what: &str, shape: [usize; 2], to: &mut [f32]) -> PyResult<()> {
    let Ok(found) = gradient.extract::<PyReadonlyArrayDyn<'_, f32>>() else {
        let found = gradient.getattr("dtype").map_or_else(|_| gradient.get_type().to_string(), |kind| kind.to_string());
        return Err(PyTypeError::new_err(format!("the gradient of the {what} is an array of float32, found {found}")));
    };
    let found = found.as_array();
    if found.shape() != shape {
        let (rows, columns) = (shape[0], shape[1]);
        let message = format!("the gradient of the {what} has shape {:?}, expected ({rows}, {columns})", found.shape());
        return Err(PyValueError::new_err(message));
    }
    to.iter_mut().zip(found.iter()).for_each(|(to, &from)| *to += from);
    Ok(())
}

impl Named for PythonMethod {
    fn name(&self) -> &'static str {
        self.class.name
    }
}

impl Method for PythonMethod {
    fn needs(&self) -> Needs {
        self.class.needs
    }

    fn sends(&self, model: &Model) -> Vec<Extra> {
        // A hook that fails here has failed in `init`, before the first round.
        if self.class.hooks.sends { self.declared("sends", model).unwrap_or_default() } else { Vec::new() }
    }

    fn receives(&self, model: &Model) -> Vec<Extra> {
        if self.class.hooks.receives { self.declared("receives", model).unwrap_or_default() } else { Vec::new() }
    }

    fn init(&self, server: &mut Server<'_>) -> Result<Payload> {
        for (hook, is_own) in [("sends", self.class.hooks.sends), ("receives", self.class.hooks.receives)] {
            if is_own {
                self.declared(hook, server.model)?;
            }
        }
        if !self.class.hooks.init {
            return Ok(Payload::new());
        }
        self.call("init", |py, object| {
            let view = Py::new(py, ServerView::of(py, server)?)?;
            payload(&object.call_method1("init", (view,))?, "init")
        })
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        if !self.class.hooks.prepare {
            return Ok(Payload::new());
        }
        let needs = self.class.needs;
        self.call("prepare", |py, object| {
            let mut view = ServerView::of(py, server)?;
            let labelled = |server: &mut Server<'_>, samples| {
                let (logits, labels) = logits(py, server, samples)?;
                Ok::<_, PyErr>(PyTuple::new(py, [logits, labels])?.into_any().unbind())
            };
            if let Some(samples) = server.auxiliary.filter(|_| needs.auxiliary) {
                view.auxiliary = Some(labelled(server, samples)?);
            }
            if let Some(samples) = server.validation.filter(|_| needs.validation) {
                view.validation = Some(labelled(server, samples)?);
            }
            if let Some(samples) = server.unlabelled.filter(|_| needs.unlabelled) {
                view.unlabelled = Some(logits(py, server, samples)?.0.unbind());
            }
            let view = Py::new(py, view)?;
            let sent = payload(&object.call_method1("prepare", (view.clone_ref(py),))?, "prepare")?;
            *server.scratch = payload(view.borrow(py).scratch.bind(py), "scratch")?;
            Ok(sent)
        })
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        if !self.class.hooks.teachers {
            return Ok(Vec::new());
        }
        self.call("teachers", |py, object| {
            let view = ClientView::of(py, local)?;
            let mut teachers = Vec::new();
            for found in object.call_method1("teachers", (view,))?.try_iter()? {
                let found = found?;
                let weights = found.getattr("weights")?;
                let teacher = match weights.is_none() {
                    true => Teacher::global(),
                    false => Teacher::given(flat(&weights, "the weights of a teacher")?),
                };
                let features: bool = found.getattr("features")?.extract()?;
                teachers.push(if features { teacher.with_features() } else { teacher });
            }
            Ok(teachers)
        })
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        if !self.class.hooks.loss {
            return Ok(step.cross_entropy());
        }
        self.call("loss", |py, object| {
            let client = Self::scratch(py, local)?.view.clone_ref(py);
            let found = object.call_method1("loss", (StepView::of(py, client, step)?,))?;
            let parts = found.cast::<PyTuple>().ok().filter(|parts| (2..=3).contains(&parts.len()));
            let Some(parts) = parts else {
                return Err(PyTypeError::new_err(format!("expected (loss, gradient of the logits), found {found}")));
            };
            let (n, classes, features) = (step.samples(), step.classes, step.features);
            add(&parts.get_item(1)?, "logits", [n, classes], step.d_logits)?;
            if parts.len() == 3 {
                add(&parts.get_item(2)?, "features", [n, features], step.d_features())?;
            }
            self.terms(&parts.get_item(0)?, "loss")
        })
    }

    fn adjust(&self, local: &mut Local<'_>, w: &[f32], grad: &mut [f32]) -> Result<Terms> {
        if !self.class.hooks.adjust {
            return Ok(Terms::default());
        }
        self.call("adjust", |py, object| {
            let scratch = Self::scratch(py, local)?;
            let make = || (PyArray1::from_slice(py, w).unbind(), PyArray1::from_slice(py, grad).unbind());
            let (weights, gradient) = scratch.arrays.get_or_insert_with(make);
            let (weights, gradient) = (weights.bind(py), gradient.bind(py));
            let taken = || PyValueError::new_err("the arrays of adjust belong to the next step: keep copies of them");
            weights.try_readwrite().map_err(|_| taken())?.as_slice_mut()?.copy_from_slice(w);
            gradient.try_readwrite().map_err(|_| taken())?.as_slice_mut()?.copy_from_slice(grad);
            let found = object.call_method1("adjust", (&scratch.view, weights, gradient))?;
            grad.copy_from_slice(gradient.try_readonly().map_err(|_| taken())?.as_slice()?);
            if found.is_none() { Ok(Terms::default()) } else { self.terms(&found, "adjust") }
        })
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        if !self.class.hooks.finish {
            return Ok(Outbox::unchanged(local));
        }
        self.call("finish", |py, object| {
            let view = Self::scratch(py, local)?.view.clone_ref(py);
            let found = object.call_method1("finish", (view, PyArray1::from_slice(py, done.params)))?;
            if found.is_none() {
                return Ok(Outbox::unchanged(local));
            }
            let (upload, memory): (Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract().map_err(|_| {
                PyTypeError::new_err(format!("expected two dicts, what to send and what to remember, found {found}"))
            })?;
            Ok(Outbox { upload: payload(&upload, "finish")?, memory: payload(&memory, "finish")? })
        })
    }

    fn collect(&self, server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        if !self.class.hooks.collect {
            return gather.mean.add(upload.weight, &upload.params);
        }
        let added = self.call("collect", |py, object| {
            let view = Py::new(py, ServerView::of(py, server)?)?;
            object.call_method1("collect", (view.clone_ref(py), UploadView::of(py, upload)?))?;
            let mut view = view.borrow_mut(py);
            *server.scratch = payload(view.scratch.bind(py), "scratch")?;
            let named = |name: Option<String>| name.map(|name| self.class.interned(&name)).transpose();
            std::mem::take(&mut view.added)
                .into_iter()
                .map(|one| Ok((named(one.name)?, one.weight, one.values)))
                .collect::<PyResult<Vec<_>>>()
        })?;
        for (name, weight, values) in added {
            let mean = match name {
                Some(name) => gather.also(name),
                None => &mut gather.mean,
            };
            mean.add(weight, &values)?;
        }
        Ok(())
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, state: &mut Payload) -> Result<Params> {
        if !self.class.hooks.conclude {
            return gather.mean.finish();
        }
        let expected = server.global.len();
        self.call("conclude", |py, object| {
            let mut view = ServerView::of(py, server)?;
            view.state = dict(py, state)?.unbind();
            let mean = gather.mean.finish().ok();
            view.mean = mean.as_ref().map(|mean| PyArray1::from_slice(py, mean).into_any().unbind());
            let names = self.class.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for name in names {
                if let Ok(mean) = gather.also(name).finish() {
                    view.means.bind(py).set_item(name, PyArray1::from_slice(py, &mean))?;
                }
            }
            for upload in &gather.uploads {
                view.uploads.bind(py).append(Py::new(py, UploadView::of(py, upload)?)?)?;
            }
            let view = Py::new(py, view)?;
            let found = object.call_method1("conclude", (view.clone_ref(py),))?;
            *state = payload(view.borrow(py).state.bind(py).as_any(), "state")?;
            let weights = match (found.is_none(), mean) {
                (true, Some(mean)) => return Ok(mean),
                (true, None) => {
                    return Err(PyValueError::new_err("nothing was added to the mean: return the new weights"));
                }
                (false, _) => flat(&found, "the new weights")?,
            };
            if weights.len() != expected {
                let found = weights.len();
                return Err(PyValueError::new_err(format!("expected {expected} weights, found {found}")));
            }
            Ok(Params(weights))
        })
    }
}

/// Sets the values of the keys on an object of a class.
pub(crate) fn with_values(object: &Bound<'_, PyAny>, values: &Bound<'_, PyDict>) -> PyResult<()> {
    for (attribute, value) in values {
        object.setattr(attribute.extract::<String>()?.as_str(), value)?;
    }
    Ok(())
}
