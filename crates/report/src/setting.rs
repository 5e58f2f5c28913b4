//! Settings: everything that determines a run's results except the method and the seed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::ReportError;
use crate::loaded::LoadedRun;

/// The values of a run's keys, by dotted path.
pub(crate) type Keys = BTreeMap<String, String>;

/// Runs that can be compared: they differ only in the method, in what was tuned for it, and in the seed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setting {
    /// What distinguishes it from the other settings; empty if there is only one.
    pub label: String,
    /// The same, by key.
    pub keys: BTreeMap<String, String>,
}

/// What determines the results of a group of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupKeys {
    pub(crate) keys: Keys,
    /// Whether the configuration is lost.
    pub(crate) lost: bool,
    /// The keys that were tuned: their values belong to the method's choice.
    pub(crate) tuned: BTreeSet<String>,
    /// Those of them that the chosen setting gives.
    pub(crate) given: BTreeSet<String>,
}

impl GroupKeys {
    pub(crate) fn of(run: &LoadedRun) -> Self {
        let tuning = run.tuning.clone().filter(|tuning| !tuning.chooses).unwrap_or_default();
        Self { keys: identity(run), lost: run.config.is_empty(), tuned: tuning.keys, given: tuning.given }
    }

    /// Whether a group has runs like this one, with other seeds.
    pub(crate) fn takes(&self, run: &Self) -> bool {
        self.tuned == run.tuned && if run.lost { fits(&run.keys, &self.keys) } else { self.keys == run.keys }
    }

    fn method(&self) -> &str {
        self.keys.get(NAME).map_or("run", |name| if name.is_empty() { "run" } else { name })
    }

    /// What determines the results, beside the method and what was tuned for it. Keys in `mixed` do not count.
    fn setting(&self, mixed: &BTreeSet<String>) -> Keys {
        let mut keys = self.keys.clone();
        keys.extend(self.tuned.iter().map(|key| (key.clone(), TUNED.to_string())));
        if withholds(&self.tuned) {
            keys.insert(PARTITION_PRINT.to_string(), TUNED.to_string());
        }
        keys.retain(|key, _| !key.starts_with(METHOD) && !mixed.contains(key));
        keys
    }

    /// What was chosen for the method, if anything was tuned; empty if it stays as it is.
    pub(crate) fn chosen(&self) -> Option<String> {
        let all: Vec<&String> = self.tuned.iter().collect();
        (!self.tuned.is_empty()).then(|| parts(&self.keys, &self.given.iter().collect::<Vec<_>>(), &all))
    }
}

fn withholds(keys: &BTreeSet<String>) -> bool {
    keys.iter().any(|key| WITHHOLD.contains(&key.as_str()))
}

/// Keys that do not affect what a run computes.
const ASIDE: &[&str] = &["seeds", "seed", "data.dir", "clients.teacher-cache"];

/// Keys of the server that take samples from the clients, and so change the partition.
const WITHHOLD: [&str; 3] = ["server.auxiliary", "server.validation", "server.unlabelled"];

/// The value of a key in a setting whose methods each have their own, which was chosen for them.
const TUNED: &str = "tuned";

/// The keys of a method.
const METHOD: &str = "method.";
const NAME: &str = "method.name";
const DATA_PRINT: &str = "data.fingerprint";
const PARTITION_PRINT: &str = "partition.fingerprint";
const PRINTS: [&str; 2] = [DATA_PRINT, PARTITION_PRINT];

/// What determines a run's results, except its seed.
fn identity(run: &LoadedRun) -> Keys {
    let mut keys: Keys = run
        .config
        .iter()
        .filter(|(key, _)| !ASIDE.contains(&key.as_str()) && !key.starts_with("evaluation."))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let header = &run.header;
    for (key, value) in &header.method_settings {
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        keys.entry(format!("{METHOD}{key}")).or_insert(text);
    }
    for (key, value) in [(NAME, &header.method), ("data.name", &header.dataset), ("model.name", &header.model)] {
        keys.insert(key.to_string(), value.clone());
    }
    for (key, value) in [(DATA_PRINT, &header.dataset_fingerprint), (PARTITION_PRINT, &header.partition_fingerprint)] {
        keys.insert(key.to_string(), value.clone());
    }
    keys.insert("rounds".to_string(), header.rounds.to_string());
    keys
}

