//! Comparison of methods, with sound statistics.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::ReportError;
use crate::judged::Judged;
use crate::loaded::{LeftOut, LoadedRun};
use crate::mark::{Include, MarkKind, REMEDY, RunMark, UNLEARNT_REMEDY};
use crate::results::{Group, Results};
use crate::setting::{Setting, is_within};
use crate::statistics::{Difference, MeanSd, differ, difference, holm, ranks};

/// What to compare with, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The method that the others are compared with [default: fedavg, or the first].
    pub baseline: Option<String>,
    /// The accuracy to reach; by default, the baseline's final accuracy with the same seed.
    pub target: Option<f64>,
    /// The accuracy that differences and ranks are of.
    pub by: Judged,
    /// Marked runs that count in differences, rounds to target and ranks.
    pub include: Include,
    /// Whether runs without an end are still running: they are not worth a mark.
    pub live: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comparison {
    /// The method that the others of a setting are compared with.
    pub baseline: String,
    /// The accuracy that differences and ranks are of.
    pub by: Judged,
    /// The accuracy to reach, if given.
    pub target: Option<f64>,
    /// What rows are compared within.
    pub settings: Vec<Setting>,
    /// One row per method and setting, setting by setting.
    pub rows: Vec<ComparisonRow>,
    /// Keys that differ within a setting, as asked for.
    pub mixed: Vec<String>,
    /// Keys that were tuned for each method before they were compared.
    pub tuned: Vec<String>,
    /// Notes on the numbers.
    pub notes: Vec<String>,
    /// What the marks in the table mean, run by run.
    pub footnotes: Vec<String>,
    pub left_out: Vec<LeftOut>,
}

/// One method over its seeds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ComparisonRow {
    /// The method and what distinguishes it from others.
    pub label: String,
    /// The same without what distinguishes its setting.
    pub name: String,
    /// The same with the method's name in papers.
    pub title: String,
    /// What was chosen for the method, if it was tuned; empty if it stays as it is.
    pub chosen: Option<String>,
    /// The place of its setting in [`Comparison::settings`].
    pub setting: usize,
    /// The label of the row that it is compared with, if there is one in its setting.
    pub baseline: Option<String>,
    /// The seeds of the runs that means are over: the finished ones or, without any, all.
    pub seeds: Vec<u64>,
    /// Unfinished runs.
    pub unfinished: usize,
    /// Finished runs whose global model is collapsed.
    pub collapsed: usize,
    /// Finished runs whose global model never was better than guessing.
    pub unlearnt: usize,
    /// All of them, one by one.
    pub marks: Vec<RunMark>,
    /// The accuracy in the last round.
    pub final_accuracy: Option<MeanSd>,
    /// The mean accuracy of the last ten rounds that were evaluated.
    pub last_ten: Option<MeanSd>,
    /// The best accuracy over all rounds.
    pub best_accuracy: Option<MeanSd>,
    /// Forgetting after the last round.
    pub forgetting: Option<MeanSd>,
    /// The mean of the accuracy curve over the rounds.
    pub area: Option<MeanSd>,
    /// Accuracy minus the baseline's, paired by seed: the final one, unless another is asked for.
    pub difference: Option<Difference>,
    pub to_target: Option<ToTarget>,
    /// The mean over seeds of the rank by the same accuracy; 1 is the best.
    pub rank: Option<f64>,
    /// Bytes in both directions, over all rounds.
    pub bytes: Option<MeanSd>,
    /// Bytes from the server to clients.
    pub bytes_down: Option<MeanSd>,
    /// Bytes from clients to the server.
    pub bytes_up: Option<MeanSd>,
    /// Bytes in both directions, relative to FedAvg's.
    pub traffic: Option<MeanSd>,
    /// Seconds, over all rounds.
    pub seconds: Option<MeanSd>,
    /// The largest epsilon of its runs, if they have noise: what a run reveals about one client.
    pub epsilon: Option<f64>,
    /// The mean accuracy per round.
    pub curve: Vec<(u64, f64)>,
}

