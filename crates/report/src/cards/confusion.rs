//! Which classes are mistaken for which.

use fedelity_record::FocusRecord;

use super::{card, class_names, slugs, tidy};
use crate::figure::{Drawing, Figure, FigureCard};
use crate::loaded::LoadedRun;
use crate::results::{Group, Results};

fn matrix(id: String, title: String, method: usize, study: &Results, counts: &[Vec<u64>]) -> Option<Figure> {
    let names = class_names(study, counts.len());
    let shares = |row: &Vec<u64>| {
        let total: u64 = row.iter().sum();
        row.iter().map(|&n| (total > 0).then(|| tidy(n as f64 / total as f64))).collect()
    };
    let drawing = Drawing::Heat {
        method: Some(method),
        x: "predicted".to_string(),
        y: "true class".to_string(),
        columns: names.clone(),
        rows: names,
        cells: counts.iter().map(shares).collect(),
        high: 1.0,
        percent: true,
    };
    (!counts.is_empty()).then_some(Figure { id, title, drawing })
}

/// The client that was examined closely, for the first seed that has one.
fn focus(group: &Group) -> Option<(&LoadedRun, u64, &FocusRecord)> {
    group.counted().into_iter().find_map(|run| {
        run.rounds.iter().rev().find_map(|round| Some((run, round.round, round.local.as_ref()?.focus.as_ref()?)))
    })
}

pub(super) fn confusion(study: &Results) -> Option<FigureCard> {
    let mut figures = Vec::new();
    let mut text = String::from("Predictions by true class, each row as shares.");
    for ((method, group), slug) in study.groups.iter().enumerate().zip(slugs(study)) {
        let label = group.title();
        if let Some((run, round, focus)) = focus(group) {
            if method == 0 {
                text.push_str(&format!(
                    " Of {} in round {round} of seed {}: the global model it received, and its own model after training.",
                    run.header.client(focus.client),
                    run.header.seed
                ));
            }
            let titled = |when: &str| format!("{label}: {} {when} training", run.header.client(focus.client));
            figures.push(matrix(format!("confusion-before-{slug}"), titled("before"), method, study, &focus.before));
            figures.push(matrix(format!("confusion-after-{slug}"), titled("after"), method, study, &focus.after));
        }
        let last = group
            .counted()
            .into_iter()
            .find_map(|run| run.rounds.iter().rev().find_map(|round| Some((round.round, round.confusion.as_ref()?))));
        if let Some((round, counts)) = last {
            let title = format!("{label}: global model after round {round}");
            figures.push(matrix(format!("confusion-global-{slug}"), title, method, study, counts));
        }
    }
    card("confusion", "Confusion matrices", &text, false, figures)
}
