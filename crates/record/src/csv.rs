//! Rounds as a table for spreadsheets and data frames.

use std::collections::BTreeSet;
use std::io;

use csv::Writer;

use crate::round::RoundRecord;

/// Most cells of a table: a hundred thousand rounds with five hundred columns. A record of a few lines can ask for many
/// more, if each has its own columns.
const MOST_CELLS: usize = 50_000_000;

/// One row per round, one column per number. Cells of unmeasured numbers are empty.
pub fn rounds_csv(rounds: &[RoundRecord]) -> Result<Vec<u8>, csv::Error> {
    let classes = rounds.iter().filter_map(|round| Some(round.class_accuracy.as_ref()?.len())).max().unwrap_or(0);
    let terms: BTreeSet<&String> = rounds.iter().flat_map(|round| round.train_terms.keys()).collect();
    let layers: BTreeSet<&String> = rounds.iter().flat_map(|round| round.alignment.keys()).collect();
    let mut out = Writer::from_writer(Vec::new());
    let mut names: Vec<String> = vec!["round".to_string()];
    names.extend(FIXED.iter().map(|(name, _)| name.to_string()));
    names.extend(terms.iter().map(|name| format!("train-{name}")));
    names.extend(layers.iter().map(|layer| format!("alignment-{layer}")));
    names.extend(layers.iter().map(|layer| format!("local-alignment-{layer}")));
    names.extend((0..classes).map(|class| format!("class-accuracy-{class}")));
    if names.len().saturating_mul(rounds.len()) > MOST_CELLS {
        let table = format!("a table of {} rounds and {} columns", rounds.len(), names.len());
        return Err(io::Error::other(format!("{table} has more than {MOST_CELLS} cells")).into());
    }
    out.write_record(names)?;
    for round in rounds {
        let fixed = FIXED.iter().map(|(_, of)| of(round));
        let of_terms = terms.iter().map(|name| round.train_terms.get(*name).copied());
        let of_layers = layers.iter().map(|layer| round.alignment.get(*layer).copied());
        let of_local = layers.iter().map(|layer| round.local.as_ref()?.alignment.get(*layer).copied());
        let of_classes = (0..classes).map(|class| round.class_accuracy.as_ref().and_then(|all| *all.get(class)?));
        let values = fixed.chain(of_terms).chain(of_layers).chain(of_local).chain(of_classes);
        let cells = values.map(|value| value.map_or(String::new(), |value| value.to_string()));
        out.write_record([round.round.to_string()].into_iter().chain(cells))?;
    }
    out.into_inner().map_err(|error| error.into_error().into())
}

/// A column and how to get its number.
pub(crate) type Column = (&'static str, fn(&RoundRecord) -> Option<f64>);

/// The columns that every run has.
pub(crate) const FIXED: &[Column] = &[
    ("accuracy", |r| r.accuracy),
    ("loss", |r| r.loss),
    ("balanced-accuracy", |r| r.scores.as_ref()?.balanced_accuracy),
    ("macro-f1", |r| r.scores.as_ref()?.macro_f1),
    ("auc", |r| Some(r.scores.as_ref()?.auc?.value)),
    ("sensitivity", |r| Some(r.scores.as_ref()?.sensitivity?.value)),
    ("specificity", |r| Some(r.scores.as_ref()?.specificity?.value)),
    ("f1", |r| Some(r.scores.as_ref()?.f1?.value)),
    ("validation-accuracy", |r| r.validation.map(|found| found.accuracy)),
    ("validation-loss", |r| r.validation?.loss),
    ("forgetting", |r| r.forgetting),
    ("class-cosine", |r| r.class_cosine),
    ("local-accuracy", |r| r.local.as_ref().map(|local| local.accuracy.mean)),
    ("local-accuracy-sd", |r| r.local.as_ref().map(|local| local.accuracy.sd)),
    ("local-in-before", |r| r.local.as_ref()?.in_before),
    ("local-in-after", |r| r.local.as_ref()?.in_after),
    ("local-out-before", |r| r.local.as_ref()?.out_before),
    ("local-out-after", |r| r.local.as_ref()?.out_after),
    ("drift", |r| r.drift.map(|drift| drift.mean)),
    ("gradient-diversity", |r| r.gradient_diversity),
    ("train-loss", |r| r.train_loss),
    ("trained-samples", |r| Some(r.trained_samples as f64)),
    ("teacher-samples", |r| Some(r.teacher_samples as f64)),
    ("bytes-down", |r| Some(r.bytes_down as f64)),
    ("bytes-up", |r| Some(r.bytes_up as f64)),
    ("traffic", |r| r.traffic),
    ("seconds", |r| Some(r.seconds.total())),
    ("clipped", |r| Some(r.protection?.clipped? as f64)),
    ("epsilon", |r| Some(r.protection?.privacy?.epsilon)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_per_round_and_empty_where_not_measured() {
        let first =
            RoundRecord { round: 1, bytes_up: 7, train_terms: [("ce".to_string(), 0.5)].into(), ..Default::default() };
        let second = RoundRecord {
            round: 2,
            accuracy: Some(0.1 + 0.2),
            class_accuracy: Some(vec![Some(0.25), None]),
            alignment: [("conv1".to_string(), 0.75)].into(),
            ..RoundRecord::default()
        };
        let text = String::from_utf8(rounds_csv(&[first, second]).unwrap()).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        let at = |row: usize, name: &str| rows[row][rows[0].iter().position(|cell| *cell == name).unwrap()];
        assert_eq!((at(1, "round"), at(1, "accuracy"), at(1, "bytes-up"), at(1, "train-ce")), ("1", "", "7", "0.5"));
        assert_eq!((at(2, "accuracy"), at(2, "class-accuracy-0")), ("0.30000000000000004", "0.25"));
        assert_eq!((at(2, "class-accuracy-1"), at(2, "alignment-conv1"), at(1, "alignment-conv1")), ("", "0.75", ""));
    }

    #[test]
    fn a_record_cannot_ask_for_any_number_of_cells() {
        let wide = RoundRecord { class_accuracy: Some(vec![None; 65_535]), ..RoundRecord::default() };
        let mut rounds = vec![RoundRecord::default(); 1_000];
        rounds.push(wide);
        let error = rounds_csv(&rounds).unwrap_err().to_string();
        assert!(error.starts_with("a table of 1001 rounds and 655"), "{error}");
    }
}