/// When a target was reached: *to target*, and *to fedavg* where the target is FedAvg's.
///
/// A run reaches its target in the first round whose accuracy is at least the target; the target is the given one, or
/// the baseline's final accuracy with the same seed. Seeds that the baseline lacks do not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ToTarget {
    /// The first round that reaches it: the mean over the seeds that do.
    pub rounds: Option<f64>,
    pub reached: usize,
    pub of: usize,
}

/// Most keys that a note suggests to mix.
const MIXABLE: usize = 5;

/// The default baseline.
pub const BASELINE: &str = "fedavg";

impl Comparison {
    /// Compares the groups of each setting. An unknown baseline is an error.
    pub fn new(study: &Results, options: &Options) -> Result<Self, ReportError> {
        let baseline = baseline(study, options.baseline.as_deref())?;
        let mut rows: Vec<ComparisonRow> = Vec::new();
        for setting in 0..study.settings.len() {
            let groups = study.of_setting(setting);
            let own = groups.iter().copied().find(|group| group.name == baseline);
            rows.extend(groups.iter().map(|group| row(group, own, options, mean_rank(group, &groups, options))));
        }
        let p: Vec<Option<f64>> = rows.iter().map(|row| row.difference.and_then(|found| found.p)).collect();
        for (row, p) in rows.iter_mut().zip(holm(&p)) {
            if let Some(difference) = &mut row.difference {
                difference.p_holm = p;
            }
        }
        let mut new = Self {
            baseline,
            by: options.by,
            target: options.target,
            settings: study.settings.clone(),
            rows,
            mixed: study.mixed.clone(),
            tuned: study.tuned().into_iter().map(String::from).collect(),
            notes: Vec::new(),
            footnotes: Vec::new(),
            left_out: study.left_out.clone(),
        };
        new.notes = gaps(study);
        new.notes.extend(new.remarks());
        new.notes.extend(new.of_settings());
        new.notes.extend(seeds(study, options.include).filter(|_| !options.live));
        new.footnotes = new.of_marks(options.include);
        Ok(new)
    }

    /// The baseline's name in papers.
    fn baseline_title(&self) -> &str {
        self.rows.iter().find(|row| row.name == self.baseline).map_or(&self.baseline, |row| &row.title)
    }

    /// Whether any method has another one in its setting.
    pub fn has_rivals(&self) -> bool {
        self.rows.iter().enumerate().any(|(at, row)| self.rows[..at].iter().any(|other| other.setting == row.setting))
    }

    /// Notes on what is compared with what.
    fn of_settings(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.tuned.is_empty() {
            let keys = self.tuned.join(", ");
            notes.push(format!("Each method has what was chosen for it on held-out training samples: {keys}."));
        }
        if !self.mixed.is_empty() {
            notes
                .push(format!("Runs that differ in {} are compared with each other, as asked.", self.mixed.join(", ")));
        }
        if self.settings.len() > 1 {
            let note = "Differences, rounds to target and ranks compare only runs of the same setting.";
            notes.push(note.to_string());
        }
        if self.rows.len() > 1 && !self.has_rivals() {
            let print = |key: &&String| !key.ends_with(".fingerprint");
            let keys: BTreeSet<&String> = self.settings.iter().flat_map(|one| one.keys.keys()).filter(print).collect();
            let some: Vec<&str> = keys.iter().take(MIXABLE).map(|key| key.as_str()).collect();
            let more = if keys.len() > MIXABLE { ", ..." } else { "" };
            let which = if keys.is_empty() { String::new() } else { format!(": here {}{more}", some.join(", ")) };
            notes.push(format!(
                "Each setting has one method, so it is compared with nothing. fedelity compare --mix KEY compares runs that \
                 differ in KEY{which}."
            ));
        }
        let of = |setting: usize| self.rows.iter().filter(move |row| row.setting == setting);
        let lacks = |setting: &usize| of(*setting).count() > 1 && of(*setting).all(|row| row.baseline.is_none());
        let without: Vec<&str> =
            (0..self.settings.len()).filter(lacks).map(|setting| self.settings[setting].label.as_str()).collect();
        if !without.is_empty() {
            notes.push(format!(
                "There is no {} with {}: no differences there.",
                self.baseline_title(),
                without.join("; ")
            ));
        }
        notes
    }

