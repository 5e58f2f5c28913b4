//! A site of a federation: where its server is, what data it has, and what it allows.
//!
//! The site's file can only tighten what the server asks for. What breaks its policy is refused here, with the place of the
//! key that refuses it, before anything is trained or sent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fedelity_data::{DataSource, Part};
use fedelity_keys::{KeyError, keys, read};
use fedelity_methods::{Clip, NoiseAt, entries, find, unprotected};
use fedelity_nn::Model;
use serde::Serialize;

use super::client::{Restraint, site_samples};
use super::{Agreement, Client};
use crate::config::{DataKeys, Document, Origins, Settings};
use crate::error::Result;
use crate::{ExperimentError, MethodChoice, Resources};

/// The file of a site.
#[keys]
pub struct SiteKeys {
    /// Host and port of the server, such as fl.example.org:8000.
    pub server: String,
    /// Number of this site among the clients, from 0. No other site may have the same number.
    pub client: usize,
    /// Certificate of the authority that signed the server's, in PEM format. Without it, the connection is not encrypted
    /// and nothing proves who the server is.
    #[key(what = "the path of a certificate in PEM format")]
    pub certificate: Option<PathBuf>,
    /// Private key that proves who this site is; `fedelity-node key` creates it.
    #[key(what = "the path of a private key")]
    pub key: Option<PathBuf>,
    /// Folder for what must survive a restart: memory, the audit log, and the last model.
    #[key(default = "state", what = "the path of a folder")]
    pub state: PathBuf,
    /// Folder with the frozen weights of a pretrained encoder, if the model has one. They are never sent.
    #[key(what = "the path of a folder")]
    pub weights: Option<PathBuf>,
    /// Data of this site.
    pub data: DataKeys,
    /// What may run here, and what may leave.
    pub policy: PolicyKeys,
}

/// What a site allows.
#[keys(check = measured)]
pub struct PolicyKeys {
    /// Methods that may run here; by default, all.
    #[key(what = "a list of methods, such as [\"fedavg\", \"fedntd\"]")]
    pub methods: Option<Vec<String>>,
    /// Maximum number of bytes that may leave in one round.
    #[key(min = 1)]
    pub most_bytes_up: Option<u64>,
    /// Whether the number of samples of each class may leave; some methods need it.
    #[key(default = false)]
    pub label_counts: bool,
    /// Minimum number of samples: with fewer, the site does not take part.
    #[key(default = 1, min = 1)]
    pub fewest_samples: usize,
    /// Largest norm of an update that may leave; a larger one is scaled down to it.
    #[key(above = 0)]
    pub largest_update: Option<f64>,
    /// Noise on every weight that leaves: its standard deviation, as a multiple of `largest-update`. It is drawn from a
    /// secret of this site.
    #[key(above = 0)]
    pub noise: Option<f64>,
}

fn measured(policy: &PolicyKeys) -> Result<(), KeyError> {
    if policy.noise.is_some() && policy.largest_update.is_none() {
        let message = "noise: needs largest-update, which it is measured by: set it, such as largest-update = 1.0";
        return Err(KeyError::new("noise", message));
    }
    let mut methods = policy.methods.iter().flatten();
    match methods.find(|name| find(name).is_none()) {
        Some(name) => {
            let message = format!("methods: '{name}' is not a method; expected some of {}", known().join(", "));
            Err(KeyError::new("methods", message))
        }
        None => Ok(()),
    }
}

/// The methods that sites can run.
fn known() -> Vec<&'static str> {
    entries().iter().map(|entry| entry.id).collect()
}

/// A site that has read its file.
#[derive(Clone, Debug)]
pub struct Site {
    pub keys: SiteKeys,
    document: Document,
}