/// Whether a run without a configuration can belong to these keys.
fn fits(lost: &Keys, known: &Keys) -> bool {
    lost.iter().all(|(name, value)| known.get(name) == Some(value))
}

/// The settings of groups of runs, in order of first appearance, and the one of each group. Keys in `mixed` do not count.
pub(crate) fn settings(groups: &[GroupKeys], mixed: &BTreeSet<String>) -> (Vec<Setting>, Vec<usize>) {
    let mut found: Vec<(Keys, bool)> = Vec::new();
    let mut of = Vec::new();
    for group in groups {
        let (keys, lost) = (group.setting(mixed), group.lost);
        let same = |(known, without): &(Keys, bool)| match (lost, *without) {
            (false, false) => *known == keys,
            (true, _) => fits(&keys, known),
            (false, true) => fits(known, &keys),
        };
        of.push(found.iter().position(same).unwrap_or_else(|| {
            found.push((keys.clone(), lost));
            found.len() - 1
        }));
    }
    let known: Vec<Keys> = found.into_iter().map(|(keys, _)| keys).collect();
    (labelled(&known), of)
}

/// The keys that do not have the same value everywhere.
fn differing(all: &[&Keys]) -> BTreeSet<String> {
    let names: BTreeSet<&String> = all.iter().flat_map(|keys| keys.keys()).collect();
    let differs = |key: &&String| all.iter().any(|keys| keys.get(*key) != all[0].get(*key));
    names.into_iter().filter(differs).cloned().collect()
}

/// Whether a key is the named one, or in the named section.
pub fn is_within(key: &str, name: &str) -> bool {
    key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The keys that may differ within a setting: those that `mix` names, by themselves or by their section, and the
/// fingerprints of what they change. Names in which nothing differs come with what can be said about them.
pub(crate) fn mixed(mix: &[String], groups: &[GroupKeys]) -> Result<(BTreeSet<String>, Vec<Idle>), ReportError> {
    let all: Vec<&Keys> = groups.iter().map(|group| &group.keys).collect();
    let differ: BTreeSet<String> = differing(&all).into_iter().filter(|key| !key.starts_with(METHOD)).collect();
    let (mut found, mut idle) = (BTreeSet::new(), Vec::new());
    for name in mix {
        let named: Vec<&String> = differ.iter().filter(|key| is_within(key, name)).collect();
        if ["seed", "seeds"].contains(&name.as_str()) {
            let what = "runs are always compared on the same seeds".to_string();
            return Err(ReportError::Mix { name: name.clone(), what });
        }
        if named.is_empty() {
            let plain = |key: &String| key.trim_end_matches(".fingerprint").to_string();
            let others: BTreeSet<String> = differ.iter().map(plain).collect();
            let others: Vec<String> = others.into_iter().collect();
            let what = if format!("{name}.").starts_with(METHOD) {
                "the keys of a method may always differ".to_string()
            } else if others.is_empty() {
                "the runs differ in no key but the method's".to_string()
            } else {
                format!("the runs do not differ in it; they differ in {}", others.join(", "))
            };
            idle.push(Idle { name: name.clone(), what });
        }
        found.extend(named.into_iter().cloned());
    }
    // Other data are partitioned in another way, too.
    let of = |section: &str| found.iter().any(|key| key.starts_with(section));
    let (data, partition) = (of("data."), of("data.") || of("partition.") || withholds(&found));
    found.extend(data.then(|| DATA_PRINT.to_string()));
    found.extend(partition.then(|| PARTITION_PRINT.to_string()));
    Ok((found, idle))
}

/// A key or section that may differ between compared runs, but does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    pub name: String,
    /// Why it has no effect.
    pub what: String,
}

