//! What server and clients agree on before the first round.

use std::collections::BTreeSet;

use fedelity_methods::Registry;
use fedelity_nn::{Card, Model, Params};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
        /// What the agreements of all versions have.
        #[derive(Deserialize)]
        struct Version {
            fedelity: String,
        }
        let wrong = |error: serde_json::Error| {
            ExperimentError::Config(format!("this is not an agreement: {error}; give the client that of its server"))
        };
        // What follows may differ between versions.
        let Version { fedelity: found } = serde_json::from_str(text).map_err(wrong)?;
        let here = env!("CARGO_PKG_VERSION");
        if found != here {
            let message = format!(
                "the server runs Fedelity {found}, and this client {here}: install {found} here, or {here} there"
            );
            return Err(ExperimentError::Config(message));
        }
        serde_json::from_str(text).map_err(wrong)
    }

    /// What tells it from others: SHA-256 of its text.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_json()).into()
    }

    /// The name of its method, whether or not it is known here.
    pub(super) fn method(&self) -> String {
        settings_of(&self.config)["method"]["name"].as_str().unwrap_or_default().to_string()
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
    pub fn first_difference(&self, other: &Self) -> Option<(String, String, String)> {
        let pairs = [
            ("version", self.fedelity.clone(), other.fedelity.clone()),
            ("seed", self.seed.to_string(), other.seed.to_string()),
            ("number of clients", self.clients.to_string(), other.clients.to_string()),
            ("classes", self.card.classes.join(", "), other.card.classes.join(", ")),
            ("frozen weights", self.frozen.clone(), other.frozen.clone()),
        ];
        let pairs = pairs.into_iter().map(|(what, here, there)| (what.to_string(), here, there));
        let found = pairs.into_iter().find(|(_, here, there)| here != there);
        found
            .or_else(|| difference("configuration's ", &settings_of(&self.config), &settings_of(&other.config)))
            .or_else(|| difference("model's ", &serde_json::json!(self.card), &serde_json::json!(other.card)))
            .or_else(|| (self != other).then(|| ("text".to_string(), self.to_json(), other.to_json())))
    }
}

/// Settings as a tree of values.
fn settings_of(config: &str) -> Value {
    config.parse::<toml::Table>().ok().and_then(|table| serde_json::to_value(table).ok()).unwrap_or_default()
}

/// The first key in which two trees differ, and its values.
fn difference(path: &str, here: &Value, there: &Value) -> Option<(String, String, String)> {
    if here == there {
        return None;
    }
    if let (Value::Object(here), Value::Object(there)) = (here, there) {
        // Names come first: with another method or model, the other keys are others, too.
        let keys: BTreeSet<(bool, &String)> = here.keys().chain(there.keys()).map(|key| (key != "name", key)).collect();
        return keys.into_iter().find_map(|(_, key)| {
            let [here, there] = [here, there].map(|side| side.get(key).unwrap_or(&Value::Null));
            let dot = if here.is_object() { "." } else { "" };
            difference(&format!("{path}{key}{dot}"), here, there)
        });
    }
    let [here, there] = [here, there].map(|side| if side.is_null() { "absent".to_string() } else { side.to_string() });
    Some((path.trim_end_matches('.').to_string(), here, there))
}

/// SHA-256 of the frozen weights; empty if there are none.
pub(super) fn frozen_hash(model: &Model) -> String {
    let frozen = model.frozen();
    if frozen.is_empty() { String::new() } else { Params(frozen.to_vec()).hash() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(here: &str, there: &str) -> Option<(String, String, String)> {
        difference("", &settings_of(here), &settings_of(there))
    }

    #[test]
    fn the_first_difference_is_named_by_its_key() {
        let base = "[method]\nname = \"fedavg\"\n[optimizer]\nlr = 0.1\n";
        assert_eq!(found(base, base), None);
        let said = |there: &str| found(base, there).map(|(what, here, there)| format!("{what}: {here}, {there}"));
        // A key that only one side has, before and after all others.
        let more = format!("clients = 3\n{base}");
        assert_eq!(said(&more).as_deref(), Some("clients: absent, 3"));
        let last = format!("{base}[stop]\nrounds = 3\n");
        assert_eq!(said(&last).as_deref(), Some("stop: absent, {\"rounds\":3}"));
        // Another method has other keys; its name says more than they do.
        let other = base.replace("\"fedavg\"", "\"fedprox\"\nmu = 0.1");
        assert_eq!(said(&other).as_deref(), Some("method.name: \"fedavg\", \"fedprox\""));
        assert_eq!(said(&base.replace("0.1", "0.5")).as_deref(), Some("optimizer.lr: 0.1, 0.5"));
    }

    #[test]
    fn another_version_is_known_whatever_else_it_has() {
        let refused = |text: &str| Agreement::from_json(text).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            refused(r#"{"fedelity": "9.9.9", "terms": []}"#).starts_with("the server runs Fedelity 9.9.9, and this")
        );
        let own = format!(r#"{{"fedelity": "{}"}}"#, env!("CARGO_PKG_VERSION"));
        for text in ["", "{}", "rounds = 3", &own] {
            assert!(refused(text).ends_with("give the client that of its server"), "{text}");
        }
    }
}
