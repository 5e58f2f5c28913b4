//! The runs of a preset: some of its cells and rows, as a sweep.

use std::collections::BTreeSet;
use std::path::Path;

use fedelity_methods::registry;
use fedelity_report::{CellRuns, LeftOut, LoadedRun, RowRuns};
use toml::Value;

use super::{Preset, missing};
use crate::ExperimentError;
use crate::config::{Document, Settings};
use crate::error::Result;
use crate::sweep::{Assignment, Job, JobState, Sweep, SweepFile};

/// What of a preset is run, and what is changed. Nothing chosen is the whole table as published.
#[derive(Clone, Debug, Default)]
pub struct PresetChoice {
    /// Names of cells; all if empty.
    pub cells: Vec<String>,
    /// Names of rows, or of methods that the preset does not have; the table's rows if empty.
    pub methods: Vec<String>,
    /// How many seeds.
    pub seeds: Option<usize>,
    pub rounds: Option<usize>,
    /// Assignments, as for `--set`.
    pub set: Vec<String>,
}

/// The runs of a preset, all checked.
pub struct PresetPlan {
    pub sweep: Sweep,
    pub cells: Vec<PlannedCell>,
    pub seeds: Vec<u64>,
}

/// A cell that is run.
#[derive(Clone, Debug)]
pub struct PlannedCell {
    /// Its place in the table.
    pub cell: usize,
    pub name: String,
    pub rounds: usize,
    pub rows: Vec<PlannedRow>,
}

/// A row that is run in a cell.
#[derive(Clone, Debug)]
pub struct PlannedRow {
    pub name: String,
    pub title: String,
    /// Its place in the table, unless it was added.
    pub row: Option<usize>,
    /// The places of its jobs, one per seed.
    pub jobs: Vec<usize>,
}

impl Preset {
    /// The runs of some cells and rows, in folders `<cell>/<row>/seed-<seed>` below `output`; the first seed of all rows
    /// comes first. `prepare` makes final changes to each configuration that do not change what it computes.
    pub fn plan(
        &self,
        choice: &PresetChoice,
        output: &Path,
        prepare: impl Fn(&mut Document) -> Result<()>,
    ) -> Result<PresetPlan> {
        let cells = self.chosen_cells(&choice.cells)?;
        let rows = self.chosen_rows(&choice.methods)?;
        let seeds = self.chosen_seeds(choice.seeds)?;
        let mut planned: Vec<PlannedCell> = Vec::new();
        for &cell in &cells {
            let name = self.table.cells[cell].name.clone();
            let here = |row: &PlannedRow| !choice.methods.is_empty() || self.has(row, cell);
            let rows = rows.iter().filter(|row| here(row)).cloned().collect();
            planned.push(PlannedCell { cell, name, rounds: 0, rows });
        }
        let mut options: Vec<String> = choice.rounds.iter().map(|rounds| format!("rounds={rounds}")).collect();
        options.extend(choice.set.iter().cloned());
        let mut jobs = Vec::new();
        for &seed in &seeds {
            for PlannedCell { cell, name, rows, .. } in &mut planned {
                for row in rows {
                    row.jobs.push(jobs.len());
                    jobs.push(self.job(*cell, name, row, seed, &options));
                }
            }
        }
        let file = SweepFile::of(&self.path, &self.document, output, "--methods");
        let sweep = file.sweep(jobs, &|document| {
            if let Some(rounds) = choice.rounds {
                document.put(&["rounds"], Value::Integer(rounds as i64), "--rounds")?;
            }
            choice.set.iter().try_for_each(|assignment| document.set(assignment))?;
            prepare(document)
        })?;
        for cell in &mut planned {
            let first = cell.rows.first().and_then(|row| row.jobs.first());
            if let Some(&first) = first {
                cell.rounds = Settings::read(sweep.document(first))?.config.rounds;
            }
        }
        Ok(PresetPlan { sweep, cells: planned, seeds })
    }

    /// Whether the table has a number of a row in a cell.
    fn has(&self, row: &PlannedRow, cell: usize) -> bool {
        let values = row.row.map(|row| &self.table.rows[row].values);
        values.is_some_and(|values| values.iter().any(|of_cells| of_cells[cell].is_some()))
    }