fn labelled(known: &[Keys]) -> Vec<Setting> {
    let differ = differing(&known.iter().collect::<Vec<_>>());
    let (prints, plain): (Vec<&String>, Vec<&String>) = differ.iter().partition(|key| PRINTS.contains(&key.as_str()));
    let with = |keys: &Keys, names: &[&String]| -> Setting {
        let values = names.iter().filter_map(|key| Some(((*key).clone(), keys.get(*key)?.clone()))).collect();
        Setting { label: parts(keys, names, names), keys: values }
    };
    let mut settings: Vec<Setting> = known.iter().map(|keys| with(keys, &plain)).collect();
    let mut labels: Vec<&str> = settings.iter().map(|setting| setting.label.as_str()).collect();
    labels.sort_unstable();
    if labels.windows(2).any(|pair| pair[0] == pair[1]) {
        // The keys are the same, so the files behind them are not.
        let all: Vec<&String> = plain.iter().chain(&prints).copied().collect();
        settings = known.iter().map(|keys| with(keys, &all)).collect();
    }
    settings
}

/// Keys and values in short: the last part of a key if that is unique among others, the start of a fingerprint.
fn parts(keys: &Keys, names: &[&String], among: &[&String]) -> String {
    let end = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
    let alone = |key: &str| among.iter().filter(|other| end(other) == end(key)).count() == 1;
    let short = |key: &str| match key {
        DATA_PRINT => "data".to_string(),
        PARTITION_PRINT => "partition".to_string(),
        _ if alone(key) && end(key) != "name" => end(key),
        _ => key.to_string(),
    };
    let part = |key: &&String| {
        let value = keys.get(*key)?;
        let start = if PRINTS.contains(&key.as_str()) { value.get(..8).unwrap_or(value) } else { value };
        Some(format!("{}={start}", short(key)))
    };
    names.iter().filter_map(part).collect::<Vec<_>>().join(" ")
}

/// The method of each group, with those of its keys, and of the mixed ones, that distinguish it from groups of the same
/// method. What was tuned does not, except from groups that it is compared with. Names are unique within a setting.
pub(crate) fn names(groups: &[GroupKeys], of: &[usize], mixed: &BTreeSet<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let rivals = |(other, setting): &(&GroupKeys, &usize)| {
            let apart = group.tuned.is_empty() && other.tuned.is_empty();
            other.method() == group.method() && (apart || **setting == of[at])
        };
        let same: Vec<&GroupKeys> = groups.iter().zip(of).filter(rivals).map(|(other, _)| other).collect();
        let differ = differing(&same.iter().map(|other| &other.keys).collect::<Vec<_>>());
        let counts = |key: &str| {
            let tuned = same.iter().any(|other| other.tuned.contains(key));
            key.starts_with(METHOD) || ((tuned || mixed.contains(key)) && !PRINTS.contains(&key))
        };
        let differ: Vec<&String> = differ.iter().filter(|key| counts(key)).collect();
        let text = parts(&group.keys, &differ, &differ);
        let base = if text.is_empty() { group.method().to_string() } else { format!("{} {text}", group.method()) };
        let taken = |name: &String| found.iter().zip(of).any(|(known, setting)| known == name && *setting == of[at]);
        let mut names = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base} ({n})") });
        let free = names.find(|name| !taken(name));
        found.extend(free);
    }
    found
}

