//! What the cells of a published table take: time and data.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use fedelity_experiment::{Exactness, Paces, PlannedCell, PlannedRow, PresetPlan, Resources, absent};

use crate::printer::Printer;
use crate::view::units::seconds;

/// What a cell takes.
pub(super) struct CellCost {
    /// Seconds for all its runs, as many in parallel as asked for; none if they cannot be measured.
    pub(super) seconds: Option<f64>,
    /// What is not there.
    pub(super) needs: Vec<String>,
}

/// Measures cells.
pub(super) struct Clock<'a> {
    printer: &'a Printer,
    resources: &'a Resources,
    exactness: Exactness,
    at_once: usize,
    paces: Paces,
}

impl<'a> Clock<'a> {
    pub(super) fn new(
        printer: &'a Printer,
        resources: &'a Resources,
        exactness: Exactness,
        at_once: usize,
        anew: bool,
    ) -> Self {
        Self { printer, resources, exactness, at_once, paces: Paces::open(cache_file(), resources, anew) }
    }

    pub(super) fn cell(&mut self, plan: &PresetPlan, cell: &PlannedCell) -> Result<CellCost> {
        let documents: Vec<_> = cell.rows.iter().filter_map(|row| Some((row, plan.document(row)?))).collect();
        let mut needs: Vec<String> = Vec::new();
        for (_, document) in &documents {
            for need in absent(document)? {
                if !needs.contains(&need) {
                    needs.push(need);
                }
            }
        }
        if !needs.is_empty() {
            return Ok(CellCost { seconds: None, needs });
        }
        // The data of a cell are not kept for the next: all tables together have many.
        let resources = Resources::on(Arc::clone(&self.resources.engine));
        let mut sum = 0.0;
        for (PlannedRow { name, jobs, .. }, document) in documents {
            let measuring = || self.printer.say(format_args!("Measuring the speed of {} {name}...", cell.name));
            match self.paces.seconds(document, &resources, self.exactness, measuring) {
                Ok(Some(seconds)) => sum += seconds * jobs.len() as f64,
                Ok(None) => return Ok(CellCost { seconds: None, needs }),
                // Data that are not as they should be: the run would say the same.
                Err(error) => return Ok(CellCost { seconds: None, needs: vec![error.to_string()] }),
            }
        }
        let runs = cell.rows.iter().map(|row| row.jobs.len()).sum::<usize>().max(1);
        Ok(CellCost { seconds: Some(sum / self.at_once.min(runs) as f64), needs })
    }
}

/// Where measurements are kept: the user's folder for what can be made again.
fn cache_file() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")))?;
    Some(folder.join("fedelity").join("paces.json"))
}

/// The time of several cells; `+` if that of some is not known, none if none is.
pub(super) fn total(costs: &[CellCost]) -> Option<String> {
    let known: Vec<f64> = costs.iter().filter_map(|cost| cost.seconds).collect();
    let more = if known.len() < costs.len() { " +" } else { "" };
    (!known.is_empty()).then(|| format!("{}{more}", seconds(known.iter().sum())))
}

/// What several cells need, each once.
pub(super) fn needs(costs: &[CellCost]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for need in costs.iter().flat_map(|cost| &cost.needs) {
        if !all.contains(need) {
            all.push(need.clone());
        }
    }
    all
}
