//! `fedelity sweep`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use fedelity_data::quoted;
use fedelity_experiment::{Chosen, Elsewhere, JobState, Shard, Sharing, Sweep, SweepStatus};
use fedelity_files::ClaimState;
use fedelity_methods::Registry;
use fedelity_report::{AS_IT_IS, Comparison, LoadedRuns, MeanSd, Options, Results, spread};
use serde_json::json;

use super::sweep_stage::{SweepStage, unknown_since};
use super::{compare, sweep_status};
use crate::engine::resources;
use crate::file_kind::FileKind;
use crate::interrupt::Interrupt;
use crate::latest::resolve;
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::run_output::RunOutput;
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::board::{Board, speaker};
use crate::view::table::{Align, Table};
use crate::view::terminal;
use crate::view::units::{plural, thousands};

const EXAMPLES: &str = "\
A sweep file names keys of the configuration and their values:

  config = \"experiment.toml\"      # optional: the base configuration of all runs
  seeds = [1, 2, 3]

  [grid]                          # every combination of values
  \"method.name\" = [\"fedavg\", \"fedntd\"]
  \"partition.alpha\" = [0.1, 1.0]

  [[list]]                        # settings one by one; with a grid, each runs with the whole grid
  \"clients.epochs\" = 1
  \"optimizer.lr\" = 0.05

With [tune], the best setting of each method is chosen first, and only these are compared:

  [tune]
  validation = 0.1                # share of the training samples to choose on
  seeds = [101, 102, 103]         # seeds of the runs that choose, other than those above

Settings are chosen by their mean final accuracy on samples held out from the training data, never
on the test data. Competing settings may differ in any key except method.name and the keys of
[data], [partition] and [model]; with several values of these, each gets its own choice. The chosen
settings then run on all training data with the seeds of the file, and are tested on the test data.
chosen.json in the folder says what was chosen and from how many settings; the runs are in choose/
and compare/.

Several processes can share a sweep, on any machines that see the folder: start the same command in
each. Each run is claimed by one process; if a process leaves a run behind, another takes it over
and resumes it, with the same results. A process that has ended on this machine is noticed at once,
any other after a minute without a sign of life (--takeover). Every command waits for the others and
prints the table; with --no-wait, it ends as soon as no run is left to start, which suits cluster
jobs.
--shard 2/8 takes every eighth run instead, without claims; it also works where nothing is shared.

Examples:
  fedelity sweep sweep.toml -o runs/sweep     run it; repeat the command to resume or share it
  fedelity sweep --status runs/sweep          which process runs what, and what was left behind
  fedelity sweep sweep.toml --dry-run         check everything and show what would run
  fedelity sweep sweep.toml --set rounds=5    override a key in all runs, or seeds=[1,2]
  fedelity sweep examples/tune.toml           choose the best settings, then compare them
  fedelity compare runs/sweep                 the table again, each setting with its own baseline";

/// Run a grid or a list of settings over seeds
///
/// Runs on all cores, one thread per run. Finished runs are not repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SweepCommand {
    /// The sweep file.
    #[arg(required_unless_present = "status")]
    file: Option<PathBuf>,

    /// Folder for the runs; an interrupted sweep there is resumed [default: runs/<name of the file>].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Number of parallel runs [default: all cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    #[command(flatten)]
    overrides: Overrides,

    /// Run only part I of N, every N-th run, without claims; other processes run the other parts.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,

    /// End when no run is left to start, instead of waiting for the runs of other processes.
    #[arg(long, conflicts_with = "shard")]
    no_wait: bool,

    /// Seconds without a sign of life after which other processes take over the runs of this one.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = patience, conflicts_with = "shard")]
    takeover: Duration,

    /// Show which processes work on the sweep in this folder, and what others have left behind.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "output", "jobs", "set", "shard", "no_wait"])]
    status: Option<PathBuf>,

    /// Only show what would run.
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object per run.
    #[arg(long)]
    json: bool,
}

