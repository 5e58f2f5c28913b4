//! Curves over rounds, with their spread over seeds.

use fedelity_record::{RoundRecord, mean_and_sd};

use super::{by_round, thin, tidy};
use crate::figure::{Drawing, Figure, SeedLine, Series};
use crate::loaded::LoadedRun;
use crate::results::{Group, Results};

/// Maximum points of a curve.
const POINTS: usize = 600;
/// Maximum points of a single run's curve.
const SEED_POINTS: usize = 150;
/// Single runs are drawn for at most this many seeds.
const SEEDS: usize = 20;

/// Gets a number from a round.
pub(super) type Of<'a> = &'a dyn Fn(&RoundRecord) -> Option<f64>;

/// One curve per group, over rounds.
pub(super) fn curves(study: &Results, part: &str, faint: bool, of: Of<'_>) -> Vec<Series> {
    series(study, part, faint, &|run| run.curve(of).into_iter().map(|(round, y)| (round, (round as f64, y))).collect())
}

/// Rounds, and a point in each of them.
type Points = Vec<(u64, (f64, f64))>;

/// One curve per group: the means over seeds of its runs' points.
fn series(study: &Results, part: &str, faint: bool, of: &dyn Fn(&LoadedRun) -> Points) -> Vec<Series> {
    let of_group = |(method, group): (usize, &Group)| {
        let points = by_round(group.counted().into_iter().flat_map(of)).into_values().map(|all| {
            let (x, y): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
            let (mean, sd) = mean_and_sd(&y).unwrap_or_default();
            let (x, sd) = (x.iter().sum::<f64>() / x.len() as f64, sd.unwrap_or(0.0));
            [tidy(x), tidy(mean), tidy(mean - sd), tidy(mean + sd)]
        });
        let seeds = if faint { Vec::new() } else { lines_of_seeds(group, of) };
        Series { method, part: part.to_string(), faint, points: thin(points.collect(), POINTS), seeds }
    };
    study.groups.iter().enumerate().map(of_group).filter(|series| !series.points.is_empty()).collect()
}

/// The single runs of a group, if there are several.
fn lines_of_seeds(group: &Group, of: &dyn Fn(&LoadedRun) -> Points) -> Vec<SeedLine> {
    let runs = group.counted();
    let line = |run: &&LoadedRun| {
        let points = of(run).into_iter().map(|(_, (x, y))| [tidy(x), tidy(y)]).collect();
        SeedLine { seed: run.header.seed, points: thin(points, SEED_POINTS) }
    };
    let several = (2..=SEEDS).contains(&runs.len());
    if several { runs.iter().map(line).filter(|line| !line.points.is_empty()).collect() } else { Vec::new() }
}

/// A figure with one curve per group over the rounds.
pub(super) fn curve(study: &Results, id: &str, title: &str, y: &str, percent: bool, of: Of<'_>) -> Option<Figure> {
    lines(id, title, y, percent, curves(study, "", false, of))
}

pub(super) fn lines(id: &str, title: &str, y: &str, percent: bool, series: Vec<Series>) -> Option<Figure> {
    figure(id, title, ("round", y), percent, series)
}

fn figure(id: &str, title: &str, (x, y): (&str, &str), percent: bool, series: Vec<Series>) -> Option<Figure> {
    let shown = !series.is_empty();
    // Shares are from 0 to 1, and nothing else that is drawn over rounds is negative, unless a card says so.
    let range = [Some(0.0), percent.then_some(1.0)];
    let drawing = Drawing::Lines { x: x.to_string(), y: y.to_string(), percent, series, range };
    shown.then(|| Figure { id: id.to_string(), title: title.to_string(), text: String::new(), drawing })
}

/// Accuracy over a cumulative quantity; the mean over seeds of both.
pub(super) fn against(
    study: &Results,
    id: &str,
    title: &str,
    x: &str,
    of: &dyn Fn(&RoundRecord) -> f64,
) -> Option<Figure> {
    let spent = |run: &LoadedRun| {
        let mut sum = 0.0;
        let point = |round: &RoundRecord| {
            sum += of(round);
            Some((round.round, (sum, round.accuracy?)))
        };
        run.rounds.iter().filter_map(point).collect()
    };
    figure(id, title, (x, "accuracy"), true, series(study, "", false, &spent))
}
