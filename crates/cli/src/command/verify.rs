//! `fedelity verify`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use fedelity_experiment::{Difference, Repetition, Verification, verify};
use fedelity_methods::Registry;
use fedelity_record::{Header, names};
use fedelity_report::LoadedRuns;
use serde_json::json;

use crate::engine::resources;
use crate::interrupt::Interrupt;
use crate::latest;
use crate::overrides::place_data;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::units::plural;
use crate::view::visible::visible_cell;

const EXAMPLES: &str = "\
Examples:
  fedelity verify runs/latest                 repeat the last run and compare every round
  fedelity verify runs/a --rounds 3           compare only the first three rounds
  fedelity verify runs/study --json           one object per run

A run folder has everything needed except the data set; --data-dir says where that is on this
machine. Results are the same, bit for bit, on every processor and with any number of threads, so
you can also verify a run of another machine. If something differs, verify names the first round and
the tensors that differ, with the versions and machines of both sides, and exits with code 1.";

/// Repeat a run and compare it round by round: weights, measurements and the model file
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyCommand {
    /// A run folder, or a folder with several runs.
    run: PathBuf,

    /// Compare only the first N rounds [default: all recorded rounds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,

    /// Number of worker threads, one client each; does not change results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Folder that holds the data sets [default: FEDELITY_DATA, then data.dir of the configuration, then data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Print one JSON object per run.
    #[arg(long)]
    json: bool,
}

/// The engine of plain Rust, and what its user should know.
const PORTABLE: &str = "portable";
const SLOW: &str = ", in plain Rust (FEDELITY_ISA=portable): this takes many times as long as with vector instructions";
/// The longest time without a word where no bar is drawn.
const SILENCE: Duration = Duration::from_secs(10);

impl VerifyCommand {
    pub(crate) fn run(self, printer: &Printer, methods: &Registry) -> Result<ExitStatus> {
        let threads = threads("--threads", self.threads, printer)?;
        let path = latest::resolve(&self.run, printer)?;
        let LoadedRuns { runs, left_out } = LoadedRuns::load(&[path])?;
        for out in &left_out {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        let (resources, interrupt) = (resources()?, Interrupt::listen(printer)?);
        let mut all_same = true;
        for run in &runs {
            let recorded = run.rounds.len() as u64;
            let rounds = self.rounds.map_or(recorded, |rounds| rounds.min(recorded));
            let slow = if resources.engine.name() == PORTABLE { SLOW } else { "" };
            let path = run.path.display().to_string();
            let (path, all) = (visible_cell(&path), plural(rounds as usize, "round"));
            printer.say(format_args!("{path}: repeating {all} on {}{slow}", plural(threads, "thread")));
            let bar = printer.bar(rounds);
            bar.tick();
            let mut told = Instant::now();
            let found = verify(
                &run.path,
                &resources,
                |document| {
                    document.know(methods);
                    place_data(document, self.data_dir.as_deref())
                },
                Repetition {
                    threads,
                    rounds: self.rounds,
                    stop: interrupt.sign(),
                    round: &mut |round| {
                        bar.set_position(round);
                        if !printer.live() && told.elapsed() >= SILENCE {
                            printer.say(format_args!("  round {round} of {rounds} is the same"));
                            told = Instant::now();
                        }
                    },
                },
            );
            bar.finish_and_clear();
            let found = found?;
            if interrupt.is_asked() {
                printer.say("Interrupted; nothing was changed");
                return Ok(ExitStatus::Interrupted);
            }
            for contradiction in &run.contradictions {
                printer.warn(format_args!("{path}: {contradiction}"));
            }
            all_same &= found.difference.is_none() && found.missing.is_empty();
            self.show(printer, &run.path, &found)?;
        }
        Ok(if all_same { ExitStatus::Done } else { ExitStatus::Diverged })
    }

    fn show(&self, printer: &Printer, folder: &Path, found: &Verification) -> Result<()> {
        let rounds = plural(found.same as usize, "round");
        if self.json {
            let difference = found.difference.as_ref().map(words);
            return printer.json(&json!({
                "run": folder.display().to_string(),
                "same": found.difference.is_none() && found.missing.is_empty(),
                "rounds": found.same,
                "missing": found.missing,
                "config-changed": found.config_changed,
                "difference": difference,
                "recorded": side(&found.recorded),
                "repeated": side(&found.repeated),
            }));
        }
        let path = folder.display().to_string();
        let path = visible_cell(&path);
        if found.config_changed {
            let what = "is not what the run has written there, so another run may have been repeated";
            printer.warn(format_args!("{path}: {} {what}", names::CONFIG));
        }
        let Some(difference) = &found.difference else {
            return match &found.missing[..] {
                [] => printer.line(format!("{path}: the same, bit for bit: {rounds}")),
                [first, others @ ..] => {
                    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
                    let what = format!("round {first}{more}: missing or damaged in {}", names::ROUNDS);
                    printer.line(format!("{path}: cannot be compared: {what}; the same, bit for bit: {rounds}"))
                }
            };
        };
        printer.line(format!("{path}: differs: {}", words(difference)))?;
        if !matches!(difference, Difference::Setting { .. }) && found.same > 0 {
            printer.line(format!("  the same before: {rounds}"))?;
        }
        for (name, header) in [("recorded", &found.recorded), ("repeated", &found.repeated)] {
            let Header { fedelity, machine, isa, threads, .. } = header;
            printer.line(format!(
                "  {name}: fedelity {fedelity}, {isa}, {}, on {machine}",
                plural(*threads as usize, "thread")
            ))?;
        }
        Ok(())
    }
}

/// What differs, in words.
fn words(difference: &Difference) -> String {
    match difference {
        Difference::Setting { what, recorded, repeated } => {
            format!("the {what} was {recorded} and is now {repeated}; nothing was run")
        }
        Difference::Weights { round, tensors } => match &tensors[..] {
            [] => format!("the weights after round {round}"),
            [one] => format!("the weights of {one} after round {round}"),
            [first, others @ ..] => {
                format!("the weights of {first} and {} after round {round}", plural(others.len(), "other tensor"))
            }
        },
        Difference::Measured { round, what, recorded, repeated } => {
            let (then, now) = (visible_cell(recorded), visible_cell(repeated));
            format!("the {what} of round {round} was {then} and is now {now}, with the same weights")
        }
        Difference::Model { file, round, reason } => {
            format!("{file} is not the model of round {round}: {reason}")
        }
    }
}

/// Who computed a run.
fn side(header: &Header) -> serde_json::Value {
    let Header { fedelity, machine, isa, threads, .. } = header;
    json!({ "fedelity": fedelity, "machine": machine, "isa": isa, "threads": threads })
}
