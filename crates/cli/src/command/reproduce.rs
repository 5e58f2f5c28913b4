//! `fedelity reproduce`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fedelity_experiment::{
    Exactness, JobState, PRESETS, PlannedCell, PlannedRow, Preset, PresetChoice, PresetPlan, Resources, Sharing,
};
use fedelity_report::{CellRuns, LoadedRuns, Replication, ReportPage as Page, Results};
use serde_json::json;

use super::compare::Form;
use super::cost::{CellCost, Clock, needs, total};
use super::sweep_stage::{SweepStage, unknown_since};
use crate::command::methods::paper_name;
use crate::engine::resources;
use crate::interrupt::Interrupt;
use crate::output::Overwrite;
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::run_output::RunOutput;
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::board::{Board, speaker};
use crate::view::replication::{departures, heading, lines, published};
use crate::view::table::{Align, Table};
use crate::view::terminal;
use crate::view::units::{bytes, plural, shortened, wrap};

const EXAMPLES: &str = "\
Examples:
  fedelity reproduce                                    list all tables
  fedelity reproduce feddistill/table2 --dry-run        its numbers, settings and estimated time
  fedelity reproduce feddistill/table2 --cells cifar10-0.1 --methods fedavg,fedntd,feddistill
  fedelity reproduce feddistill/table2 --cells cifar10-0.1 --seeds 1 --rounds 30
  fedelity reproduce feddistill/table2 --cells cifar10-0.1 --methods fedavg,fedgkd
  fedelity reproduce feddistill/table2 --show > mine.toml
  fedelity reproduce mine.toml

A table is a preset: a TOML file with the published numbers, the configuration of each, and the
choices made where the paper leaves the configuration open. --show prints it; to run an edited copy,
give its path. Runs go to runs/<name of the table>, one folder for each cell and row; report.html
there shows the result with all figures. Repeat the command to resume interrupted runs.

--methods takes rows of the table, or any other method, which then has the settings of the cell and
its own defaults. Gaps are differences from the table's baseline, which is FedAvg unless a preset of
your own says otherwise; a verdict says whether our gap agrees with the published one. With --rounds
or --set, the setting is no longer the published one, and the result says so.";

/// Run the experiments of a published table and compare the numbers
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    /// The table: its name or a preset file [default: list all tables].
    table: Option<PathBuf>,

    /// Cells to run, such as cifar10-0.1 [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "table")]
    cells: Vec<String>,

    /// Rows of the table to run, or other methods [default: all rows of the table].
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "table")]
    methods: Vec<String>,

    /// Number of seeds [default: those of the preset].
    #[arg(long, value_name = "N", requires = "table")]
    seeds: Option<usize>,

    /// Number of rounds, instead of the published number.
    #[arg(long, value_name = "N", requires = "table")]
    rounds: Option<usize>,

    /// Folder for the runs; interrupted runs there are resumed [default: runs/<name of the table>].
    #[arg(short, long, value_name = "DIR", requires = "table")]
    output: Option<PathBuf>,

    /// Number of parallel runs, one thread each [default: all cores].
    #[arg(long, value_name = "N", visible_alias = "threads")]
    jobs: Option<usize>,

    #[command(flatten)]
    overrides: Overrides,

    /// Only show the published numbers, the settings and the estimated time.
    #[arg(long, requires = "table")]
    dry_run: bool,

    /// In the list and with --dry-run, measure times again, in case the machine was busy before.
    #[arg(long)]
    measure: bool,

    /// Print the preset.
    #[arg(long, requires = "table", conflicts_with = "dry_run")]
    show: bool,

    /// The page to write [default: report.html in the folder of the runs].
    #[arg(long, value_name = "FILE", requires = "table")]
    page: Option<PathBuf>,

    /// Print the result in another format.
    #[arg(long, value_enum, value_name = "FORMAT", requires = "table")]
    format: Option<Form>,

    /// Print one JSON object per run, and one with the result; in the list, one per table.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    #[command(flatten)]
    overwrite: Overwrite,
}

