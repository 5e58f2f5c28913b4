//! The runs of a sweep, from its file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fedelity_keys::{KeyError, Keys as _, keys};
use fedelity_record::names::{CHOOSE, COMPARE};
use fedelity_report::is_within;
use toml::{Table, Value};

use crate::config::Config;
use crate::header::sha256;

/// Most settings of a sweep, each of which is checked: a grid multiplies them faster than one would think.
const MOST_SETTINGS: usize = 10_000;
/// Most runs: settings with all their seeds.
const MOST_RUNS: usize = 100_000;
/// Most keys that a sweep sets, over all runs: they are in memory.
const MOST_KEYS: usize = 500_000;

/// A sweep file.
#[keys]
pub(super) struct SweepKeys {
    /// The configuration that all runs share.
    #[key(what = "the path of a file")]
    pub(super) config: Option<PathBuf>,
    /// Seeds: each setting runs once per seed. Without this key, those of the configuration count.
    #[key(default = [1])]
    pub(super) seeds: Vec<u64>,
    /// Keys of the configuration to set in all runs.
    #[key(default = {}, what = "a table [set]")]
    set: Value,
    /// Keys of the configuration, each with a list of values: every combination runs.
    #[key(default = {}, what = "a table [grid]")]
    grid: Value,
    /// Settings one by one, as `[[list]]`; with a grid, each runs with the whole grid.
    #[key(what = "tables [[list]]")]
    list: Option<Value>,
    /// How to choose the best setting of each method before comparing methods. Without it, all settings are compared.
    pub(super) tune: Option<TuneKeys>,
}

/// A sweep file with the values from the command line.
pub(super) struct SweepPlan {
    pub(super) keys: SweepKeys,
    /// Assignments that are the same in all runs, and replace those of the file.
    pub(super) options: Vec<Assignment>,
}

/// Where assignments are from that are not in the file.
pub(super) const OPTION: &str = "--set";

/// `[tune]`: the choice of settings.
#[keys]
pub(super) struct TuneKeys {
    /// Share of the training samples to choose on. While settings are chosen, they are not used for training, and the
    /// test data are not used at all.
    #[key(default = 0.1, above = 0, below = 1)]
    validation: f64,
    /// Seeds of the runs that choose; they must differ from `seeds`, those of the comparison.
    #[key(default = [101, 102, 103])]
    seeds: Vec<u64>,
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its folder inside the sweep's.
    pub folder: String,
    /// A short description of its settings, the same for all seeds.
    pub label: String,
    /// Assignments, as for `--set`.
    pub set: Vec<String>,
    pub seed: u64,
    /// What the settings are compared on, the same for all that compete: the method, the data, the model.
    pub task: String,
    /// The rest of its settings: what can be chosen.
    pub choice: String,
    /// The keys of what can be chosen.
    pub chosen: Vec<String>,
}

/// A run and its settings.
pub(crate) type PlannedJob = (Job, Vec<Assignment>);

impl Job {
    /// The name of its claim.
    pub(super) fn key(&self) -> String {
        claim_key(&self.folder)
    }

    /// The name of its setting, the same for all seeds and for no other setting.
    pub(super) fn setting(&self) -> &str {
        self.folder.rsplit('/').nth(1).unwrap_or_default()
    }
}

/// The separator of folders in the name of a claim. Names of settings have none.
const SEPARATOR: &str = "+";

fn claim_key(folder: &str) -> String {
    folder.replace('/', SEPARATOR)
}

/// The folder of a run by the name of its claim.
pub(super) fn claimed_folder(key: &str) -> String {
    key.replace(SEPARATOR, "/")
}

/// A key of the configuration and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) key: String,
    pub(crate) value: Value,
    /// The path of the value in the sweep file.
    pub(crate) at: String,
}

impl std::fmt::Display for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl SweepPlan {
    /// All runs, each with its settings: the grid combined with every entry of the list and every seed.
    pub(super) fn jobs(&self) -> Result<Vec<PlannedJob>, KeyError> {
        self.jobs_in("", "seeds", &self.keys.seeds, &[])
    }

