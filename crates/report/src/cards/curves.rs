//! Curves over rounds, with their spread over seeds.

use std::collections::BTreeMap;

use fedelity_record::RoundRecord;

use super::{thin, tidy};
use crate::figure::{Drawing, Figure, Series};
use crate::statistics::Summary;
use crate::study::{Group, Study};

/// Points of a curve, at most.
const POINTS: usize = 600;

/// What a number of a round is.
pub(super) type Of<'a> = &'a dyn Fn(&RoundRecord) -> Option<f64>;

/// A curve of every group, by round.
pub(super) fn curves(study: &Study, part: &str, faint: bool, of: Of<'_>) -> Vec<Series> {
    let of_group = |(method, group): (usize, &Group)| {
        let mut by_round: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let runs = group.counted();
        for run in &runs {
            for (round, value) in run.curve(of) {
                by_round.entry(round).or_default().push(value);
            }
        }
        // Rounds that only some seeds have would bend the mean.
        let whole = by_round.values().map(Vec::len).max().unwrap_or(0);
        let points = by_round.iter().filter(|(_, values)| values.len() == whole);
        let points = points.map(|(round, values)| point(*round as f64, values)).collect();
        Series { method, part: part.to_string(), faint, points: thin(points, POINTS) }
    };
    study.groups.iter().enumerate().map(of_group).filter(|series| !series.points.is_empty()).collect()
}

fn point(x: f64, values: &[f64]) -> [f64; 4] {
    let found = Summary::of(values);
    let (mean, sd) = found.map_or((0.0, 0.0), |found| (found.mean, found.sd.unwrap_or(0.0)));
    [x, tidy(mean), tidy(mean - sd), tidy(mean + sd)]
}

pub(super) fn lines(id: &str, title: &str, y: &str, percent: bool, series: Vec<Series>) -> Option<Figure> {
    let drawing = Drawing::Lines { x: "round".to_string(), y: y.to_string(), percent, series };
    let Drawing::Lines { series, .. } = &drawing else { return None };
    (!series.is_empty()).then(|| Figure { id: id.to_string(), title: title.to_string(), drawing })
}

/// Accuracy over something that adds up from round to round; the mean over seeds of both.
pub(super) fn against(
    study: &Study,
    id: &str,
    title: &str,
    x: &str,
    of: &dyn Fn(&RoundRecord) -> f64,
) -> Option<Figure> {
    let of_group = |(method, group): (usize, &Group)| {
        let mut by_round: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for run in group.counted() {
            let mut sum = 0.0;
            for round in &run.rounds {
                sum += of(round);
                if let Some(accuracy) = round.accuracy {
                    by_round.entry(round.round).or_default().push((sum, accuracy));
                }
            }
        }
        let whole = by_round.values().map(Vec::len).max().unwrap_or(0);
        let points = by_round.values().filter(|all| all.len() == whole).map(|all| {
            let (spent, accuracies): (Vec<f64>, Vec<f64>) = all.iter().copied().unzip();
            point(tidy(spent.iter().sum::<f64>() / spent.len() as f64), &accuracies)
        });
        Series { method, part: String::new(), faint: false, points: thin(points.collect(), POINTS) }
    };
    let series: Vec<Series> =
        study.groups.iter().enumerate().map(of_group).filter(|series| !series.points.is_empty()).collect();
    let drawing = Drawing::Lines { x: x.to_string(), y: "accuracy".to_string(), percent: true, series: series.clone() };
    (!series.is_empty()).then(|| Figure { id: id.to_string(), title: title.to_string(), drawing })
}
