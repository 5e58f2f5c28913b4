//! `fedelity run`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use fedelity_data::quoted;
use fedelity_experiment::{
    Checkpoints, Document, ExperimentError, FrontError, Observer, Outcome, Run as OneRun, StopSign, Study, is_sweep,
};
use fedelity_methods::Registry;
use fedelity_record::{
    BestModel, ChosenBy, EventsFile, Notice, RecordError, RoundRecord, RunFolder, Status as Ending, names,
};
use fedelity_report::{REMEDY, Results, UNLEARNT_REMEDY, config_values};
use fedelity_sim::Metrics;
use serde::Serialize;

use super::check::planned;
use crate::engine::resources;
use crate::interrupt::Interrupt;
use crate::latest;
use crate::overrides::{Overrides, path_value};
use crate::printer::{Printer, told};
use crate::run_output::RunOutput;
use crate::server::{LiveServer, open};
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::progress::Progress;
use crate::view::units::{percent, plural, thousands};
use crate::view::{results, terminal};

const EXAMPLES: &str = "\
Examples:
  fedelity run                              the built-in data, 20 skewed clients, FedAvg
  fedelity run experiment.toml              run a file; missing keys have their defaults
  fedelity run --set rounds=5 --set partition.alpha=1.0
  fedelity run experiment.toml --set seeds=[1,2,3] --output runs/three-seeds
  fedelity run runs/three-seeds/config.toml repeat a run with bit-identical results
  fedelity run examples/methods.toml        several methods on the same clients, one table
  fedelity run --json | jq .accuracy        one object per round

A run folder contains config.toml (all keys), partition.json, rounds.jsonl (one line per round),
summary.json, clients.json (each client at the end) and model.safetensors; with a validation part
(server.validation), best.safetensors is the best round's model. With several methods or seeds, each
run gets its own subfolder. A run may be stopped at any moment, for example with Ctrl-C:
fedelity resume goes on from its checkpoints, with the same results.

The table shows means over seeds and standard deviations. 'to fedavg' is the first round that
reaches FedAvg's final accuracy with the same seed, '-' if it is never reached. 'traffic' is the
number of bytes in both directions, relative to FedAvg.";

/// Train a federation and record it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunCommand {
    /// The configuration [default: the built-in one].
    file: Option<PathBuf>,

    #[command(flatten)]
    overrides: Overrides,

    #[command(flatten)]
    session: Session,

    /// Resume the runs of this folder instead; see fedelity resume.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["file", "output", "partition", "metrics"])]
    resume: Option<PathBuf>,

    /// New folder for the results [default: runs/<date-time>-<name>].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Read the partition from a file written by `fedelity partition -o`.
    #[arg(long, value_name = "FILE")]
    partition: Option<PathBuf>,

    #[arg(long, value_name = "METRICS", help = metrics_help())]
    metrics: Option<String>,
}

/// A line of `--json`: a record with its method and seed.
#[derive(Serialize)]
struct Line<'a> {
    method: &'a str,
    seed: u64,
    #[serde(flatten)]
    record: &'a RoundRecord,
}

fn metrics_help() -> String {
    format!("How much to measure on local models: {}; see fedelity keys evaluation.metrics", Metrics::NAMES.join(", "))
}

impl RunCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        if let Some(run) = &self.resume {
            return resume(run, &self.overrides, &self.session, printer, methods);
        }
        let study = self.study(printer, methods)?;
        self.session.run(&study, printer, || {
            study.folder(self.output.as_deref()).map_err(|error| match error {
                ExperimentError::Record(error @ RecordError::Exists { .. }) => anyhow!("--output: {error}"),
                other => other.into(),
            })
        })
    }

    fn study(&self, printer: &Printer, methods: &Registry) -> Result<Study> {
        let mut document = self.overrides.document(self.file.as_deref())?;
        document.know(methods);
        if let Some(file) = &self.partition {
            document.remove_of_file("partition");
            document.put(&["partition", "file"], path_value(file), "--partition")?;
        }
        if let Some(metrics) = &self.metrics {
            document.put(&["evaluation", "metrics"], metrics.as_str().into(), "--metrics")?;
        }
        load(&document, printer)
    }
}

/// How to carry out runs, new or resumed.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Session {
    /// Worker threads, one client each; results do not depend on them [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Follow the run in a browser; see fedelity watch.
    #[arg(long)]
    open: bool,

    /// Write no checkpoints: a run that is stopped starts over, or goes back to where it was resumed.
    #[arg(long)]
    no_checkpoints: bool,

    /// Write an event file for TensorBoard into each run folder, round by round.
    #[arg(long)]
    tensorboard: bool,

    /// Print one JSON object per round on stdout, and nothing else.
    #[arg(long)]
    json: bool,
}

