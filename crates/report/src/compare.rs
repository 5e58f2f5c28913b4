//! Comparison of methods, with sound statistics.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::ReportError;
use crate::loaded::{LeftOut, LoadedRun};
use crate::results::{Group, Results};
use crate::statistics::{Difference, MeanSd, differ, difference, holm, ranks};

/// What to compare with, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The method that the others are compared with [default: fedavg, or the first].
    pub baseline: Option<String>,
    /// The accuracy to reach; by default, the baseline's final accuracy with the same seed.
    pub target: Option<f64>,
    /// Whether to compare runs even if their data, partitions or seeds differ.
    pub force: bool,
    /// Whether to include runs with other data or partitions, each compared with the baseline on the same ones.
    pub apart: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comparison {
    /// The method that the others are compared with.
    pub baseline: String,
    /// The accuracy to reach, if given.
    pub target: Option<f64>,
    pub rows: Vec<ComparisonRow>,
    /// How the compared runs differ.
    pub mismatches: Vec<String>,
    /// Notes on the numbers.
    pub notes: Vec<String>,
    pub left_out: Vec<LeftOut>,
}

/// One method over its seeds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ComparisonRow {
    /// The method and what distinguishes it from others.
    pub label: String,
    pub seeds: Vec<u64>,
    /// Unfinished runs, which do not count.
    pub unfinished: usize,
    /// The accuracy in the last round.
    pub final_accuracy: Option<MeanSd>,
    /// The best accuracy over all rounds.
    pub best_accuracy: Option<MeanSd>,
    /// Forgetting after the last round.
    pub forgetting: Option<MeanSd>,
    /// The mean of the accuracy curve over the rounds.
    pub area: Option<MeanSd>,
    /// Final accuracy minus the baseline's, paired by seed.
    pub difference: Option<Difference>,
    pub to_target: Option<ToTarget>,
    /// The mean over seeds of the rank by final accuracy; 1 is the best.
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

/// The default baseline.
pub const BASELINE: &str = "fedavg";

impl Comparison {
    /// Compares the groups of a study. Runs with different data, partitions or seeds are rejected unless forced.
    pub fn new(study: &Results, options: &Options) -> Result<Self, ReportError> {
        let mismatches = study.mismatches();
        if !mismatches.is_empty() && !options.force && !options.apart {
            return Err(ReportError::Mismatch { what: mismatches.join("\n  ") });
        }
        let labels: Vec<&str> = study.groups.iter().map(|group| group.label.as_str()).collect();
        let baseline = match &options.baseline {
            Some(name) => study
                .groups
                .iter()
                .find(|group| group.label == *name)
                .ok_or_else(|| ReportError::UnknownBaseline { name: name.clone(), known: labels.join(", ") })?,
            None => study.groups.iter().find(|group| group.label == BASELINE).unwrap_or(&study.groups[0]),
        };
        let settings: Vec<BTreeSet<(&str, &str)>> = study.groups.iter().map(setting).collect();
        let mut rows: Vec<ComparisonRow> = Vec::new();
        for (group, own) in study.groups.iter().zip(&settings) {
            let all = study.groups.iter().zip(&settings);
            let others: Vec<&Group> =
                all.filter(|(_, other)| !options.apart || *other == own).map(|(group, _)| group).collect();
            let own_baseline = if others.iter().any(|group| std::ptr::eq(*group, baseline)) {
                Some(baseline)
            } else {
                others.iter().copied().find(|group| group.method() == baseline.method())
            };
            rows.push(row(group, own_baseline, options.target, mean_rank(group, &others)));
        }
        let p: Vec<Option<f64>> = rows.iter().map(|row| row.difference.and_then(|found| found.p)).collect();
        for (row, p) in rows.iter_mut().zip(holm(&p)) {
            if let Some(difference) = &mut row.difference {
                difference.p_holm = p;
            }
        }
        let mut new = Self {
            baseline: baseline.label.clone(),
            target: options.target,
            rows,
            mismatches,
            notes: Vec::new(),
            left_out: study.left_out.clone(),
        };
        let mixed = options.apart && settings.iter().any(|other| *other != settings[0]);
        new.notes = new.remarks(if mixed { baseline.method() } else { &baseline.label });
        if mixed {
            let note = "The runs have different data or partitions: differences, rounds to target and ranks compare only \
                        runs with the same.";
            new.notes.push(note.to_string());
        }
        Ok(new)
    }

