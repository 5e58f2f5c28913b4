//! A sweep in progress: a table on the terminal, one row per setting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fedelity_experiment::{Elsewhere, Job, JobEnd};
use fedelity_record::Status;
use fedelity_report::{MeanSd, spread};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::Printer;
use crate::view::sparkline::{scale, sparkline};
use crate::view::table::{Align, Table};
use crate::view::terminal;

/// Maximum blocks of a curve.
const CURVE: usize = 10;
/// Width of the table besides the name of a setting.
const TAKEN: usize = 56;
/// Steps of the progress bar per run.
const STEPS: u64 = 1_000;
/// Rounds that follow each other faster are not drawn one by one.
const PAUSE: Duration = Duration::from_millis(50);

/// The table of a sweep. Nothing is shown if output is not a terminal.
pub(crate) struct Board {
    printer: Printer,
    screen: MultiProgress,
    bar: ProgressBar,
    lines: Vec<ProgressBar>,
    state: Mutex<BoardState>,
}

struct BoardState {
    rows: Vec<Row>,
    /// The row of each label.
    places: HashMap<String, usize>,
    ended: usize,
    of: usize,
    /// What other processes and this one run, once others do.
    others: Option<(Elsewhere, usize)>,
    drawn: Option<Instant>,
}

/// One setting.
#[derive(Default)]
struct Row {
    label: String,
    seeds: usize,
    /// Final accuracies of finished runs.
    finals: Vec<f64>,
    ended: usize,
    diverged: usize,
    collapsed: usize,
    unlearnt: usize,
    failed: usize,
    /// By seed: the round, the number of rounds, the accuracies.
    running: BTreeMap<u64, (u64, u64, Vec<f64>)>,
    /// The accuracies of the run that reported last.
    curve: Vec<f64>,
}

impl Board {
    /// Where tables are drawn. A message from any thread goes through [`speaker`].
    pub(crate) fn screen(printer: &Printer) -> MultiProgress {
        let target = if printer.live() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        MultiProgress::with_draw_target(target)
    }

    pub(crate) fn new(printer: &Printer, screen: &MultiProgress, jobs: &[Job]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for job in jobs {
            let at = *places.entry(job.label.clone()).or_insert(rows.len());
            if at == rows.len() {
                rows.push(Row { label: job.label.clone(), ..Row::default() });
            }
            rows[at].seeds += 1;
        }
        let screen = screen.clone();
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        // The heading and, below the rows, a line about those that do not fit.
        let room = terminal::height().unwrap_or(24).saturating_sub(4).max(4);
        let shown = if printer.live() { (rows.len() + 1).min(room) } else { 0 };
        let line = |_| screen.add(ProgressBar::new(1).with_style(style("{wide_msg}")));
        let lines = (0..shown).map(line).collect();
        let bar = screen.add(ProgressBar::new(STEPS * jobs.len() as u64));
        bar.set_style(style("{prefix}  {wide_bar}  {eta} left"));
        let board = Self {
            printer: *printer,
            screen,
            bar,
            lines,
            state: Mutex::new(BoardState { rows, places, ended: 0, of: jobs.len(), others: None, drawn: None }),
        };
        board.draw(&mut board.lock());
        board
    }

    /// A run finished a round.
    pub(crate) fn round(&self, job: &Job, round: u64, of: u64, accuracy: Option<f64>) {
        let mut state = self.lock();
        let Some(row) = state.row(job) else { return };
        let run = row.running.entry(job.seed).or_default();
        run.2.extend(accuracy);
        (run.0, run.1) = (round, of);
        row.curve = run.2.clone();
        if state.drawn.is_none_or(|drawn| drawn.elapsed() >= PAUSE) {
            self.draw(&mut state);
        }
    }

