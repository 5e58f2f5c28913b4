//! The choice of settings before methods were compared, as the folder of a sweep with `[tune]` tells it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fedelity_files::TEXT;
use fedelity_record::names::{CHOOSE, CHOSEN, COMPARE, STAMP};
use serde::Deserialize;

/// What was tuned before a run, or by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The folder of the sweep.
    pub sweep: PathBuf,
    /// Whether the run served to choose, so that it was not tested on the test data.
    pub chooses: bool,
    /// The keys that were tuned for some method; none if an earlier version did not record them.
    pub keys: BTreeSet<String>,
    /// Those of them that the run's own setting gives.
    pub given: BTreeSet<String>,
    /// Whether its setting was chosen earlier, from another grid, and is not any more.
    pub outdated: bool,
    /// The place of its setting among the chosen ones, in the order of the sweep.
    pub place: usize,
}

/// What is read of a line of `chosen.json`.
#[derive(Deserialize)]
struct ChosenLine {
    set: Option<Vec<String>>,
    #[serde(default)]
    tuned: Vec<String>,
}

/// What is read of a run's stamp.
#[derive(Deserialize)]
struct StampLine {
    set: Vec<String>,
}

impl Tuning {
    /// What the folder of a run's sweep says about it: none if it has no choice, or none yet.
    pub(crate) fn of(run: &Path) -> Option<Result<Self, String>> {
        // `.` has no parent by itself.
        let run = fs::canonicalize(run).ok()?;
        let stage = run.parent()?.parent()?;
        let chooses = match stage.file_name()?.to_str()? {
            CHOOSE => true,
            COMPARE => false,
            _ => return None,
        };
        let sweep = stage.parent()?.to_path_buf();
        let (chosen, stamp) =
            (fedelity_files::read(&sweep.join(CHOSEN), TEXT).ok()?, fedelity_files::read(&run.join(STAMP), TEXT).ok()?);
        let lines: Vec<ChosenLine> = match serde_json::from_slice(&chosen) {
            Ok(lines) => lines,
            Err(error) => return Some(Err(format!("{CHOSEN} of its sweep cannot be read: {error}"))),
        };
        let StampLine { set } = serde_json::from_slice(&stamp).ok()?;
        let place = lines.iter().position(|line| line.set.as_ref() == Some(&set)).unwrap_or(lines.len());
        let outdated = !chooses && place == lines.len() && lines.iter().all(|line| line.set.is_some());
        let keys: BTreeSet<String> = lines.into_iter().flat_map(|line| line.tuned).collect();
        let given = set.iter().filter_map(|text| Some(text.split_once('=')?.0.to_string()));
        let given = given.filter(|key| keys.contains(key)).collect();
        Some(Ok(Self { sweep, chooses, keys, given, outdated, place }))
    }
}
