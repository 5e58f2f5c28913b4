//! Groups runs that differ only in their seed.

use std::collections::{BTreeMap, BTreeSet};

use fedelity_record::Status;

use crate::loaded::{LoadedRun, LoadedRuns};

/// Runs with the same settings and different seeds.
#[derive(Clone, Debug)]
pub struct Group {
    /// The method, and the keys that distinguish it from other groups of the same method.
    pub label: String,
    /// The runs, by seed.
    pub runs: Vec<LoadedRun>,
}

impl Group {
    pub fn method(&self) -> &str {
        self.runs.first().map_or("", |run| run.header.method.as_str())
    }

    /// The finished runs; if there are none, all runs.
    pub fn counted(&self) -> Vec<&LoadedRun> {
        let whole: Vec<&LoadedRun> = self.runs.iter().filter(|run| run.summary.status == Status::Finished).collect();
        if whole.is_empty() { self.runs.iter().collect() } else { whole }
    }

    /// The run of a seed, if it counts.
    pub fn seed(&self, seed: u64) -> Option<&LoadedRun> {
        self.counted().into_iter().find(|run| run.header.seed == seed)
    }
}

/// All runs, grouped.
#[derive(Clone, Debug)]
pub struct Results {
    /// One group per method and settings, in the order they were found.
    pub groups: Vec<Group>,
    /// What was left out of it.
    pub left_out: Vec<crate::LeftOut>,
}

/// Keys that do not affect what a run computes.
const ASIDE: &[&str] = &["seeds", "seed", "data.dir", "clients.teacher-cache"];

impl Results {
    /// Groups the runs.
    pub fn new(source: LoadedRuns) -> Self {
        let LoadedRuns { mut runs, mut left_out } = source;
        // A run whose configuration is lost joins the group that its record matches.
        runs.sort_by_key(|run| run.config.is_empty());
        let mut groups: Vec<(BTreeMap<String, String>, Vec<LoadedRun>)> = Vec::new();
        for run in runs {
            let key = identity(&run);
            let lost = run.config.is_empty();
            let fits =
                |known: &BTreeMap<String, String>| key.iter().all(|(name, value)| known.get(name) == Some(value));
            match groups.iter_mut().find(|(known, _)| if lost { fits(known) } else { *known == key }) {
                Some((_, same)) => match same.iter().position(|other| other.header.seed == run.header.seed) {
                    None => same.push(run),
                    // The same settings and seed: the run that got further counts; in a tie, the later one.
                    Some(at) => {
                        let further = run.rounds.len() >= same[at].rounds.len();
                        let twice = if further { std::mem::replace(&mut same[at], run) } else { run };
                        let what = format!("seed {} occurs twice; this run is left out", twice.header.seed);
                        left_out.push(crate::LeftOut { path: twice.path, what });
                    }
                },
                None => groups.push((key, vec![run])),
            }
        }
        let labels = labels(&groups);
        let mut groups: Vec<Group> =
            groups.into_iter().zip(labels).map(|((_, runs), label)| Group { label, runs }).collect();
        groups.iter_mut().for_each(|group| group.runs.sort_by_key(|run| run.header.seed));
        Self { groups, left_out }
    }

    pub fn runs(&self) -> impl Iterator<Item = &LoadedRun> {
        self.groups.iter().flat_map(|group| &group.runs)
    }

    /// What prevents a comparison: different data, partitions or seeds.
    pub fn mismatches(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |what: &str, of: &dyn Fn(&Group) -> BTreeSet<String>| {
            let mut values: Vec<(String, Vec<&str>)> = Vec::new();
            for group in &self.groups {
                for value in of(group) {
                    match values.iter_mut().find(|(known, _)| *known == value) {
                        Some((_, who)) => who.push(&group.label),
                        None => values.push((value, vec![&group.label])),
                    }
                }
            }
            if values.len() > 1 {
                let values: Vec<String> =
                    values.iter().map(|(value, who)| format!("{value} ({})", who.join(", "))).collect();
                found.push(format!("the {what} differ: {}", values.join(", ")));
            }
        };
        let each =
            |group: &Group, of: &dyn Fn(&LoadedRun) -> String| group.runs.iter().map(of).collect::<BTreeSet<_>>();
        check("data", &|group| each(group, &|run| with_print(&run.header.dataset, &run.header.dataset_fingerprint)));
        check("partitions", &|group| {
            each(group, &|run| with_print(&run.header.partition, &run.header.partition_fingerprint))
        });
        check("seeds", &|group| {
            let seeds: Vec<String> = group.counted().iter().map(|run| run.header.seed.to_string()).collect();
            [seeds.join(" ")].into()
        });
        found
    }
}

/// A name and the start of a fingerprint.
fn with_print(name: &str, print: &str) -> String {
    match print.get(..8) {
        Some(start) => format!("{name} [{start}]"),
        None => name.to_string(),
    }
}

/// What determines a run's results, except its seed.
fn identity(run: &LoadedRun) -> BTreeMap<String, String> {
    let mut keys: BTreeMap<String, String> = run
        .config
        .iter()
        .filter(|(key, _)| !ASIDE.contains(&key.as_str()) && !key.starts_with("evaluation."))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let header = &run.header;
    for (key, value) in &header.method_settings {
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        keys.entry(format!("method.{key}")).or_insert(text);
    }
    for (key, value) in [("method.name", &header.method), ("data.name", &header.dataset), ("model.name", &header.model)]
    {
        keys.insert(key.to_string(), value.clone());
    }
    for (key, value) in [("data", &header.dataset_fingerprint), ("partition", &header.partition_fingerprint)] {
        keys.insert(format!("{key}.fingerprint"), value.clone());
    }
    keys.insert("rounds".to_string(), header.rounds.to_string());
    keys
}

/// A name for each group: its method, and the keys that distinguish groups of that method.
fn labels(groups: &[(BTreeMap<String, String>, Vec<LoadedRun>)]) -> Vec<String> {
    let method = |keys: &BTreeMap<String, String>| match keys.get("method.name") {
        Some(name) if !name.is_empty() => name.clone(),
        _ => "run".to_string(),
    };
    let mut labels: Vec<String> = Vec::new();
    for (keys, _) in groups {
        let name = method(keys);
        let same: Vec<&BTreeMap<String, String>> =
            groups.iter().map(|(other, _)| other).filter(|other| method(other) == name).collect();
        let all: BTreeSet<&String> = same.iter().flat_map(|keys| keys.keys()).collect();
        let differs = |key: &&String| same.iter().any(|other| other.get(*key) != same[0].get(*key));
        let differ: Vec<&String> =
            all.into_iter().filter(|key| !key.ends_with(".fingerprint")).filter(differs).collect();
        // The last part of a key, if it is unique.
        let end = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
        let alone = |key: &str| differ.iter().filter(|other| end(other) == end(key)).count() == 1;
        let short = |key: &str| if alone(key) && end(key) != "name" { end(key) } else { key.to_string() };
        let part = |key: &&String| Some(format!("{}={}", short(key), keys.get(*key)?));
        let parts: Vec<String> = differ.iter().filter_map(part).collect();
        let base = if parts.is_empty() { name } else { format!("{name} {}", parts.join(" ")) };
        let mut names = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base} ({n})") });
        labels.extend(names.find(|name| !labels.contains(name)));
    }
    labels
}
