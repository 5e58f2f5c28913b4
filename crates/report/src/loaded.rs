//! Runs, from folders or just finished.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use fedelity_files::{Lock, TEXT};
use fedelity_record::{
    ClientsReport, Header, Holdings, Learning, RecordError, RoundRecord, Status, Summary, names, read_clients,
    read_holdings, read_summary, read_tags, salvage_rounds,
};
use serde::{Serialize, Serializer};

use crate::error::ReportError;
use crate::tuning::Tuning;

#[derive(Clone, Debug, Default)]
pub struct LoadedRun {
    pub path: PathBuf,
    pub header: Header,
    /// Its rounds, in ascending order.
    pub rounds: Vec<RoundRecord>,
    /// How it ended. Derived from the rounds if the file is missing.
    pub summary: Summary,
    /// Whether the run recorded how it ended. If not, it is still running or was killed.
    pub ended: bool,
    /// Whether a process is writing to its folder.
    pub running: bool,
    /// What its summary claims that its rounds do not show. The rounds count.
    pub contradictions: Vec<String>,
    /// The configuration's values, by dotted path.
    pub config: BTreeMap<String, String>,
    /// The configuration as it was written; empty if there is none.
    pub config_text: String,
    /// Samples per client and class, if recorded.
    pub holdings: Option<Holdings>,
    /// How good the models are for each client, if recorded.
    pub clients: Option<ClientsReport>,
    pub tags: Vec<String>,
    /// What was tuned, if it is a run of a sweep with `[tune]` that has chosen.
    pub tuning: Option<Tuning>,
}

/// Something missing from a report, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeftOut {
    #[serde(serialize_with = "shown")]
    pub path: PathBuf,
    /// What was left out, and why.
    pub what: String,
}

/// Not every path is text.
fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl LeftOut {
    /// Whether it says no more than that a run has not ended.
    pub(crate) fn is_of_an_open_run(&self) -> bool {
        OF_OPEN_RUNS.iter().any(|start| self.what.starts_with(start))
    }
}

/// Runs, and what could not be read of them.
#[derive(Clone, Debug, Default)]
pub struct LoadedRuns {
    /// The runs, in folder order.
    pub runs: Vec<LoadedRun>,
    pub left_out: Vec<LeftOut>,
}

/// How the line about a run without a summary starts.
const NO_SUMMARY: &str = "no summary; it was made from the rounds: ";
/// How the line about a run with fewer rounds than planned starts.
const STOPPED: &str = "it stopped after round ";
/// How lines start that are true of every run until it ends: while it runs, they are no news.
const OF_OPEN_RUNS: [&str; 4] = [NO_SUMMARY, "none of its ", STOPPED, "the last line is incomplete"];

/// Maximum depth of the folder search.
const DEPTH: usize = 6;

impl LoadedRuns {
    /// Loads every run in or below the paths. What cannot be read is left out and listed; finding no run is an error.
    pub fn load(paths: &[PathBuf]) -> Result<Self, ReportError> {
        let (mut source, mut seen) = (Self::default(), HashSet::new());
        for path in paths {
            source.visit(path, 0, &mut seen);
        }
        if source.runs.is_empty() {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let reasons: Vec<String> =
                source.left_out.iter().map(|out| format!("; {}: {}", out.path.display(), out.what)).collect();
            return Err(ReportError::NoRun { paths: paths.join(", "), reasons: reasons.concat() });
        }
        Ok(source)
    }

