//! A client's half.

use std::path::Path;
use std::sync::Arc;

use fedelity_data::{Colour, DataError, DataSource, Dataset, NewData, Normalisation, Part, Split};
use fedelity_fl::wire::Wire;
use fedelity_fl::{Broadcast, Federation, Method, Payload, Samples, Scaling, ServerData, Task, Trainer, client};
use fedelity_methods::Clip;
use fedelity_nn::{Input, Model, Params, Pretrained, encoder};
use sha2::{Digest, Sha256};

use super::Agreement;
use super::agreement::frozen_hash;
use super::envelope::{ExchangeError, seal, unseal};
use crate::assemble::Study;
use crate::config::DataKeys;
use crate::error::Result;
use crate::saved::fit_samples;
use crate::{Document, ExperimentError, MethodChoice, Resources, Settings};

/// A client that gets its messages from outside.
#[derive(Debug)]
pub struct Client {
    digest: [u8; 32],
    id: usize,
    federation: Federation,
    trainer: Trainer,
    data: ClientData,
    indices: Vec<u32>,
    scaling: Scaling,
    memory: TwoMemories,
    restraint: Restraint,
    /// Uploads made so far, so that no two have the same noise.
    uploads: u64,
}

/// What a client keeps to itself, whatever the server asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restraint {
    /// The largest norm of an update that no noise hides.
    pub limit: Option<Clip>,
    /// What noise is drawn from, instead of the seed, which the server knows.
    pub entropy: Option<[u8; 32]>,
    /// The most bytes of an upload.
    pub most_bytes: Option<u64>,
}

/// Where the samples of a client are.
#[derive(Clone, Debug)]
enum ClientData {
    /// Among the training samples of a study, which its clients share.
    Shared(Arc<Dataset>),
    Own(Split),
}

impl ClientData {
    fn split(&self) -> &Split {
        match self {
            Self::Shared(dataset) => &dataset.train,
            Self::Own(split) => split,
        }
    }
}

/// What a client remembers: what the server is known to have accepted, and what it may have.
#[derive(Clone, Debug, Default, PartialEq)]
struct TwoMemories {
    kept: Payload,
    /// The round of `kept`.
    round: Option<usize>,
    pending: Payload,
    /// The round of `pending`, until the server says whether it was accepted.
    pending_round: Option<usize>,
}

impl TwoMemories {
    /// Settles what is pending, now that the server has said which round it last accepted.
    fn settle(&mut self, accepted: Option<usize>) {
        if accepted.is_none() {
            // For this server it is new: what it remembers is from another federation.
            *self = Self::default();
        } else if self.pending_round == accepted {
            (self.kept, self.round) = (std::mem::take(&mut self.pending), accepted);
        }
        (self.pending, self.pending_round) = (Payload::new(), None);
    }
}

impl Client {
    /// A client of the partition: it has all data of the study and takes its part.
    pub fn of_partition(study: &Study, agreement: &Agreement, id: usize) -> Result<Self> {
        let (_, method) = agreement.settings()?;
        // What this client would agree on, as near to the server's as its own configuration allows.
        let (methods, seeds) = (&study.settings.methods, &study.settings.config.seeds);
        let same = |own: &&MethodChoice| own.name == method.name && own.keys == method.keys;
        let named = |own: &&MethodChoice| own.name == method.name;
        let nearest = methods.iter().find(same).or_else(|| methods.iter().find(named)).or(methods.first());
        let seed = if seeds.contains(&agreement.seed) { Some(&agreement.seed) } else { seeds.first() };
        let own = Agreement::of(study, nearest.unwrap_or(&method), *seed.unwrap_or(&agreement.seed));
        if let Some((what, server, here)) = agreement.first_difference(&own) {
            let message = format!(
                "server and client do not agree on the {what}: {server} there and {here} here; give this client the server's \
                 configuration and data, or start the server with those of the client"
            );
            return Err(ExperimentError::Config(message));
        }
        let Some(indices) = study.pool.partition.clients.get(id) else { return Err(no_such_client(agreement, id)) };
        if study.pool.partition.is_of_sites() {
            let message = format!("client {id} is a site: it reads its own data, which its configuration names");
            return Err(ExperimentError::Config(message));
        }
        let federation = study.federation(&method, agreement.seed);
        let data = ClientData::Shared(Arc::clone(&study.pool.dataset));
        let scaling = Scaling::from(&study.pool.dataset.normalisation);
        Ok(Self::with(agreement, id, federation, data, indices.clone(), scaling))
    }

    /// A site with data of its own: `[data]` of its configuration, read as the agreement says. Classes, normalisation,
    /// columns, image size and vocabulary are those of the agreement. Samples that are marked for testing are not used.
    /// Frozen weights do not travel: they are read from `model.weights` and must be those of the agreement.
    pub fn of_site(agreement: &Agreement, id: usize, site: &Document, resources: &Resources) -> Result<Self> {
        let config = Settings::read(site)?.config;
        let split = site_samples(agreement, site, config.data, resources)?;
        Self::of_its_own(agreement, id, agreement.settings()?, split, config.model.weights.as_deref(), resources)
    }

