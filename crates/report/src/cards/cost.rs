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
        })
        .map(|figure| figure.says("Accuracy of the global model on the test set against all bytes sent so far.")),
        against(study, "time", "Against time", "seconds", &|round| round.seconds.total())
            .map(|figure| figure.says("Accuracy of the global model on the test set against the total time so far.")),
        curve(study, "teachers", "Teachers", "teacher samples per training sample", false, &|round| {
            (round.trained_samples > 0).then(|| round.teacher_samples as f64 / round.trained_samples as f64)
        })
        .map(|figure| figure.says("Cost of teachers: samples that they predict, per training sample, in each round.")),
    ];
    card("cost", "Cost", "Accuracy against the total bytes sent and the total time so far.", true, figures)
}

pub(super) fn terms(study: &Results) -> Option<FigureCard> {
    let all = curve(study, "train-loss", "All terms", "loss", false, &|round| round.train_loss);
    let mut figures =
        vec![all.map(|figure| figure.says("Mean loss of local training in each round, all terms together."))];
    let names: BTreeSet<&String> =
        study.runs().flat_map(|run| &run.rounds).flat_map(|round| round.train_terms.keys()).collect();
    for name in names {
        let of = |round: &RoundRecord| round.train_terms.get(name).copied();
        let figure = curve(study, &format!("term-{name}"), name, "loss", false, &of);
        let text = format!("The term '{name}' of the mean loss of local training in each round.");
        figures.push(figure.map(|figure| figure.says(text)));
    }
    // Terms such as SCAFFOLD's correction can be negative.
    let figures = figures.into_iter().map(|figure| figure.map(|figure| figure.within(None, None))).collect();
    card("terms", "Training loss", "The mean loss of local training, and its terms by name.", true, figures)
}