    /// With `[tune]`, the runs that choose a setting for each method and then all that may be compared.
    pub(super) fn stages(&self, tune: &TuneKeys) -> Result<[Vec<PlannedJob>; 2], KeyError> {
        if let Some(seed) = tune.seeds.iter().find(|seed| self.keys.seeds.contains(seed)) {
            let message = format!(
                "tune.seeds: {seed} is also in seeds: settings are compared with seeds that did not choose them"
            );
            return Err(KeyError::new("tune.seeds", message));
        }
        let (key, at) = ("evaluation.held-out".to_string(), "tune.validation".to_string());
        let held_out = Assignment { key, value: Value::Float(tune.validation), at };
        Ok([
            self.jobs_in(&format!("{CHOOSE}/"), "tune.seeds", &tune.seeds, &[held_out])?,
            self.jobs_in(&format!("{COMPARE}/"), "seeds", &self.keys.seeds, &[])?,
        ])
    }

    /// All settings with these seeds, whose key is `at`, and more assignments, in folders below `folder`.
    fn jobs_in(&self, folder: &str, at: &str, seeds: &[u64], more: &[Assignment]) -> Result<Vec<PlannedJob>, KeyError> {
        if seeds.is_empty() {
            return Err(KeyError::expected(at, "[]", "a list of whole numbers, such as [1, 2, 3]"));
        }
        let (fixed, combinations) = self.settings()?;
        let keys = fixed.len() + more.len() + most_keys(&combinations);
        few(at, (combinations.len().saturating_mul(seeds.len()), "runs", MOST_RUNS), keys)?;
        let mut folders = BTreeSet::new();
        let mut jobs: Vec<PlannedJob> = Vec::new();
        let shared = shared_ends(&combinations);
        for own in &combinations {
            let texts: Vec<String> = own.iter().map(ToString::to_string).collect();
            let (task, choice): (Vec<&Assignment>, Vec<&Assignment>) = own.iter().partition(|one| is_task(&one.key));
            let text = |all: &[&Assignment]| label(&all.iter().map(ToString::to_string).collect::<Vec<_>>(), &shared);
            let chosen: Vec<String> = choice.iter().map(|one| one.key.clone()).collect();
            let (name, task, choice) = (folder_name(&texts), text(&task), text(&choice));
            for (i, &seed) in seeds.iter().enumerate() {
                let folder = format!("{folder}{name}/seed-{seed}");
                if !folders.insert(folder.clone()) {
                    let at = own.last().filter(|_| !seeds[..i].contains(&seed)).map_or(at, |last| &last.at);
                    let run = [&texts[..], &[format!("seed {seed}")]].concat().join(", ");
                    return Err(KeyError::new(at, format!("{run}: the same run occurs twice")));
                }
                let assignments: Vec<Assignment> = fixed.iter().chain(own).chain(more).cloned().collect();
                let set = assignments.iter().map(ToString::to_string).collect();
                let (task, choice, chosen) = (task.clone(), choice.clone(), chosen.clone());
                jobs.push((
                    Job { folder, label: label(&texts, &shared), set, seed, task, choice, chosen },
                    assignments,
                ));
            }
        }
        Ok(jobs)
    }