    /// Notes on the numbers.
    fn remarks(&self, baseline: &str) -> Vec<String> {
        let mut notes = Vec::new();
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
                notes.push(format!("Differences from {baseline} on the same seeds; {reason}."));
            } else {
                notes.push(format!(
                    "Differences from {baseline} on the same seeds, with a 95 % interval (Student's t) and a two-sided \
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

/// The data and partitions of a group's runs.
fn setting(group: &Group) -> BTreeSet<(&str, &str)> {
    let headers = group.runs.iter().map(|run| &run.header);
    headers.map(|header| (header.dataset_fingerprint.as_str(), header.partition_fingerprint.as_str())).collect()
}

fn row(group: &Group, baseline: Option<&Group>, target: Option<f64>, rank: Option<f64>) -> ComparisonRow {
    let runs = group.counted();
    let over = |of: &dyn Fn(&LoadedRun) -> Option<f64>| {
        MeanSd::of(&runs.iter().filter_map(|run| of(run)).collect::<Vec<f64>>())
    };
    let is_baseline = baseline.is_some_and(|baseline| std::ptr::eq(group, baseline));
    let paired = |run: &LoadedRun| baseline?.seed(run.header.seed)?.summary.final_accuracy;
    let differences: Vec<f64> =
        runs.iter().filter_map(|run| Some(difference(run.summary.final_accuracy?, paired(run)?))).collect();
    ComparisonRow {
        label: group.label.clone(),
        seeds: runs.iter().map(|run| run.header.seed).collect(),
        unfinished: group.runs.len() - runs.len(),
        final_accuracy: over(&|run| run.summary.final_accuracy),
        best_accuracy: over(&|run| run.summary.best.map(|best| best.accuracy)),
        forgetting: over(&|run| run.summary.forgetting),
        area: over(&area),
        difference: if is_baseline { None } else { differ(&differences) },
        to_target: to_target(&runs, baseline, target),
        rank,
        bytes: over(&|run| Some((run.summary.bytes_down + run.summary.bytes_up) as f64)),
        bytes_down: over(&|run| Some(run.summary.bytes_down as f64)),
        bytes_up: over(&|run| Some(run.summary.bytes_up as f64)),
        traffic: over(&|run| run.summary.traffic),
        seconds: over(&|run| Some(run.summary.seconds.total())),
        curve: mean_curve(&runs),
    }
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

fn to_target(runs: &[&LoadedRun], baseline: Option<&Group>, target: Option<f64>) -> Option<ToTarget> {
    let mut rounds = Vec::new();
    let mut of = 0;
    for run in runs {
        let own = target.or_else(|| baseline?.seed(run.header.seed)?.summary.final_accuracy);
        let Some(target) = own else { continue };
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

/// The mean rank of a group among others by final accuracy, over the seeds that all of them have.
fn mean_rank(group: &Group, others: &[&Group]) -> Option<f64> {
    let own = others.iter().position(|other| std::ptr::eq(*other, group)).filter(|_| others.len() > 1)?;
    let rank = |run: &&LoadedRun| {
        let finals: Option<Vec<f64>> =
            others.iter().map(|other| other.seed(run.header.seed)?.summary.final_accuracy).collect();
        Some(ranks(&finals?, true)[own])
    };
    let found: Vec<f64> = group.counted().iter().filter_map(rank).collect();
    MeanSd::of(&found).map(|found| found.mean)
}
