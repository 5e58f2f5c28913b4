//! What a configuration stands for: the data, who holds them, the model and the methods.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use fedelity_data::partition::{PartitionFile, Skew, natural};
use fedelity_data::{Dataset, Keys, Kind, Partition, Skipped, Source as DataSource, Spec, catalogue, partition};
use fedelity_fl::{HeldOut, ServerData};
use fedelity_nn::{Card, Model};
use fedelity_sim::Experiment;
use sha2::{Digest, Sha256};

use crate::config::{Data, Document, Method, PerRound, Settings, Source, at_most, unfit};
use crate::fit::{Fitted, fit};
use crate::units::plural;

/// Data and who holds them.
pub(crate) struct Pool {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) partition: PartitionFile,
    /// What the server holds. No client has any of it, unless the configuration says so.
    pub(crate) held_out: HeldOut,
    /// Samples that could not be used.
    pub(crate) skipped: Skipped,
    /// What was done that the configuration does not say.
    pub(crate) notes: Vec<String>,
}

/// All that the runs of one configuration share.
pub(crate) struct Study {
    pub(crate) settings: Settings,
    pub(crate) pool: Pool,
    pub(crate) model: Arc<Model>,
    /// What the files of its models say.
    pub(crate) card: Card,
    pub(crate) per_round: usize,
    /// SHA-256 of the data.
    pub(crate) fingerprint: String,
    /// SHA-256 of who holds which samples.
    pub(crate) partition_fingerprint: String,
    /// Samples, `[client][class]`.
    pub(crate) holdings: Vec<Vec<u64>>,
    pub(crate) server_data: ServerData,
    partition: Arc<Partition>,
}

impl Pool {
    /// Loads the data, draws what the server holds, and makes or reads the partition of the rest.
    pub(crate) fn load(document: &Document, settings: &mut Settings) -> Result<Self> {
        let (dataset, skipped) = load_data(document, &mut settings.data)?;
        let (classes, labels) = (dataset.classes.len(), &dataset.train.labels);
        let draw = |seed: u64| {
            let held_out = settings.server.hold_out.draw(labels, classes, seed);
            let withheld = held_out.withheld(labels.len());
            (held_out, withheld)
        };
        // Samples that a partition file gives to nobody.
        let mut nobodys = 0;
        let (partition, held_out, removed) = match &settings.partition {
            Source::Made { spec, seed } => {
                let (held_out, withheld) = draw(*seed);
                let rest: Vec<u32> = (0..labels.len() as u32).filter(|&i| !withheld[i as usize]).collect();
                if rest.is_empty() {
                    return Err(nothing_left(document, labels.len()));
                }
                let rest_labels: Vec<u16> = rest.iter().map(|&i| labels[i as usize]).collect();
                let mut made = partition(&rest_labels, classes, spec, *seed).map_err(|error| named(document, error))?;
                made.clients.iter_mut().flatten().for_each(|i| *i = rest[*i as usize]);
                (PartitionFile::new(&dataset.name, labels, classes, &made), held_out, 0)
            }
            Source::Natural { clients, seed } => {
                let Some(keys) = &dataset.train.keys else {
                    let error = fedelity_data::Error::NoKeys { dataset: dataset.name.clone() };
                    return Err(document.error("partition.kind", error.to_string()));
                };
                let (held_out, withheld) = draw(*seed);
                let rest: Vec<u32> = (0..labels.len() as u32).filter(|&i| !withheld[i as usize]).collect();
                if rest.is_empty() {
                    return Err(nothing_left(document, labels.len()));
                }
                let of = rest.iter().map(|&i| keys.of[i as usize]).collect();
                let keys = Keys { of, names: keys.names.clone() };
                let (mut made, names) = natural(&keys, *clients, *seed).map_err(|error| named(document, error))?;
                made.clients.iter_mut().flatten().for_each(|i| *i = rest[*i as usize]);
                let mut file = PartitionFile::new(&dataset.name, labels, classes, &made);
                file.names = names;
                (file, held_out, 0)
            }
            Source::File(path) => {
                let mut file = PartitionFile::read_for(path, labels)
                    .map_err(|error| document.error("partition.file", format!("{error}")))?;
                let (held_out, withheld) = draw(file.seed);
                let before: usize = file.clients.iter().map(Vec::len).sum();
                for (client, samples) in file.clients.iter_mut().enumerate() {
                    samples.retain(|&i| !withheld[i as usize]);
                    if samples.is_empty() {
                        let message = format!("{}: client {client} is left with no samples", path.display());
                        let message = format!("{message} once the server has taken those of [server]");
                        return Err(document.error("partition.file", message));
                    }
                }
                let after: usize = file.clients.iter().map(Vec::len).sum();
                nobodys = labels.len() - after - withheld.iter().filter(|&&gone| gone).count();
                (file, held_out, before - after)
            }
        };
        let mut notes = [&partition.notes[..], &held_out.notes].concat();
        notes.extend(dataset.absent());
        if nobodys > 0 {
            let nobodys = plural(nobodys, "training sample");
            notes.push(format!("{nobodys} of {} belong to no client of the partition file", dataset.train.len()));
        }
        if removed > 0 {
            notes.push(format!(
                "{} of the partition file went to the server; the file itself is as it was",
                plural(removed, "sample")
            ));
        }
        Ok(Self { dataset: Arc::new(dataset), partition, held_out, skipped, notes })
    }

    /// Statistics of who holds what.
    pub(crate) fn skew(&self) -> Result<Skew> {
        Ok(Skew::of(&self.partition.clients, &self.dataset.train.labels, self.dataset.classes.len())?)
    }
}

