//! Settings: everything that determines a run's results except the method and the seed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::ReportError;
use crate::loaded::LoadedRun;

/// The values of a run's keys, by dotted path.
pub(crate) type Keys = BTreeMap<String, String>;

/// Runs that can be compared: they differ only in the method and the seed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setting {
    /// What distinguishes it from the other settings; empty if there is only one.
    pub label: String,
    /// The same, by key.
    pub keys: BTreeMap<String, String>,
}

/// Keys that do not affect what a run computes.
const ASIDE: &[&str] = &["seeds", "seed", "data.dir", "clients.teacher-cache"];

/// The keys of a method.
const METHOD: &str = "method.";
const NAME: &str = "method.name";
const DATA_PRINT: &str = "data.fingerprint";
const PARTITION_PRINT: &str = "partition.fingerprint";
const PRINTS: [&str; 2] = [DATA_PRINT, PARTITION_PRINT];

/// What determines a run's results, except its seed.
pub(crate) fn identity(run: &LoadedRun) -> Keys {
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
pub(crate) fn fits(lost: &Keys, known: &Keys) -> bool {
    lost.iter().all(|(name, value)| known.get(name) == Some(value))
}

/// The settings of groups of runs, in order of first appearance, and the one of each group.
///
/// Keys in `mixed` do not count; the flag of a group says that its configuration is lost.
pub(crate) fn settings(groups: &[(Keys, bool)], mixed: &BTreeSet<String>) -> (Vec<Setting>, Vec<usize>) {
    let counts = |key: &str| !key.starts_with(METHOD) && !mixed.contains(key);
    let own = |(keys, _): &(Keys, bool)| -> Keys {
        keys.iter().filter(|(key, _)| counts(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let parts: Vec<Keys> = groups.iter().map(own).collect();
    let mut found: Vec<(Keys, bool)> = Vec::new();
    let mut of = Vec::new();
    for (keys, (_, lost)) in parts.iter().zip(groups) {
        let same = |(known, without): &(Keys, bool)| match (lost, without) {
            (false, false) => known == keys,
            (true, _) => fits(keys, known),
            (false, true) => fits(known, keys),
        };
        of.push(found.iter().position(same).unwrap_or_else(|| {
            found.push((keys.clone(), *lost));
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
pub(crate) fn is_within(key: &str, name: &str) -> bool {
    key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The keys that may differ within a setting: those that `mix` names, by themselves or by their section, and the
/// fingerprints of what they change.
pub(crate) fn mixed(mix: &[String], groups: &[(Keys, bool)]) -> Result<BTreeSet<String>, ReportError> {
    let all: Vec<&Keys> = groups.iter().map(|(keys, _)| keys).collect();
    let differ: BTreeSet<String> = differing(&all).into_iter().filter(|key| !key.starts_with(METHOD)).collect();
    let mut found = BTreeSet::new();
    for name in mix {
        let named: Vec<&String> = differ.iter().filter(|key| is_within(key, name)).collect();
        if named.is_empty() {
            let plain = |key: &String| key.trim_end_matches(".fingerprint").to_string();
            let others: BTreeSet<String> = differ.iter().map(plain).collect();
            let others: Vec<String> = others.into_iter().collect();
            let what = match (name.as_str(), others.is_empty()) {
                ("seed" | "seeds", _) => "runs are always compared on the same seeds".to_string(),
                (_, true) => "the runs differ in no key but the method's".to_string(),
                (_, false) => format!("the runs do not differ in it; they differ in {}", others.join(", ")),
            };
            return Err(ReportError::Mix { name: name.clone(), what });
        }
        found.extend(named.into_iter().cloned());
    }
    // Other data are partitioned in another way, too.
    let of = |section: &str| found.iter().any(|key| key.starts_with(section));
    let (data, partition) = (of("data."), of("data.") || of("partition."));
    found.extend(data.then(|| DATA_PRINT.to_string()));
    found.extend(partition.then(|| PARTITION_PRINT.to_string()));
    Ok(found)
}

fn labelled(known: &[Keys]) -> Vec<Setting> {
    let differ = differing(&known.iter().collect::<Vec<_>>());
    let (prints, plain): (Vec<&String>, Vec<&String>) = differ.iter().partition(|key| PRINTS.contains(&key.as_str()));
    let with = |keys: &Keys, names: &[&String]| -> Setting {
        let values = names.iter().filter_map(|key| Some(((*key).clone(), keys.get(*key)?.clone()))).collect();
        Setting { label: parts(keys, names), keys: values }
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

/// Keys and values in short: the last part of a key if that is unique, the start of a fingerprint.
fn parts(keys: &Keys, names: &[&String]) -> String {
    let end = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
    let alone = |key: &str| names.iter().filter(|other| end(other) == end(key)).count() == 1;
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
/// method. Names are unique within a setting.
pub(crate) fn names(groups: &[(Keys, bool)], of: &[usize], mixed: &BTreeSet<String>) -> Vec<String> {
    let method = |keys: &Keys| match keys.get(NAME) {
        Some(name) if !name.is_empty() => name.clone(),
        _ => "run".to_string(),
    };
    let mut found: Vec<String> = Vec::new();
    for (at, (keys, _)) in groups.iter().enumerate() {
        let name = method(keys);
        let same: Vec<&Keys> = groups.iter().map(|(other, _)| other).filter(|other| method(other) == name).collect();
        let differ = differing(&same);
        let counts = |key: &str| key.starts_with(METHOD) || (mixed.contains(key) && !PRINTS.contains(&key));
        let differ: Vec<&String> = differ.iter().filter(|key| counts(key)).collect();
        let text = parts(keys, &differ);
        let base = if text.is_empty() { name } else { format!("{name} {text}") };
        let taken = |name: &String| found.iter().zip(of).any(|(known, setting)| known == name && *setting == of[at]);
        let mut names = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base} ({n})") });
        let free = names.find(|name| !taken(name));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pairs: &[(&str, &str)]) -> (Keys, bool) {
        (pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(), false)
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
        assert_eq!(found[1].keys, keys(&[("partition.alpha", "1.0")]).0);
        for mix in ["partition.alpha", "partition"] {
            let mixed = mixed(&[mix.to_string()], &groups).unwrap();
            let (found, of) = settings(&groups, &mixed);
            assert_eq!((found.len(), found[0].label.as_str(), of.as_slice()), (1, "", &[0, 0, 0][..]));
            assert_eq!(names(&groups, &of, &mixed), ["fedavg alpha=0.1", "fedavg alpha=1.0", "fedntd"]);
        }
        for (mix, said) in [
            (
                "partition.alfa",
                "--mix partition.alfa: the runs do not differ in it; they differ in partition, partition.alpha",
            ),
            ("rounds", "--mix rounds: the runs do not differ in it; they differ in partition, partition.alpha"),
            ("seeds", "--mix seeds: runs are always compared on the same seeds"),
        ] {
            assert_eq!(mixed(&[mix.to_string()], &groups).unwrap_err().to_string(), said);
        }
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
}