    fn visit(&mut self, path: &Path, depth: usize, seen: &mut HashSet<PathBuf>) {
        if seen.contains(path) {
            return;
        }
        let rounds = path.join(names::ROUNDS);
        if rounds.is_file() {
            match LoadedRun::read(path) {
                Ok((run, problems)) => {
                    let problems = problems.into_iter().map(|what| LeftOut { path: path.to_path_buf(), what });
                    self.left_out.extend(problems.filter(|out| !run.running || !out.is_of_an_open_run()));
                    seen.insert(path.to_path_buf());
                    self.runs.push(run);
                }
                Err(error) => self.omit(path, error.to_string()),
            }
            return;
        }
        let of_a_run = [names::SUMMARY, names::MODEL, names::HOLDINGS];
        if let Some(file) = of_a_run.iter().find(|file| path.join(file).is_file()) {
            return self.omit(path, format!("the folder has {file}, but no {}", names::ROUNDS));
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.omit(path, error.to_string()),
        };
        let mut below: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        // A name that starts with a dot is not complete yet.
        let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        below.retain(|path| path.is_dir() && !path.is_symlink() && !hidden(path));
        let listed = methods(path);
        let place = |path: &PathBuf| listed.iter().position(|name| path.ends_with(name)).unwrap_or(listed.len());
        below.sort_by_cached_key(|path| (place(path), path.clone()));
        if depth < DEPTH {
            below.iter().for_each(|path| self.visit(path, depth + 1, seen));
        }
    }

    fn omit(&mut self, path: &Path, what: String) {
        self.left_out.push(LeftOut { path: path.to_path_buf(), what });
    }
}

impl LoadedRun {
    /// A run that has just ended, with the accuracies of the evaluated rounds.
    pub fn of(seed: u64, summary: Summary, accuracies: &[(u64, f64)]) -> Self {
        let round = |&(round, accuracy)| RoundRecord { round, accuracy: Some(accuracy), ..RoundRecord::default() };
        let rounds = accuracies.iter().map(round).collect();
        Self { header: Header { seed, ..Header::default() }, rounds, summary, ended: true, ..Self::default() }
    }

    /// Reads what is available of a run folder, and lists what is missing.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>), RecordError> {
        let running = Lock::holder(path).is_some();
        // Before the rounds: a run that ends meanwhile must not seem to have lost some.
        let claimed = read_summary(&path.join(names::SUMMARY));
        let salvage = salvage_rounds(&path.join(names::ROUNDS))?;
        let mut problems = salvage.problems;
        let (mut ended, mut against) = (true, Vec::new());
        let summary = match claimed {
            Ok(claimed) => {
                let (summary, found) = settled(claimed, &salvage.header, &salvage.rounds);
                problems.extend(found.iter().cloned());
                against = found;
                if let (Status::Diverged { round, .. }, Some(stopped)) =
                    (summary.status, problems.iter_mut().find(|problem| problem.starts_with(STOPPED)))
                {
                    *stopped = format!("it diverged in round {round} of {}", salvage.header.rounds);
                }
                summary
            }
            Err(error) => {
                ended = false;
                problems.push(format!("{NO_SUMMARY}{}", short(&error)));
                derived(&salvage.header, &salvage.rounds)
            }
        };
        let config = fedelity_files::read_text(&path.join(names::CONFIG), TEXT).map_err(|error| error.to_string());
        let config_text = config.clone().unwrap_or_default();
        let config = config.and_then(|text| text.parse::<toml::Table>().map_err(|error| error.message().to_string()));
        let mut keys = BTreeMap::new();
        match config {
            Ok(table) => flatten("", &toml::Value::Table(table), &mut keys),
            Err(reason) => problems.push(format!("the configuration cannot be read: {reason}")),
        }
        let holdings = if_there(read_holdings(&path.join(names::HOLDINGS)), "class counts", &mut problems);
        let clients = if_there(read_clients(&path.join(names::CLIENTS)), "results", &mut problems);
        let tags = read_tags(path).unwrap_or_else(|error| {
            problems.push(short(&error));
            Vec::new()
        });
        let tuning = Tuning::of(path).and_then(|found| found.map_err(|what| problems.push(what)).ok());
        let run = Self {
            path: path.to_path_buf(),
            header: salvage.header,
            rounds: salvage.rounds,
            summary,
            ended,
            running,
            contradictions: against,
            config: keys,
            config_text,
            holdings,
            clients,
            tags,
            tuning,
        };
        Ok((run, problems))
    }

    /// A client's name, or its number.
    pub fn client_label(&self, client: usize) -> String {
        self.header.client_names.get(client).cloned().unwrap_or_else(|| client.to_string())
    }

    /// Whether it has no end yet: it is running, or was killed.
    pub fn is_open(&self) -> bool {
        !self.ended && self.summary.status == Status::Interrupted
    }

    /// One number of each evaluated round.
    pub fn curve(&self, of: impl Fn(&RoundRecord) -> Option<f64>) -> Vec<(u64, f64)> {
        self.rounds.iter().filter_map(|round| Some((round.round, of(round)?))).collect()
    }
}