    /// A run ended.
    pub(crate) fn ended(&self, job: &Job, end: &JobEnd) {
        let mut state = self.lock();
        state.ended += 1;
        let Some(row) = state.row(job) else { return };
        row.running.remove(&job.seed);
        match end {
            // It goes on with the same command.
            JobEnd::Interrupted => {}
            JobEnd::Failed(_) => row.failed += 1,
            JobEnd::Before(summary) | JobEnd::Now(summary) | JobEnd::Elsewhere(summary) => {
                row.ended += 1;
                row.diverged += usize::from(matches!(summary.status, Status::Diverged { .. }));
                row.collapsed += usize::from(summary.collapse.is_some());
                row.unlearnt += usize::from(summary.status.is_complete() && summary.unlearnt.is_some());
                row.finals.extend(summary.final_accuracy);
            }
        }
        if matches!(end, JobEnd::Before(_)) {
            // It took no time, so it must not affect the remaining time.
            self.bar.dec_length(STEPS);
        }
        self.draw(&mut state);
    }

    /// A run belongs to another process now.
    pub(crate) fn lost(&self, job: &Job) {
        let mut state = self.lock();
        state.row(job).map(|row| row.running.remove(&job.seed));
        self.draw(&mut state);
    }

    /// What other processes run, and how many this one does.
    pub(crate) fn others(&self, elsewhere: &Elsewhere, here: usize) {
        let mut state = self.lock();
        if elsewhere.runs > 0 || state.others.is_some() {
            state.others = Some((elsewhere.clone(), here));
            self.draw(&mut state);
        }
    }

    /// Prints something while the table is hidden.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.screen.suspend(print)
    }

    /// Removes the table.
    pub(crate) fn clear(&self) {
        self.lines.iter().chain([&self.bar]).for_each(ProgressBar::finish_and_clear);
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, state: &mut BoardState) {
        if self.lines.is_empty() {
            return;
        }
        state.drawn = Some(Instant::now());
        let text = state.lines(&self.printer, terminal::width(), self.lines.len());
        for (line, text) in self.lines.iter().zip(text.into_iter().chain(std::iter::repeat(String::new()))) {
            line.set_message(text);
        }
        let skipped = state.of as u64 - self.bar.length().unwrap_or(0) / STEPS;
        let parts = state.rows.iter().flat_map(|row| row.running.values());
        let part: u64 = parts.map(|(round, of, _)| STEPS * round / (*of).max(1)).sum();
        let others = state.others.as_ref().map_or(String::new(), |(others, here)| format!(", {here} here, {others}"));
        self.bar.set_prefix(format!("{} of {} runs{others}", state.ended, state.of));
        self.bar.set_position(STEPS * (state.ended as u64).saturating_sub(skipped) + part);
    }
}

/// Prints a message while the tables on a screen are hidden, from any thread.
pub(crate) fn speaker(screen: &MultiProgress, printer: &Printer) -> impl Fn(&str) + Send + use<> {
    let (screen, printer) = (screen.clone(), *printer);
    move |text| screen.suspend(|| printer.say(text))
}

impl BoardState {
    fn row(&mut self, job: &Job) -> Option<&mut Row> {
        let at = *self.places.get(&job.label)?;
        self.rows.get_mut(at)
    }

    /// The table in at most `height` lines: running settings first, then waiting ones, then finished ones.
    fn lines(&self, printer: &Printer, width: usize, height: usize) -> Vec<String> {
        let order = |row: &Row| match row {
            _ if !row.running.is_empty() => 0,
            _ if row.ended + row.failed < row.seeds => 1,
            _ => 2,
        };
        let room = height.saturating_sub(1);
        let mut chosen: Vec<usize> = (0..self.rows.len()).collect();
        let left = self.rows.len() > room;
        if left {
            chosen.sort_by_key(|&i| order(&self.rows[i]));
            chosen.truncate(room.saturating_sub(1));
            chosen.sort_unstable();
        }
        let mut table = Table::new(&[
            ("setting", Align::Left),
            ("seeds", Align::Right),
            ("accuracy %", Align::Right),
            ("curve", Align::Left),
            ("now", Align::Left),
        ]);
        for &i in &chosen {
            table.row(self.rows[i].cells(width.saturating_sub(TAKEN).max(12)));
        }
        let mut lines = table.lines(printer);
        if left {
            let hidden = || (0..self.rows.len()).filter(|i| !chosen.contains(i)).map(|i| order(&self.rows[i]));
            let (waiting, done) = (hidden().filter(|&order| order < 2).count(), hidden().filter(|&o| o == 2).count());
            lines.push(format!("and {waiting} more to run, {done} done"));
        }
        lines
    }
}

