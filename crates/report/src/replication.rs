//! Our runs beside a published table, and whether they agree.

use serde::Serialize;

use crate::judged::Judged;
use crate::loaded::LoadedRun;
use crate::mark::RunMark;
use crate::published::{Departure, PublishedTable, PublishedValue, Quantity, QuantityKind};
use crate::statistics::{Difference, Interval, MeanSd, differ, difference};

/// The runs of a cell.
#[derive(Clone, Debug, Default)]
pub struct CellRuns {
    /// Its place in the table.
    pub cell: usize,
    /// How many rounds they were to have.
    pub rounds: u64,
    pub rows: Vec<RowRuns>,
}

/// The runs of a row in a cell.
#[derive(Clone, Debug, Default)]
pub struct RowRuns {
    pub name: String,
    pub title: String,
    /// Its place in the table, unless it was added.
    pub row: Option<usize>,
    pub runs: Vec<LoadedRun>,
}

/// A published table with our numbers beside it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Replication {
    pub table: String,
    pub title: String,
    pub source: String,
    pub about: String,
    /// The title of the row that gaps are measured from.
    pub baseline: String,
    pub quantities: Vec<Quantity>,
    pub cells: Vec<ReplicatedCell>,
    /// What was changed on the command line: the setting is no longer the published one.
    pub changes: Vec<String>,
    /// Where settings are not, or not certainly, the published ones.
    pub departures: Vec<Departure>,
    /// What the columns mean.
    pub notes: Vec<String>,
    /// Runs that stand out.
    pub footnotes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplicatedCell {
    pub name: String,
    pub title: String,
    pub rounds: u64,
    pub published_rounds: u64,
    pub rows: Vec<ReplicatedRow>,
    /// By quantity: pairs of rows that are in the published order.
    pub order: Vec<Option<PairOrder>>,
}

/// How many pairs of rows are in the published order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PairOrder {
    pub same: usize,
    pub of: usize,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplicatedRow {
    pub name: String,
    pub title: String,
    /// The seeds of the runs that count: all that ended in order.
    pub seeds: Vec<u64>,
    pub marks: Vec<RunMark>,
    /// Accuracies as shares.
    pub final_accuracy: Option<MeanSd>,
    pub last_ten: Option<MeanSd>,
    pub best_accuracy: Option<MeanSd>,
    /// Forgetting after the last round.
    pub forgetting: Option<MeanSd>,
    /// By quantity.
    pub values: Vec<ReplicatedValue>,
}

/// One quantity of a row in a cell, in the unit of the table.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplicatedValue {
    pub published: Option<PublishedValue>,
    /// Over the seeds that have it.
    pub ours: Option<MeanSd>,
    /// The 95 % interval of our mean.
    pub interval: Option<Interval>,
    /// The published value minus that of the baseline.
    pub published_gap: Option<f64>,
    /// Ours minus the baseline's, on the same seeds.
    pub gap: Option<Difference>,
    pub verdict: Option<Verdict>,
}

/// Whether our gap to the baseline agrees with the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The published gap is in the 95 % interval of ours, and both have the same sign.
    GapWithin,
    /// The published gap is in the interval, but ours has the other sign: the seeds do not decide.
    Open,
    /// Both gaps have the same sign, but the published one is outside the interval, or there is no interval.
    SameOrder,
    OtherOrder,
    /// There is a gap in the publication, and none here.
    LevelHere,
    /// There is none in the publication, and one here.
    LevelThere,
    /// A target that was reached neither there nor here.
    NeverInBoth,
    /// A target that was reached only in the publication.
    NeverHere,
    /// A target that was reached only here.
    NeverThere,
}

impl Verdict {
    /// The rule: signs first, then the interval.
    pub fn of(published: f64, ours: &Difference) -> Self {
        let mean = ours.summary.mean;
        // A gap of zero has no sign: only another zero has the same order, and none has another.
        let same = if published == 0.0 { mean == 0.0 } else { published * mean > 0.0 };
        match ours.interval {
            Some(Interval { low, high }) if low <= published && published <= high => {
                if same || published == 0.0 {
                    Self::GapWithin
                } else {
                    Self::Open
                }
            }
            _ if same => Self::SameOrder,
            _ if mean == 0.0 => Self::LevelHere,
            _ if published == 0.0 => Self::LevelThere,
            _ => Self::OtherOrder,
        }
    }
}

impl ReplicatedValue {
    /// The verdict in words.
    pub fn verdict_cell(&self) -> String {
        let Some(verdict) = self.verdict else { return "-".to_string() };
        let sizes = self.published_gap.zip(self.gap).filter(|(_, gap)| gap.interval.is_some());
        match (verdict, sizes) {
            (Verdict::GapWithin, _) => "gap within interval",
            (Verdict::Open, _) => "gap within interval, order open",
            (Verdict::SameOrder, None) => "same order, no interval",
            (Verdict::SameOrder, Some((there, here))) if here.summary.mean.abs() < there.abs() => {
                "same order, smaller gap"
            }
            (Verdict::SameOrder, Some(_)) => "same order, larger gap",
            (Verdict::OtherOrder, None) => "other order, no interval",
            (Verdict::OtherOrder, Some(_)) => "other order",
            (Verdict::LevelHere, _) => "level here",
            (Verdict::LevelThere, _) => "level in the paper",
            (Verdict::NeverInBoth, _) => "never in both",
            (Verdict::NeverHere, _) => "reached only in the paper",
            (Verdict::NeverThere, _) => "reached only here",
        }
        .to_string()
    }
}

