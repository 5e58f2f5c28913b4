//! How good the global model is, and what it forgets.

use super::card;
use super::curves::curve;
use crate::figure::FigureCard;
use crate::results::Results;

pub(super) fn accuracy(study: &Results) -> Option<FigureCard> {
    let text = "The global model on the test set after each round.";
    let figures = vec![
        curve(study, "accuracy", "Accuracy", "accuracy", true, &|round| round.accuracy),
        curve(study, "loss", "Loss", "cross-entropy", false, &|round| round.loss),
    ];
    card("accuracy", "Accuracy", text, true, figures)
}

pub(super) fn forgetting(study: &Results) -> Option<FigureCard> {
    let text = "How far class accuracies are below their best in earlier rounds (mean over classes), and the cosine of class \
                accuracies between successive evaluations.";
    let figures = vec![
        curve(study, "forgetting", "Forgetting", "forgetting", false, &|round| round.forgetting)
            .map(|figure| figure.within(Some(-1.0), Some(1.0))),
        curve(study, "class-cosine", "Class-accuracy cosine", "cosine", false, &|round| round.class_cosine)
            .map(|figure| figure.within(Some(0.0), Some(1.0))),
    ];
    card("forgetting", "Forgetting", text, true, figures)
}