/// The name of each group with what distinguishes its setting from those of other groups with the same name: nothing,
/// if there are none.
pub(crate) fn labels(names: &[String], of: &[usize], settings: &[Setting]) -> Vec<String> {
    let label = |(name, setting): (&String, &usize)| {
        let all = names.iter().zip(of).filter(|(other, _)| *other == name).map(|(_, setting)| *setting);
        let all: Vec<usize> = all.collect::<BTreeSet<usize>>().into_iter().collect();
        let known: Vec<Keys> = all.iter().map(|at| settings[*at].keys.clone()).collect();
        let own = labelled(&known).into_iter().zip(&all).find(|(_, at)| *at == setting);
        format!("{name} {}", own.map_or(String::new(), |(own, _)| own.label)).trim_end().to_string()
    };
    names.iter().zip(of).map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pairs: &[(&str, &str)]) -> GroupKeys {
        let keys = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        GroupKeys { keys, ..GroupKeys::default() }
    }

    /// The same, with these keys tuned, of which the chosen setting gives some.
    fn tuned(pairs: &[(&str, &str)], keys_of: &[&str], given: &[&str]) -> GroupKeys {
        let all = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        GroupKeys { tuned: all(keys_of), given: all(given), ..keys(pairs) }
    }

    #[test]
    fn what_differs_beside_the_method_is_another_setting() {
        let at = |method, alpha, print| {
            keys(&[(NAME, method), ("partition.alpha", alpha), (PARTITION_PRINT, print), ("rounds", "3")])
        };
        let groups =
            [at("fedavg", "0.1", "aaaaaaaaaa"), at("fedavg", "1.0", "bbbbbbbbbb"), at("fedntd", "0.1", "aaaaaaaaaa")];
        let (found, of) = settings(&groups, &BTreeSet::new());
        assert_eq!(of, [0, 1, 0]);
        assert_eq!((found[0].label.as_str(), found[1].label.as_str()), ("alpha=0.1", "alpha=1.0"));
        assert_eq!(found[1].keys, keys(&[("partition.alpha", "1.0")]).keys);
        for mix in ["partition.alpha", "partition"] {
            let (mixed, idle) = mixed(&[mix.to_string()], &groups).unwrap();
            let (found, of) = settings(&groups, &mixed);
            assert_eq!((found.len(), found[0].label.as_str(), of.as_slice()), (1, "", &[0, 0, 0][..]));
            assert_eq!(names(&groups, &of, &mixed), ["fedavg alpha=0.1", "fedavg alpha=1.0", "fedntd"]);
            assert_eq!(idle, []);
        }
        for (mix, said) in [
            ("rounds", "the runs do not differ in it; they differ in partition, partition.alpha"),
            ("method.beta", "the keys of a method may always differ"),
        ] {
            let (mixed, idle) = mixed(&[mix.to_string(), "partition".to_string()], &groups).unwrap();
            assert_eq!((idle[0].name.as_str(), idle[0].what.as_str(), idle.len()), (mix, said, 1));
            assert!(mixed.contains("partition.alpha"), "{mix}");
        }
        let error = mixed(&["seeds".to_string()], &groups).unwrap_err().to_string();
        assert_eq!(error, "--mix seeds: runs are always compared on the same seeds");
    }

    #[test]
    fn equal_keys_with_other_files_are_told_apart() {
        let at = |print| keys(&[(NAME, "fedavg"), ("data.path", "x.csv"), (DATA_PRINT, print)]);
        let (found, of) = settings(&[at("aaaaaaaaaa"), at("bbbbbbbbbb")], &BTreeSet::new());
        assert_eq!(
            (found[0].label.as_str(), found[1].label.as_str(), of),
            ("data=aaaaaaaa", "data=bbbbbbbb", vec![0, 1])
        );
    }

    #[test]
    fn methods_are_named_by_their_own_keys() {
        let at = |beta, epochs| keys(&[(NAME, "fedntd"), ("method.beta", beta), ("clients.epochs", epochs)]);
        let groups = [at("0.5", "1"), at("1.0", "1"), at("0.5", "5"), at("0.5", "5")];
        let expected = ["fedntd beta=0.5", "fedntd beta=1.0", "fedntd beta=0.5", "fedntd beta=0.5 (2)"];
        assert_eq!(names(&groups, &[0, 0, 1, 1], &BTreeSet::new()), expected);
    }

    #[test]
    fn what_was_tuned_belongs_to_the_method() {
        let keys_of = ["method.beta", "optimizer.lr", "server.lr", "server.auxiliary"];
        let at = |method, alpha, lr, print| {
            let pairs = [(NAME, method), ("partition.alpha", alpha), ("optimizer.lr", lr), (PARTITION_PRINT, print)];
            tuned(&pairs, &keys_of, &["optimizer.lr"])
        };
        // FedAvg has another learning rate in each partition, and a choice that withholds samples changes the partition.
        let mut groups = vec![
            at("fedavg", "0.1", "0.01", "aaaaaaaaaa"),
            at("fedntd", "0.1", "0.05", "cccccccccc"),
            at("fedavg", "1.0", "0.05", "bbbbbbbbbb"),
            at("fedntd", "1.0", "0.05", "bbbbbbbbbb"),
        ];
        groups[1].keys.insert("server.lr".to_string(), "0.1".to_string());
        groups[1].given.insert("server.lr".to_string());
        groups[2].given.clear();
        let (found, of) = settings(&groups, &BTreeSet::new());
        assert_eq!((of.as_slice(), found.len(), found[1].label.as_str()), (&[0, 0, 1, 1][..], 2, "alpha=1.0"));
        let named = names(&groups, &of, &BTreeSet::new());
        assert_eq!(named, ["fedavg", "fedntd", "fedavg", "fedntd"]);
        assert_eq!(labels(&named, &of, &found)[2], "fedavg alpha=1.0");
        let chosen: Vec<String> = groups.iter().map(|group| group.chosen().unwrap()).collect();
        assert_eq!(chosen, ["optimizer.lr=0.01", "optimizer.lr=0.05 server.lr=0.1", "", "optimizer.lr=0.05"]);
        // A run with a learning rate that nobody chose is in another setting.
        groups.push(keys(&[(NAME, "fedavg"), ("partition.alpha", "1.0"), ("optimizer.lr", "0.05")]));
        let (found, of) = settings(&groups, &BTreeSet::new());
        assert_eq!((of[4], groups[4].chosen()), (2, None));
        assert!(found[0].label.contains("optimizer.lr=tuned") && found[2].label.contains("optimizer.lr=0.05"));
        assert_eq!(names(&groups, &of, &BTreeSet::new())[4], "fedavg");
        // Two choices for one method in the same setting are told apart.
        groups[4] = at("fedavg", "1.0", "0.1", "bbbbbbbbbb");
        let (_, of) = settings(&groups, &BTreeSet::new());
        assert_eq!(names(&groups, &of, &BTreeSet::new())[2..], ["fedavg lr=0.05", "fedntd", "fedavg lr=0.1"]);
    }

    #[test]
    fn labels_have_only_what_tells_rows_apart() {
        let at = |method, alpha, auxiliary| {
            keys(&[(NAME, method), ("partition.alpha", alpha), ("server.auxiliary", auxiliary)])
        };
        let of_groups = |groups: &[GroupKeys]| {
            let (found, of) = settings(groups, &BTreeSet::new());
            labels(&names(groups, &of, &BTreeSet::new()), &of, &found)
        };
        let one = [at("fedavg", "0.1", "0"), at("fedntd", "0.1", "0"), at("fedcad", "0.1", "32")];
        assert_eq!(of_groups(&one), ["fedavg", "fedntd", "fedcad"]);
        let more = [at("fedavg", "1.0", "0"), at("fedcad", "0.1", "64")];
        let labels = of_groups(&[&one[..], &more].concat());
        let expected = ["fedavg alpha=0.1", "fedntd", "fedcad auxiliary=32", "fedavg alpha=1.0", "fedcad auxiliary=64"];
        assert_eq!(labels, expected);
    }
}
