//! What training does to local models.

use fedelity_record::{LocalRecord, RoundRecord};

use super::card;
use super::classes::over_rounds;
use super::curves::{curves, lines};
use crate::figure::{Figure, FigureCard};
use crate::results::Results;
use crate::statistics::MeanSd;

pub(super) fn before_and_after(study: &Results) -> Option<FigureCard> {
    type Get = fn(&LocalRecord) -> Option<f64>;
    let measured = study.runs().find_map(|run| run.header.local_evaluation.as_ref());
    let how = measured.filter(|found| found.samples > 0).map_or(String::new(), |found| {
        let every =
            if found.every == 1 { "in every round".to_string() } else { format!("every {} rounds", found.every) };
        format!(" Measured on {} of {} test samples, {every}.", found.samples, found.of)
    });
    let pair = |id: &str, title: &str, on: &str, before: Get, after: Get| {
        let of = |get: Get| move |round: &RoundRecord| get(round.local.as_ref()?);
        let mut series = curves(study, "after", false, &of(after));
        series.extend(curves(study, "before", true, &of(before)));
        let text = format!(
            "Accuracy of local models before (dotted) and after training, mean over the clients of a round, on {on}.{how}"
        );
        lines(id, title, "accuracy", true, series).map(|figure| figure.says(text))
    };
    let text = "Local models of the round's clients before (dotted) and after training, on test samples: all of them, \
                weighted by the client's own classes, and weighted by all the others. What accuracy drops outside the own \
                distribution is what clients forget.";
    let weighted_in = "test samples with classes weighted as in the client's training samples (its own distribution)";
    let weighted_out =
        "test samples with classes weighted by how much the client lacks them (outside its own distribution)";
    let all = "test samples of all classes";
    let figures = vec![
        pair("local-out", "Outside their own distribution", weighted_out, |r| r.out_before, |r| r.out_after),
        pair("local-in", "On their own distribution", weighted_in, |r| r.in_before, |r| r.in_after),
        pair("local-all", "On the whole test set", all, |r| Some(r.accuracy_before), |r| Some(r.accuracy.mean)),
    ];
    card("local", "Local models before and after training", &format!("{text}{how}"), true, figures)
}

pub(super) fn changes(study: &Results) -> Option<FigureCard> {
    let mean = |values: &[Option<f64>]| {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        Some(MeanSd::of(&known)?.mean)
    };
    let mut series = curves(study, "forgot", false, &|round| mean(&round.local.as_ref()?.class_forgot));
    series.extend(curves(study, "learnt", true, &|round| mean(&round.local.as_ref()?.class_learnt)));
    let said = "Share of test samples that clients predicted correctly before training and wrongly after it (forgot), and the \
                reverse (learnt, dotted): mean over classes and over the clients of a round.";
    let all = lines("changes", "All classes", "share of test samples", true, series);
    let mut figures = vec![all.map(|figure| figure.says(said))];
    let high = study
        .runs()
        .flat_map(|run| &run.rounds)
        .filter_map(|round| round.local.as_ref())
        .flat_map(|local| local.class_forgot.iter().flatten().copied())
        .fold(0.0, f64::max);
    let what = "Share of each class's test samples that clients predicted correctly before training and wrongly after it, by \
                class and round, mean over the clients of a round";
    let maps =
        over_rounds(study, ("forgot", what, ""), high.max(0.01), &|round| Some(&round.local.as_ref()?.class_forgot));
    let titled = |figure: Figure| Figure { title: format!("Forgotten by class: {}", figure.title), ..figure };
    figures.extend(maps.into_iter().map(|map| map.map(titled)));
    let text = "Test samples that clients predicted correctly before training and wrongly after it (forgot), and the \
                reverse (learnt, dotted): mean over the clients of a round.";
    card("changes", "What clients forget and learn", text, true, figures)
}
