//! The section `[server]`: what the server holds, and how it turns uploads into weights.

use anyhow::Result;
use fedelity_fl::{HoldOut, Needs};
use fedelity_methods::{ServerConfig, ServerError, ServerSettings};
use toml::{Table, Value};

use super::defaults;
use super::document::Document;
use super::section::Section;
use super::settings::left_out;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Server {
    /// Training samples that the server keeps for itself.
    pub(crate) hold_out: HoldOut,
    /// The rule and the optimiser.
    pub(crate) composition: ServerSettings,
}

/// The keys of [`HoldOut`].
const HELD: [&str; 4] = ["auxiliary", "auxiliary-keep", "validation", "unlabelled"];
/// The keys of [`ServerConfig`], in the order they are written in.
const COMPOSITION: [&str; 10] =
    ["optimizer", "lr", "momentum", "beta1", "beta2", "tau", "rule", "trim", "byzantine", "keep"];

impl Server {
    pub(crate) fn check(document: &Document, notes: &mut Vec<String>) -> Result<Self> {
        let section = Section::of(document, "server", &[&HELD[..], &COMPOSITION].concat())?;
        let share = |x: f64| (0.0..1.0).contains(&x);
        let allowed = "a number of at least 0 and below 1, the share of the training samples";
        let hold_out = HoldOut {
            auxiliary: section.count("auxiliary", 0)?.unwrap_or(defaults::AUXILIARY),
            keep_auxiliary: section.flag("auxiliary-keep")?.unwrap_or(defaults::AUXILIARY_KEEP),
            validation: section.number("validation", allowed, share)?.unwrap_or(defaults::VALIDATION),
            unlabelled: section.count("unlabelled", 0)?.unwrap_or(defaults::UNLABELLED),
        };
        Ok(Self { hold_out, composition: composition(document, &section, notes)? })
    }

    /// What a method needs and is not given: in words, the key, and an example of its value.
    pub(crate) fn missing(&self, needs: &Needs) -> Option<(&'static str, &'static str, &'static str)> {
        let held = &self.hold_out;
        let wants = [
            (needs.auxiliary, held.auxiliary > 0, "labelled samples on the server", "server.auxiliary", "32"),
            (needs.validation, held.validation > 0.0, "validation samples on the server", "server.validation", "0.1"),
            (needs.unlabelled, held.unlabelled > 0, "unlabelled samples on the server", "server.unlabelled", "1000"),
        ];
        let found = wants.into_iter().find(|(needed, given, ..)| *needed && !given);
        found.map(|(_, _, what, key, example)| (what, key, example))
    }

    /// All keys with their values, in the order they are written in.
    pub(crate) fn pairs(&self) -> Vec<(String, Value)> {
        let held = &self.hold_out;
        let values = [
            Value::Integer(held.auxiliary as i64),
            Value::Boolean(held.keep_auxiliary),
            Value::Float(held.validation),
            Value::Integer(held.unlabelled as i64),
        ];
        let mut pairs: Vec<(String, Value)> = HELD.map(String::from).into_iter().zip(values).collect();
        let mut rest = Table::try_from(self.composition.config()).unwrap_or_default();
        pairs.extend(COMPOSITION.iter().filter_map(|key| Some((key.to_string(), rest.remove(*key)?))));
        pairs
    }
}

fn composition(document: &Document, section: &Section<'_>, notes: &mut Vec<String>) -> Result<ServerSettings> {
    let given = COMPOSITION.iter().filter_map(|key| Some((key.to_string(), section.get(key)?.clone())));
    let mut keys: Table = given.collect();
    loop {
        let config: ServerConfig = match keys.clone().try_into() {
            Ok(config) => config,
            Err(error) => return Err(wrong_type(document, &keys, &error)),
        };
        match config.resolve() {
            Ok(settings) => return Ok(settings),
            Err(ServerError::Stray { key, what, chosen, .. })
                if left_out(document, &format!("server.{what}"), &format!("server.{key}")) =>
            {
                notes.push(format!("server.{key} of the file is left out: server.{what} is now {chosen}"));
                keys.remove(key);
            }
            Err(ServerError::Range { key, value, allowed }) => {
                let full = format!("server.{key}");
                return Err(document.error(&full, format!("{full} = {value}: expected {allowed}")));
            }
            Err(error @ ServerError::Stray { key, .. }) => {
                return Err(document.error(&format!("server.{key}"), error.to_string()));
            }
            Err(error) => return Err(document.error("server", error.to_string())),
        }
    }
}

/// The first key that cannot be read by itself: every one has a default.
fn wrong_type(document: &Document, keys: &Table, error: &toml::de::Error) -> anyhow::Error {
    for (key, value) in keys {
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = alone.try_into::<ServerConfig>() {
            let full = format!("server.{key}");
            return document.error(&full, format!("{full} = {value}: {}", error.message().trim()));
        }
    }
    document.error("server", error.message().trim())
}

#[cfg(test)]
mod tests {
    use fedelity_methods::server::{OptimizerName, RuleName};

    use super::*;

    #[test]
    fn the_keys_are_those_of_the_methods() {
        let all = ServerConfig {
            optimizer: OptimizerName::FedAdam,
            lr: Some(1.0),
            momentum: Some(0.5),
            beta1: Some(0.5),
            beta2: Some(0.5),
            tau: Some(0.5),
            rule: RuleName::Krum,
            trim: Some(0.1),
            byzantine: Some(1),
            keep: Some(1),
        };
        let table = Table::try_from(all).unwrap();
        let mut known = COMPOSITION;
        known.sort_unstable();
        assert_eq!(table.keys().map(String::as_str).collect::<Vec<_>>(), known);
    }

    #[test]
    fn a_choice_on_the_command_line_leaves_the_files_keys_out() {
        let text = "[server]\noptimizer = \"fedadam\"\nbeta1 = 0.5\ntau = 0.1\n";
        let mut document = Document::parse("x.toml".to_string(), "".into(), text).unwrap();
        document.set("server.optimizer=fedavgm").unwrap();
        let mut notes = Vec::new();
        let server = Server::check(&document, &mut notes).unwrap();
        assert_eq!(server.composition.optimizer.name(), "fedavgm");
        assert_eq!(notes[0], "server.beta1 of the file is left out: server.optimizer is now fedavgm");
        assert_eq!(notes.len(), 2);
    }
}