/// What a file about the clients says, if there is one. What cannot be read is a problem.
fn if_there<T>(read: Result<T, RecordError>, what: &str, problems: &mut Vec<String>) -> Option<T> {
    match read {
        Ok(found) => Some(found),
        Err(RecordError::Io { .. }) => None,
        Err(error) => {
            problems.push(format!("the clients' {what} cannot be read: {}", short(&error)));
            None
        }
    }
}

/// What a summary claims that its rounds do not show. Sums and the best round need all rounds.
fn contradictions(claimed: &Summary, derived: &Summary, whole: bool, planned: u64) -> Vec<String> {
    let percent = |found: Option<f64>| found.map_or("none".to_string(), |found| format!("{:.2} %", 100.0 * found));
    let number = |found: Option<f64>| found.map_or("none".to_string(), |found| format!("{found}"));
    let best = |summary: &Summary| summary.best.map(|best| best.accuracy);
    let bytes = |summary: &Summary| summary.bytes_down.saturating_add(summary.bytes_up);
    let mut found: Vec<(&str, String, String)> = Vec::new();
    let mut check = |what, same: bool, claimed: String, derived: String| {
        if !same {
            found.push((what, claimed, derived));
        }
    };
    let (a, b) = (claimed, derived);
    check("status", !lost(a, b, planned), "finished".to_string(), format!("{} of {planned} rounds", b.rounds));
    let reached = match b.status.is_complete() {
        true => "finished".to_string(),
        false => format!("{} of {planned} rounds", b.rounds),
    };
    check("status", !survived(a, b), "diverged".to_string(), reached);
    check("rounds", a.rounds == b.rounds, a.rounds.to_string(), b.rounds.to_string());
    check("final accuracy", a.final_accuracy == b.final_accuracy, percent(a.final_accuracy), percent(b.final_accuracy));
    check("final loss", a.final_loss == b.final_loss, number(a.final_loss), number(b.final_loss));
    check("forgetting", a.forgetting == b.forgetting, number(a.forgetting), number(b.forgetting));
    let epsilon = |summary: &Summary| number(summary.privacy.map(|spent| spent.epsilon));
    check("epsilon", a.privacy == b.privacy, epsilon(a), epsilon(b));
    if whole {
        check("best accuracy", a.best == b.best, percent(best(a)), percent(best(b)));
        check(
            "bytes",
            (a.bytes_down, a.bytes_up) == (b.bytes_down, b.bytes_up),
            bytes(a).to_string(),
            bytes(b).to_string(),
        );
        let (spent, recorded) = (a.seconds.total(), b.seconds.total());
        let same = (spent - recorded).abs() <= 1e-6 * recorded.abs().max(1.0);
        check("seconds", same, spent.to_string(), recorded.to_string());
        // An earlier version called a model collapsed that had learnt nothing.
        let same = a.noticed == b.noticed && (a.collapse == b.collapse || b.unlearnt.is_some());
        let collapse = |summary: &Summary| {
            summary.collapse.map_or(String::new(), |round| format!(" and a collapse in round {round}"))
        };
        let notices = |summary: &Summary| format!("{}{}", summary.noticed, collapse(summary));
        check("notices", same, notices(a), notices(b));
        check("incidents", a.incidents == b.incidents, a.incidents.describe(), b.incidents.describe());
    }
    let line = |(what, claimed, derived): (&str, String, String)| {
        format!(
            "{} contradicts {}: {what} {claimed}, but the rounds give {derived}, which counts",
            names::SUMMARY,
            names::ROUNDS
        )
    };
    found.into_iter().map(line).collect()
}

