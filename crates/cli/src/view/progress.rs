//! Progress for a waiting user: a bar on a terminal, a few plain lines elsewhere.

use std::fmt;
use std::time::{Duration, Instant};

use fedelity_record::RoundRecord;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::printer::Printer;
use crate::view::units::{percent, seconds};

/// Approximate number of plain lines per run.
const LINES: usize = 15;
/// The longest time without a plain line.
const SILENCE: Duration = Duration::from_secs(60);

/// The progress of all runs of a study.
pub(crate) struct Progress<'a> {
    printer: &'a Printer,
    bar: ProgressBar,
    runs: usize,
    rounds: usize,
    /// The current run, counted from 1, and its name.
    run: (usize, String),
    /// Whether the run before was passed over.
    skipped: bool,
    accuracy: Option<f64>,
    loss: Option<f64>,
    /// Rounds that were run in this process, and their time.
    done: usize,
    elapsed: f64,
    /// When the last plain line was printed.
    told: Instant,
}

impl<'a> Progress<'a> {
    /// For several runs with the same number of rounds.
    pub(crate) fn new(printer: &'a Printer, runs: usize, rounds: usize) -> Self {
        let bar = printer.bar((runs * rounds) as u64);
        let style = ProgressStyle::with_template("{prefix}  {wide_bar}  {msg}{left}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("left", |state: &ProgressState, to: &mut dyn fmt::Write| {
                // Nothing is known before the first round has finished.
                if state.pos() > 0 {
                    let _ = write!(to, "  {:#} left", HumanDuration(state.eta()));
                }
            });
        bar.set_style(style);
        let (run, told) = ((0, String::new()), Instant::now());
        Self {
            printer,
            bar,
            runs,
            rounds,
            run,
            skipped: false,
            accuracy: None,
            loss: None,
            done: 0,
            elapsed: 0.0,
            told,
        }
    }

    /// Starts a run, or goes on after some of its rounds.
    pub(crate) fn start(&mut self, name: String, rounds: usize) {
        self.run = (self.run.0 + 1, name);
        (self.accuracy, self.loss, self.done, self.elapsed) = (None, None, 0, 0.0);
        self.bar.set_position(((self.run.0 - 1) * self.rounds + rounds) as u64);
        if rounds > 0 || self.skipped {
            // Rounds of an earlier process say nothing about the time left.
            self.bar.reset_eta();
        }
        self.skipped = false;
        self.bar.set_prefix(self.title());
        self.bar.set_message(format!("round {} of {}", rounds + 1, self.rounds));
        self.bar.tick();
        if !self.printer.live() {
            let resumed = if rounds > 0 { format!(", resumed after round {rounds}") } else { String::new() };
            self.printer.say(format_args!("{}{resumed}", self.title()));
        }
    }

    /// Passes over a run that had already ended.
    pub(crate) fn skip(&mut self) {
        self.run.0 += 1;
        self.skipped = true;
    }

    /// Records a finished round.
    pub(crate) fn round(&mut self, record: &RoundRecord) {
        self.accuracy = record.accuracy.or(self.accuracy);
        self.loss = record.loss.or(self.loss);
        self.elapsed += record.seconds.total();
        self.done += 1;
        let round = record.round as usize;
        let mut text = format!("round {round} of {}", self.rounds);
        if let Some(accuracy) = self.accuracy {
            text.push_str(&format!("  accuracy {}", percent(accuracy)));
        }
        if let Some(loss) = self.loss {
            text.push_str(&format!("  loss {loss:.3}"));
        }
        self.bar.set_message(text.clone());
        self.bar.set_position(((self.run.0 - 1) * self.rounds + round) as u64);
        if !self.printer.live() && self.is_told(round) {
            let left = self.elapsed / self.done as f64
                * (self.runs * self.rounds - ((self.run.0 - 1) * self.rounds + round)) as f64;
            let left = if left > 0.0 { format!("  {} left", seconds(left)) } else { String::new() };
            self.printer.say(format_args!("  {text}  {}{left}", seconds(self.elapsed)));
            self.told = Instant::now();
        }
    }

    /// Prints something without the bar in between.
    pub(crate) fn pause(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn title(&self) -> String {
        let (run, name) = &self.run;
        if self.runs == 1 { name.clone() } else { format!("run {run} of {}: {name}", self.runs) }
    }

    /// Whether this round gets a plain line: the first, the last, some in between, and any after a long silence.
    fn is_told(&self, round: usize) -> bool {
        let step = self.rounds.div_ceil(LINES);
        let some = round == 1 || round == self.rounds || round.is_multiple_of(step);
        self.printer.verbose() || some || self.told.elapsed() >= SILENCE
    }
}