    /// The assignments that all runs share, and every combination of the others.
    fn settings(&self) -> Result<(Vec<Assignment>, Vec<Vec<Assignment>>), KeyError> {
        let section = |name: &str, value: &Value| match value {
            Value::Table(found) => Ok(flat("", found)),
            other => Err(KeyError::expected(name, other, format!("a table [{name}]"))),
        };
        let mut fixed: BTreeMap<String, Assignment> = assignments("set", &section("set", &self.keys.set)?)
            .into_iter()
            .map(|one| (one.key.clone(), one))
            .collect();
        let mut combinations: Vec<Vec<Assignment>> = vec![Vec::new()];
        for (key, value) in section("grid", &self.keys.grid)? {
            let at = format!("grid.{key}");
            let Some(values) = value.as_array().filter(|values| !values.is_empty()) else {
                return Err(KeyError::expected(&at, &value, "a list of values, such as [0.1, 1.0]"));
            };
            let one = |(i, value): (usize, &Value)| {
                vec![Assignment { key: key.clone(), value: value.clone(), at: format!("{at}.{i}") }]
            };
            let settings = combinations.len().saturating_mul(values.len());
            few(&at, (settings, "settings", MOST_SETTINGS), most_keys(&combinations) + 1)?;
            combinations = combine(&combinations, &values.iter().enumerate().map(one).collect::<Vec<_>>());
        }
        if let Some(list) = &self.keys.list {
            let entries: Option<Vec<&Table>> =
                list.as_array().and_then(|all| all.iter().map(Value::as_table).collect());
            let Some(entries) = entries.filter(|all| !all.is_empty()) else {
                return Err(KeyError::new("list", "list: expected tables [[list]]"));
            };
            let one = |(i, entry): (usize, &&Table)| assignments(&format!("list.{i}"), &flat("", entry));
            let entries: Vec<Vec<Assignment>> = entries.iter().enumerate().map(one).collect();
            let keys = most_keys(&combinations) + most_keys(&entries);
            few("list", (combinations.len().saturating_mul(entries.len()), "settings", MOST_SETTINGS), keys)?;
            combinations = combine(&combinations, &entries);
        }
        for one in &self.options {
            let clashes = |other: &Assignment| is_within(&one.key, &other.key) || is_within(&other.key, &one.key);
            if let Some(varied) = combinations.iter().flatten().find(|other| clashes(other)) {
                let (key, place) = (&varied.key, if varied.at.starts_with("grid.") { "[grid]" } else { "[[list]]" });
                let message = format!("--set {one}: the sweep varies {key} itself: change it in {place}");
                return Err(KeyError::new(&varied.at, message));
            }
            // What is given later replaces what is given in the file, and what excludes it.
            let instead = |other: &str| {
                let pairs = Config::SCHEMA.alternatives();
                pairs.iter().any(|(a, b)| [(a, b), (b, a)].iter().any(|(a, b)| **a == one.key && **b == other))
            };
            fixed.retain(|key, other| !clashes(other) && !instead(key));
            fixed.insert(one.key.clone(), one.clone());
        }
        let fixed: Vec<Assignment> = fixed.into_values().collect();
        let mut all = combinations.iter().flatten().chain(&fixed);
        if let Some(given) = all.find(|given| given.key == "seed" || given.key == "seeds") {
            let message = format!("{given}: seeds go at the top of the file: seeds = [1, 2, 3]");
            return Err(KeyError::new(&given.at, message));
        }
        Ok((fixed, combinations))
    }
}

/// Whether a key says what is compared, rather than with which setting.
pub(super) fn is_task(key: &str) -> bool {
    key == "method.name"
        || ["data.", "partition.", "model.", "faults.", "privacy."].iter().any(|start| key.starts_with(start))
}

pub(crate) fn assignments(at: &str, keys: &BTreeMap<String, Value>) -> Vec<Assignment> {
    let one = |(key, value): (&String, &Value)| Assignment {
        key: key.clone(),
        value: value.clone(),
        at: format!("{at}.{key}"),
    };
    keys.iter().map(one).collect()
}

/// Rejects more settings or runs than a sweep can have, and more keys than fit into memory; `at` is the key that makes
/// them.
fn few(at: &str, (count, what, most): (usize, &str, usize), keys: usize) -> Result<(), KeyError> {
    let refused = |why: String| Err(KeyError::new(at, format!("{at}: with this, the sweep {why} are allowed")));
    match count.saturating_mul(keys) {
        _ if count > most => refused(format!("has {count} {what}, but at most {most}")),
        all if all > MOST_KEYS => {
            refused(format!("sets {keys} keys in each of {count} {what}, but at most {MOST_KEYS} in all"))
        }
        _ => Ok(()),
    }
}

/// The number of keys in the longest of some combinations.
fn most_keys(combinations: &[Vec<Assignment>]) -> usize {
    combinations.iter().map(Vec::len).max().unwrap_or(0)
}

