//! How far clients drift apart.

use std::collections::BTreeSet;

use fedelity_record::RoundRecord;

use super::card;
use super::curves::curve;
use crate::figure::FigureCard;
use crate::results::Results;

pub(super) fn drift(study: &Results) -> Option<FigureCard> {
    let mut figures = vec![
        curve(study, "drift", "Drift", "distance from the global weights", false, &|round| Some(round.drift?.mean)),
        curve(study, "gradient-diversity", "Gradient diversity", "diversity", false, &|r| r.gradient_diversity),
    ];
    let layers: BTreeSet<&String> = study
        .runs()
        .flat_map(|run| &run.rounds)
        .filter_map(|round| round.local.as_ref())
        .flat_map(|local| local.alignment.keys())
        .collect();
    for layer in layers {
        let of = |round: &RoundRecord| round.local.as_ref()?.alignment.get(layer).copied();
        let (id, title) = (format!("alignment-{layer}"), format!("Weight alignment of {layer}"));
        figures.push(curve(study, &id, &title, "units that prefer the same class", true, &of));
    }
    let text = "How far local weights move from the global ones (mean over clients), how much the clients' changes differ \
                (1: they agree), and how many units still prefer the same class.";
    card("drift", "Drift", text, true, figures)
}
