use std::sync::Arc;

use fedelity_data::partition::Skew;
use fedelity_data::{DataError, Dataset, Partition, Skipped, label_counts, partition};
use fedelity_fl::HeldOut;

use crate::ExperimentError;
use crate::config::{Document, Settings};
use crate::error::Result;
use crate::resources::{Loaded, Resources};

/// Data, and their partition over clients.
pub struct Pool {
    pub dataset: Arc<Dataset>,
    pub partition: Arc<Partition>,
    /// The server's samples. No client has any of them, unless the configuration allows it.
    pub held_out: HeldOut,
    /// Unusable samples that were skipped.
    pub skipped: Skipped,
    /// SHA-256 of the data.
    pub fingerprint: String,
    /// Adjustments beyond the configuration.
    pub notes: Vec<String>,
}

impl Pool {
    /// Loads the data, draws the server's samples, and makes or reads the partition of the rest.
    pub fn load(document: &Document, settings: &Settings, resources: &Resources) -> Result<Self> {
        let loaded = resources.load(document, &settings.config.data)?;
        let dataset = &loaded.dataset;
        let (classes, labels) = (dataset.classes.len(), &dataset.train.labels);
        let (hold_out, keys) = (settings.config.hold_out(), &settings.config.partition);
        let mut notes = Vec::new();
        let (partition, held_out) = match &keys.file {
            None => {
                let held_out = hold_out.draw(labels, classes, keys.seed);
                let withheld = held_out.withheld(labels.len());
                let clients = keys.clients.or(keys.names.as_ref().map(Vec::len));
                let made = partition(dataset, &withheld, &keys.kind, clients, keys.seed);
                let mut made = made.map_err(|error| named(document, error))?;
                if let Some(names) = &keys.names {
                    made.names.clone_from(names);
                }
                (made, held_out)
            }
            Some(path) => {
                let wrong = |error: DataError| document.error("partition.file", error.to_string());
                let mut file = Partition::read_for(path, labels).map_err(wrong)?;
                let held_out = hold_out.draw(labels, classes, file.seed);
                let withheld = held_out.withheld(labels.len());
                let removed = file.withhold(&withheld).map_err(|error| {
                    let taken = "once the server has taken those of [server]";
                    document.error("partition.file", format!("{}: {error} {taken}", path.display()))
                })?;
                let nobodys = labels.len() - file.given() - withheld.iter().filter(|&&gone| gone).count();
                if nobodys > 0 {
                    let all = labels.len();
                    notes
                        .push(format!("{nobodys} of {all} training samples belong to no client of the partition file"));
                }
                if removed > 0 {
                    notes.push(format!(
                        "{removed} samples of the partition file went to the server; the file is unchanged"
                    ));
                }
                (file, held_out)
            }
        };
        let dataset = resources.tested_on(&loaded, &settings.config.data, &held_out.testing);
        let Loaded { skipped, fingerprint, .. } = loaded;
        let mut all = [&partition.notes[..], &held_out.notes].concat();
        all.extend(dataset.remarks());
        all.extend(notes);
        Ok(Self { dataset, partition: Arc::new(partition), held_out, skipped, fingerprint, notes: all })
    }

    /// Statistics of the partition.
    pub fn skew(&self) -> Result<Skew> {
        Ok(Skew::of(&self.partition.clients, &self.dataset.train.labels, self.dataset.classes.len())?)
    }

    /// Samples per client and class.
    pub(super) fn holdings(&self) -> Vec<Vec<u64>> {
        let (train, classes) = (&self.dataset.train, self.dataset.classes.len());
        let count = |samples: &Vec<u32>| {
            let counts = label_counts(samples.iter().map(|&i| &train.labels[i as usize]), classes);
            counts.into_iter().map(|count| count as u64).collect()
        };
        self.partition.clients.iter().map(count).collect()
    }
}

/// An error of a partition, with the key of the configuration.
fn named(document: &Document, error: DataError) -> ExperimentError {
    match error {
        DataError::Parameter { parameter, value, allowed } => {
            let key = format!("partition.{parameter}");
            let default = if document.gives(&key) { "" } else { " (the default)" };
            document.expected(&key, format!("{value}{default}"), allowed)
        }
        DataError::NoKeys { .. } => document.error("partition.kind", error.to_string()),
        DataError::NothingLeft { samples } => {
            let keys = "server.auxiliary, server.validation and server.unlabelled";
            document.error("server", format!("{keys} leave none of the {samples} training samples for clients"))
        }
        other => other.into(),
    }
}
