//! How far runs are that have not ended, for the live page.

use std::path::Path;
use std::time::UNIX_EPOCH;

use fedelity_record::names;
use serde::Serialize;

use crate::loaded::LoadedRun;
use crate::results::Results;

/// Rounds whose time says how long the next ones take.
const RECENT: usize = 5;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct StudyProgress {
    /// Runs without an end.
    open: Vec<OpenRun>,
    /// Runs that ended.
    ended: usize,
    /// Runs that the study consists of, as far as that is known: those that are there, and those that its configuration
    /// announces.
    planned: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct OpenRun {
    title: String,
    seed: u64,
    round: u64,
    rounds: u64,
    /// Seconds per round, from the last ones.
    pace: Option<f64>,
    /// When its last round was written, in milliseconds since 1970.
    written: f64,
}

impl StudyProgress {
    pub(crate) fn new(study: &Results) -> Self {
        let mut new = Self::default();
        for group in &study.groups {
            for run in &group.runs {
                if run.is_open() {
                    new.open.push(OpenRun::new(run, group.title()));
                } else {
                    new.ended += 1;
                }
            }
        }
        let there = new.ended + new.open.len();
        let announced = study.runs().next().and_then(|run| announced(&run.path));
        new.planned = announced.unwrap_or(0).max(there);
        new
    }
}

impl OpenRun {
    fn new(run: &LoadedRun, title: String) -> Self {
        let recent: Vec<f64> = run.rounds.iter().rev().take(RECENT).map(|round| round.seconds.total()).collect();
        let pace = (!recent.is_empty()).then(|| recent.iter().sum::<f64>() / recent.len() as f64);
        let modified = run.path.join(names::ROUNDS).metadata().and_then(|about| about.modified()).ok();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            title,
            seed: run.header.seed,
            round: run.rounds.last().map_or(0, |round| round.round),
            rounds: run.header.rounds,
            pace,
            written: since.map_or(0.0, |since| 1_000.0 * since.as_secs_f64()),
        }
    }
}

/// The number of runs in the study that a run folder is part of: methods times seeds of the configuration above it.
fn announced(run: &Path) -> Option<usize> {
    let above = run.ancestors().skip(1).take(2);
    let config = above
        .filter_map(|path| fedelity_files::read_text(&path.join(names::CONFIG), fedelity_files::TEXT).ok())
        .next()?;
    let table: toml::Table = config.parse().ok()?;
    let seeds = table.get("seeds")?.as_array()?.len();
    let methods = table.get("method").and_then(|method| method.as_array()).map_or(1, Vec::len);
    Some(seeds * methods)
}