impl Session {
    /// Runs a study in a folder, which is made once everything has been checked.
    pub(crate) fn run(
        &self,
        study: &Study,
        printer: &Printer,
        folder: impl FnOnce() -> Result<RunFolder>,
    ) -> Result<ExitStatus> {
        let with_data = printer.with_data();
        let printer = if self.json { &with_data } else { printer };
        let threads = threads("--threads", self.threads, printer)?;
        study.check(threads)?;
        let interrupt = Interrupt::listen(printer)?;
        let folder = folder()?;
        printer.say(title(study, threads));
        let server = self.open.then(|| LiveServer::start(folder.path()));
        // A page that cannot be shown is no reason not to train.
        let server = server.and_then(|started| {
            started.inspect_err(|error| printer.warn(format_args!("the page cannot be shown: {}", told(error)))).ok()
        });
        if let Some(server) = &server {
            printer.say(format_args!("Follow it at {}", server.address()));
            open(server.address());
        }
        let runs = study.settings.methods.len() * study.settings.config.seeds.len();
        let progress = Progress::new(printer, runs, study.settings.config.rounds);
        let output = RunOutput::new(printer);
        let mut viewer = RunViewer {
            session: self,
            printer,
            output: &output,
            interrupt: &interrupt,
            progress,
            events: None,
            noticed: Vec::new(),
            started: false,
        };
        let ended = study.run(&folder, threads, &mut viewer);
        viewer.progress.finish();
        let named = quoted(folder.path());
        let (ended, incomplete) = match ended {
            Ok(ended) => (ended, None),
            Err(ExperimentError::Incomplete(found)) => (found.results, Some((found.stopped, found.of))),
            Err(error) => {
                // What another process writes, or another run has left there, is not this run's.
                if viewer.started {
                    printer.say(format_args!("What was recorded is in {named}; resume with: fedelity resume {named}"));
                }
                return Err(error.into());
            }
        };
        if !self.json {
            output.drawn(results::lines(&ended, printer, terminal::width())?);
        }
        server.into_iter().for_each(LiveServer::end);
        best_models(&ended).iter().chain(&privacy(&ended)).for_each(|line| printer.say(line));
        printer.say(format_args!("Results are in {}", folder.path().display()));
        let status = match (status(&ended, interrupt.is_asked()), &incomplete) {
            (_, Some(_)) if !interrupt.is_asked() => ExitStatus::CouldNotRun,
            (status, _) => status,
        };
        if let Some((stopped, of)) = &incomplete {
            let runs: Vec<String> = stopped.iter().map(|(label, seed, _)| format!("{label}, seed {seed}")).collect();
            printer.error(format_args!("{} of {of} runs did not finish: {}", runs.len(), runs.join("; ")));
            printer.say(format_args!(
                "With a lower quorum, they go on: fedelity resume {named} --set server.quorum=SHARE"
            ));
        }
        if status == ExitStatus::Interrupted {
            printer.say(format_args!("Interrupted; resume with: fedelity resume {named}"));
        } else if ended.runs().next().is_some() {
            let name = quoted(&latest::name_of(folder.path()));
            printer.say(format_args!("Next: fedelity report {name} -o report.html"));
        }
        output.end(status)
    }
}

/// A folder with runs that can go on, and its configuration.
pub fn resumable(path: &Path) -> Result<(RunFolder, PathBuf)> {
    let folder = RunFolder::open(path)?;
    let config = folder.file(names::CONFIG);
    if !config.is_file() {
        let missing = match is_sweep(path) {
            true => {
                "it is the folder of a sweep, which goes on with its own command: fedelity sweep FILE -o FOLDER, or fedelity \
                 reproduce TABLE -o FOLDER"
            }
            false => "it has no config.toml, so nothing of a run was written; start the run again",
        };
        bail!("{}: cannot be resumed: {missing}", path.display());
    }
    Ok((folder, config))
}

/// Resumes the runs of a folder.
pub(crate) fn resume(
    run: &Path,
    overrides: &Overrides,
    session: &Session,
    printer: &Printer,
    methods: &Registry,
) -> Result<ExitStatus> {
    let (folder, config) = resumable(&latest::resolve(run, printer)?)?;
    // Neither changes rounds that have been run.
    let later = |set: &&String| matches!(set.split('=').next().map(str::trim), Some("rounds" | "server.quorum"));
    if let Some(set) = overrides.set.iter().find(|set| !later(set)) {
        bail!(
            "--set {set}: a run can only be resumed with other rounds or another server.quorum; other settings make another run"
        );
    }
    let mut document = overrides.document(Some(&config))?;
    document.know(methods);
    let study = load(&document, printer)?;
    session.run(&study, printer, || Ok(folder))
}

