//! What training costs, and what it minimises.

use std::collections::BTreeSet;

use fedelity_record::RoundRecord;

use super::card;
use super::curves::{Of, against, curve};
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
    // Terms such as SCAFFOLD's correction can be negative; bands of others do not go below 0.
    let loss = |id: &str, title: &str, of: Of<'_>, text: &str| {
        let negative = study.runs().flat_map(|run| &run.rounds).filter_map(of).any(|loss| loss < 0.0);
        let figure = curve(study, id, title, "loss", false, of);
        figure.map(|figure| figure.within((!negative).then_some(0.0), None).says(text))
    };
    let text = "Mean loss of local training in each round, all terms together.";
    let mut figures = vec![loss("train-loss", "All terms", &|round| round.train_loss, text)];
    let names: BTreeSet<&String> =
        study.runs().flat_map(|run| &run.rounds).flat_map(|round| round.train_terms.keys()).collect();
    for name in names {
        let of = |round: &RoundRecord| round.train_terms.get(name).copied();
        let text = format!("The term '{name}' of the mean loss of local training in each round.");
        figures.push(loss(&format!("term-{name}"), name, &of, &text));
    }
    card("terms", "Training loss", "The mean loss of local training, and its terms by name.", true, figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Drawing;
    use crate::loaded::LoadedRun;

    #[test]
    fn only_terms_that_are_negative_are_drawn_below_zero() {
        let lowest = |kd: f64| {
            let round = RoundRecord {
                round: 1,
                train_loss: Some(1.0),
                train_terms: [("kd".to_string(), kd)].into(),
                ..RoundRecord::default()
            };
            let run = LoadedRun { rounds: vec![round], ended: true, ..LoadedRun::default() };
            let study = Results::of(vec![("a".to_string(), vec![run])]);
            let low = |drawing: &Drawing| match drawing {
                Drawing::Lines { range, .. } => range[0],
                _ => panic!("no lines"),
            };
            terms(&study).unwrap().figures.iter().map(|figure| low(&figure.drawing)).collect::<Vec<_>>()
        };
        assert_eq!(lowest(0.5), [Some(0.0), Some(0.0)]);
        assert_eq!(lowest(-0.5), [Some(0.0), None]);
    }
}