/// Whether a summary claims an end that its rounds do not show.
fn lost(claimed: &Summary, derived: &Summary, planned: u64) -> bool {
    claimed.status.is_complete() && derived.rounds < planned && !derived.status.is_complete()
}

/// Whether a summary claims a divergence in a round that was recorded, so that it was run to its end.
fn survived(claimed: &Summary, derived: &Summary) -> bool {
    matches!(claimed.status, Status::Diverged { round, .. } if round <= derived.rounds || derived.status.is_complete())
}

/// A summary made from rounds.
fn derived(header: &Header, rounds: &[RoundRecord]) -> Summary {
    let mut summary = Summary { status: Status::Interrupted, ..Summary::default() };
    rounds.iter().for_each(|round| summary.add(round));
    let last = summary.rounds;
    if last > 0 && last == header.rounds && rounds.len() as u64 == last {
        summary.status = Status::Finished;
    }
    if let Some(guessing) = header.guessing {
        let learning = rounds.iter().fold(Learning::new(guessing), |learning, round| learning.after(round));
        summary.unlearnt = learning.unlearnt();
    }
    summary
}

/// What counts of a summary beside its rounds, which say most of it again, and what it claims that they do not show.
pub fn settled(claimed: Summary, header: &Header, rounds: &[RoundRecord]) -> (Summary, Vec<String>) {
    let derived = derived(header, rounds);
    let (whole, planned) = (rounds.len() as u64 == derived.rounds, header.rounds);
    let against = contradictions(&claimed, &derived, whole, planned);
    (counting(claimed, derived, whole, planned), against)
}

/// What counts of a summary: how the run ended, and what cannot be derived from its rounds.
fn counting(claimed: Summary, derived: Summary, whole: bool, planned: u64) -> Summary {
    let status = match lost(&claimed, &derived, planned) {
        true => Status::Interrupted,
        false if survived(&claimed, &derived) => derived.status,
        false => claimed.status,
    };
    if whole {
        return Summary { status, ..derived };
    }
    Summary {
        status,
        rounds: derived.rounds,
        final_accuracy: derived.final_accuracy,
        final_loss: derived.final_loss,
        forgetting: derived.forgetting,
        privacy: derived.privacy,
        unlearnt: derived.unlearnt.or(claimed.unlearnt),
        ..claimed
    }
}

fn short(error: &RecordError) -> String {
    let text = error.to_string();
    text.rsplit_once('/').map_or(text.clone(), |(_, end)| end.to_string())
}

/// The method folders in a folder, in the order of its configuration, if it has one.
fn methods(path: &Path) -> Vec<String> {
    let config = fedelity_files::read_text(&path.join(names::CONFIG), TEXT)
        .ok()
        .and_then(|text| text.parse::<toml::Table>().ok());
    let listed = config.as_ref().and_then(|config| config.get("method")?.as_array());
    let names: Vec<&str> = listed.into_iter().flatten().filter_map(|method| method.get("name")?.as_str()).collect();
    let folder = |(at, name): (usize, &&str)| match names[..at].iter().filter(|other| *other == name).count() {
        0 => name.to_string(),
        before => format!("{name}-{}", before + 1),
    };
    names.iter().enumerate().map(folder).collect()
}

/// The values of a configuration by dotted path; none if it cannot be read.
pub fn config_values(text: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    if let Ok(table) = text.parse::<toml::Table>() {
        flatten("", &toml::Value::Table(table), &mut keys);
    }
    keys
}

/// Collects the values of a configuration by dotted path.
fn flatten(path: &str, value: &toml::Value, keys: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&full, value, keys);
            }
        }
        other => {
            keys.insert(path.to_string(), other.as_str().map_or_else(|| other.to_string(), String::from));
        }
    }
}
