//! What training costs, and what it minimises.

use std::collections::BTreeSet;

use fedelity_record::RoundRecord;

use super::card;
use super::curves::{against, curve};
use crate::figure::FigureCard;
use crate::results::Results;

pub(super) fn cost(study: &Results) -> Option<FigureCard> {
    let figures = vec![
        against(study, "traffic", "Against traffic", "MB in both directions", &|round| {
            (round.bytes_down as f64 + round.bytes_up as f64) / 1e6
        }),
        against(study, "time", "Against time", "seconds", &|round| round.seconds.total()),
        curve(study, "teachers", "Teachers", "teacher samples per training sample", false, &|round| {
            (round.trained_samples > 0).then(|| round.teacher_samples as f64 / round.trained_samples as f64)
        }),
    ];
    card("cost", "Cost", "Accuracy against the total bytes sent and the total time so far.", true, figures)
}

pub(super) fn terms(study: &Results) -> Option<FigureCard> {
    let mut figures = vec![curve(study, "train-loss", "All terms", "loss", false, &|round| round.train_loss)];
    let names: BTreeSet<&String> =
        study.runs().flat_map(|run| &run.rounds).flat_map(|round| round.train_terms.keys()).collect();
    for name in names {
        let of = |round: &RoundRecord| round.train_terms.get(name).copied();
        figures.push(curve(study, &format!("term-{name}"), name, "loss", false, &of));
    }
    // Terms such as SCAFFOLD's correction can be negative.
    let figures = figures.into_iter().map(|figure| figure.map(|figure| figure.within(None, None))).collect();
    card("terms", "Training loss", "The mean loss of local training, and its terms by name.", true, figures)
}