/// What would leave a site in one round, as far as it is known before training.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SiteReport {
    /// Training samples that the site holds.
    pub samples: usize,
    /// The same for each class of the federation. It does not leave, unless `label_counts` says so.
    pub classes: BTreeMap<String, usize>,
    /// Arrays by name: the most numbers of four bytes that each has.
    pub arrays: BTreeMap<String, u64>,
    /// The most bytes of all of them.
    pub bytes: u64,
    /// Whether the numbers of samples of each class leave.
    pub label_counts: bool,
    /// Whether its numbers of samples and of steps and its mean loss leave.
    pub counts_and_loss: bool,
    /// The largest norm of the update, if the site limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_update: Option<f64>,
    /// Standard deviation of the noise on every weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
}

/// How updates are limited and hidden: what the server asks for and what the site adds, whichever is tighter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Protection {
    norm: Option<f64>,
    /// Standard deviation of the noise that the client adds.
    deviation: Option<f64>,
}

impl Site {
    /// A site whose file has been read.
    pub fn of(document: Document) -> Result<Self> {
        let mut origins = Origins::of(&document);
        let (mut keys, _) =
            read::<SiteKeys>(document.table(), "", &mut origins).map_err(|error| document.key_error(&error))?;
        if !document.gives("state") {
            // Beside the file, like a path that it gives, wherever the node is started.
            keys.state = document.folder().join(&keys.state);
        }
        Ok(Self { keys, document })
    }

    /// The client of this site, or why the site does not take part. `entropy` is what noise is drawn from: random bytes that
    /// nobody else knows.
    pub fn client(&self, agreement: &Agreement, entropy: [u8; 32], resources: &Resources) -> Result<Client> {
        let (settings, method, protection) = self.allow(agreement)?;
        let restraint = Restraint {
            limit: protection.norm.filter(|_| protection.deviation.is_none()).map(|norm| Clip { norm, noise: None }),
            entropy: Some(entropy),
            most_bytes: self.keys.policy.most_bytes_up,
        };
        let id = self.keys.client;
        let samples = site_samples(agreement, &self.document, self.keys.data.clone(), resources);
        let samples = samples.map_err(|error| ExperimentError::SiteData(error.to_string()))?;
        let client =
            Client::of_its_own(agreement, id, (settings, method), samples, self.keys.weights.as_deref(), resources)?;
        let client = client.restrained(restraint);
        let fewest = self.keys.policy.fewest_samples;
        if client.samples() < fewest {
            // The server is told the reason, so it does not say how many there are.
            let message = format!("the site has fewer samples than the {fewest} that its policy wants");
            return Err(self.refuse("fewest-samples", message));
        }
        // What is sent beside the weights is neither limited nor hidden, and tells what they would have been.
        let (key, missing) =
            if protection.deviation.is_some() { ("noise", "noise") } else { ("largest-update", "a limit") };
        if let Some(reason) = protection.norm.and_then(|_| unprotected(client.method(), client.model(), missing)) {
            return Err(self.refuse(key, reason));
        }
        self.weigh(client.model(), &client.method().sends(client.model()))?;
        Ok(client)
    }

    /// Reads the data, and says what would leave; the error is the reason why the site does not take part.
    pub fn report(&self, agreement: &Agreement, resources: &Resources) -> Result<SiteReport> {
        let client = self.client(agreement, [0; 32], resources)?;
        let (_, _, protection) = self.allow(agreement)?;
        let (model, method) = (client.model(), client.method());
        let weights = model.layout().len() as u64;
        let sends = method.sends(model).into_iter().map(|extra| (extra.name.into_owned(), extra.len as u64));
        let arrays: BTreeMap<String, u64> = sends.chain([("weights".to_string(), weights)]).collect();
        let counts = client.label_counts();
        let classes = agreement.card.classes.iter().cloned().zip(counts).collect();
        Ok(SiteReport {
            samples: client.samples(),
            classes,
            bytes: 4 * arrays.values().sum::<u64>(),
            arrays,
            label_counts: method.needs().label_counts_leave_client,
            counts_and_loss: protection.deviation.is_none(),
            largest_update: protection.norm,
            noise: protection.deviation,
        })
    }