impl Reproduce {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let at_once = threads("--jobs", self.jobs, printer)?;
        let Some(table) = &self.table else { return self.list(printer, at_once) };
        let preset = Preset::find(table)?;
        if self.show {
            printer.raw(preset.text.as_bytes())?;
            return Ok(ExitStatus::Done);
        }
        self.refuse_twice()?;
        let output = self.output.clone().unwrap_or_else(|| self.usual_output(&preset));
        let plan = self.plan(&preset, &output)?;
        let resources = resources()?;
        if self.dry_run {
            return self.announce(printer, &preset, &plan, &resources, at_once);
        }
        let page = self.page.clone().unwrap_or_else(|| output.join("report.html"));
        let page_over = self.overwrite.or_page(&page);
        page_over.check("--page", &page)?;
        if let Some(error) = plan.sweep.check_unless_done(&resources)? {
            printer.warn(unknown_since(&error));
        }
        let workers = at_once.min(plan.sweep.jobs.len());
        let runs = plural(plan.sweep.jobs.len(), "run");
        printer.say(format_args!("{}: {runs}, {workers} in parallel, into {}", preset.table.title, output.display()));
        let screen = Board::screen(printer);
        let interrupt = Interrupt::listen_and(speaker(&screen, printer))?;
        let told = RunOutput::new(printer);
        let stage = SweepStage {
            json: self.json,
            by_label: true,
            sharing: Sharing::default(),
            printer,
            output: &told,
            sweep: plan.sweep,
            screen: &screen,
            interrupt: &interrupt,
        };
        let end = stage.run(at_once, &resources)?;
        let plan = PresetPlan { sweep: stage.sweep, ..plan };
        if interrupt.is_asked() {
            printer.say("Interrupted; the same command resumes it");
            return told.end(ExitStatus::Interrupted);
        }
        // From here on there is nothing to finish first.
        interrupt.end_at_once();
        let (ran, left_out) = plan.runs();
        for out in &left_out {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        let changes =
            self.overrides.set.iter().filter(|set| matters(set)).map(|set| format!("{set} (--set)")).collect();
        let replication = Replication::new(&preset.table, &ran, changes);
        match self.format.map(Form::syntax) {
            Some(syntax) => printer.rendered(&replication.render(syntax), syntax)?,
            None if self.json => told.json(&json!({ "replication": &replication })),
            None => told.drawn(lines(&replication, printer, terminal::width())),
        }
        // Features take seconds to lay out.
        printer.say(format_args!("Writing {}", page.display()));
        if let Some(html) = html(ran, replication)? {
            page_over.write("--page", &page, html.as_bytes())?;
            printer.say(format_args!("Wrote {} ({})", page.display(), bytes(html.len() as u64)));
        }
        if let Some(first) = end.failed.first() {
            bail!("{} failed; the first: {first}", plural(end.failed.len(), "run"));
        }
        told.end(end.status())
    }

    /// What has an option of its own is not a setting: runs, folders and published numbers are matched by it.
    fn refuse_twice(&self) -> Result<()> {
        for set in &self.overrides.set {
            let (option, why) = match set.split('=').next().map(str::trim) {
                Some("seeds" | "seed") => ("--seeds", "with --seeds N, the first N of the preset's seeds run"),
                Some("rounds") if self.rounds.is_some() => ("--rounds", "both give the number of rounds"),
                _ => continue,
            };
            bail!("--set {set}: not allowed here; use {option}: {why}");
        }
        Ok(())
    }

    /// The folder for the runs of a table, another one for another number of rounds.
    fn usual_output(&self, preset: &Preset) -> PathBuf {
        let name = preset.table.name.replace('/', "-");
        let rounds = self.rounds.map_or(String::new(), |rounds| format!("-{rounds}-rounds"));
        Path::new("runs").join(format!("{name}{rounds}"))
    }