impl Replication {
    /// Puts runs beside a table. `changes` are what the command line made different.
    pub fn new(table: &PublishedTable, ran: &[CellRuns], changes: Vec<String>) -> Self {
        let cells: Vec<ReplicatedCell> = ran.iter().filter_map(|runs| cell(table, runs)).collect();
        let mut new = Self {
            table: table.name.clone(),
            title: table.title.clone(),
            source: table.source.clone(),
            about: table.about.clone(),
            baseline: table.rows.get(table.baseline).map_or(String::new(), |row| row.title.clone()),
            quantities: table.quantities.clone(),
            changes: Vec::new(),
            departures: table.departures.clone(),
            notes: Vec::new(),
            footnotes: footnotes(&cells),
            cells,
        };
        new.changes = new.other_rounds().into_iter().chain(changes).collect();
        new.notes = new.remarks();
        new
    }

    /// Which cells do not have the published number of rounds, in words.
    fn other_rounds(&self) -> Vec<String> {
        let mut found: Vec<(u64, u64, Vec<&str>)> = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.rounds != cell.published_rounds) {
            match found.iter_mut().find(|(run, of, _)| (*run, *of) == (cell.rounds, cell.published_rounds)) {
                Some((.., names)) => names.push(&cell.name),
                None => found.push((cell.rounds, cell.published_rounds, vec![&cell.name])),
            }
        }
        let line = |(run, of, names): (u64, u64, Vec<&str>)| {
            let same: Vec<&str> =
                self.quantities.iter().filter(|one| one.kind.is_within(run)).map(|one| one.title.as_str()).collect();
            let except = if same.is_empty() { String::new() } else { format!(", except for {}", same.join(", ")) };
            let noun = if run == 1 { "round" } else { "rounds" };
            format!("{run} {noun} instead of {of} in {}{except}", names.join(", "))
        };
        found.into_iter().map(line).collect()
    }

    fn remarks(&self) -> Vec<String> {
        let gaps: Vec<Difference> = self
            .cells
            .iter()
            .flat_map(|cell| &cell.rows)
            .flat_map(|row| &row.values)
            .filter_map(|one| one.gap)
            .collect();
        let mut notes = Vec::new();
        let Some(most) = gaps.iter().map(|gap| gap.summary.n).max() else {
            let several = self.cells.iter().any(|cell| cell.rows.len() > 1);
            let note = format!("{} has no finished run with the same seeds, so there are no gaps.", self.baseline);
            notes.extend(several.then_some(note));
            return notes;
        };
        let about = format!("A gap is the difference from {}", self.baseline);
        match gaps.iter().any(|gap| gap.interval.is_some()) {
            true => notes.push(format!(
                "{about}; ours is over the same seeds (n = {most}), with a 95 % interval (Student's t). 'gap within interval' \
                 means that this interval contains the published gap, 'same order' that both gaps have the same sign."
            )),
            false if most == 1 => notes.push(format!(
                "{about}. One seed gives no interval: verdicts are about the sign of the gap only, and chance may decide it."
            )),
            false => notes.push(format!("{about}. All differences are equal, so there is no interval.")),
        }
        if most == 2 {
            notes.push("Two seeds are very little evidence: their intervals contain almost any gap.".to_string());
        }
        notes
    }

    /// How many pairs of rows are in the published order, in words.
    pub fn order_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, quantity) in self.quantities.iter().enumerate() {
            let found: Vec<String> = self
                .cells
                .iter()
                .filter_map(|cell| {
                    let order = cell.order[at]?;
                    Some(format!("{} of {} in {}", order.same, order.of, cell.name))
                })
                .collect();
            if !found.is_empty() {
                lines.push(format!("Pairs in the published order, {}: {}.", quantity.title, found.join("; ")));
            }
        }
        lines
    }
}

