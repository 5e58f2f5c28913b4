//! How long the runs of presets take on this machine, measured once for each kind of work and kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fedelity_data::DataSource;
use fedelity_keys::inline;
use serde::{Deserialize, Serialize};

use crate::assemble::Study;
use crate::config::{Document, MethodChoice, Settings};
use crate::error::Result;
use crate::estimate::estimate;
use crate::{Resources, machine};

/// Measured paces, kept in a file. What cannot be read or written is measured again.
#[derive(Debug)]
pub struct Paces {
    file: Option<PathBuf>,
    known: KnownPaces,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KnownPaces {
    /// The program and the machine that they are of.
    of: String,
    /// Seconds per trained sample on one thread, by the kind of work. Tests are part of them.
    seconds: BTreeMap<String, f64>,
}

/// How exact an estimate must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// One measurement for all methods with the same model and data: a teacher's forward pass takes a third of a step.
    Rough,
    /// One measurement for each method and its keys.
    ByMethod,
}

impl Paces {
    /// Those in a file, if they are of this program on this machine; none of them if all are to be measured `anew`.
    pub fn open(file: Option<PathBuf>, resources: &Resources, anew: bool) -> Self {
        let of = format!("{}, {}, {}", env!("CARGO_PKG_VERSION"), machine::describe(), resources.engine.name());
        let text = file.as_ref().and_then(|file| fedelity_files::read_text(file, fedelity_files::TEXT).ok());
        let known: Option<KnownPaces> = text.and_then(|text| serde_json::from_str(&text).ok());
        let known = known.filter(|known| known.of == of && !anew);
        Self { file, known: known.unwrap_or(KnownPaces { of, seconds: BTreeMap::new() }) }
    }

    /// Seconds that a run of a configuration takes on one thread; none if training diverges in its first steps.
    /// `measuring` is called if this is not known yet.
    pub fn seconds(
        &mut self,
        document: &Document,
        resources: &Resources,
        exactness: Exactness,
        measuring: impl FnOnce(),
    ) -> Result<Option<f64>> {
        let settings = Settings::read(document)?;
        let method = &settings.methods[0];
        let samples = trained_samples(&settings);
        if let (Some(samples), Some(pace)) = (samples, self.known.seconds.get(&kind(&settings, Some(method)))) {
            return Ok(Some(samples * pace));
        }
        let (key, factor) = match exactness {
            Exactness::ByMethod => (kind(&settings, Some(method)), 1.0),
            Exactness::Rough => (kind(&settings, None), 1.0 + method.method.needs().extra_passes as f64 / 3.0),
        };
        if let (Some(samples), Some(pace)) = (samples, self.known.seconds.get(&key)) {
            return Ok(Some(samples * pace * factor));
        }
        measuring();
        let study = Study::load_with(document, resources)?;
        let Some(found) = estimate(&study, &study.settings.methods[0], 1)? else { return Ok(None) };
        let Some(samples) = samples else { return Ok(Some(found.seconds)) };
        self.known.seconds.insert(key, found.seconds / samples / factor);
        self.keep();
        Ok(Some(found.seconds))
    }

    fn keep(&self) {
        let Some(file) = &self.file else { return };
        let _ = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        let text = serde_json::to_vec_pretty(&self.known).unwrap_or_default();
        let _ = fedelity_files::write(file, &text);
    }
}

/// What the time of a step depends on.
fn kind(settings: &Settings, method: Option<&MethodChoice>) -> String {
    let config = &settings.config;
    let method = method.map_or(String::new(), |method| {
        format!("; {} {}", method.name, inline(&toml::Value::Table(method.keys.clone())))
    });
    let model = &config.model;
    let name = model.name.as_ref().map_or("", |name| name.0.as_str());
    let file = model.file.as_deref().unwrap_or(Path::new("")).display();
    format!(
        "{} {name}{file}, projection {}, stem {:?}, frozen {:?}, {} tokens, batches of {}{method}",
        config.data.source.name(),
        model.projection,
        model.stem,
        model.freeze,
        model.max_length.unwrap_or(0),
        config.clients.batch,
    )
}

/// Samples that clients train on in all rounds, each as often as there are epochs; none if the data set's size is not in
/// the catalogue.
fn trained_samples(settings: &Settings) -> Option<f64> {
    let config = &settings.config;
    let entry = match &config.data.source {
        DataSource::Named(set) => set.name.entry(),
        DataSource::Folder(_) | DataSource::Csv(_) | DataSource::Jsonl(_) | DataSource::Arrays(_) => return None,
    };
    let (all, clients) = (entry.train? as f64, config.partition.clients? as f64);
    let hold = config.hold_out();
    let kept = if hold.keep_auxiliary { 0 } else { hold.auxiliary * entry.classes };
    let held = all * (hold.validation + hold.testing) + (kept + hold.unlabelled) as f64;
    let share = match config.clients.fraction {
        Some(fraction) => fraction,
        None => config.clients.per_round as f64 / clients,
    };
    let samples = (all - held) * share.min(1.0) * (config.rounds * config.clients.epochs) as f64;
    (samples > 0.0).then_some(samples)
}

/// What a configuration reads that is not there: a data set that can be fetched, or a folder with an encoder.
pub fn absent(document: &Document) -> Result<Vec<String>> {
    let config = Settings::read(document)?.config;
    let mut all = Vec::new();
    if let DataSource::Named(set) = &config.data.source
        && let Some(dir) = &set.dir
        && !set.name.entry().may_be_in(dir)
    {
        all.push(format!("fedelity data fetch {}", set.name.name()));
    }
    if let Some(weights) = config.model.weights.filter(|weights| !weights.is_dir()) {
        all.push(format!("--set model.weights=FOLDER ({} is not there)", weights.display()));
    }
    Ok(all)
}
