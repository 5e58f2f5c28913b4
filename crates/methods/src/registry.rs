//! All methods by name.

use std::sync::Arc;

use fedelity_fl::{Method, Needs};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::error::{Error, Range};

/// All methods, in the order of the documentation. A new method is one more line.
static ENTRIES: &[Entry] = &[
    crate::FedAvg::ENTRY,
    crate::FedProx::ENTRY,
    crate::FedCurv::ENTRY,
    crate::FedNova::ENTRY,
    crate::Scaffold::ENTRY,
    crate::Moon::ENTRY,
    crate::FedLsd::ENTRY,
    crate::FedNtd::ENTRY,
    crate::FedCad::ENTRY,
    crate::FedSsd::ENTRY,
    crate::FedDistill::ENTRY,
    crate::FedGkd::ENTRY,
    crate::FedGkdVote::ENTRY,
    crate::FedGkdPlus::ENTRY,
    crate::FedDistillPlus::ENTRY,
    crate::FedGen::ENTRY,
    crate::FedDf::ENTRY,
];

/// What a method's struct of hyper-parameters is. The fields are the keys of `[method]`.
pub trait Hyper: Method + Default + Serialize + DeserializeOwned + 'static {
    /// Its place in the registry.
    const ENTRY: Entry;

    /// Refuses values out of range.
    fn check(&self) -> Result<(), Range> {
        Ok(())
    }
}

/// A hyper-parameter, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// The symbol in the paper.
    pub symbol: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The default.
    pub default: &'static str,
    /// What is allowed.
    pub range: &'static str,
    /// The paper's value.
    pub paper: &'static str,
    /// What happens at 0.
    pub at_zero: AtZero,
}

/// What a hyper-parameter does at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtZero {
    /// FedAvg, bit for bit, once all keys of the method that say this are 0.
    FedAvg,
    /// Something else, in words.
    Does(&'static str),
    /// It is refused.
    Refused,
    /// There is no 0: it is a word, or a switch that is off.
    None,
}

/// Where a method is FedAvg, bit for bit. Every method is somewhere, and the tests try it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Everywhere: it is FedAvg.
    Always,
    /// With all keys at 0 that say [`AtZero::FedAvg`].
    KeysAtZero,
    /// In the first round, when there is nothing to send or to remember yet.
    FirstRound,
    /// When all clients of a round take the same number of steps.
    EqualSteps,
}

/// A method, for people and for [`build`].
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The id, as a configuration writes it.
    pub id: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub reference: &'static str,
    /// Its equation in plain text.
    pub equation: &'static str,
    /// Where it is FedAvg.
    pub identity: Identity,
    /// Its hyper-parameters.
    pub parameters: &'static [Parameter],
    build: fn(&Entry, &Table) -> Result<Built, Error>,
}

/// A method that is ready, with all its settings.
#[derive(Clone, Debug)]
pub struct Built {
    /// The method.
    pub method: Arc<dyn Method>,
    /// All its keys with their values, defaults included; without `name`.
    pub settings: Table,
}

impl Entry {
    /// The entry of the method whose hyper-parameters are `M`.
    pub const fn new<M: Hyper>(
        id: &'static str,
        summary: &'static str,
        reference: &'static str,
        equation: &'static str,
        identity: Identity,
        parameters: &'static [Parameter],
    ) -> Self {
        Self { id, summary, reference, equation, identity, parameters, build: build_as::<M> }
    }

    /// The method with these keys; the others keep their defaults. A key `name` is not one of them.
    pub fn build(&self, settings: &Table) -> Result<Built, Error> {
        (self.build)(self, settings)
    }

    /// All keys with their defaults.
    pub fn defaults(&self) -> Result<Table, Error> {
        Ok(self.build(&Table::new())?.settings)
    }

    /// What the method asks of the federation with its defaults.
    pub fn needs(&self) -> Result<Needs, Error> {
        Ok(self.build(&Table::new())?.method.needs())
    }