    /// Advice, if runs collapsed or learnt nothing.
    pub fn advice(&self) -> Vec<&'static str> {
        let collapsed = self.rows.iter().any(|row| row.collapsed > 0).then_some(REMEDY);
        let unlearnt = self.rows.iter().any(|row| row.unlearnt > 0).then_some(UNLEARNT_REMEDY);
        collapsed.into_iter().chain(unlearnt).collect()
    }

    /// The kinds of marks on runs that do not count.
    pub fn not_counted(&self, include: Include) -> Vec<MarkKind> {
        let of = |kind: MarkKind| self.rows.iter().flat_map(|row| &row.marks).any(|mark| mark.kind == kind);
        MarkKind::ALL.into_iter().filter(|kind| of(*kind) && !include.counts(*kind)).collect()
    }

    /// One line per marked run, and what marks mean.
    fn of_marks(&self, include: Include) -> Vec<String> {
        let marks: Vec<(&ComparisonRow, &RunMark)> =
            self.rows.iter().flat_map(|row| row.marks.iter().map(move |mark| (row, mark))).collect();
        let line = |(row, mark): &(&ComparisonRow, &RunMark)| {
            format!("{} {}, seed {}: {}.", mark.kind.sign(), row.full_title(), mark.seed, mark.what)
        };
        let mut notes: Vec<String> = marks.iter().map(line).collect();
        let out: Vec<&str> = self.not_counted(include).into_iter().map(MarkKind::name).collect();
        if !out.is_empty() && self.rows.len() > 1 {
            let note = "runs do not count in differences, rounds to target and ranks";
            let text = format!("{} {note}.", out.join(" and "));
            notes.push(text[..1].to_uppercase() + &text[1..]);
        }
        notes
    }

    /// Notes on the numbers.
    fn remarks(&self) -> Vec<String> {
        let (baseline, mut notes) = (self.baseline_title(), Vec::new());
        let by = if self.by == Judged::Final { String::new() } else { format!(" in {}", self.by.words()) };
        let differences: Vec<&Difference> = self.rows.iter().filter_map(|row| row.difference.as_ref()).collect();
        if let Some(most) = differences.iter().map(|difference| difference.summary.n).max() {
            let mut names: Vec<&str> = Vec::new();
            for name in differences.iter().filter(|found| found.p.is_some()).map(|found| found.test.name()) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            if names.is_empty() {
                let reason =
                    if most < 2 { "one seed gives no interval and no p-value" } else { "all differences are equal" };
                notes.push(format!("Differences from {baseline}{by} on the same seeds; {reason}."));
            } else {
                notes.push(format!(
                    "Differences from {baseline}{by} on the same seeds, with a 95 % interval (Student's t) and a two-sided \
                     p-value ({}, n = {most}){}.",
                    names.join(", "),
                    if differences.len() > 1 { "; p (Holm) is corrected for all rows" } else { "" }
                ));
            }
            if most == 2 && !names.is_empty() {
                notes.push("Two seeds are very little evidence, as the interval shows.".to_string());
            }
        }
        notes
    }
}

/// What the data of the runs lack.
fn gaps(study: &Results) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for header in study.runs().map(|run| &run.header) {
        let said = header.data_gaps.iter().map(|gap| format!("{}: {gap}.", header.dataset));
        notes.extend(said.filter(|note| !notes.contains(note)).collect::<Vec<_>>());
    }
    notes
}