    fn job(&self, cell: usize, name: &str, row: &PlannedRow, seed: u64, options: &[String]) -> (Job, Vec<Assignment>) {
        let added =
            Assignment { key: "method.name".to_string(), value: Value::String(row.name.clone()), at: String::new() };
        let all = self.assignments(cell, row.row, std::slice::from_ref(&added));
        let own = all.iter().filter(|one| !one.at.starts_with("config."));
        let set = own.map(ToString::to_string).chain(options.iter().cloned()).collect();
        let label = format!("{name} {}", row.name);
        let folder = format!("{name}/{}/seed-{seed}", row.name);
        (Job { folder, task: label.clone(), label, set, seed, choice: String::new(), chosen: Vec::new() }, all)
    }

    fn chosen_cells(&self, names: &[String]) -> Result<Vec<usize>> {
        let known: Vec<&str> = self.table.cells.iter().map(|cell| &*cell.name).collect();
        if names.is_empty() {
            return Ok((0..known.len()).collect());
        }
        let mut found = BTreeSet::new();
        for name in names {
            let at = known.iter().position(|known| known == name);
            let wrong = || ExperimentError::Config(missing(&format!("--cells {name}"), "cell", name, &known));
            found.insert(at.ok_or_else(wrong)?);
        }
        Ok(found.into_iter().collect())
    }

    /// Rows in the order of the table, then those that it lacks.
    fn chosen_rows(&self, names: &[String]) -> Result<Vec<PlannedRow>> {
        let rows = &self.table.rows;
        let of_table = |at: usize| PlannedRow {
            name: rows[at].name.clone(),
            title: rows[at].title.clone(),
            row: Some(at),
            jobs: Vec::new(),
        };
        if names.is_empty() {
            return Ok((0..rows.len()).filter(|at| rows[*at].is_published()).map(of_table).collect());
        }
        let mut chosen: Vec<PlannedRow> =
            (0..rows.len()).filter(|at| names.contains(&rows[*at].name)).map(of_table).collect();
        for name in names {
            if chosen.iter().any(|row| row.name == *name) {
                continue;
            }
            let Some(entry) = registry::find(name) else {
                let methods = registry::entries().iter().map(|entry| entry.id);
                let mut known: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
                let others: Vec<&str> = methods.filter(|id| !known.contains(id)).collect();
                known.extend(others);
                let message = missing(&format!("--methods {name}"), "row or method", name, &known);
                return Err(ExperimentError::Config(message));
            };
            let (name, title) = (name.clone(), entry.title.to_string());
            chosen.push(PlannedRow { name, title, row: None, jobs: Vec::new() });
        }
        Ok(chosen)
    }

    /// The first seeds of the preset and, if it has too few, those that follow its largest.
    fn chosen_seeds(&self, asked: Option<usize>) -> Result<Vec<u64>> {
        let n = asked.unwrap_or(self.seeds.len());
        if !(1..=1_000).contains(&n) {
            return Err(ExperimentError::Config(format!("--seeds {n}: expected a whole number from 1 to 1000")));
        }
        let last = self.seeds.iter().copied().max().unwrap_or(0);
        Ok(self.seeds.iter().copied().chain((1..).map(|more| last.saturating_add(more))).take(n).collect())
    }
}

impl PresetPlan {
    /// The configuration of a row.
    pub fn document(&self, row: &PlannedRow) -> Option<&Document> {
        row.jobs.first().map(|&job| self.sweep.document(job))
    }

    /// The runs that are done, and what could not be read of them.
    pub fn runs(&self) -> (Vec<CellRuns>, Vec<LeftOut>) {
        let (mut cells, mut left_out) = (Vec::new(), Vec::new());
        for PlannedCell { cell, rounds, rows, .. } in &self.cells {
            let mut of_cell = CellRuns { cell: *cell, rounds: *rounds as u64, rows: Vec::new() };
            for PlannedRow { name, title, row, jobs } in rows {
                let mut runs = Vec::new();
                let done = jobs.iter().map(|&job| &self.sweep.jobs[job]);
                for job in done.filter(|job| self.sweep.state(job) == JobState::Done) {
                    let path = self.sweep.folder(job);
                    match LoadedRun::read(&path) {
                        Ok((run, problems)) => {
                            left_out.extend(problems.into_iter().map(|what| LeftOut { path: path.clone(), what }));
                            runs.push(run);
                        }
                        Err(error) => left_out.push(LeftOut { path, what: error.to_string() }),
                    }
                }
                of_cell.rows.push(RowRuns { name: name.clone(), title: title.clone(), row: *row, runs });
            }
            cells.push(of_cell);
        }
        (cells, left_out)
    }
}
