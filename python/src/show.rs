//! What is shown of runs that have been recorded.

use std::path::{Path, PathBuf};

use fedelity_cli::{find_run, result_lines};
use fedelity_experiment::Saved;
use fedelity_report::{DrawnFigure, LoadedRuns, PaperSize, Results, learning_curves};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::named;
use crate::config::{shared, warn};
use crate::error::{DataError, Error, raised};

/// Characters in a line of a table.
const WIDTH: usize = 120;

fn load(path: &Path) -> PyResult<LoadedRuns> {
    let path = find_run(path).map_err(|error| DataError::new_err(format!("{error:#}")))?;
    LoadedRuns::load(&[path]).map_err(|error| DataError::new_err(error.to_string()))
}

/// The folders of all runs in or below a path.
#[pyfunction]
pub(crate) fn run_folders(py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
    let loaded = py.detach(|| load(&path))?;
    Ok(loaded.runs.into_iter().map(|run| run.path).collect())
}

/// The table of the results, as `fedelity run` prints it.
#[pyfunction]
pub(crate) fn table(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let lines = result_lines(&Results::new(load(&path)?), WIDTH);
        Ok(lines.map_err(|error| Error::new_err(format!("{error:#}")))?.join("\n"))
    })
}

/// The table and the curves over rounds, as HTML.
#[pyfunction]
pub(crate) fn picture(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let results = Results::new(load(&path)?);
        let lines = result_lines(&results, WIDTH).map_err(|error| Error::new_err(format!("{error:#}")))?;
        let (styles, figures) = learning_curves(&results);
        let drawn = figures.iter().map(|figure| DrawnFigure::new(figure, &styles, PaperSize::default()).svg());
        let text = lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        // Figures are drawn for paper: black on white, in dark notebooks too.
        let figures: String = drawn.map(|svg| format!("<div style=\"background:#fff\">{svg}</div>")).collect();
        Ok(format!("<pre>{text}</pre><div style=\"display:flex;flex-wrap:wrap;gap:1em\">{figures}</div>"))
    })
}

/// The names of the numbers that the record of a round can have, whether or not a run measures them.
#[pyfunction]
pub(crate) fn round_numbers() -> Vec<String> {
    fedelity_record::round_numbers()
}

/// The weights of a trained model by the names of their tensors.
#[pyfunction]
pub(crate) fn weights(py: Python<'_>, target: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let resources = shared()?;
    let saved = py.detach(|| Saved::open(&target, None, None, &resources)).map_err(raised)?;
    saved.stale.iter().try_for_each(|stale| warn(py, stale))?;
    named(py, saved.model.layout(), &saved.params)
}