    /// The keys that make it FedAvg when all of them are 0.
    pub fn coefficients(&self) -> Vec<&'static str> {
        let of_fedavg = self.parameters.iter().filter(|parameter| parameter.at_zero == AtZero::FedAvg);
        of_fedavg.map(|parameter| parameter.name).collect()
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<&'static str> {
        self.parameters.iter().map(|parameter| parameter.name).collect()
    }
}

/// All methods, in the order of the documentation.
pub fn entries() -> &'static [Entry] {
    ENTRIES
}

/// A method's entry by its id.
pub fn find(name: &str) -> Result<&'static Entry, Error> {
    let unknown = || Error::Unknown { name: name.to_string(), known: ENTRIES.iter().map(|entry| entry.id).collect() };
    ENTRIES.iter().find(|entry| entry.id == name).ok_or_else(unknown)
}

/// The method of this name with the keys of `[method]`. The key `name` may be among them; it is passed over.
pub fn build(name: &str, settings: &Table) -> Result<Built, Error> {
    let mut settings = settings.clone();
    settings.remove("name");
    find(name)?.build(&settings)
}

fn build_as<M: Hyper>(entry: &Entry, settings: &Table) -> Result<Built, Error> {
    let keys = entry.keys();
    if let Some(key) = settings.keys().find(|key| !keys.contains(&key.as_str())) {
        return Err(Error::Key { method: entry.id, key: key.clone(), allowed: keys });
    }
    let method: M = settings.clone().try_into().map_err(|error| name_the_key::<M>(settings, &error))?;
    method.check().map_err(|Range { key, value, allowed }| Error::Range { key, value, allowed })?;
    let mut all = Table::try_from(&method).expect("hyper-parameters are plain numbers and names");
    all.iter_mut().for_each(|(_, value)| shorten(value));
    Ok(Built { method: Arc::new(method), settings: all })
}

/// Writes a number that came from an f32 with the digits an f32 has: 0.3, not 0.30000001192092896.
fn shorten(value: &mut toml::Value) {
    if let toml::Value::Float(number) = value
        && f64::from(*number as f32) == *number
        && let Ok(short) = (*number as f32).to_string().parse()
    {
        *number = short;
    }
}