/// Loads everything that a configuration names, and says what the user may not expect.
pub(crate) fn load(document: &Document, printer: &Printer) -> Result<Study> {
    let study = Study::load_with(document, &resources()?)?;
    study.settings.notes.iter().for_each(|note| printer.warn(note));
    printer.left_out(&study.pool.skipped);
    study.pool.notes.iter().for_each(|note| printer.warn(note));
    Ok(study)
}

/// Shows the progress of runs.
struct RunViewer<'a> {
    session: &'a Session,
    printer: &'a Printer,
    output: &'a RunOutput<'a>,
    interrupt: &'a Interrupt,
    progress: Progress<'a>,
    events: Option<EventsFile>,
    /// What was noticed in the current run: the first of each kind.
    noticed: Vec<Notice>,
    /// Whether a run has begun to write.
    started: bool,
}

impl RunViewer<'_> {
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
    let config = std::fs::read_to_string(folder.file(names::CONFIG)).unwrap_or_default();
    events.settings(&config_values(&config), run.label, now())?;
    Ok(events)
}

/// Seconds since 1970.
fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn title(study: &Study, threads: usize) -> String {
    let settings = &study.settings;
    let mut text = format!(
        "{}: {}\n{} with {} parameters, {} per round, {}, {}",
        study.pool.dataset.name,
        study.pool.partition.spec,
        study.card.model,
        thousands(study.model.layout().trainable_len()),
        plural(study.per_round, "client"),
        plural(settings.config.rounds, "round"),
        plural(threads, "thread"),
    );
    let accounts = || settings.methods.iter().filter(|method| study.privacy(method).is_some());
    let most = accounts().filter_map(|method| planned(study, method));
    if accounts().any(|method| planned(study, method).is_none()) {
        text += "\nPrivacy: no bound on epsilon: no protection";
    } else if let Some((plan, spent)) = most.max_by(|(_, a), (_, b)| a.epsilon.total_cmp(&b.epsilon)) {
        let rounds = plural(settings.config.rounds, "round");
        text += &format!("\nPrivacy: {} after {rounds}, {}", spent.describe(), plan.describe());
    }
    text
}

/// What the runs reveal about one client at most, if there is noise.
fn privacy(ended: &Results) -> Option<String> {
    let spent = ended.runs().filter_map(|run| Some((run.summary.privacy?, run.summary.rounds)));
    let (most, rounds) = spent.max_by(|(a, _), (b, _)| a.epsilon.total_cmp(&b.epsilon))?;
    let each = if ended.runs().nth(1).is_some() { " at most, in each run by itself" } else { "" };
    Some(format!("Privacy: {} after {}{each}", most.describe(), plural(rounds as usize, "round")))
}

/// Which models were kept beside the last ones, and how they were chosen.
fn best_models(ended: &Results) -> Vec<String> {
    let found: Vec<BestModel> = ended.runs().filter_map(|run| run.summary.best_model).collect();
    let Some(first) = found.first() else { return Vec::new() };
    let (file, shown) = (names::BEST, |share: Option<f64>| share.map_or("-".to_string(), percent));
    let line = match (first.chosen_by, found.len()) {
        (ChosenBy::Validation, 1) => format!(
            "{file} is the model of round {}, the best on the validation part ({}); on the test samples, it has {}",
            first.round,
            shown(first.validation),
            shown(first.accuracy)
        ),
        (ChosenBy::Validation, _) => {
            format!("{file} in each run is the model of its best round on the validation part")
        }
        (ChosenBy::Test, 1) => format!(
            "{file} is the model of round {}, the best on the test samples ({}): as they chose it, that is too high an \
             estimate",
            first.round,
            shown(first.accuracy)
        ),
        (ChosenBy::Test, _) => format!(
            "{file} in each run is the model of its best round on the test samples: as they chose it, its test accuracy is \
             too high an estimate"
        ),
    };
    vec![line]
}

fn status(ended: &Results, stopped: bool) -> ExitStatus {
    let endings = || ended.runs().map(|run| run.summary.status);
    if stopped || endings().any(|ending| ending == Ending::Interrupted) {
        ExitStatus::Interrupted
    } else if endings().any(|ending| matches!(ending, Ending::Diverged { .. })) {
        ExitStatus::Diverged
    } else {
        ExitStatus::Done
    }
}