impl SweepCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        let Some(file) = &self.file else {
            let folder = self.status.as_deref().unwrap_or(Path::new("runs"));
            return sweep_status::show(printer, &resolve(folder, printer)?, self.json);
        };
        FileKind::Sweep.read(file)?;
        let at_once = threads("--jobs", self.jobs, printer)?;
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("sweep");
        let output = self.output.clone().unwrap_or_else(|| Path::new("runs").join(stem));
        let sweep = Sweep::read(file, &output, &self.overrides.set, |document| {
            document.know(methods);
            self.overrides.place(document)
        })?;
        let resources = resources()?;
        if let Some(error) = sweep.check_unless_done(&resources)? {
            printer.warn(unknown_since(&error));
        }
        if self.dry_run {
            return self.announce(printer, &sweep, &output);
        }
        let workers = at_once.min(sweep.jobs.len());
        let runs = match (sweep.chooses(), plural(sweep.jobs.len(), "run")) {
            (false, runs) => runs,
            (true, runs) => {
                format!("{runs} to choose settings, then {} to compare them", thousands(sweep.runs_after()))
            }
        };
        let part = self.shard.map_or(String::new(), |shard| format!(", part {shard} of them here"));
        printer.say(format_args!("{runs}{part}, {workers} in parallel, into {}", output.display()));
        let screen = Board::screen(printer);
        let interrupt = Interrupt::listen_and(speaker(&screen, printer))?;
        let output = RunOutput::new(printer);
        let sharing = self.sharing(sweep.chooses());
        let mut stage = SweepStage {
            json: self.json,
            by_label: false,
            sharing,
            printer,
            output: &output,
            sweep,
            screen: &screen,
            interrupt: &interrupt,
        };
        let mut end = stage.run(at_once, &resources)?;
        if stage.sweep.chooses() && end.failed.is_empty() && end.left.runs == 0 && !interrupt.is_asked() {
            let (chosen, next) = stage.sweep.choose()?;
            self.show_chosen(printer, &output, &chosen);
            (stage.sweep, stage.sharing) = (next, self.sharing(false));
            end = stage.run(at_once, &resources)?;
        }
        if interrupt.is_asked() {
            printer.say("Interrupted; the same command resumes the sweep");
            return output.end(ExitStatus::Interrupted);
        }
        if end.left.runs > 0 {
            self.show_left(printer, &output, &stage.sweep, &end.left);
        } else if !self.json && !stage.sweep.chooses() {
            let folders: Vec<PathBuf> = stage.sweep.jobs.iter().map(|job| stage.sweep.folder(job)).collect();
            output.drawn(table(printer, &folders)?);
            printer.say(format_args!("Next: fedelity report {}", quoted(&stage.sweep.results())));
        }
        if let Some(first) = end.failed.first() {
            bail!("{} failed; the first: {first}", plural(end.failed.len(), "run"));
        }
        output.end(end.status())
    }

    /// How the runs are shared. Before settings are chosen, everybody waits: what follows is left to start.
    fn sharing(&self, chooses: bool) -> Sharing {
        match self.shard {
            Some(shard) => Sharing::Shard(shard),
            None => Sharing::Claims { patience: self.takeover, wait: !self.no_wait || chooses },
        }
    }

    /// Says that this process is done, but the sweep is not.
    fn show_left(&self, printer: &Printer, output: &RunOutput<'_>, sweep: &Sweep, left: &Elsewhere) {
        if self.json {
            return output.json(&json!({ "left": left.runs, "hosts": left.hosts }));
        }
        let runs = plural(left.runs, "run");
        match (self.shard, sweep.chooses()) {
            (Some(shard), false) => printer.say(format_args!("Part {shard} is done; {runs} of the other parts are left")),
            (Some(shard), true) => printer.say(format_args!(
                "Part {shard} is done; settings are chosen when {runs} of the other parts are: then the same command goes on"
            )),
            (None, _) => printer.say(format_args!("Nothing is left to start; still running: {left}")),
        }
        printer.say(format_args!("Results so far: fedelity compare {}", quoted(&sweep.results())));
    }

    /// Prints what was chosen, and from what.
    fn show_chosen(&self, printer: &Printer, output: &RunOutput<'_>, chosen: &[Chosen]) {
        if self.json {
            chosen.iter().for_each(|one| output.json(&json!({ "chosen": one })));
            return;
        }
        let mut table = Table::new(&[
            ("method", Align::Left),
            ("chosen", Align::Left),
            ("held-out %", Align::Right),
            ("of", Align::Right),
            ("next best", Align::Left),
        ]);
        for one in chosen {
            let accuracy = MeanSd { n: 0, mean: one.accuracy, sd: one.sd };
            let plain = |setting: &str| if setting == "run" { AS_IT_IS.to_string() } else { setting.to_string() };
            let next =
                one.next.as_ref().map(|(setting, accuracy)| format!("{} ({:.2})", plain(setting), 100.0 * accuracy));
            table.row([
                one.task.clone(),
                if one.of == 1 { "the only setting".to_string() } else { plain(&one.setting) },
                spread(Some(accuracy), 100.0, 2),
                one.of.to_string(),
                next.unwrap_or("-".to_string()),
            ]);
        }
        output.drawn(table.lines(printer));
        let diverged: usize = chosen.iter().map(|one| one.diverged).sum();
        if diverged > 0 {
            printer.warn(format_args!("{} diverged and could not be chosen", plural(diverged, "setting")));
        }
        output.drawn(vec![String::new()]);
    }

    /// Prints the runs without starting them.
    fn announce(&self, printer: &Printer, sweep: &Sweep, output: &Path) -> Result<ExitStatus> {
        let status = if output.is_dir() { SweepStatus::read(output)? } else { SweepStatus::default() };
        let claims: HashMap<String, ClaimState> = status.claims.into_iter().collect();
        for job in &sweep.jobs {
            let (state, why) = match (sweep.state(job), claims.get(&job.folder)) {
                (JobState::Done, _) => ("done", None),
                (JobState::Taken, _) => ("in the way", sweep.obstacle(job)),
                (JobState::ToRun, Some(ClaimState::Held(holder))) => ("running", Some(holder.to_string())),
                (JobState::ToRun, Some(ClaimState::Stale(holder))) => ("to run", Some(format!("left by {holder}"))),
                (JobState::ToRun, Some(ClaimState::Failed(_, reason))) => ("to run", Some(format!("failed: {reason}"))),
                (JobState::ToRun, _) => ("to run", None),
            };
            if self.json {
                let (folder, set, seed) = (sweep.folder(job).display().to_string(), &job.set, job.seed);
                printer.json(&json!({ "folder": folder, "set": set, "seed": seed, "state": state, "why": why }))?;
            } else {
                let why = why.map_or(String::new(), |why| format!("  ({why})"));
                printer.line(format!("{state:<6}  {}  seed {}{why}", job.set.join(" "), job.seed))?;
            }
        }
        if sweep.chooses() && !self.json {
            let after = plural(sweep.runs_after(), "run");
            printer.line(format!("then    {after} with the best setting of each method"))?;
        }
        Ok(ExitStatus::Done)
    }
}

/// Reads `--takeover`.
fn patience(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, from 0.5 to 86400".to_string()),
    }
}

/// The comparison of runs.
fn table(printer: &Printer, folders: &[PathBuf]) -> Result<Vec<String>> {
    let there: Vec<PathBuf> = folders.iter().filter(|folder| folder.is_dir()).cloned().collect();
    if there.is_empty() {
        return Ok(Vec::new());
    }
    let study = Results::new(LoadedRuns::load(&there)?);
    for out in &study.left_out {
        printer.warn(format_args!("{}: {}", out.path.display(), out.what));
    }
    let comparison = Comparison::new(&study, &Options::default())?;
    Ok(compare::lines(&comparison, printer, terminal::width()))
}
