//! How good a model is, in lines and tables.

use fedelity_record::{Ranged, Scores};
use fedelity_report::ranged;
use serde_json::json;

use crate::view::table::{Align, Table};
use crate::view::units::{shortened, thousands};

/// Maximum width of a site's name.
const LONGEST: usize = 32;

/// A share in percent with its interval.
pub(crate) fn percent_within(found: Option<Ranged>) -> String {
    found.map_or("-".to_string(), |found| {
        format!("{:.2} % ({:.1} to {:.1})", 100.0 * found.value, 100.0 * found.low, 100.0 * found.high)
    })
}

/// What is known beyond accuracy and loss; `positive` is the class to be found, if there are two.
pub(crate) fn lines(scores: &Scores, positive: Option<&str>) -> Vec<String> {
    let plain = |found: Option<f64>, scale: f64, digits: usize| {
        found.map_or("-".to_string(), |found| format!("{:.digits$}", scale * found))
    };
    let mut lines = vec![
        format!("balanced  {} % (mean of the class accuracies)", plain(scores.balanced_accuracy, 100.0, 2)),
        format!("macro-F1  {}", plain(scores.macro_f1, 1.0, 4)),
    ];
    if let Some(name) = positive {
        lines.extend([
            String::new(),
            format!("to find      '{name}'"),
            format!("AUC          {}", ranged(scores.auc, 1.0, 4)),
            format!("sensitivity  {}", percent_within(scores.sensitivity)),
            format!("specificity  {}", percent_within(scores.specificity)),
            format!("F1           {}", ranged(scores.f1, 1.0, 4)),
        ]);
    }
    lines
}

/// The first column of [`by_site`] that may go below the others on a narrow terminal.
pub(crate) const FIRST_BELOW: usize = 4;

/// One row per site.
pub(crate) fn by_site(sites: &[(String, Scores)], two: bool) -> Table {
    let mut columns = vec![("site", Align::Left), ("samples", Align::Right), ("accuracy %", Align::Left)];
    columns.extend(match two {
        true => {
            [("AUC", Align::Left), ("sens. %", Align::Left), ("spec. %", Align::Left), ("F1", Align::Left)].to_vec()
        }
        false => vec![("balanced %", Align::Right), ("macro-F1", Align::Right)],
    });
    let mut table = Table::new(&columns);
    let number = |found: Option<f64>, scale: f64, digits: usize| {
        found.map_or("-".to_string(), |found| format!("{:.digits$}", scale * found))
    };
    for (name, scores) in sites {
        let mut cells =
            vec![shortened(name, LONGEST), thousands(scores.samples as usize), ranged(scores.accuracy, 100.0, 1)];
        cells.extend(match two {
            true => vec![
                ranged(scores.auc, 1.0, 3),
                ranged(scores.sensitivity, 100.0, 1),
                ranged(scores.specificity, 100.0, 1),
                ranged(scores.f1, 1.0, 3),
            ],
            false => vec![number(scores.balanced_accuracy, 100.0, 1), number(scores.macro_f1, 1.0, 3)],
        });
        table.row(cells);
    }
    table
}

/// The measures of a JSON object, with intervals as `[value, low, high]`.
pub(crate) fn as_json(scores: &Scores) -> serde_json::Value {
    json!({
        "samples": scores.samples,
        "accuracy": scores.accuracy,
        "balanced-accuracy": scores.balanced_accuracy,
        "macro-f1": scores.macro_f1,
        "auc": scores.auc,
        "sensitivity": scores.sensitivity,
        "specificity": scores.specificity,
        "f1": scores.f1,
    })
}
