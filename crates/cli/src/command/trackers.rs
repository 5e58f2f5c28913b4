//! Runs for other programs: spreadsheets, TensorBoard and MLflow.
//!
//! Names from records become names of files and folders only through [`plain_name`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use fedelity_record::{
    EventsFile, MlflowRun, MlflowStore, RoundRecord, names, numbered, plain_name, rounds_csv, runs_csv, salvage_rounds,
};
use fedelity_report::{LoadedRun, LoadedRuns, Results};
use sha2::{Digest, Sha256};

use crate::command::methods::paper_name;
use crate::output::Overwrite;
use crate::printer::Printer;
use crate::view::units::plural;

/// Runs by what they share beside the seed.
fn load(printer: &Printer, run: &Path) -> Result<Results> {
    let source = LoadedRuns::load(&[run.to_path_buf()])?;
    for out in &source.left_out {
        printer.warn(format_args!("{}: {}", out.path.display(), out.what));
    }
    Ok(Results::new(source).named(paper_name))
}

/// When the first round began, in seconds since 1970: counted back from the file's time.
fn start(run: &LoadedRun) -> Result<f64> {
    let modified = fs::metadata(run.path.join(names::ROUNDS))?.modified()?;
    let end = modified.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    Ok((end - run.rounds.iter().map(|round| round.seconds.total()).sum::<f64>()).max(0.0))
}

/// The settings of a run, with its own seed.
fn settings(run: &LoadedRun) -> BTreeMap<String, String> {
    let mut found = run.config.clone();
    found.remove("seeds");
    found.insert("seed".to_string(), run.header.seed.to_string());
    found.entry("method.name".to_string()).or_insert_with(|| run.header.method.clone());
    found
}

/// One row per round. The rounds of several runs follow each other, with columns that tell the runs apart: folder, method,
/// data, partition, model, seed, and every key in which they differ.
pub(crate) fn csv(printer: &Printer, run: &Path, file: &Path, overwrite: Overwrite) -> Result<()> {
    let text = if run.join(names::ROUNDS).is_file() {
        let salvage = salvage_rounds(&run.join(names::ROUNDS))?;
        for problem in &salvage.problems {
            printer.warn(format_args!("{}: {problem}", run.display()));
        }
        rounds_csv(&salvage.rounds)?
    } else {
        let source = LoadedRuns::load(&[run.to_path_buf()])?;
        for out in &source.left_out {
            printer.warn(format_args!("{}: {}", out.path.display(), out.what));
        }
        several(run, &source.runs)?
    };
    if file == Path::new("-") {
        return printer.raw(&text);
    }
    overwrite.write("--csv", file, &text)
}

fn several(folder: &Path, runs: &[LoadedRun]) -> Result<Vec<u8>> {
    const FACTS: [&str; 6] = ["run", "method", "dataset", "partition", "model", "seed"];
    let facts = |run: &LoadedRun| {
        let header = &run.header;
        let below = run.path.strip_prefix(folder).unwrap_or(&run.path).display().to_string();
        let words = [&header.method, &header.dataset, &header.partition, &header.model].map(String::clone);
        [below].into_iter().chain(words).chain([header.seed.to_string()]).collect::<Vec<_>>()
    };
    let known: BTreeSet<&String> = runs.iter().flat_map(|run| run.config.keys()).collect();
    // The facts have these.
    let said = |key: &str| ["seeds", "method.name", "data.name", "model.name", "partition.file"].contains(&key);
    let differs = |key: &&String| runs.iter().any(|run| run.config.get(*key) != runs[0].config.get(*key));
    let keys: Vec<&String> = known.into_iter().filter(|key| !said(key) && differs(key)).collect();
    let first: Vec<&str> = FACTS.into_iter().chain(keys.iter().map(|key| key.as_str())).collect();
    let rows = |run: &'_ LoadedRun| {
        let own = keys.iter().map(|key| run.config.get(*key).cloned().unwrap_or_default());
        facts(run).into_iter().chain(own).collect::<Vec<_>>()
    };
    let rows: Vec<(Vec<String>, &[RoundRecord])> = runs.iter().map(|run| (rows(run), &run.rounds[..])).collect();
    Ok(runs_csv(&first, &rows)?)
}

