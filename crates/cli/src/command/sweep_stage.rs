//! Runs that are shown together: all of a sweep, or those that choose, or those that are compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use fedelity_experiment::{
    Elsewhere, ExperimentError, FrontError, Job, JobEnd, JobState, Resources, Sharing, StopSign, Sweep, SweepObserver,
};
use fedelity_record::{RoundRecord, Status as Ending};
use indicatif::MultiProgress;
use serde_json::json;

use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::run_output::RunOutput;
use crate::status::ExitStatus;
use crate::view::board::Board;
use crate::view::units::{percent, seconds};

/// What is said if all runs have finished, and what they were made from is not there or cannot be read.
pub(super) fn unknown_since(error: &ExperimentError) -> String {
    format!("{error}; all runs have finished, but whether what they were made from has changed since cannot be told")
}

/// A stage of a sweep.
pub(super) struct SweepStage<'a> {
    /// Whether every run is told as a JSON object.
    pub(super) json: bool,
    /// Whether runs are told by their labels, not by their settings.
    pub(super) by_label: bool,
    pub(super) sharing: Sharing,
    pub(super) printer: &'a Printer,
    pub(super) output: &'a RunOutput<'a>,
    pub(super) sweep: Sweep,
    pub(super) screen: &'a MultiProgress,
    pub(super) interrupt: &'a Interrupt,
}

/// What became of the runs of a stage.
#[derive(Default)]
pub(super) struct StageEnd {
    /// The errors of those that failed.
    pub(super) failed: Vec<String>,
    /// What other processes have left to do.
    pub(super) left: Elsewhere,
    /// How many ended, and how many of these diverged.
    ended: usize,
    diverged: usize,
}

impl StageEnd {
    /// The status of a command whose runs have ended: some that diverged are results among others.
    pub(super) fn status(&self) -> ExitStatus {
        if self.ended > 0 && self.ended == self.diverged { ExitStatus::Diverged } else { ExitStatus::Done }
    }
}

impl SweepStage<'_> {
    /// Runs them.
    pub(super) fn run(&self, at_once: usize, resources: &Resources) -> Result<StageEnd> {
        let Self { json, by_label, sharing, printer, output, sweep, screen, interrupt } = self;
        let (json, by_label) = (*json, *by_label);
        let board = Board::new(printer, screen, &sweep.jobs);
        let (ended, told) = (Mutex::default(), [false, false].map(AtomicBool::new));
        let viewer =
            SweepViewer { json, by_label, sharing, printer, output, sweep, board: &board, interrupt, ended, told };
        let ran = sweep.run(at_once.min(sweep.jobs.len()), resources, &viewer);
        board.clear();
        let mut end = viewer.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        end.left = ran?;
        if matches!(sharing, Sharing::Shard(_)) && !interrupt.is_asked() {
            let undone = sweep.jobs.iter().filter(|job| sweep.state(job) != JobState::Done).count();
            end.left.runs = undone.saturating_sub(end.failed.len());
        }
        Ok(end)
    }
}

/// Displays a running sweep.
struct SweepViewer<'a> {
    json: bool,
    by_label: bool,
    sharing: &'a Sharing,
    printer: &'a Printer,
    output: &'a RunOutput<'a>,
    sweep: &'a Sweep,
    board: &'a Board,
    interrupt: &'a Interrupt,
    ended: Mutex<StageEnd>,
    /// Whether it was said that others work too, and that this process waits for them.
    told: [AtomicBool; 2],
}