    fn plan(&self, preset: &Preset, output: &Path) -> Result<PresetPlan> {
        let choice = PresetChoice {
            cells: self.cells.clone(),
            methods: self.methods.clone(),
            seeds: self.seeds,
            rounds: self.rounds,
            set: self.overrides.set.clone(),
        };
        Ok(preset.plan(&choice, output, |document| self.overrides.place(document))?)
    }

    /// Lists the tables of the program.
    fn list(&self, printer: &Printer, at_once: usize) -> Result<ExitStatus> {
        let resources = resources()?;
        let mut clock = Clock::new(printer, &resources, Exactness::Rough, at_once, self.measure);
        let mut table = Table::new(&[
            ("table", Align::Left),
            ("cells", Align::Right),
            ("rows", Align::Right),
            ("runs", Align::Right),
            ("time", Align::Right),
            ("needs", Align::Left),
        ]);
        for (name, _) in PRESETS {
            let preset = Preset::find(Path::new(name))?;
            let plan = self.plan(&preset, Path::new("runs"))?;
            let costs: Vec<CellCost> = plan.cells.iter().map(|cell| clock.cell(&plan, cell)).collect::<Result<_>>()?;
            if self.json {
                printer.json(&as_json(&preset, &plan, &costs))?;
                continue;
            }
            if printer.verbose() {
                self.details(printer, &preset, &plan, &costs, at_once)?;
                printer.line("")?;
                continue;
            }
            let rows = plan.cells.iter().map(|cell| cell.rows.len()).max().unwrap_or(0);
            table.row([
                (*name).to_string(),
                plan.cells.len().to_string(),
                rows.to_string(),
                plan.sweep.jobs.len().to_string(),
                total(&costs).unwrap_or("-".to_string()),
                needs(&costs).iter().map(|need| in_short(need)).collect::<Vec<_>>().join(", "),
            ]);
        }
        if self.json || printer.verbose() {
            return Ok(ExitStatus::Done);
        }
        printer.drawn(table.lines(printer))?;
        let text = format!(
            "Time for all runs, {at_once} in parallel, measured on this machine; + if some cells need data that are not there. \
             fedelity reproduce TABLE --dry-run shows cells, settings, published numbers and choices of a table, and \
             fedelity -v reproduce those of all."
        );
        printer.line("")?;
        printer.drawn(wrap(&text, terminal::width()))?;
        Ok(ExitStatus::Done)
    }

    /// Shows what would run.
    fn announce(
        &self,
        printer: &Printer,
        preset: &Preset,
        plan: &PresetPlan,
        resources: &Resources,
        at_once: usize,
    ) -> Result<ExitStatus> {
        let mut clock = Clock::new(printer, resources, Exactness::ByMethod, at_once, self.measure);
        let costs: Vec<CellCost> = plan.cells.iter().map(|cell| clock.cell(plan, cell)).collect::<Result<_>>()?;
        if self.json {
            printer.json(&as_json(preset, plan, &costs))?;
        } else {
            self.details(printer, preset, plan, &costs, at_once)?;
        }
        Ok(ExitStatus::Done)
    }

