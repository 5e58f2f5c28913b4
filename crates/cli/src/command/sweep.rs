//! `fedelity sweep`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use fedelity_record::{Status as Ending, Summary, names, read_rounds, read_summary};
use fedelity_report::{Comparison, Options, Source, Study};
use serde_json::{Value, json};
use toml::Table;

use super::compare;
use super::run::threads;
use crate::board::Board;
use crate::interrupt::Interrupt;
use crate::jobs::{Job, config, fingerprint, jobs};
use crate::printer::{Printer, told};
use crate::status::Status;
use crate::terminal;
use crate::units::{percent, plural, seconds};

const EXAMPLES: &str = "\
A sweep file names keys of the configuration and their values:

  config = \"experiment.toml\"      # optional: what all runs have in common
  seeds = [1, 2, 3]

  [grid]                          # every value with every other
  \"method.name\" = [\"fedavg\", \"fedntd\"]
  \"partition.alpha\" = [0.1, 1.0]

  [[list]]                        # settings one by one; with a grid, each with all of the grid
  \"clients.epochs\" = 1
  \"optimizer.lr\" = 0.05

Examples:
  fedelity sweep sweep.toml -o runs/sweep     again, it goes on where it stopped
  fedelity sweep sweep.toml --dry-run         what would run
  fedelity compare runs/sweep --force";

/// Run a grid or a list of settings over seeds
///
/// As many runs go at once as there are cores, each on one thread. What is done is not done again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sweep {
    /// The sweep file.
    file: PathBuf,

    /// Folder for the runs; a sweep that was stopped there goes on [default: runs/<name of the file>].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Runs at once [default: all cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Folder that holds the data sets.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Only say what would run.
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object a run.
    #[arg(long)]
    json: bool,
}

/// Told about each round of a run: its number, how many there are, and its accuracy.
type Each<'a> = &'a (dyn Fn(u64, u64, Option<f64>) + Sync);

/// How a job ended.
pub(crate) enum Done {
    Before,
    Now,
    Failed(String),
}