/// The first key that cannot be read by itself: every other one has a default.
fn name_the_key<M: Hyper>(settings: &Table, error: &toml::de::Error) -> Error {
    let reason = |error: &toml::de::Error| error.message().trim().to_string();
    for (key, value) in settings {
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = alone.try_into::<M>() {
            return Error::Type { key: key.clone(), value: value.to_string(), reason: reason(&error) };
        }
    }
    Error::Type { key: "name".to_string(), value: String::new(), reason: reason(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    /// A method as later ones will be, so that the registry is tested with keys.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
    struct Sample {
        beta: f32,
        tau: f32,
        how_many: usize,
    }

    impl Default for Sample {
        fn default() -> Self {
            Self { beta: 1.0, tau: 3.0, how_many: 5 }
        }
    }

    impl Method for Sample {
        fn name(&self) -> &'static str {
            "sample"
        }
    }

    const fn parameter(name: &'static str) -> Parameter {
        Parameter { name, symbol: "", summary: "", default: "", range: "", paper: "", at_zero: AtZero::None }
    }

    impl Hyper for Sample {
        const ENTRY: Entry = Entry::new::<Self>(
            "sample",
            "",
            "",
            "",
            Identity::KeysAtZero,
            &[parameter("beta"), parameter("tau"), parameter("how-many")],
        );

        fn check(&self) -> Result<(), Range> {
            Range::check("tau", self.tau, self.tau.is_finite() && self.tau > 0.0, "a finite number above 0")
        }
    }

    fn sample(text: &str) -> Result<Built, Error> {
        Sample::ENTRY.build(&text.parse().unwrap())
    }

    #[test]
    fn keys_keep_their_defaults() {
        let built = sample("beta = 0.3\nhow-many = 2").unwrap();
        assert_eq!(format!("{:?}", built.method), "Sample { beta: 0.3, tau: 3.0, how_many: 2 }");
        assert_eq!(built.settings.to_string(), "beta = 0.3\nhow-many = 2\ntau = 3.0\n");
        assert_eq!(format!("{:?}", sample("beta = 1").unwrap().method), format!("{:?}", Sample::default()));
    }

    #[test]
    fn bad_keys_are_named() {
        let message = |text| sample(text).unwrap_err().to_string();
        assert_eq!(
            message("taau = 3.0"),
            "method.taau: the method 'sample' has no key 'taau'; its keys are beta, tau, how-many"
        );
        let text = message("beta = 0.1\ntau = \"hot\"");
        assert!(text.starts_with("method.tau = \"hot\": invalid type: string \"hot\", expected f32"), "{text}");
        let text = message("how-many = -1");
        assert!(text.starts_with("method.how-many = -1: "), "{text}");
        assert_eq!(message("tau = 0.0"), "method.tau = 0: allowed is a finite number above 0");
        assert_eq!(message("tau = nan"), "method.tau = NaN: allowed is a finite number above 0");
    }

    #[test]
    fn fedavg_takes_no_keys() {
        let built = build("fedavg", &"name = \"fedavg\"".parse().unwrap()).unwrap();
        assert_eq!((built.method.name(), built.settings.len()), ("fedavg", 0));
        let error = build("fedavg", &"beta = 1.0".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "method.beta: the method 'fedavg' has no key 'beta'; it takes no keys");
        let error = build("fedprocks", &Table::new()).unwrap_err().to_string();
        assert!(error.starts_with("there is no method 'fedprocks'; the methods are fedavg"), "{error}");
    }

    /// Whether what an entry says of 0 holds for the value 0 itself; what it does there is tried elsewhere.
    fn at_zero(entry: &Entry, parameter: &Parameter, defaults: &Table) {
        let what = format!("{}.{}", entry.id, parameter.name);
        let zero = match defaults[parameter.name] {
            toml::Value::Integer(_) => toml::Value::Integer(0),
            _ => toml::Value::Float(0.0),
        };
        let mut settings = Table::from_iter([(parameter.name.to_string(), zero)]);
        if parameter.at_zero == AtZero::FedAvg {
            // Others may have to be 0 with it.
            let others =
                entry.coefficients().into_iter().map(|key| (key.to_string(), settings[parameter.name].clone()));
            settings = others.collect();
        }
        let built = entry.build(&settings);
        match parameter.at_zero {
            AtZero::FedAvg | AtZero::Does(_) => assert!(built.is_ok(), "{what}: {built:?}"),
            AtZero::Refused => assert!(matches!(built, Err(Error::Range { .. })), "{what}: {built:?}"),
            AtZero::None => assert!(matches!(built, Err(Error::Type { .. })), "{what}: {built:?}"),
        }
        let says_nothing = parameter.at_zero == AtZero::Does("");
        assert!(!says_nothing, "{what}");
    }

    #[test]
    fn every_entry_is_whole() {
        for entry in entries() {
            let defaults = entry.defaults().unwrap();
            assert_eq!(entry.build(&Table::new()).unwrap().method.name(), entry.id);
            assert_eq!(find(entry.id).unwrap().id, entry.id);
            let mut documented = entry.keys();
            documented.sort_unstable();
            assert_eq!(defaults.keys().map(String::as_str).collect::<Vec<_>>(), documented, "{}", entry.id);
            for text in [entry.summary, entry.reference, entry.equation] {
                assert!(!text.is_empty(), "{}", entry.id);
            }
            for parameter in entry.parameters {
                for text in [parameter.summary, parameter.default, parameter.range] {
                    assert!(!text.is_empty(), "{}.{}", entry.id, parameter.name);
                }
                let plain = |text: &str| text.trim_matches('"').to_string();
                let default = match &defaults[parameter.name] {
                    toml::Value::String(word) => word.clone(),
                    value => value.to_string(),
                };
                let number = |text: &str| text.parse::<f64>().ok();
                let same = plain(parameter.default) == default || number(parameter.default) == number(&default);
                assert!(same, "{}.{}: {default}", entry.id, parameter.name);
                at_zero(entry, parameter, &defaults);
            }
            let coefficients = !entry.coefficients().is_empty();
            assert_eq!(entry.identity == Identity::KeysAtZero, coefficients, "{}", entry.id);
        }
    }
}