    fn details(
        &self,
        printer: &Printer,
        preset: &Preset,
        plan: &PresetPlan,
        costs: &[CellCost],
        at_once: usize,
    ) -> Result<()> {
        let (table, width) = (&preset.table, terminal::width());
        printer.drawn(heading(
            &format!("{}: {}", table.name, table.title),
            &table.source,
            &table.about,
            printer,
            width,
        ))?;
        printer.drawn(published(table, printer, width))?;
        printer.line("")?;
        let mut cells = Table::new(&[
            ("cell", Align::Left),
            ("rounds", Align::Right),
            ("runs", Align::Right),
            ("done", Align::Right),
            ("time", Align::Right),
            ("what it is", Align::Left),
        ]);
        for (cell, cost) in plan.cells.iter().zip(costs) {
            let jobs = || cell.rows.iter().flat_map(|row| &row.jobs).map(|&job| &plan.sweep.jobs[job]);
            let done = jobs().filter(|job| plan.sweep.state(job) == JobState::Done).count();
            cells.row([
                cell.name.clone(),
                cell.rounds.to_string(),
                jobs().count().to_string(),
                done.to_string(),
                total(std::slice::from_ref(cost)).unwrap_or("-".to_string()),
                table.cells[cell.cell].title.clone(),
            ]);
        }
        printer.drawn(cells.lines(printer))?;
        let seeds: Vec<String> = plan.seeds.iter().map(u64::to_string).collect();
        printer.line(format!("Seeds {}; time for all runs of a cell, {at_once} in parallel.", seeds.join(", ")))?;
        for need in needs(costs) {
            printer.line(format!("Needs {need}"))?;
        }
        let mut settings = preset.settings_lines();
        let set: Vec<&str> = self.overrides.set.iter().map(String::as_str).collect();
        if !set.is_empty() {
            settings.push(format!("Instead of the above (--set): {}", set.join(" ")));
        }
        printer.line("")?;
        printer.drawn(settings.iter().flat_map(|line| wrap(line, width)).collect())?;
        printer.drawn(departures(&table.departures, printer, width))
    }
}

/// Maximum width of a need in the list.
const LONGEST_NEED: usize = 48;

/// A need for a narrow column.
fn in_short(need: &str) -> String {
    shortened(need.trim_start_matches("fedelity "), LONGEST_NEED)
}

fn as_json(preset: &Preset, plan: &PresetPlan, costs: &[CellCost]) -> serde_json::Value {
    let table = &preset.table;
    let cell = |(cell, cost): (&PlannedCell, &CellCost)| {
        let row = |row: &PlannedRow| {
            let values = row.row.map(|at| {
                let of = |quantity: usize| table.rows[at].value(quantity, cell.cell);
                let named = table.quantities.iter().enumerate().map(|(at, one)| (one.name.clone(), json!(of(at))));
                named.collect::<serde_json::Map<_, _>>()
            });
            let jobs = row.jobs.iter().map(|&job| &plan.sweep.jobs[job]);
            let runs: Vec<_> = jobs
                .map(|job| {
                    let state = match plan.sweep.state(job) {
                        JobState::Done => "done",
                        JobState::Taken => "in the way",
                        JobState::ToRun => "to run",
                    };
                    let (folder, why) = (plan.sweep.folder(job).display().to_string(), plan.sweep.obstacle(job));
                    json!({ "folder": folder, "seed": job.seed, "set": job.set, "state": state, "why": why })
                })
                .collect();
            json!({ "name": row.name, "title": row.title, "published": values, "runs": runs })
        };
        json!({
            "name": cell.name,
            "title": table.cells[cell.cell].title,
            "rounds": cell.rounds,
            "published-rounds": table.cells[cell.cell].rounds,
            "rows": cell.rows.iter().map(row).collect::<Vec<_>>(),
            "seconds": cost.seconds,
            "needs": cost.needs,
        })
    };
    json!({
        "table": table.name,
        "title": table.title,
        "source": table.source,
        "about": table.about,
        "quantities": table.quantities,
        "seeds": plan.seeds,
        "cells": plan.cells.iter().zip(costs).map(cell).collect::<Vec<_>>(),
        "departures": table.departures,
    })
}

/// The page with the published table and all figures; none if there are no runs.
fn html(ran: Vec<CellRuns>, replication: Replication) -> Result<Option<String>> {
    let runs: Vec<_> = ran.into_iter().flat_map(|cell| cell.rows).flat_map(|row| row.runs).collect();
    if runs.is_empty() {
        return Ok(None);
    }
    let study = Results::new(LoadedRuns { runs, left_out: Vec::new() }).named(paper_name);
    Ok(Some(Page::new(&study, None)?.beside(replication).html()))
}

/// Whether an assignment can change a published number. What is measured on local models does not.
fn matters(set: &str) -> bool {
    set.split('=').next().map(str::trim) != Some("evaluation.metrics")
}
