//! What a run of a sweep was made from. A finished run counts as done only if all of it is still the same.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fedelity_nn::Pretrained;
use fedelity_record::names::{self, STAMP};
use fedelity_report::config_values;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Job;
use crate::ExperimentError;
use crate::assemble::Study;
use crate::config::{Document, Settings};
use crate::error::Result;
use crate::header::hex;

/// Most settings of a run that are named, if they are others.
const MOST_NAMED: usize = 4;

/// Whether a folder has runs of a sweep, or is that of one of its settings: each run has a stamp.
pub fn is_sweep(folder: &Path) -> bool {
    let inside = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = |folders: Vec<PathBuf>| folders.iter().flat_map(|folder| inside(folder)).collect::<Vec<_>>();
    let of_setting: Vec<PathBuf> = inside(folder).collect();
    let is_run = |run: &PathBuf| run.join(STAMP).is_file();
    if of_setting.iter().any(is_run) {
        return true;
    }
    let runs = below(of_setting);
    // A preset has a folder for each cell, and [tune] one for each stage.
    runs.iter().any(is_run) || below(runs).iter().any(is_run)
}

/// What a run reads besides its settings. Runs that differ only in their seed, method or training have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SweepSources {
    /// SHA-256 of the data.
    data: String,
    /// SHA-256 of the assignment of samples to clients.
    partition: String,
    /// SHA-256 of what the model is made from: its own layers, its vocabulary or tokenizer, the scales of its inputs, its
    /// trained weights. A column that moves as a whole shows only here, since rows are scaled.
    model: String,
}

impl SweepSources {
    pub(super) fn of(study: &Study) -> Result<Self> {
        let mut model = Sha256::new();
        model.update(serde_json::to_vec(&study.card).unwrap_or_default());
        if let Some(folder) = &study.settings.config.model.weights {
            let path = Pretrained::weights_file(folder);
            read_into(&mut model, &path)
                .map_err(|error| ExperimentError::path(&path, format!("cannot read: {error}")))?;
        }
        Ok(Self {
            data: study.pool.fingerprint.clone(),
            partition: study.partition_fingerprint.clone(),
            model: hex(&model.finalize()),
        })
    }
}

fn read_into(sum: &mut Sha256, path: &Path) -> io::Result<()> {
    let mut file = fedelity_files::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(()),
            n => sum.update(&buffer[..n]),
        }
    }
}

/// How the settings of the run in a folder differ from those of a job, if they do. Where files are makes no difference, nor
/// what a job leaves to its data.
pub(super) fn other_settings(folder: &Path, job: &Document) -> Option<String> {
    let config = folder.join(names::CONFIG);
    // Nothing waits for a pipe in a run's folder.
    let there = fedelity_files::open(&config).map_err(|error| error.to_string()).and_then(|_| {
        let document = Document::read(&config).map_err(|error| error.to_string())?;
        Settings::read(&document).map_err(|error| error.to_string())
    });
    let there = match there {
        Ok(there) => there,
        Err(reason) => return Some(format!("its {} cannot be read: {reason}", names::CONFIG)),
    };
    // What cannot be read is refused before there are jobs.
    let ours = Settings::read(job).ok()?;
    let [there, ours] = [there, ours].map(|settings| settings.of_any_data(job));
    if there == ours {
        return None;
    }
    let [there, ours] = [there, ours].map(|text| config_values(&text));
    let keys: BTreeSet<&String> = there.keys().chain(ours.keys()).collect();
    let differ = keys.into_iter().filter(|key| there.get(*key) != ours.get(*key));
    let differ = differ.map(|key| match (there.get(key), ours.get(key)) {
        (Some(there), Some(ours)) => format!("{key} is {there}, not {ours}"),
        (Some(there), None) => format!("{key} is {there}, and is not set now"),
        (None, ours) => format!("{key} is not set, and is {} now", ours.map_or("", |ours| ours)),
    });
    let differ: Vec<String> = differ.take(MOST_NAMED).collect();
    (!differ.is_empty()).then(|| format!("it has other settings: {}", differ.join(", ")))
}

/// The identity of a finished run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SweepStamp {
    /// The version of the program.
    fedelity: String,
    /// What the sweep sets, as in its own words: how a run that was chosen is found.
    set: Vec<String>,
    seed: u64,
    #[serde(flatten)]
    sources: SweepSources,
}

impl SweepStamp {
    pub(super) fn of(job: &Job, sources: &SweepSources) -> Self {
        Self {
            fedelity: env!("CARGO_PKG_VERSION").to_string(),
            set: job.set.clone(),
            seed: job.seed,
            sources: sources.clone(),
        }
    }

    pub(super) fn sources(&self) -> &SweepSources {
        &self.sources
    }

    /// The stamp in a run's folder: none if there is no file, an error if it cannot be read.
    pub(super) fn read(folder: &Path) -> Option<Result<Self, String>> {
        let text = fedelity_files::read_text(&folder.join(STAMP), fedelity_files::TEXT).ok()?;
        Some(serde_json::from_str(&text).map_err(|error| format!("its {STAMP} cannot be read: {error}")))
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        fedelity_files::write(&folder.join(STAMP), (serde_json::to_string(self)? + "\n").as_bytes())
    }

    /// What is not the same in another stamp, which is the newer one.
    pub(super) fn changes(&self, new: &Self) -> Option<String> {
        let changes = [
            (self.seed != new.seed, "it has another seed".to_string()),
            (self.sources.data != new.sources.data, "the data have changed since".to_string()),
            (self.sources.partition != new.sources.partition, "the partition has changed since".to_string()),
            (
                self.sources.model != new.sources.model,
                "what the model is made from (layers, tokens, scales of columns, weights) has changed since"
                    .to_string(),
            ),
            (self.fedelity != new.fedelity, format!("it was made by version {}", self.fedelity)),
        ];
        let found: Vec<String> = changes.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}