/// Each of the first followed by each of the second.
fn combine(first: &[Vec<Assignment>], second: &[Vec<Assignment>]) -> Vec<Vec<Assignment>> {
    first.iter().flat_map(|start| second.iter().map(|end| [&start[..], end].concat())).collect()
}

/// Keys by dotted path. Tables are flattened, so `method.name = "x"` and `"method.name" = "x"` are the same.
pub(crate) fn flat(path: &str, table: &Table) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (key, value) in table {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Table(below) => found.extend(flat(&full, below)),
            other => {
                found.insert(full, other.clone());
            }
        }
    }
    found
}

/// The last part of a key.
fn end(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// The last parts of keys that several keys share, such as `lr` of `optimizer.lr` and `server.lr`.
fn shared_ends(combinations: &[Vec<Assignment>]) -> BTreeSet<String> {
    let keys: BTreeSet<&str> = combinations.iter().flatten().map(|one| &*one.key).collect();
    let is_shared = |key: &&str| keys.iter().filter(|other| end(other) == end(key)).count() > 1;
    keys.iter().filter(|key| is_shared(key)).map(|key| end(key).to_string()).collect()
}

/// A short description of a combination: the method's name alone, other keys without their sections, unless keys of several
/// sections end alike.
fn label(own: &[String], shared: &BTreeSet<String>) -> String {
    let short = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let value = value.trim_matches('"');
        if key == "method.name" {
            value.to_string()
        } else {
            format!("{}={value}", if shared.contains(end(key)) { key } else { end(key) })
        }
    };
    if own.is_empty() { "run".to_string() } else { own.iter().map(short).collect::<Vec<_>>().join(" ") }
}