/// The name of the groups that others are compared with: the one asked for, or FedAvg with the most usual settings, or
/// the first.
fn baseline(study: &Results, asked: Option<&str>) -> Result<String, ReportError> {
    let groups = &study.groups;
    let name = |group: &Group| group.name.clone();
    let Some(asked) = asked else {
        let fedavg = groups.iter().filter(|group| group.method() == BASELINE);
        let plainest = fedavg.min_by_key(|group| unusual(group, study));
        return Ok(plainest.or(groups.first()).map_or(String::new(), name));
    };
    let found = groups.iter().find(|group| group.name == asked || group.label == asked).map(name);
    found.ok_or_else(|| {
        let mut known: Vec<&str> = Vec::new();
        for group in groups {
            if !known.contains(&group.name.as_str()) {
                known.push(&group.name);
            }
        }
        ReportError::UnknownBaseline { name: asked.to_string(), known: known.join(", ") }
    })
}

/// How many of the keys that are mixed do not have their default.
fn unusual(group: &Group, study: &Results) -> usize {
    let Some(config) = group.runs.iter().map(|run| &run.config).find(|config| !config.is_empty()) else { return 0 };
    let is_mixed = |key: &&String| study.mixed.iter().any(|name| is_within(key, name));
    let keys: BTreeSet<&String> = config.keys().chain(study.defaults.keys()).filter(is_mixed).collect();
    keys.into_iter().filter(|key| config.get(*key) != study.defaults.get(*key)).count()
}

/// A note if the groups of a setting have different seeds.
fn seeds(study: &Results, include: Include) -> Option<String> {
    let differ = |setting: &usize| {
        let mut values: Vec<(String, Vec<String>)> = Vec::new();
        for group in study.of_setting(*setting) {
            let title = group.title();
            let seeds: Vec<String> = group.compared(include).iter().map(|run| run.header.seed.to_string()).collect();
            let seeds = if seeds.is_empty() { "none".to_string() } else { seeds.join(" ") };
            match values.iter_mut().find(|(known, _)| *known == seeds) {
                Some((_, who)) => who.push(title),
                None => values.push((seeds, vec![title])),
            }
        }
        let said: Vec<String> = values.iter().map(|(seeds, who)| format!("{seeds} ({})", who.join(", "))).collect();
        (said.len() > 1).then(|| said.join(", "))
    };
    let said: Vec<String> = (0..study.settings.len()).filter_map(|setting| differ(&setting)).collect();
    let note = "Differences are over the seeds that a method and its baseline share, ranks over those that all share.";
    (!said.is_empty()).then(|| format!("The seeds that count differ: {}. {note}", said.join("; ")))
}

fn row(group: &Group, baseline: Option<&Group>, options: &Options, rank: Option<f64>) -> ComparisonRow {
    let (runs, compared) = (group.counted(), group.compared(options.include));
    let over = |of: &dyn Fn(&LoadedRun) -> Option<f64>| {
        MeanSd::of(&runs.iter().filter_map(|run| of(run)).collect::<Vec<f64>>())
    };
    let is_baseline = baseline.is_some_and(|baseline| std::ptr::eq(group, baseline));
    let others = baseline.map_or(Vec::new(), |baseline| baseline.compared(options.include));
    let paired = |run: &LoadedRun| accuracy(&others, run.header.seed, options.by);
    let differences: Vec<f64> =
        compared.iter().filter_map(|run| Some(difference(options.by.of(run)?, paired(run)?))).collect();
    let running = |mark: &RunMark| {
        let run = group.runs.iter().find(|run| run.header.seed == mark.seed);
        options.live && run.is_some_and(LoadedRun::is_open)
    };
    let marks: Vec<RunMark> = group.marks().into_iter().filter(|mark| !running(mark)).collect();
    let count = |kind: MarkKind| marks.iter().filter(|mark| mark.kind == kind).count();
    ComparisonRow {
        label: group.label.clone(),
        name: group.name.clone(),
        title: group.short_title(),
        chosen: group.chosen.clone(),
        setting: group.setting,
        baseline: baseline.map(|baseline| baseline.label.clone()),
        seeds: runs.iter().map(|run| run.header.seed).collect(),
        unfinished: count(MarkKind::Unfinished),
        collapsed: count(MarkKind::Collapsed),
        unlearnt: count(MarkKind::Unlearnt),
        final_accuracy: over(&|run| Judged::Final.of(run)),
        last_ten: over(&|run| Judged::LastTen.of(run)),
        best_accuracy: over(&|run| Judged::Best.of(run)),
        forgetting: over(&|run| run.summary.forgetting),
        area: over(&area),
        difference: if is_baseline { None } else { differ(&differences) },
        to_target: to_target(&compared, |seed| options.target.or_else(|| accuracy(&others, seed, Judged::Final))),
        rank,
        bytes: over(&|run| Some(run.summary.bytes_down as f64 + run.summary.bytes_up as f64)),
        bytes_down: over(&|run| Some(run.summary.bytes_down as f64)),
        bytes_up: over(&|run| Some(run.summary.bytes_up as f64)),
        traffic: over(&|run| run.summary.traffic),
        seconds: over(&|run| Some(run.summary.seconds.total())),
        epsilon: runs.iter().filter_map(|run| Some(run.summary.privacy?.epsilon)).max_by(f64::total_cmp),
        curve: mean_curve(&runs),
        marks,
    }
}