    /// A client with these samples, as the agreement's model reads them.
    pub fn of_samples(agreement: &Agreement, id: usize, split: Split, resources: &Resources) -> Result<Self> {
        Self::of_its_own(agreement, id, agreement.settings()?, split, None, resources)
    }

    /// A client with samples of its own and these settings: those of the agreement, or tighter ones.
    pub(super) fn of_its_own(
        agreement: &Agreement,
        id: usize,
        (settings, method): (Settings, MethodChoice),
        split: Split,
        weights: Option<&Path>,
        resources: &Resources,
    ) -> Result<Self> {
        let card = &agreement.card;
        let classes = card.classes.len();
        if id >= agreement.clients {
            return Err(no_such_client(agreement, id));
        }
        if let Some(label) = split.labels.iter().find(|label| usize::from(**label) >= classes) {
            return Err(ExperimentError::Config(format!(
                "a sample has label {label}, but there are {classes} classes, from 0: change it here, or add the class at \
                 the server"
            )));
        }
        let federation = Federation {
            model: Arc::new(model(agreement, settings.config.model.freeze, weights, resources)?),
            method: method.method,
            training: settings.training(),
            weighting: settings.config.clients.weighting,
            clients: agreement.clients,
            seed: agreement.seed,
            server_data: ServerData::default(),
        };
        let scaling = Scaling::from(&Normalisation { mean: card.mean.clone(), std: card.std.clone() });
        let indices = (0..split.len() as u32).collect();
        Ok(Self::with(agreement, id, federation, ClientData::Own(split), indices, scaling))
    }

    fn with(
        agreement: &Agreement,
        id: usize,
        federation: Federation,
        data: ClientData,
        indices: Vec<u32>,
        scaling: Scaling,
    ) -> Self {
        let (digest, trainer) = (agreement.digest(), Trainer::new(federation.model.clone()));
        let (memory, restraint) = (TwoMemories::default(), Restraint::default());
        Self { digest, id, federation, trainer, data, indices, scaling, memory, restraint, uploads: 0 }
    }

    /// The client, which now keeps more to itself.
    pub(super) fn restrained(self, restraint: Restraint) -> Self {
        Self { restraint, ..self }
    }

    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    pub(super) fn model(&self) -> &Model {
        &self.federation.model
    }

    pub(super) fn method(&self) -> &dyn Method {
        &*self.federation.method
    }

    pub fn id(&self) -> usize {
        self.id
    }

    /// Its number of samples.
    pub fn samples(&self) -> usize {
        self.indices.len()
    }

    /// Its number of samples of each class.
    pub fn label_counts(&self) -> Vec<usize> {
        let samples = Samples { split: self.data.split(), indices: &self.indices, scaling: &self.scaling };
        samples.label_counts(self.federation.model.classes())
    }

    /// Trains for one round, given the server's message. Returns what to send.
    ///
    /// The client keeps two memories, because it does not know yet whether this upload will count: the server's next message
    /// says so. [`memory`](Self::memory) is what must survive a restart.
    pub fn train(&mut self, message: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        let ([addressee, accepted], body) = unseal::<2>(&self.digest, message)?;
        if addressee != Some(self.id) {
            return Err(ExchangeError::Addressee { client: self.id, named: addressee });
        }
        let broadcast = Broadcast::from_bytes(body)?;
        let mut memory = self.memory.clone();
        memory.settle(accepted);
        if memory.round != accepted && self.federation.method.needs().client_memory {
            let (client, found) = (self.id, memory.round.map(|round| round + 1));
            return Err(ExchangeError::Memory { client, expected: accepted.map_or(0, |round| round + 1), found });
        }
        let samples = Samples { split: self.data.split(), indices: &self.indices, scaling: &self.scaling };
        let task = self.federation.task(self.id, samples, &broadcast, &memory.kept);
        let task = Task { secret: self.restraint.entropy.map(|entropy| secret(&entropy, self.uploads)), ..task };
        let mut done = client(&mut self.trainer, &task, Params::default())?;
        self.uploads += 1;
        if let Some(limit) = self.restraint.limit {
            limit.apply(self.federation.model.layout(), &broadcast.global, &mut done.upload.params);
        }
        let (bytes, most) = (done.upload.bytes(), self.restraint.most_bytes);
        if let Some(most) = most.filter(|most| bytes > *most) {
            return Err(ExchangeError::Bytes { bytes, most });
        }
        (memory.pending, memory.pending_round) = (done.memory, Some(broadcast.round));
        self.memory = memory;
        Ok(seal(&self.digest, &[Some(self.id), Some(done.teacher_passes as usize)], &done.upload.to_bytes()))
    }

