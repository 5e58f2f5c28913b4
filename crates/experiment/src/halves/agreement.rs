//! What server and clients agree on before the first round.

use fedelity_methods::Registry;
use fedelity_nn::{Card, Model, Params};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::assemble::Study;
use crate::error::Result;
use crate::{Document, ExperimentError, MethodChoice, Settings};

/// What server and clients agree on before the first round. It has no paths and no samples.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Agreement {
    /// The version of the program.
    pub fedelity: String,
    /// All settings, apart from the number of rounds and from where files are.
    pub config: String,
    pub seed: u64,
    pub clients: usize,
    /// The model, and how data are read for it: classes, normalisation, columns, vocabulary.
    pub card: Card,
    /// SHA-256 of the weights that are frozen, and therefore do not travel; empty if there are none.
    #[serde(default)]
    pub frozen: String,
    /// The methods that it may name; they do not travel.
    #[serde(skip)]
    methods: Registry,
}

impl PartialEq for Agreement {
    /// Whether both sides agree: what they say counts, not which other methods they know.
    fn eq(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }
}

impl Agreement {
    /// Lets it name other methods than those of the library.
    pub fn know(&mut self, methods: &Registry) {
        self.methods = methods.clone();
    }

    /// The agreement about one method and seed of a study.
    pub(super) fn of(study: &Study, method: &MethodChoice, seed: u64) -> Self {
        Self {
            fedelity: env!("CARGO_PKG_VERSION").to_string(),
            config: study.settings.identity(method, seed),
            seed,
            clients: study.pool.partition.clients.len(),
            card: study.card.clone(),
            frozen: frozen_hash(&study.model),
            methods: Registry::default(),
        }
    }

    /// As text, for a client that starts.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text of an agreement.
    pub fn from_json(text: &str) -> Result<Self> {
        let wrong = |error: serde_json::Error| ExperimentError::Config(format!("this is not an agreement: {error}"));
        let read: Self = serde_json::from_str(text).map_err(wrong)?;
        let own = env!("CARGO_PKG_VERSION");
        if read.fedelity != own {
            let (found, here) = (&read.fedelity, own);
            let message = format!(
                "the server runs Fedelity {found}, and this client {here}: install {found} here, or {here} there"
            );
            return Err(ExperimentError::Config(message));
        }
        Ok(read)
    }

    /// What tells it from others: SHA-256 of its text.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_json()).into()
    }

    /// The settings and the one method that they name.
    pub(super) fn settings(&self) -> Result<(Settings, MethodChoice)> {
        self.settings_with(&[])
    }

    /// The same with some keys changed, each given as `KEY=VALUE`.
    pub(super) fn settings_with(&self, changes: &[String]) -> Result<(Settings, MethodChoice)> {
        let mut document = Document::parse("the agreement".to_string(), ".".into(), &self.config)?;
        document.know(&self.methods);
        changes.iter().try_for_each(|change| document.set(change))?;
        let settings = Settings::read(&document)?;
        match &settings.methods[..] {
            [method] => {
                let method = method.clone();
                Ok((settings, method))
            }
            _ => Err(ExperimentError::Config("the agreement names several methods".to_string())),
        }
    }

    /// The first thing in which another agreement differs: what it is, its value here and there.
    pub fn first_difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let pairs = [
            ("version", self.fedelity.clone(), other.fedelity.clone()),
            ("seed", self.seed.to_string(), other.seed.to_string()),
            ("number of clients", self.clients.to_string(), other.clients.to_string()),
            ("classes", self.card.classes.join(", "), other.card.classes.join(", ")),
            ("frozen weights", self.frozen.clone(), other.frozen.clone()),
        ];
        let settings = || {
            let lines = self.config.lines().zip(other.config.lines());
            let (here, there) = lines.into_iter().find(|(here, there)| here != there)?;
            Some(("configuration", here.to_string(), there.to_string()))
        };
        let card = || (self.card != other.card).then(|| ("model", self.card.model.clone(), other.card.model.clone()));
        pairs.into_iter().find(|(_, here, there)| here != there).or_else(settings).or_else(card)
    }
}

/// SHA-256 of the frozen weights; empty if there are none.
pub(super) fn frozen_hash(model: &Model) -> String {
    let frozen = model.frozen();
    if frozen.is_empty() { String::new() } else { Params(frozen.to_vec()).hash() }
}