/// An accuracy with a seed.
fn accuracy(runs: &[&LoadedRun], seed: u64, by: Judged) -> Option<f64> {
    by.of(runs.iter().find(|run| run.header.seed == seed)?)
}

/// The mean of the accuracy over the rounds, by trapezoids between evaluations.
fn area(run: &LoadedRun) -> Option<f64> {
    let curve = run.curve(|round| round.accuracy);
    let (first, last) = (curve.first()?, curve.last()?);
    if first.0 == last.0 {
        return Some(first.1);
    }
    let pieces = curve.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 * (pair[0].1 + pair[1].1) / 2.0);
    Some(pieces.sum::<f64>() / (last.0 - first.0) as f64)
}

fn to_target(runs: &[&LoadedRun], target: impl Fn(u64) -> Option<f64>) -> Option<ToTarget> {
    let mut rounds = Vec::new();
    let mut of = 0;
    for run in runs {
        let Some(target) = target(run.header.seed) else { continue };
        of += 1;
        rounds.extend(
            run.curve(|round| round.accuracy)
                .iter()
                .find(|(_, found)| *found >= target)
                .map(|(round, _)| *round as f64),
        );
    }
    (of > 0).then(|| ToTarget { rounds: MeanSd::of(&rounds).map(|found| found.mean), reached: rounds.len(), of })
}

/// The mean over runs, in the rounds that all of them evaluated.
fn mean_curve(runs: &[&LoadedRun]) -> Vec<(u64, f64)> {
    let curves: Vec<Vec<(u64, f64)>> = runs.iter().map(|run| run.curve(|round| round.accuracy)).collect();
    let Some((first, others)) = curves.split_first() else { return Vec::new() };
    let at =
        |curve: &[(u64, f64)], round: u64| curve.binary_search_by_key(&round, |(r, _)| *r).ok().map(|i| curve[i].1);
    first
        .iter()
        .filter_map(|&(round, value)| {
            let sum = others.iter().try_fold(value, |sum, curve| Some(sum + at(curve, round)?))?;
            Some((round, sum / curves.len() as f64))
        })
        .collect()
}

/// The mean rank of a group among others by accuracy, over the seeds that all of them have. Groups without a run
/// that counts have no rank.
fn mean_rank(group: &Group, others: &[&Group], options: &Options) -> Option<f64> {
    let ranked: Vec<(&Group, Vec<&LoadedRun>)> = others
        .iter()
        .map(|other| (*other, other.compared(options.include)))
        .filter(|(_, runs)| !runs.is_empty())
        .collect();
    let own = ranked.iter().position(|(other, _)| std::ptr::eq(*other, group)).filter(|_| ranked.len() > 1)?;
    let rank = |run: &&LoadedRun| {
        let all: Option<Vec<f64>> =
            ranked.iter().map(|(_, runs)| accuracy(runs, run.header.seed, options.by)).collect();
        Some(ranks(&all?, true)[own])
    };
    let found: Vec<f64> = ranked[own].1.iter().filter_map(rank).collect();
    MeanSd::of(&found).map(|found| found.mean)
}
