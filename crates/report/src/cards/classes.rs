//! Accuracy per class.

use std::collections::BTreeSet;

use fedelity_record::RoundRecord;

use super::{by_round, card, class_names, of_runs, slugs, thin, tidy};
use crate::figure::{Drawing, Figure, FigureCard};
use crate::results::{Group, Results};
use crate::statistics::MeanSd;

/// Maximum columns of a map over rounds; of more rounds, a selection is shown.
const COLUMNS: usize = 120;

/// Rounds, and per-class numbers in each of them.
type ByClass = (Vec<u64>, Vec<Vec<Option<f64>>>);

/// Means over seeds of a per-class vector, for the rounds that all counted runs have: `(rounds, [round][class])`.
fn by_class(group: &Group, of: &dyn Fn(&RoundRecord) -> Option<&Vec<Option<f64>>>) -> ByClass {
    let rounds = group.counted().into_iter().flat_map(|run| &run.rounds);
    let means = by_round(rounds.filter_map(|round| Some((round.round, of(round)?)))).into_iter().map(|(round, all)| {
        let classes = all.iter().map(|found| found.len()).min().unwrap_or(0);
        let mean = |class: usize| {
            let values: Vec<f64> = all.iter().filter_map(|found| found[class]).collect();
            MeanSd::of(&values).map(|found| tidy(found.mean))
        };
        (round, (0..classes).map(mean).collect())
    });
    thin(means.collect(), COLUMNS).into_iter().unzip()
}

fn transposed(rows: &[Vec<Option<f64>>]) -> Vec<Vec<Option<f64>>> {
    let width = rows.iter().map(Vec::len).min().unwrap_or(0);
    (0..width).map(|column| rows.iter().map(|row| row[column]).collect()).collect()
}

/// A map for each method; its caption says `what` it is of, and `more` after the runs.
pub(super) fn over_rounds(
    study: &Results,
    (id, what, more): (&str, &str, &str),
    high: f64,
    of: &dyn Fn(&RoundRecord) -> Option<&Vec<Option<f64>>>,
) -> Vec<Option<Figure>> {
    let slugs = slugs(study);
    let figure = |(method, group): (usize, &Group)| {
        let (rounds, values) = by_class(group, of);
        let classes = values.first()?.len();
        let drawing = Drawing::Heat {
            method: Some(method),
            x: "round".to_string(),
            y: "class".to_string(),
            columns: rounds.iter().map(u64::to_string).collect(),
            rows: class_names(&group.runs, classes),
            cells: transposed(&values),
            high,
            percent: true,
        };
        let text = format!("{what}: {}.{more}", of_runs(group));
        Some(Figure { id: format!("{id}-{}", slugs[method]), title: group.title(), text, drawing })
    };
    study.groups.iter().enumerate().map(figure).collect()
}

pub(super) fn over_time(study: &Results) -> Option<FigureCard> {
    let text = "Accuracy of the global model by class and round, mean over seeds. A forgotten class shows as a dark \
                stripe.";
    let what = "Accuracy of the global model on the test set by class and round";
    let said = ("classes", what, " A forgotten class shows as a dark stripe.");
    let figures = over_rounds(study, said, 1.0, &|round| round.class_accuracy.as_ref());
    card("classes", "Class accuracy over rounds", text, false, figures)
}

pub(super) fn at_a_round(study: &Results) -> Option<FigureCard> {
    let all: Vec<(Vec<String>, ByClass)> = study.groups.iter().map(with_names).collect();
    // Only methods with the same classes can be in one figure.
    let mut kinds: Vec<&Vec<String>> = Vec::new();
    for (names, _) in all.iter().filter(|(names, _)| !names.is_empty()) {
        if !kinds.contains(&names) {
            kinds.push(names);
        }
    }
    let figures = kinds.iter().enumerate().map(|(at, names)| {
        let (id, of) = match kinds.len() {
            1 => ("class-round".to_string(), String::new()),
            _ => (format!("class-round-{}", at + 1), format!(": {}", data_of(study, names))),
        };
        Some(Figure { id, title: format!("Class accuracy at a round{of}"), ..at_one(study, &all, names) })
    });
    let figures = figures.collect();
    let text = "Accuracy of the global model by class at one round, mean over seeds.";
    card("class-round", "Classes at a round", text, true, figures)
}

/// The classes of a group, none if they were not measured, and the accuracy of each.
fn with_names(group: &Group) -> (Vec<String>, ByClass) {
    let found = by_class(group, &|round| round.class_accuracy.as_ref());
    let classes = found.1.first().map_or(0, Vec::len);
    (class_names(&group.runs, classes), found)
}

/// The data sets with these classes.
fn data_of(study: &Results, names: &[String]) -> String {
    let mut found: Vec<&str> = Vec::new();
    for header in study.runs().map(|run| &run.header).filter(|header| header.classes == names) {
        if !found.contains(&header.dataset.as_str()) {
            found.push(&header.dataset);
        }
    }
    found.join(", ")
}

/// The methods with these classes, at each of the rounds that all of them have. The others have no marks.
fn at_one(study: &Results, all: &[(Vec<String>, ByClass)], names: &Vec<String>) -> Figure {
    let own: Vec<&ByClass> = all.iter().filter(|(known, _)| known == names).map(|(_, found)| found).collect();
    let common: BTreeSet<u64> = own.iter().flat_map(|(rounds, _)| rounds).copied().collect();
    let common: Vec<u64> =
        common.into_iter().filter(|round| own.iter().all(|(rounds, _)| rounds.contains(round))).collect();
    let pick = |(known, (rounds, values)): &(Vec<String>, ByClass)| {
        if known != names {
            return vec![Vec::new(); common.len()];
        }
        let chosen = rounds.iter().zip(values).filter(|(round, _)| common.contains(round));
        chosen.map(|(_, values)| values.clone()).collect()
    };
    let series = all.iter().map(pick).collect();
    let drawing = Drawing::Classes { classes: names.clone(), rounds: common, series };
    let several = study.groups.iter().any(|group| group.counted().len() > 1);
    let said = match several {
        true => "Accuracy of the global model on the test set by class at one round, mean over seeds.",
        false => "Accuracy of the global model on the test set by class at one round.",
    };
    Figure { id: String::new(), title: String::new(), text: said.to_string(), drawing }
}