impl Row {
    fn cells(&self, room: usize) -> [String; 5] {
        let mut label: String = self.label.chars().take(room).collect();
        if self.label.chars().count() > room {
            label.pop();
            label.push('…');
        }
        let accuracy = spread(MeanSd::of(&self.finals), 100.0, 2);
        let curve = sparkline(&self.curve, CURVE, scale(self.curve.iter().copied()));
        [label, format!("{}/{}", self.ended, self.seeds), accuracy, curve, self.now()]
    }

    fn now(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some((seed, (round, of, accuracies))) = self.running.first_key_value() {
            let accuracy = accuracies.last().map_or(String::new(), |last| format!(" {:.1} %", 100.0 * last));
            let least = self.running.values().map(|(round, ..)| *round).min().unwrap_or(*round);
            parts.push(match self.running.len() {
                1 => format!("{round}/{of}{accuracy} (seed {seed})"),
                n => format!("{n} running, {least}/{of}"),
            });
        }
        let counts = [
            (self.failed, "failed"),
            (self.diverged, "diverged"),
            (self.collapsed, "collapsed"),
            (self.unlearnt, "learnt nothing"),
        ];
        parts.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        if parts.is_empty() {
            return if self.ended == self.seeds { "done" } else { "waiting" }.to_string();
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use fedelity_record::Summary;

    use super::*;
    use crate::printer::When;

    fn job(label: &str, seed: u64) -> Job {
        let (task, choice) = (String::new(), String::new());
        let (label, set, chosen) = (label.to_string(), Vec::new(), Vec::new());
        Job { folder: format!("{label}/{seed}"), label, set, seed, task, choice, chosen }
    }

    #[test]
    fn a_table_of_eighty_columns_that_fits_the_screen() {
        let printer = Printer::new(When::Never, true, false);
        let jobs: Vec<Job> = (0..30)
            .flat_map(|i| {
                [1, 2].map(|seed| job(&format!("fedavg alpha=0.{i:02} a-very-long-key-of-a-method=12345"), seed))
            })
            .collect();
        let board = Board::new(&printer, &Board::screen(&printer), &jobs);
        for round in 1..=4 {
            board.round(&jobs[0], round, 30, Some(0.1 * round as f64));
            board.round(&jobs[6], round, 30, None);
            board.round(&jobs[7], round + 1, 30, None);
            board.round(&jobs[59], round, 30, None);
        }
        let summary = |accuracy| Summary { final_accuracy: Some(accuracy), ..Summary::default() };
        board.ended(&jobs[0], &JobEnd::Now(summary(0.5)));
        board.ended(&jobs[1], &JobEnd::Before(summary(0.7)));
        board.ended(&jobs[2], &JobEnd::Failed("no".to_string()));
        let state = board.lock();
        let lines = state.lines(&printer, 80, 12);
        let text = lines.join("\n");
        assert_eq!(lines.len(), 12, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        for part in ["4/30 (seed 2)", "2 running, 4/30", "1 failed", "waiting", "and 19 more to run, 1 done", "…"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(!text.contains("60.00"), "finished settings make room: {text}");
        let done = &state.lines(&printer, 80, 40)[1];
        for part in ["2/2", "60.00 ± 14.14", "▁▃▆█", "done"] {
            assert!(done.contains(part), "{part:?} in {done:?}");
        }
    }
}
