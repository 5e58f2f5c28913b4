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
    runs_csv(&[], &[(Vec::new(), rounds)])
}

/// The rounds of several runs below each other. The first columns, which have these names, tell the runs apart: each run
/// comes with its cells for them.
pub fn runs_csv(first: &[&str], runs: &[(Vec<String>, &[RoundRecord])]) -> Result<Vec<u8>, csv::Error> {
    let rounds = || runs.iter().flat_map(|(_, rounds)| rounds.iter());
    let classes = rounds().filter_map(|round| Some(round.class_accuracy.as_ref()?.len())).max().unwrap_or(0);
    let terms: BTreeSet<&String> = rounds().flat_map(|round| round.train_terms.keys()).collect();
    let layers: BTreeSet<&String> = rounds().flat_map(|round| round.alignment.keys()).collect();
    let mut out = Writer::from_writer(Vec::new());
    let mut names: Vec<String> = first.iter().copied().chain(["round"]).map(String::from).collect();
    names.extend(FIXED.iter().map(|(name, _)| name.to_string()));
    names.extend(terms.iter().map(|name| format!("train-{name}")));
    names.extend(layers.iter().map(|layer| format!("alignment-{layer}")));
    names.extend(layers.iter().map(|layer| format!("local-alignment-{layer}")));
    names.extend((0..classes).map(|class| format!("class-accuracy-{class}")));
    let rows = rounds().count();
    if names.len().saturating_mul(rows) > MOST_CELLS {
        let table = format!("a table of {rows} rounds and {} columns", names.len());
        return Err(io::Error::other(format!("{table} has more than {MOST_CELLS} cells")).into());
    }
    out.write_record(names)?;
    for (own, round) in runs.iter().flat_map(|(own, rounds)| rounds.iter().map(move |round| (own, round))) {
        let fixed = FIXED.iter().map(|(_, of)| of(round));
        let of_terms = terms.iter().map(|name| round.train_terms.get(*name).copied());
        let of_layers = layers.iter().map(|layer| round.alignment.get(*layer).copied());
        let of_local = layers.iter().map(|layer| round.local.as_ref()?.alignment.get(*layer).copied());
        let of_classes = (0..classes).map(|class| round.class_accuracy.as_ref().and_then(|all| *all.get(class)?));
        let values = fixed.chain(of_terms).chain(of_layers).chain(of_local).chain(of_classes);
        let cells = values.map(|value| value.map_or(String::new(), |value| value.to_string()));
        out.write_record(own.iter().cloned().chain([round.round.to_string()]).chain(cells))?;
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
    fn several_runs_share_the_columns_of_all() {
        let with = |term: &str, round| RoundRecord {
            round,
            train_terms: [(term.to_string(), 0.5)].into(),
            ..Default::default()
        };
        let (a, b) = ([with("ce", 1), with("ce", 2)], [with("kd", 1)]);
        let own = |name: &str| vec![name.to_string()];
        let text = String::from_utf8(runs_csv(&["run"], &[(own("x,y"), &a), (own("z"), &b)]).unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("run,round,accuracy,") && lines[0].contains(",train-ce,train-kd"), "{text}");
        assert!(
            lines[1].starts_with("\"x,y\",1,") && lines[2].starts_with("\"x,y\",2,") && lines[3].starts_with("z,1,"),
            "{text}"
        );
        assert!(lines[1].ends_with(",0.5,") && lines[3].ends_with(",,0.5"), "{text}");
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
