//! The runs of a sweep, from its file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use toml::{Table, Value};

const KEYS: &[&str] = &["config", "seeds", "set", "grid", "list"];

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// Its folder below the sweep's.
    pub(crate) folder: String,
    /// Its own settings in short, the same for all seeds.
    pub(crate) label: String,
    /// Assignments as `--set` takes them.
    pub(crate) set: Vec<String>,
    pub(crate) seed: u64,
}

/// The configuration that all runs share.
pub(crate) fn config(file: &Path, table: &Table) -> Result<Option<PathBuf>> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        bail!("{}: unknown key '{key}' (allowed: {})", file.display(), KEYS.join(", "));
    }
    match table.get("config") {
        None => Ok(None),
        Some(Value::String(path)) => {
            let path = file.parent().unwrap_or(Path::new("")).join(path);
            if !path.is_file() {
                bail!("{}: config = \"{}\": there is no such file", file.display(), path.display());
            }
            Ok(Some(path))
        }
        Some(other) => bail!("{}: config = {other}: expected the path of a file", file.display()),
    }
}

pub(crate) fn fingerprint(config: Option<&Path>) -> Result<String> {
    let bytes = match config {
        Some(path) => fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?,
        None => Vec::new(),
    };
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All runs of a sweep: the grid, with every entry of the list, with every seed.
pub(crate) fn jobs(table: &Table) -> Result<Vec<Job>> {
    let seeds: Vec<u64> = match table.get("seeds") {
        None => vec![1],
        Some(value) => {
            let items = value.as_array().filter(|items| !items.is_empty());
            let seeds: Option<Vec<u64>> =
                items.and_then(|items| items.iter().map(|item| item.as_integer()?.try_into().ok()).collect());
            seeds.ok_or_else(|| anyhow!("seeds = {value}: expected a list of whole numbers, such as [1, 2, 3]"))?
        }
    };
    let section = |name: &str| match table.get(name) {
        None => Ok(BTreeMap::new()),
        Some(Value::Table(found)) => Ok(flat("", found)),
        Some(other) => Err(anyhow!("{name} = {other}: expected a table [{name}]")),
    };
    let fixed: Vec<String> = section("set")?.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut combinations: Vec<Vec<String>> = vec![Vec::new()];
    for (key, value) in section("grid")? {
        let Value::Array(values) = &value else {
            bail!("grid.{key} = {value}: expected a list of values, such as [0.1, 1.0]");
        };
        if values.is_empty() {
            bail!("grid.{key} = []: expected at least one value");
        }
        let with = |so_far: &Vec<String>| {
            values.iter().map(|value| [&so_far[..], &[format!("{key}={value}")]].concat()).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    if let Some(list) = table.get("list") {
        let entries: Option<Vec<&Table>> = list.as_array().map(|all| all.iter().filter_map(Value::as_table).collect());
        let entries = entries.filter(|all| !all.is_empty());
        let entries = entries.ok_or_else(|| anyhow!("list: expected tables [[list]]"))?;
        let with = |so_far: &Vec<String>| {
            let one = |entry: &&Table| {
                let own = flat("", entry).into_iter().map(|(key, value)| format!("{key}={value}"));
                so_far.iter().cloned().chain(own).collect::<Vec<String>>()
            };
            entries.iter().map(one).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    let mut jobs: Vec<Job> = Vec::new();
    for own in &combinations {
        if let Some(assignment) =
            own.iter().chain(&fixed).find(|text| text.starts_with("seed=") || text.starts_with("seeds="))
        {
            bail!("{assignment}: seeds stand at the top of the file: seeds = [1, 2, 3]");
        }
        let name = folder_name(own);
        for &seed in &seeds {
            let folder = format!("{name}/seed-{seed}");
            let set = fixed.iter().chain(own).cloned().collect();
            let job = Job { folder, label: label(own), set, seed };
            if jobs.iter().any(|other| other.folder == job.folder) {
                bail!("{}, seed {seed}: the same run is there twice", own.join(" "));
            }
            jobs.push(job);
        }
    }
    Ok(jobs)
}

/// Keys by their dotted path. Tables are gone into, so `method.name = "x"` and `"method.name" = "x"` are the same.
fn flat(path: &str, table: &Table) -> BTreeMap<String, Value> {
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

/// A combination in short: the method by its name alone, other keys without their sections.
fn label(own: &[String]) -> String {
    let short = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let value = value.trim_matches('"');
        if key == "method.name" {
            value.to_string()
        } else {
            format!("{}={value}", key.rsplit('.').next().unwrap_or(key))
        }
    };
    if own.is_empty() { "run".to_string() } else { own.iter().map(short).collect::<Vec<_>>().join(" ") }
}

/// A folder for a combination: its keys without their sections, and its values. Long ones end in a fingerprint.
fn folder_name(own: &[String]) -> String {
    let short = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let plain: String = value.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c)).collect();
        if key == "method.name" { plain } else { format!("{}-{plain}", key.rsplit('.').next().unwrap_or(key)) }
    };
    let name = own.iter().map(short).collect::<Vec<_>>().join("-");
    let print: String =
        Sha256::digest(own.join("\n").as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    match name.len() {
        0 => "run".to_string(),
        1..=80 => format!("{name}-{print}"),
        _ => format!("{}-{print}", &name[..80]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Job>> {
        jobs(&text.parse::<Table>().unwrap())
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
    }

    #[test]
    fn wrong_sweeps_are_named() {
        for (text, said) in [
            ("seeds = 3", "seeds = 3: expected a list"),
            ("[grid]\nrounds = 3", "grid.rounds = 3: expected a list"),
            ("[grid]\nrounds = []", "grid.rounds = []"),
            ("list = 3", "[[list]]"),
            ("[grid]\nseeds = [[1], [2]]", "seeds stand at the top"),
            ("seeds = [1, 1]", "the same run is there twice"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