fn cell(table: &PublishedTable, runs: &CellRuns) -> Option<ReplicatedCell> {
    let published = table.cells.get(runs.cell)?;
    let whole: Vec<Vec<&LoadedRun>> = runs.rows.iter().map(|row| counted(&row.runs)).collect();
    let base = runs.rows.iter().position(|row| row.row == Some(table.baseline));
    let target = |seed: u64| {
        let own = || whole[base?].iter().find(|run| run.header.seed == seed)?.summary.final_accuracy;
        published.target.map(|target| target / 100.0).or_else(own)
    };
    // Numbers by row, quantity and seed.
    let numbers = |row: usize, kind: &QuantityKind| -> Vec<(u64, f64)> {
        let one = |run: &&LoadedRun| Some((run.header.seed, kind.of(run, target(run.header.seed))?));
        whole[row].iter().filter_map(one).collect()
    };
    let of_table = |row: usize, quantity: usize| {
        runs.rows[row].row.and_then(|row| table.rows.get(row)?.value(quantity, runs.cell))
    };
    let value = |row: usize, quantity: usize| -> ReplicatedValue {
        let kind = &table.quantities[quantity].kind;
        let own = numbers(row, kind);
        let found = differ(&own.iter().map(|(_, number)| *number).collect::<Vec<f64>>());
        let (mut gap, mut published_gap) = (None, None);
        if let Some(base) = base.filter(|base| *base != row) {
            let others = numbers(base, kind);
            let paired = |(seed, number): &(u64, f64)| {
                let other = others.iter().find(|(other, _)| other == seed)?.1;
                Some(difference(*number, other))
            };
            gap = differ(&own.iter().filter_map(paired).collect::<Vec<f64>>());
            let numbers = of_table(row, quantity).zip(of_table(base, quantity));
            published_gap = numbers.and_then(|(one, other)| Some(difference(one.number()?, other.number()?)));
        }
        let published = of_table(row, quantity);
        let reached = kind == &QuantityKind::ToTarget && !whole[row].is_empty();
        let verdict = match (published, &gap) {
            (Some(PublishedValue::Never), _) if reached && own.is_empty() => Some(Verdict::NeverInBoth),
            (Some(PublishedValue::Never), _) if reached => Some(Verdict::NeverThere),
            (Some(_), _) if reached && own.is_empty() => Some(Verdict::NeverHere),
            (_, Some(gap)) => published_gap.map(|there| Verdict::of(there, gap)),
            _ => None,
        };
        let (ours, interval) = (found.map(|found| found.summary), found.and_then(|found| found.interval));
        ReplicatedValue { published, ours, interval, published_gap, gap, verdict }
    };
    let rows: Vec<ReplicatedRow> = (0..runs.rows.len())
        .map(|at| {
            let over = |of: &dyn Fn(&LoadedRun) -> Option<f64>| {
                MeanSd::of(&whole[at].iter().filter_map(|run| of(run)).collect::<Vec<f64>>())
            };
            ReplicatedRow {
                name: runs.rows[at].name.clone(),
                title: runs.rows[at].title.clone(),
                seeds: whole[at].iter().map(|run| run.header.seed).collect(),
                marks: runs.rows[at].runs.iter().filter_map(LoadedRun::mark).collect(),
                final_accuracy: over(&|run| run.summary.final_accuracy),
                last_ten: over(&|run| Judged::LastTen.of(run)),
                best_accuracy: over(&|run| run.summary.best.map(|best| best.accuracy)),
                forgetting: over(&|run| run.summary.forgetting),
                values: (0..table.quantities.len()).map(|quantity| value(at, quantity)).collect(),
            }
        })
        .collect();
    Some(ReplicatedCell {
        name: published.name.clone(),
        title: published.title.clone(),
        rounds: runs.rounds,
        published_rounds: published.rounds,
        order: (0..table.quantities.len()).map(|quantity| pairs(&rows, quantity)).collect(),
        rows,
    })
}

/// The runs that ended in order, by seed. Those that collapsed count: leaving out failures would flatter a method.
fn counted(runs: &[LoadedRun]) -> Vec<&LoadedRun> {
    let mut whole: Vec<&LoadedRun> = runs.iter().filter(|run| run.summary.status.is_complete()).collect();
    whole.sort_by_key(|run| run.header.seed);
    whole
}

/// Of all pairs of rows that the table puts in an order, how many are in the same one here.
fn pairs(rows: &[ReplicatedRow], quantity: usize) -> Option<PairOrder> {
    let of = |row: &ReplicatedRow| {
        let value = &row.values[quantity];
        Some((value.published?.number()?, value.ours?.mean))
    };
    let known: Vec<(f64, f64)> = rows.iter().filter_map(of).collect();
    let mut order = PairOrder { same: 0, of: 0 };
    for (at, one) in known.iter().enumerate() {
        for other in known[at + 1..].iter().filter(|other| other.0 != one.0) {
            order.of += 1;
            order.same += usize::from((one.0 - other.0) * (one.1 - other.1) > 0.0);
        }
    }
    (order.of > 0).then_some(order)
}

/// One line per marked run.
fn footnotes(cells: &[ReplicatedCell]) -> Vec<String> {
    let mut lines = Vec::new();
    for (cell, row) in cells.iter().flat_map(|cell| cell.rows.iter().map(move |row| (cell, row))) {
        for mark in &row.marks {
            let (sign, title, seed, what) = (mark.kind.sign(), &row.title, mark.seed, &mark.what);
            lines.push(format!("{sign} {}, {title}, seed {seed}: {what}.", cell.name));
        }
    }
    lines
}