    /// Remembers nothing, as before its first round.
    pub fn forget(&mut self) {
        self.memory = TwoMemories::default();
    }

    /// What it remembers, as bytes.
    pub fn memory(&self) -> Vec<u8> {
        let TwoMemories { kept, round, pending, pending_round } = &self.memory;
        let kept = kept.to_bytes();
        let mut body = kept.clone();
        body.extend(pending.to_bytes());
        seal(&self.digest, &[Some(self.id), *round, *pending_round, Some(kept.len())], &body)
    }

    /// Remembers what was [saved](Self::memory).
    pub fn remember(&mut self, saved: &[u8]) -> Result<(), ExchangeError> {
        self.memory = self.read_memory(saved).map_err(ExchangeError::of_saved)?;
        Ok(())
    }

    fn read_memory(&self, saved: &[u8]) -> Result<TwoMemories, ExchangeError> {
        let ([id, round, pending_round, kept], body) = unseal::<4>(&self.digest, saved)?;
        if id != Some(self.id) {
            return Err(ExchangeError::Stranger { client: self.id, found: id.unwrap_or(usize::MAX) });
        }
        let (kept, pending) = body.split_at_checked(kept.unwrap_or(0)).ok_or(ExchangeError::Foreign)?;
        let (kept, pending) = (Payload::from_bytes(kept)?, Payload::from_bytes(pending)?);
        Ok(TwoMemories { kept, round, pending, pending_round })
    }
}

/// The samples of a site, read as the agreement says. Samples that are marked for testing are not used.
pub(super) fn site_samples(
    agreement: &Agreement,
    site: &Document,
    mut keys: DataKeys,
    resources: &Resources,
) -> Result<Split> {
    let card = &agreement.card;
    if let (DataSource::Folder(folder), Input::Image { channels, height, width }) = (&mut keys.source, card.input) {
        folder.size = Some((height, width));
        folder.colour = if channels == 1 { Colour::Grey } else { Colour::Rgb };
    }
    let data = resources.load_new(site, &keys, card, None).map_err(under_agreement)?;
    let part = if data.part == Part::Test { Part::Train } else { data.part };
    let data = NewData { part, ..data };
    if let Some(class) = data.dataset.classes.iter().find(|class| !card.classes.contains(class)) {
        let known = card.classes.join(", ");
        let message = format!(
            "the class '{class}' is not part of the federation, which has {known}: rename or remove it here, or add it \
             to the server's data"
        );
        return Err(site.error("data", message));
    }
    Ok(fit_samples(card, Path::new("the agreement"), &data).map_err(under_agreement)?.0)
}

/// An error about the contents of a site's data says which side can change what.
fn under_agreement(error: ExperimentError) -> ExperimentError {
    match error {
        ExperimentError::Data(DataError::Unusable { .. } | DataError::Bad { .. }) => {
            ExperimentError::SiteData(format!(
                "{error} (the server's data say what is read: change the data or [data] of this site, or the server's data)"
            ))
        }
        other => other,
    }
}

/// What the noise of one upload is drawn from.
fn secret(entropy: &[u8; 32], upload: u64) -> [u8; 32] {
    Sha256::new().chain_update(entropy).chain_update(upload.to_le_bytes()).finalize().into()
}

/// The model of an agreement. Frozen weights are those of a folder, which must have the same as the server's.
fn model(agreement: &Agreement, freeze: Option<usize>, weights: Option<&Path>, resources: &Resources) -> Result<Model> {
    let (card, engine) = (&agreement.card, resources.engine.clone());
    let whole = card.architecture()?;
    let shape = match &card.encoder {
        Some(shape) if !agreement.frozen.is_empty() => shape,
        _ => return Ok(Model::compile(&whole, engine)?),
    };
    let Some(folder) = weights else {
        let message = format!(
            "the model has frozen weights, which do not travel: name the folder that has them in the configuration of this \
             site, [model] with name = \"{}\" and weights = \"FOLDER\"",
            card.model
        );
        return Err(ExperimentError::Config(message));
    };
    let found = Pretrained::open(folder)?;
    let arch = encoder(&card.model, shape, card.projection, freeze, card.input.shape(), card.classes.len());
    let model = found.load(Model::compile(&arch, engine)?)?;
    let (expected, hash) = (&agreement.frozen, frozen_hash(&model));
    if hash != *expected {
        let reason = format!(
            "these are not the frozen weights of the federation: their SHA-256 is {hash}, and {expected} at the server; take \
             the server's files"
        );
        return Err(ExperimentError::path(&Pretrained::weights_file(folder), reason));
    }
    Ok(model)
}

fn no_such_client(agreement: &Agreement, id: usize) -> ExperimentError {
    let most = agreement.clients.saturating_sub(1);
    ExperimentError::Config(format!("client {id}: the agreement has clients 0 to {most}; give this node one of them"))
}