impl SweepObserver for SweepViewer<'_> {
    fn round(&self, job: &Job, record: &RoundRecord, rounds: usize) {
        self.board.round(job, record.round, rounds as u64, record.accuracy);
    }

    fn end(&self, job: &Job, end: &JobEnd) -> Result<(), FrontError> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.ended += 1;
        self.board.ended(job, end);
        if matches!(end, JobEnd::Interrupted) {
            return Ok(());
        }
        if let JobEnd::Failed(reason) = end {
            let name = Some(self.name(job)).filter(|name| !name.is_empty()).map_or(String::new(), |name| name + ", ");
            ended.failed.push(format!("{name}seed {}: {reason}", job.seed));
        }
        if let JobEnd::Before(summary) | JobEnd::Now(summary) | JobEnd::Elsewhere(summary) = end {
            ended.diverged += usize::from(matches!(summary.status, Ending::Diverged { .. }));
        }
        self.board.suspend(|| self.tell(job, end, ended.ended));
        Ok(())
    }

    fn lost(&self, job: &Job) {
        self.board.lost(job);
        let (set, seed) = (self.name(job), job.seed);
        let why = "another process has taken the run over, because this one had shown no sign of life";
        self.board.suspend(|| self.printer.warn(format_args!("{set}  seed {seed}: {why}")));
    }

    fn others(&self, elsewhere: &Elsewhere, here: usize) {
        self.board.others(elsewhere, here);
        let [with, waiting] = &self.told;
        let once = |told: &AtomicBool| !told.swap(true, Ordering::Relaxed);
        if elsewhere.runs == 0 || self.printer.live() {
            return;
        }
        if once(with) {
            self.printer.say(format_args!("Other processes share this sweep: {elsewhere}"));
        }
        let waits = matches!(self.sharing, Sharing::Claims { wait: true, .. });
        if here == 0 && waits && once(waiting) {
            self.printer.say(format_args!("Waiting for {elsewhere}; Ctrl-C ends this process only"));
        }
    }

    fn sharing(&self) -> Sharing {
        self.sharing.clone()
    }

    fn stop(&self) -> StopSign {
        self.interrupt.sign()
    }
}

impl SweepViewer<'_> {
    fn name(&self, job: &Job) -> String {
        if self.by_label { job.label.clone() } else { job.set.join(" ") }
    }

    /// One line per run.
    fn tell(&self, job: &Job, end: &JobEnd, n: usize) {
        let (state, summary, error) = match end {
            JobEnd::Before(summary) => ("was done", Some(summary), None),
            JobEnd::Now(summary) => ("done", Some(summary), None),
            JobEnd::Elsewhere(summary) => ("elsewhere", Some(summary), None),
            JobEnd::Failed(reason) => ("failed", None, Some(reason.as_str())),
            JobEnd::Interrupted => return,
        };
        if self.json {
            return self.output.json(&json!({
                "folder": self.sweep.folder(job).display().to_string(),
                "set": job.set,
                "seed": job.seed,
                "state": state,
                "summary": summary,
                "error": error,
            }));
        }
        if self.printer.live() && error.is_none() {
            // The table on the screen shows it.
            return;
        }
        let result = match (error, summary) {
            (Some(reason), _) => reason.to_string(),
            (None, Some(summary)) => {
                let accuracy = summary.final_accuracy.map_or("-".to_string(), percent);
                let note = match (summary.status, summary.collapse) {
                    (Ending::Diverged { .. }, _) => "  diverged".to_string(),
                    (Ending::Finished | Ending::StoppedEarly { .. }, _) if summary.unlearnt.is_some() => {
                        "  learnt nothing".to_string()
                    }
                    (Ending::Finished | Ending::StoppedEarly { .. } | Ending::Interrupted, Some(round)) => {
                        format!("  collapsed in round {round}")
                    }
                    (Ending::StoppedEarly { .. }, None) => format!("  stopped early, after round {}", summary.rounds),
                    (Ending::Finished | Ending::Interrupted, None) => String::new(),
                };
                format!("{accuracy}  {}{note}", seconds(summary.seconds.total()))
            }
            (None, None) => String::new(),
        };
        let of = self.sweep.jobs.len();
        self.printer.say(format_args!("[{n}/{of}] {state:<8}  {}  seed {}  {result}", self.name(job), job.seed));
    }
}