impl Sweep {
    pub(crate) fn run(self, printer: &Printer) -> Result<Status> {
        let at_once =
            threads(self.jobs).map_err(|error| anyhow!("{}", error.to_string().replace("--threads", "--jobs")))?;
        let text = fs::read_to_string(&self.file).with_context(|| format!("{}: cannot read", self.file.display()))?;
        let table: Table = text.parse().map_err(|error| anyhow!("{}: {error}", self.file.display()))?;
        let config = config(&self.file, &table)?;
        let jobs = jobs(&table).map_err(|error| anyhow!("{}: {error}", self.file.display()))?;
        let stem = self.file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("sweep");
        let output = self.output.clone().unwrap_or_else(|| Path::new("runs").join(stem));
        if self.dry_run {
            let print = fingerprint(config.as_deref())?;
            for job in &jobs {
                let folder = output.join(&job.folder);
                let state = match there(&folder, &stamp(job, &print)) {
                    Some(true) => "done",
                    Some(false) => "other settings are there",
                    None => "to run",
                };
                if self.json {
                    let (set, seed) = (&job.set, job.seed);
                    printer.json(&json!({ "folder": folder, "set": set, "seed": seed, "state": state }))?;
                    continue;
                }
                printer.line(format!("{state:<6}  {}  seed {}", job.set.join(" "), job.seed))?;
            }
            return Ok(Status::Done);
        }
        let print = fingerprint(config.as_deref())?;
        fs::create_dir_all(&output).with_context(|| format!("{}: cannot create", output.display()))?;
        let workers = at_once.min(jobs.len());
        printer.say(format_args!("{}, {} at once, into {}", plural(jobs.len(), "run"), workers, output.display()));
        let board = Board::new(printer, &jobs);
        let interrupt = Interrupt::listen_and(board.speaker())?;
        let (next, ended) = (AtomicUsize::new(0), Mutex::new((0usize, Vec::<String>::new(), None::<anyhow::Error>)));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while !interrupt.is_asked() {
                        let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                        let each = |round: u64, of: u64, accuracy: Option<f64>| board.round(job, round, of, accuracy);
                        let done = self.execute(job, &output, config.as_deref(), &print, &interrupt, &each);
                        let mut ended = ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        ended.0 += 1;
                        let summary = read_summary(&output.join(&job.folder).join(names::SUMMARY)).ok();
                        board.ended(job, &done, summary.as_ref());
                        if interrupt.is_asked() && matches!(done, Done::Failed(_)) {
                            return;
                        }
                        let told =
                            board.suspend(|| self.tell(printer, job, &output, &done, summary, (ended.0, jobs.len())));
                        if let Done::Failed(reason) = done {
                            ended.1.push(format!("{}, seed {}: {reason}", job.set.join(" "), job.seed));
                        }
                        if let Err(error) = told {
                            ended.2 = Some(error);
                            return;
                        }
                    }
                });
            }
        });
        board.clear();
        let (_, failed, broken) = ended.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(error) = broken {
            return Err(error);
        }
        if interrupt.is_asked() {
            printer.say("Interrupted; the same command goes on where it stopped");
            return Ok(Status::Interrupted);
        }
        if !self.json {
            self.table(printer, &output)?;
        }
        if !failed.is_empty() {
            bail!("{} failed; the first: {}", plural(failed.len(), "run"), failed[0]);
        }
        Ok(Status::Done)
    }

    /// Runs one job in a process of its own, beside its folder, which is there when it is complete.
    fn execute(
        &self,
        job: &Job,
        output: &Path,
        config: Option<&Path>,
        print: &str,
        interrupt: &Interrupt,
        each: Each<'_>,
    ) -> Done {
        let folder = output.join(&job.folder);
        let stamp = stamp(job, print);
        match there(&folder, &stamp) {
            Some(true) => return Done::Before,
            Some(false) => {
                let other = "is there already from other settings; choose another folder or remove it";
                return Done::Failed(format!("{} {other}", folder.display()));
            }
            None => {}
        }
        let aside =
            folder.with_file_name(format!(".{}.part", folder.file_name().and_then(|n| n.to_str()).unwrap_or("run")));
        match self.attempt(job, config, &aside, each) {
            Ok(()) if interrupt.is_asked() => {
                let _ = fs::remove_dir_all(&aside);
                Done::Failed("interrupted".to_string())
            }
            Ok(()) => {
                let _ = fs::remove_dir_all(&folder);
                let moved = fs::write(aside.join("sweep.json"), stamp).and_then(|()| fs::rename(&aside, &folder));
                moved.map_or_else(|error| Done::Failed(format!("{}: {error}", folder.display())), |()| Done::Now)
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&aside);
                Done::Failed(told(&error))
            }
        }
    }

    fn attempt(&self, job: &Job, config: Option<&Path>, aside: &Path, each: Each<'_>) -> Result<()> {
        if aside.exists() {
            fs::remove_dir_all(aside).with_context(|| format!("{}: cannot remove", aside.display()))?;
        }
        if let Some(above) = aside.parent() {
            fs::create_dir_all(above).with_context(|| format!("{}: cannot create", above.display()))?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").args(config).args(["--quiet", "--json", "--threads", "1", "--output"]).arg(aside);
        for assignment in &job.set {
            command.args(["--set", assignment]);
        }
        command.arg("--set").arg(format!("seeds=[{}]", job.seed));
        if let Some(folder) = &self.data_dir {
            command.arg("--data-dir").arg(folder);
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start")?;
        let (lines, complaints) = (process.stdout.take(), process.stderr.take());
        let said = std::thread::scope(|scope| {
            let said = scope.spawn(|| {
                let mut said = Vec::new();
                complaints.map(|mut pipe| pipe.read_to_end(&mut said));
                String::from_utf8_lossy(&said).into_owned()
            });
            let mut rounds = None;
            for line in lines.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()).map_while(Result::ok) {
                let Ok(record) = serde_json::from_str::<Value>(&line) else { continue };
                let of = *rounds.get_or_insert_with(|| {
                    read_rounds(&aside.join(names::ROUNDS)).map_or(0, |found| found.header.rounds)
                });
                each(record["round"].as_u64().unwrap_or(0), of, record["accuracy"].as_f64());
            }
            said.join().unwrap_or_default()
        });
        match process.wait()?.code() {
            // A run that diverged is a result.
            Some(0 | 1) => Ok(()),
            _ => {
                let last = said.lines().last().unwrap_or("it ended without a word");
                Err(anyhow!("{}", last.strip_prefix("error: ").unwrap_or(last)))
            }
        }
    }

    /// One line a run.
    fn tell(
        &self,
        printer: &Printer,
        job: &Job,
        output: &Path,
        done: &Done,
        summary: Option<Summary>,
        (n, of): (usize, usize),
    ) -> Result<()> {
        let state = match done {
            Done::Before => "was done",
            Done::Now => "done",
            Done::Failed(_) => "failed",
        };
        if self.json {
            return printer.json(&json!({
                "folder": output.join(&job.folder),
                "set": job.set,
                "seed": job.seed,
                "state": state,
                "summary": summary,
                "error": if let Done::Failed(reason) = done { Some(reason) } else { None },
            }));
        }
        if printer.live() && !matches!(done, Done::Failed(_)) {
            // The table on the screen says it.
            return Ok(());
        }
        let result = match (done, &summary) {
            (Done::Failed(reason), _) => reason.clone(),
            (_, Some(summary)) => {
                let accuracy = summary.final_accuracy.map_or("-".to_string(), percent);
                let note = if matches!(summary.status, Ending::Diverged { .. }) { "  diverged" } else { "" };
                format!("{accuracy}  {}{note}", seconds(summary.seconds.total()))
            }
            _ => String::new(),
        };
        printer.say(format_args!("[{n}/{of}] {state:<8}  {}  seed {}  {result}", job.set.join(" "), job.seed));
        Ok(())
    }

    /// The comparison of all that is there.
    fn table(&self, printer: &Printer, output: &Path) -> Result<()> {
        let study = Study::new(Source::load(&[output.to_path_buf()])?);
        let comparison = Comparison::new(&study, &Options { apart: true, ..Options::default() })?;
        for line in compare::lines(&comparison, printer, terminal::width()) {
            printer.line(line)?;
        }
        Ok(())
    }
}

/// What a finished run of a sweep says that it is.
fn stamp(job: &Job, print: &str) -> String {
    json!({ "config-sha256": print, "set": job.set, "seed": job.seed }).to_string() + "\n"
}

/// Whether the run that is there is the one with this stamp; none if there is no finished run.
fn there(folder: &Path, stamp: &str) -> Option<bool> {
    finished(folder).then(|| fs::read_to_string(folder.join("sweep.json")).is_ok_and(|found| found == stamp))
}

/// Whether a run is there with all its rounds, or diverged.
fn finished(folder: &Path) -> bool {
    read_summary(&folder.join(names::SUMMARY)).is_ok_and(|summary| summary.status != Ending::Interrupted)
}