    /// Reads the data before there is an agreement: the training samples of each class.
    pub fn look(&self, resources: &Resources) -> Result<BTreeMap<String, usize>> {
        let mut keys = self.keys.data.clone();
        if let DataSource::Folder(folder) = &mut keys.source {
            // The agreement will say which size; here any is right.
            folder.size = folder.size.or(Some((8, 8)));
        }
        let data = resources.load_unread(&self.document, &keys)?;
        let tested = if data.part == Part::Test { &[][..] } else { &data.dataset.test.labels[..] };
        let mut counts: BTreeMap<String, usize> = data.dataset.classes.iter().map(|class| (class.clone(), 0)).collect();
        for label in data.dataset.train.labels.iter().chain(tested) {
            if let Some(count) = data.dataset.classes.get(usize::from(*label)).and_then(|class| counts.get_mut(class)) {
                *count += 1;
            }
        }
        Ok(counts)
    }

    /// Whether the policy allows what the agreement asks for, and the settings that satisfy both.
    fn allow(&self, agreement: &Agreement) -> Result<(Settings, MethodChoice, Protection)> {
        let policy = &self.keys.policy;
        let name = agreement.method();
        if find(&name).is_none() {
            let message = format!(
                "the server asks for the method '{name}', which this Fedelity does not have: sites run built-in methods only, never \
                 code of the server, such as a method in Python; the server's study must name one of {}",
                known().join(", ")
            );
            return Err(ExperimentError::Policy(message));
        }
        let (asked, method) = agreement.settings()?;
        if let Some(methods) = &policy.methods
            && !methods.iter().any(|allowed| allowed == method.name)
        {
            let allowed = methods.join(", ");
            let message = format!("the server asks for '{}', and this site runs only {allowed}", method.name);
            return Err(self.refuse("methods", message));
        }
        if !policy.label_counts && method.method.needs().label_counts_leave_client {
            let message = format!(
                "the method '{}' tells the server how many samples of each class a client has; label-counts = true would \
                 allow it",
                method.name
            );
            return Err(self.refuse("label-counts", message));
        }
        let asked_noise = asked.config.privacy.noise().filter(|(at, _)| *at == NoiseAt::Client);
        let asked_norm = asked.config.server.clip_update;
        let deviations = [
            asked_noise.zip(asked_norm).map(|((_, noise), norm)| noise * norm),
            policy.noise.zip(policy.largest_update).map(|(noise, norm)| noise * norm),
        ];
        let deviation = deviations.into_iter().flatten().max_by(f64::total_cmp);
        // The server's limit without noise is its own affair: it clips what arrives.
        let norms = [policy.largest_update, asked_norm.filter(|_| deviation.is_some())];
        let norm = norms.into_iter().flatten().min_by(f64::total_cmp);
        let protection = Protection { norm, deviation };
        let Some((norm, deviation)) = norm.zip(deviation) else { return Ok((asked, method, protection)) };
        let changes = [
            format!("server.clip-update={norm:?}"),
            format!("privacy.noise={:?}", deviation / norm),
            "privacy.at=\"client\"".to_string(),
        ];
        let (settings, method) = agreement.settings_with(&changes).map_err(|error| {
            let reason = error.to_string();
            let message = format!(
                "noise on what leaves does not fit what the server asks for: {}; change that in the server's configuration, or \
                 leave noise out here",
                reason.trim_start_matches("--set: ")
            );
            self.refuse("noise", message)
        })?;
        Ok((settings, method, protection))
    }

    /// Whether what would leave is within the limits.
    fn weigh(&self, model: &Model, sends: &[fedelity_fl::Extra]) -> Result<()> {
        let bytes = 4 * (model.layout().len() + sends.iter().map(|extra| extra.len).sum::<usize>()) as u64;
        match self.keys.policy.most_bytes_up {
            Some(most) if bytes > most => {
                Err(self
                    .refuse("most-bytes-up", format!("{bytes} bytes would leave in a round, and {most} are allowed")))
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, key: &str, message: String) -> ExperimentError {
        let path = format!("policy.{key}");
        ExperimentError::Policy(self.document.error(&path, format!("{path}: {message}")).to_string())
    }
}
