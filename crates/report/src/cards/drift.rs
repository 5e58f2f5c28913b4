//! How far clients drift apart.

use std::collections::BTreeSet;

use fedelity_record::RoundRecord;

use super::card;
use super::curves::curve;
use crate::figure::FigureCard;
use crate::results::Results;

const DRIFT: &str =
    "Drift: how far training moves local weights from the global ones, mean over the clients of a round.";
const DIVERSITY: &str = "Gradient diversity: how much the changes of a round's clients differ. It is 1 if they agree.";

pub(super) fn drift(study: &Results) -> Option<FigureCard> {
    let mut figures = vec![
        curve(study, "drift", "Drift", "distance from the global weights", false, &|round| Some(round.drift?.mean))
            .map(|figure| figure.says(DRIFT)),
        curve(study, "gradient-diversity", "Gradient diversity", "diversity", false, &|r| r.gradient_diversity)
            .map(|figure| figure.says(DIVERSITY)),
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
        let text = format!(
            "Weight alignment of {layer}: share of its units that prefer the same class after local training as before, mean \
             over the clients of a round. A unit prefers the class with its largest mean activation."
        );
        let figure = curve(study, &id, &title, "units that prefer the same class", true, &of);
        figures.push(figure.map(|figure| figure.says(text)));
    }
    let text = "How far local weights move from the global ones (mean over clients), how much the clients' changes differ \
                (1: they agree), and how many units still prefer the same class.";
    card("drift", "Drift", text, true, figures)
}
