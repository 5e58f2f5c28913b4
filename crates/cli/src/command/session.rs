//! How runs are carried out, new or resumed.

use anyhow::Result;
use fedelity_data::quoted;
use fedelity_experiment::{ExperimentError, Study};
use fedelity_record::{BestModel, ChosenBy, RunFolder, Status as Ending, names};
use fedelity_report::Results;

use super::check::planned;
use super::run_viewer::RunViewer;
use crate::interrupt::Interrupt;
use crate::latest;
use crate::printer::{Printer, told};
use crate::run_output::RunOutput;
use crate::server::{LiveServer, open};
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::progress::Progress;
use crate::view::units::{percent, plural, thousands};
use crate::view::{results, terminal};

/// How to carry out runs, new or resumed.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Session {
    /// Number of worker threads, one client each; does not change results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Follow the run in a browser; see fedelity watch.
    #[arg(long)]
    open: bool,

    /// Write no checkpoints: a stopped run starts over, or goes back to where it was last resumed.
    #[arg(long)]
    pub(super) no_checkpoints: bool,

    /// Write an event file for TensorBoard into each run folder, round by round.
    #[arg(long)]
    pub(super) tensorboard: bool,

    /// Print one JSON object per round on stdout, and nothing else.
    #[arg(long)]
    pub(super) json: bool,
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
        let mut viewer = RunViewer::new(self, printer, &output, &interrupt, progress);
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
        best_models(&ended).iter().chain(&privacy(&ended)).for_each(|line| printer.say(line));
        printer.say(format_args!("Results are in {}", folder.path().display()));
        let asked = interrupt.is_asked();
        interrupt.end_at_once();
        // Those who look at the page get the end of it first.
        server.into_iter().for_each(LiveServer::end);
        let status = match (status(&ended, asked), &incomplete) {
            (_, Some(_)) if !asked => ExitStatus::CouldNotRun,
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
