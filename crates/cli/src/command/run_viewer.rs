//! What is shown of runs on their way.

use anyhow::Result;
use fedelity_experiment::{Checkpoints, ExperimentError, FrontError, Observer, Outcome, Run as OneRun, StopSign};
use fedelity_record::{EventsFile, Notice, RoundRecord, RunFolder, Status as Ending, names};
use fedelity_report::{REMEDY, UNLEARNT_REMEDY, config_values};
use serde::Serialize;

use super::session::Session;
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::run_output::RunOutput;
use crate::view::progress::Progress;

/// A line of `--json`: a record with its method and seed.
#[derive(Serialize)]
struct Line<'a> {
    method: &'a str,
    seed: u64,
    #[serde(flatten)]
    record: &'a RoundRecord,
}

/// Shows the progress of runs.
pub(super) struct RunViewer<'a> {
    session: &'a Session,
    printer: &'a Printer,
    output: &'a RunOutput<'a>,
    interrupt: &'a Interrupt,
    pub(super) progress: Progress<'a>,
    events: Option<EventsFile>,
    /// What was noticed in the current run: the first of each kind.
    noticed: Vec<Notice>,
    /// Whether a run has begun to write.
    pub(super) started: bool,
}

impl<'a> RunViewer<'a> {
    pub(super) fn new(
        session: &'a Session,
        printer: &'a Printer,
        output: &'a RunOutput<'a>,
        interrupt: &'a Interrupt,
        progress: Progress<'a>,
    ) -> Self {
        Self { session, printer, output, interrupt, progress, events: None, noticed: Vec::new(), started: false }
    }

    /// What often helps, once per run. Against attackers and noise, it does not.
    fn advice(&self, run: &OneRun<'_>, remedy: &str) -> String {
        let config = &run.study.settings.config;
        let on_purpose = !config.faults.is_none() || config.privacy.noise.is_some();
        if self.noticed.is_empty() && !on_purpose { format!(". {remedy}") } else { String::new() }
    }

    /// Says what a round noticed, once per run and kind of notice.
    fn warn(&mut self, run: &OneRun<'_>, record: &RoundRecord) {
        let (classes, clients) = (&run.study.pool.dataset.classes, &run.study.pool.partition.names);
        for notice in &record.notices {
            if self.noticed.iter().any(|known| known.is_like(notice)) {
                continue;
            }
            let advice = self.advice(run, if notice.unlearnt().is_some() { UNLEARNT_REMEDY } else { REMEDY });
            let (label, seed, round, what) = (run.label, run.seed, record.round, notice.describe(classes, clients));
            let text = format!("{label}, seed {seed}, round {round}: {what}{advice}");
            self.progress.pause(|| self.printer.warn(&text));
            self.noticed.push(notice.clone());
        }
    }
}

impl Observer for RunViewer<'_> {
    fn start(&mut self, run: &OneRun<'_>, folder: &RunFolder, rounds: usize) -> Result<(), FrontError> {
        self.progress.start(format!("{}, seed {}", run.label, run.seed), rounds);
        self.noticed.clear();
        self.started = true;
        self.events = if self.session.tensorboard { Some(events(run, folder)?) } else { None };
        Ok(())
    }

    fn round(&mut self, run: &OneRun<'_>, record: &RoundRecord) -> Result<(), FrontError> {
        self.progress.round(record);
        self.warn(run, record);
        if let Some(events) = &mut self.events {
            events.append(record, now())?;
        }
        if self.session.json {
            self.output.json(&Line { method: run.label, seed: run.seed, record });
        }
        Ok(())
    }

    fn end(&mut self, run: &OneRun<'_>, outcome: &Outcome) {
        if let Some(Err(error)) = self.events.take().map(|mut events| events.end(outcome.summary.status, now())) {
            self.progress.pause(|| self.printer.warn(&error));
        }
        if let Some(reason) = &outcome.divergence {
            let advice = self.advice(run, REMEDY);
            let text = format!("{}, seed {}: {reason}{advice}", run.label, run.seed);
            self.progress.pause(|| self.printer.error(&text));
        }
        if let Some(what) = outcome.summary.learnt_nothing(&self.noticed) {
            let advice = self.advice(run, UNLEARNT_REMEDY);
            let text = format!("{}, seed {}: {what}{advice}", run.label, run.seed);
            self.progress.pause(|| self.printer.warn(&text));
        }
        if !outcome.summary.incidents.is_none() {
            let text = format!("{}, seed {}: {}", run.label, run.seed, outcome.summary.incidents.describe());
            self.progress.pause(|| self.printer.say(&text));
        }
        if let Ending::StoppedEarly { best, .. } = outcome.summary.status {
            let (label, seed, round) = (run.label, run.seed, outcome.summary.rounds);
            let why = format!("the validation accuracy has not improved since round {best}");
            let text = format!("{label}, seed {seed}: stopped early after round {round}: {why}");
            self.progress.pause(|| self.printer.say(&text));
        }
    }

    fn stopped(&mut self, run: &OneRun<'_>, error: &ExperimentError) {
        self.events = None;
        let text = format!("{}, seed {}: {error}; this run stops here", run.label, run.seed);
        self.progress.pause(|| self.printer.error(&text));
    }

    fn skip(&mut self, run: &OneRun<'_>, _: &Outcome) {
        self.progress.skip();
        if !self.printer.live() {
            self.printer.say(format_args!("{}, seed {}: has already ended", run.label, run.seed));
        }
    }

    fn note(&mut self, note: &str) {
        self.progress.pause(|| self.printer.warn(note));
    }

    fn checkpoints(&self) -> Checkpoints {
        if self.session.no_checkpoints { Checkpoints::Off } else { Checkpoints::Clients }
    }

    fn stop(&self) -> StopSign {
        self.interrupt.sign()
    }
}

/// Creates an event file in the run folder, with the run's settings.
fn events(run: &OneRun<'_>, folder: &RunFolder) -> Result<EventsFile> {
    let name = format!("events.out.tfevents.{}.fedelity", now() as u64);
    let mut events = EventsFile::create(&folder.file(&name), now(), &run.study.pool.dataset.classes)?;
    let config = fedelity_files::read_text(&folder.file(names::CONFIG), fedelity_files::TEXT).unwrap_or_default();
    events.settings(&config_values(&config), run.label, now())?;
    Ok(events)
}

/// Seconds since 1970.
fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