/// One folder per run, as TensorBoard groups them.
pub(crate) fn tensorboard(printer: &Printer, run: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let study = load(printer, run)?;
    let (mut written, mut there) = (Vec::new(), 0);
    for group in &study.groups {
        let setting = study.settings.get(group.setting).filter(|_| study.settings.len() > 1);
        let setting = setting.map_or(String::new(), |setting| format!("-{}", setting.label));
        for run in &group.runs {
            let name = plain_name(&format!("{}-seed-{}{setting}", run.header.method, run.header.seed));
            let mut time = start(run)?;
            let file = format!("events.out.tfevents.{}.fedelity", time as u64);
            let mut places = numbered(&name).map(|name| folder.join(name));
            let below = places.find(|below| !below.exists() || below.join(&file).exists());
            let below = below.unwrap_or_else(|| folder.join(&name));
            let path = below.join(&file);
            if path.exists() {
                there += 1;
                continue;
            }
            fs::create_dir_all(&below).with_context(|| format!("{}: cannot create", below.display()))?;
            let mut events = EventsFile::create(&path, time, &run.header.classes)?;
            events.settings(&settings(run), &group.title(), time)?;
            for round in &run.rounds {
                time += round.seconds.total();
                events.append(round, time)?;
            }
            if run.ended {
                events.end(run.summary.status, time)?;
            }
            written.push(path);
        }
    }
    say_written(printer, written.len(), there, folder);
    Ok(written)
}

/// One experiment for the folder that was named, one run in it for each run.
pub(crate) fn mlflow(printer: &Printer, run: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let study = load(printer, run)?;
    let whole = fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
    let experiment = whole.file_name().map_or("fedelity".to_string(), |name| name.to_string_lossy().into_owned());
    let store = MlflowStore::open(folder)?;
    let (mut written, mut there) = (Vec::new(), 0);
    for group in &study.groups {
        for run in &group.runs {
            let rounds = run.path.join(names::ROUNDS);
            let bytes = fedelity_files::read(&rounds, fedelity_files::RECORD)
                .with_context(|| format!("{}: cannot read", rounds.display()))?;
            let id: String = Sha256::digest(&bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            let header = &run.header;
            let tags = [
                ("method", header.method.clone()),
                ("setting", study.settings.get(group.setting).map_or(String::new(), |setting| setting.label.clone())),
                ("dataset", header.dataset.clone()),
                ("dataset-sha256", header.dataset_fingerprint.clone()),
                ("partition", header.partition.clone()),
                ("partition-sha256", header.partition_fingerprint.clone()),
                ("model", header.model.clone()),
                ("fedelity", header.fedelity.clone()),
                ("machine", header.machine.clone()),
                ("folder", run.path.display().to_string()),
                ("tags", run.tags.join(" ")),
                ("mark", run.mark().map_or(String::new(), |mark| mark.what)),
            ];
            let tags = tags.into_iter().filter(|(_, value)| !value.is_empty());
            let file = |name: &'static str| {
                Some((name, fedelity_files::read(&run.path.join(name), fedelity_files::RECORD).ok()?))
            };
            let one = MlflowRun {
                id: &id,
                name: &format!("{}, seed {}", group.title(), header.seed),
                status: run.ended.then_some(run.summary.status),
                rounds: &run.rounds,
                classes: &header.classes,
                params: settings(run),
                tags: tags.map(|(key, value)| (key.to_string(), value)).collect(),
                files: [names::CONFIG, names::SUMMARY].into_iter().filter_map(file).collect(),
                start: (1_000.0 * start(run)?) as i64,
            };
            match store.add(&experiment, &one)? {
                Some(path) => written.push(path),
                None => there += 1,
            }
        }
    }
    say_written(printer, written.len(), there, folder);
    Ok(written)
}

fn say_written(printer: &Printer, written: usize, there: usize, folder: &Path) {
    if there > 0 {
        printer.say(format_args!("{} there already", plural(there, "run")));
    }
    printer.say(format_args!("Wrote {} to {}", plural(written, "run"), folder.display()));
}
