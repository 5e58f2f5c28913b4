//! How far clients drift apart.

use std::collections::BTreeSet;

use fedelity_record::RoundRecord;

use super::card;
use super::curves::{curves, lines};
use crate::figure::FigureCard;
use crate::results::Results;

pub(super) fn drift(study: &Results) -> Option<FigureCard> {
    let mut figures = vec![
        lines(
            "drift",
            "Drift",
            "distance from the global weights",
            false,
            curves(study, "", false, &|round| round.drift.map(|drift| drift.mean)),
        ),
        lines(
            "gradient-diversity",
            "Gradient diversity",
            "diversity",
            false,
            curves(study, "", false, &|round| round.gradient_diversity),
        ),
    ];
    let layers: BTreeSet<&String> = study
        .runs()
        .flat_map(|run| &run.rounds)
        .filter_map(|round| round.local.as_ref())
        .flat_map(|local| local.alignment.keys())
        .collect();
    for layer in layers {
        let of = |round: &RoundRecord| round.local.as_ref()?.alignment.get(layer).copied();
        let title = format!("Weight alignment of {layer}");
        figures.push(lines(
            &format!("alignment-{layer}"),
            &title,
            "units that prefer the same class",
            true,
            curves(study, "", false, &of),
        ));
    }
    let text = "How far local weights move from the global ones (mean over clients), how much the clients' changes differ \
                (1: they agree), and how many units still prefer the same class.";
    card("drift", "Drift", text, true, figures)
}
