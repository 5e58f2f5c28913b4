//! Which classes are mistaken for which.

use fedelity_record::FocusRecord;

use super::{card, class_names, slugs, tidy};
use crate::figure::{Drawing, Figure, FigureCard};
use crate::loaded::LoadedRun;
use crate::results::{Group, Results};

/// The shares of a matrix. The caption says whose predictions they are.
fn matrix(
    (id, title, whose): (String, String, String),
    method: usize,
    study: &Results,
    counts: &[Vec<u64>],
) -> Option<Figure> {
    let names = class_names(&study.groups[method].runs, counts.len());
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
    let text = format!("Confusion matrix of {whose}: test samples by true and predicted class, as shares of each row.");
    (!counts.is_empty()).then_some(Figure { id, title, text, drawing })
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
                    " Before and after training: {} in round {round} of seed {}, with the global model that it received and \
                     with its own.",
                    run.header.client(focus.client),
                    run.header.seed
                ));
            }
            let (client, seed) = (run.header.client(focus.client), run.header.seed);
            let mut push = |when: &str, whose: String, counts: &[Vec<u64>]| {
                let (id, title) = (format!("confusion-{when}-{slug}"), format!("{label}: {client} {when} training"));
                let whose = format!("{whose} ({label}, seed {seed})");
                figures.push(matrix((id, title, whose), method, study, counts));
            };
            push("before", format!("the global model that {client} received in round {round}"), &focus.before);
            push("after", format!("the model of {client} after its training in round {round}"), &focus.after);
        }
        let last = group.counted().into_iter().find_map(|run| {
            run.rounds.iter().rev().find_map(|round| Some((run.header.seed, round.round, round.confusion.as_ref()?)))
        });
        if let Some((seed, round, counts)) = last {
            let title = format!("{label}: global model after round {round}");
            let whose = format!("the global model after round {round} ({label}, seed {seed})");
            figures.push(matrix((format!("confusion-global-{slug}"), title, whose), method, study, counts));
        }
    }
    card("confusion", "Confusion matrices", &text, false, figures)
}
