//! How good the global model is, and what it forgets.

use super::card;
use super::curves::{curves, lines};
use crate::figure::FigureCard;
use crate::results::Results;

pub(super) fn accuracy(study: &Results) -> Option<FigureCard> {
    let text =
        "The global model on the test set after each round. Lines are means over seeds, bands one standard deviation.";
    let figures = vec![
        lines("accuracy", "Accuracy", "accuracy", true, curves(study, "", false, &|round| round.accuracy)),
        lines("loss", "Loss", "cross-entropy", false, curves(study, "", false, &|round| round.loss)),
    ];
    card("accuracy", "Accuracy", text, true, figures)
}

pub(super) fn forgetting(study: &Results) -> Option<FigureCard> {
    let text = "How far class accuracies are below their best in earlier rounds (mean over classes), and the cosine of class \
                accuracies between successive evaluations.";
    let figures = vec![
        lines("forgetting", "Forgetting", "forgetting", false, curves(study, "", false, &|round| round.forgetting)),
        lines(
            "class-cosine",
            "Class-accuracy cosine",
            "cosine",
            false,
            curves(study, "", false, &|round| round.class_cosine),
        ),
    ];
    card("forgetting", "Forgetting", text, true, figures)
}