/// A folder name for a combination: its keys without their sections, and its values. Long ones end in a fingerprint.
fn folder_name(own: &[String]) -> String {
    let short = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let plain: String = value.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c)).collect();
        if key == "method.name" { plain } else { format!("{}-{plain}", end(key)) }
    };
    let name = own.iter().map(short).collect::<Vec<_>>().join("-");
    let print = &sha256(own.join("\n").as_bytes())[..8];
    match name.len() {
        0 => "run".to_string(),
        1..=80 => format!("{name}-{print}"),
        _ => format!("{}-{print}", &name[..80]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Job>, KeyError> {
        with(text, &[])
    }

    /// The same with `--set`.
    fn with(text: &str, set: &[(&str, i64)]) -> Result<Vec<Job>, KeyError> {
        let keys = fedelity_keys::read::<SweepKeys>(&text.parse::<Table>().unwrap(), "", &mut ())?.0;
        let option = |(key, value): &(&str, i64)| Assignment {
            key: key.to_string(),
            value: Value::Integer(*value),
            at: OPTION.to_string(),
        };
        let plan = SweepPlan { keys, options: set.iter().map(option).collect() };
        Ok(plan.jobs()?.into_iter().map(|(job, _)| job).collect())
    }

    #[test]
    fn a_grid_that_multiplies_beyond_all_bounds_is_rejected() {
        let list = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let grid: String = ["a", "b", "c", "d", "e", "f"].iter().map(|key| format!("{key} = [{list}]\n")).collect();
        let error = of(&format!("[grid]\n{grid}")).unwrap_err();
        assert_eq!(error.key, "grid.c");
        assert_eq!(error.message, "grid.c: with this, the sweep has 1000000 settings, but at most 10000 are allowed");
        let ten = "b = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
        let error = of(&format!("seeds = [{list}, 100]\n[grid]\na = [{list}]\n{ten}\n")).unwrap_err();
        assert_eq!(error.message, "seeds: with this, the sweep has 101000 runs, but at most 100000 are allowed");
        assert_eq!(of(&format!("seeds = [{list}]\n[grid]\na = [{list}]\n{ten}\n")).unwrap().len(), 100_000);
    }

    #[test]
    fn keys_of_all_runs_fit_into_memory() {
        let set: String = (0..60).map(|n| format!("k{n} = 1\n")).collect();
        let seeds = (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let error = of(&format!("seeds = [{seeds}]\n[set]\n{set}")).unwrap_err();
        let said =
            "seeds: with this, the sweep sets 60 keys in each of 10000 runs, but at most 500000 in all are allowed";
        assert_eq!(error.message, said);
    }

    #[test]
    fn a_grid_with_a_list_with_seeds() {
        let text = "seeds = [1, 2]\n[set]\nrounds = 3\n[grid]\n\"method.name\" = [\"fedavg\", \"fedntd\"]\n[[list]]\n\
                    clients.epochs = 1\n[[list]]\n\"clients.epochs\" = 5\n\"optimizer.lr\" = 0.05\n";
        let jobs = of(text).unwrap();
        assert_eq!(jobs.len(), 8);
        assert_eq!(jobs[0].set, ["rounds=3", "method.name=\"fedavg\"", "clients.epochs=1"]);
        assert_eq!((jobs[7].seed, jobs[7].set.len()), (2, 4));
        assert_eq!(jobs[7].label, "fedntd epochs=5 lr=0.05");
        assert!(
            jobs[0].folder.starts_with("fedavg-epochs-1-") && jobs[0].folder.ends_with("/seed-1"),
            "{}",
            jobs[0].folder
        );
        assert_eq!(of("").unwrap().len(), 1);
        // Two learning rates are told apart.
        let text = "[[list]]\noptimizer.lr = 0.1\n[[list]]\nserver.lr = 0.1\nserver.momentum = 0.9\n";
        let labels: Vec<String> = of(text).unwrap().into_iter().map(|job| job.label).collect();
        assert_eq!(labels, ["optimizer.lr=0.1", "server.lr=0.1 momentum=0.9"]);
    }

    #[test]
    fn options_replace_what_all_runs_share() {
        let file = "[set]\nrounds = 3\n\"clients.per-round\" = 2\n[grid]\noptimizer.lr = [0.1, 0.2]\n[[list]]\nmethod.name = \"fedavg\"\n";
        let same = |found: Vec<Job>, edited: &str| assert_eq!(found, of(edited).unwrap());
        // The same as in the file, so that what was run in one way counts as done in the other.
        same(with(file, &[("rounds", 5)]).unwrap(), &file.replace("rounds = 3", "rounds = 5"));
        same(with(file, &[("clients.per-round", 4)]).unwrap(), &file.replace("per-round\" = 2", "per-round\" = 4"));
        same(with(file, &[("clients.batch", 8)]).unwrap(), &file.replace("rounds", "clients.batch = 8\nrounds"));
        // The share of clients excludes their number.
        let shared = with(file, &[("clients.fraction", 1)]).unwrap();
        assert_eq!(shared[0].set[..2], ["clients.fraction=1", "rounds=3"]);
        for (key, said) in [
            ("optimizer.lr", "--set optimizer.lr=1: the sweep varies optimizer.lr itself: change it in [grid]"),
            ("optimizer", "--set optimizer=1: the sweep varies optimizer.lr itself: change it in [grid]"),
            ("method.name", "--set method.name=1: the sweep varies method.name itself: change it in [[list]]"),
        ] {
            assert_eq!(with(file, &[(key, 1)]).unwrap_err().message, said);
        }
    }

    #[test]
    fn wrong_sweeps_are_named() {
        for (text, said) in [
            ("seeds = 3", "seeds: expected a list of whole numbers"),
            ("[grid]\nrounds = 3", "grid.rounds = 3: expected a list"),
            ("[grid]\nrounds = []", "grid.rounds = []"),
            ("list = 3", "[[list]]"),
            ("[grid]\nseeds = [[1], [2]]", "seeds go at the top"),
            ("seeds = [1, 1]", "the same run occurs twice"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        for (text, key) in [
            ("[grid]\nseeds = [[1], [2]]", "grid.seeds.0"),
            ("[set]\nseed = 1", "set.seed"),
            ("[[list]]\nrounds = 1\n[[list]]\nseed = 2", "list.1.seed"),
            ("seeds = [1, 1]", "seeds"),
            ("[grid]\nrounds = [1, 1]", "grid.rounds.1"),
        ] {
            assert_eq!(of(text).unwrap_err().key, key, "{text:?}");
        }
    }
}
