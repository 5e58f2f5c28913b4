//! Samples per client and class.

use super::{card, class_names};
use crate::figure::{Drawing, Figure, FigureCard};
use crate::results::Results;

pub(super) fn holdings(study: &Results) -> Option<FigureCard> {
    let run = study.runs().find(|run| run.holdings.is_some())?;
    let counts = &run.holdings.as_ref()?.counts;
    let classes = counts.first()?.len();
    let high = counts.iter().flatten().copied().max()? as f64;
    let drawing = Drawing::Heat {
        method: None,
        x: "class".to_string(),
        y: "client".to_string(),
        columns: class_names(study, classes),
        rows: (0..counts.len()).map(|client| run.client_label(client)).collect(),
        cells: counts.iter().map(|row| row.iter().map(|&n| Some(n as f64)).collect()).collect(),
        high,
        percent: false,
    };
    let figure = Figure { id: "holdings".to_string(), title: "Training samples".to_string(), drawing };
    let text = "Training samples by client and class.";
    card("holdings", "Who holds what", text, true, vec![Some(figure)])
}
