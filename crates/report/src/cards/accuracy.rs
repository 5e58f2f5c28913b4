//! How good the global model is, and what it forgets.

use super::card;
use super::curves::curve;
use crate::figure::FigureCard;
use crate::results::Results;

const FORGETTING: &str = "Forgetting of the global model: how far its class accuracies on the test set are below their best in \
                          earlier rounds, as a mean over classes.";
const COSINE: &str = "Cosine between the global model's class accuracies on the test set in successive evaluations: near 1, the \
                      same classes are known as before.";

pub(super) fn accuracy(study: &Results) -> Option<FigureCard> {
    let text = "The global model on the test set after each round.";
    let figures = vec![
        curve(study, "accuracy", "Accuracy", "accuracy", true, &|round| round.accuracy)
            .map(|figure| figure.says("Accuracy of the global model on the test set after each round.")),
        curve(study, "loss", "Loss", "cross-entropy", false, &|round| round.loss)
            .map(|figure| figure.says("Cross-entropy loss of the global model on the test set after each round.")),
    ];
    card("accuracy", "Accuracy", text, true, figures)
}

pub(super) fn forgetting(study: &Results) -> Option<FigureCard> {
    let text = "How far class accuracies are below their best in earlier rounds (mean over classes), and the cosine of class \
                accuracies between successive evaluations.";
    let figures = vec![
        curve(study, "forgetting", "Forgetting", "forgetting", false, &|round| round.forgetting)
            .map(|figure| figure.within(Some(-1.0), Some(1.0)).says(FORGETTING)),
        curve(study, "class-cosine", "Class-accuracy cosine", "cosine", false, &|round| round.class_cosine)
            .map(|figure| figure.within(Some(0.0), Some(1.0)).says(COSINE)),
    ];
    card("forgetting", "Forgetting", text, true, figures)
}