impl Study {
    /// Loads everything that a checked configuration names.
    pub(crate) fn load(document: &Document, mut settings: Settings) -> Result<Self> {
        let mut pool = Pool::load(document, &mut settings)?;
        let clients = pool.partition.clients.len();
        let per_round = settings.per_round.of(clients);
        if let PerRound::Count(count) = settings.per_round
            && count > clients
        {
            let message = format!("clients.per-round = {count}: expected {}", at_most(clients));
            return Err(document.error("clients.per-round", message));
        }
        if let Some(client) = settings.observation.client
            && client >= clients
        {
            let message =
                format!("evaluation.client = {client}: expected a client of the partition, 0 to {}", clients - 1);
            return Err(document.error("evaluation.client", message));
        }
        let rule = settings.server.composition.rule;
        rule.check_uploads(per_round)
            .map_err(|reason| document.error("server.rule", format!("server.rule: {reason}")))?;
        // The data are what they are, however a model reads them.
        let fingerprint = pool.dataset.fingerprint();
        let Fitted { model, card } = fit(document, &settings, Arc::make_mut(&mut pool.dataset))?;
        let partition = Arc::new(for_simulation(&pool.partition));
        let server_data = pool.held_out.server_data(&pool.dataset);
        let holdings = holdings(&partition.clients, &pool.dataset);
        Ok(Self {
            settings,
            pool,
            model: Arc::new(model),
            card,
            per_round,
            fingerprint,
            partition_fingerprint: fingerprint_of(&partition.clients),
            holdings,
            server_data,
            partition,
        })
    }

    /// One method with one seed.
    pub(crate) fn experiment(&self, method: &Method, seed: u64, threads: usize) -> Experiment {
        Experiment {
            model: Arc::clone(&self.model),
            data: Arc::clone(&self.pool.dataset),
            partition: Arc::clone(&self.partition),
            method: Arc::clone(&method.method),
            training: self.settings.training(),
            weighting: self.settings.weighting,
            per_round: self.per_round,
            rounds: self.settings.rounds,
            seed,
            evaluate_every: self.settings.evaluate_every,
            threads,
            server_data: self.server_data.clone(),
            observation: self.settings.observation.clone(),
        }
    }
}

/// SHA-256 over the number of samples of each client and their indices.
fn fingerprint_of(clients: &[Vec<u32>]) -> String {
    let mut hash = Sha256::new();
    for samples in clients {
        hash.update((samples.len() as u64).to_le_bytes());
        samples.iter().for_each(|index| hash.update(index.to_le_bytes()));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How many samples of each class each client holds.
fn holdings(clients: &[Vec<u32>], dataset: &Dataset) -> Vec<Vec<u64>> {
    let count = |samples: &Vec<u32>| {
        let mut counts = vec![0; dataset.classes.len()];
        samples.iter().for_each(|&i| counts[usize::from(dataset.train.labels[i as usize])] += 1);
        counts
    };
    clients.iter().map(count).collect()
}

/// The error that the server took everything.
fn nothing_left(document: &Document, samples: usize) -> anyhow::Error {
    let keys = "server.auxiliary, server.validation and server.unlabelled";
    document.error("server", format!("{keys} leave none of the {samples} training samples for clients"))
}

/// A partition as the simulation takes it, which reads the clients alone.
fn for_simulation(file: &PartitionFile) -> Partition {
    Partition {
        clients: file.clients.clone(),
        draws: file.draws,
        notes: file.notes.clone(),
        spec: Spec { kind: Kind::Iid, clients: file.clients.len() },
        seed: file.seed,
    }
}

/// Reads the data and settles how they are normalised.
pub(crate) fn load_data(document: &Document, data: &mut Data) -> Result<(Dataset, Skipped)> {
    if let DataSource::Named { name, dir, .. } = &mut data.source {
        if let Some(dir) = &dir {
            exists(document, dir)?;
        }
        if catalogue::find(name)?.is_embedded() {
            // The folder is not used, and the resolved configuration should not name it.
            *dir = None;
        }
    }
    let mut skipped = Skipped::new(data.skip_bad);
    let mut dataset = data.source.load(&mut skipped).map_err(|error| anyhow!("{error}"))?;
    if let Some(normalisation) = data.normalisation() {
        if let Some(reason) = unfit(&normalisation, dataset.shape) {
            return Err(document.error("data.normalisation", reason));
        }
        dataset.normalisation = normalisation;
    }
    let augmentation = data.augmentation();
    let fits = match dataset.shape.image() {
        _ if augmentation.is_none() => Ok(()),
        Some(shape) => augmentation.check(shape),
        None => Err(format!("it is for images, and the data are {}", dataset.shape)),
    };
    fits.map_err(|reason| document.error("data.augmentation", format!("data.augmentation: {reason}")))?;
    Ok((dataset, skipped))
}

fn exists(document: &Document, dir: &Path) -> Result<()> {
    if dir.is_dir() || document.is_from("data.dir", "FEDELITY_DATA") {
        return Ok(());
    }
    let what = if dir.exists() { "not a folder" } else { "there is no such folder" };
    Err(document.error("data.dir", format!("data.dir = \"{}\": {what}", dir.display())))
}

/// An error of a partition by the key of the configuration.
fn named(document: &Document, error: fedelity_data::Error) -> anyhow::Error {
    let fedelity_data::Error::Parameter { parameter, value, allowed } = error else { return error.into() };
    let key = match parameter {
        "per-client" => "partition.shards".to_string(),
        other => format!("partition.{other}"),
    };
    document.error(&key, format!("{key} = {value}: expected {allowed}"))
}
