//! What can be wrong with a method's settings.

/// A hyper-parameter is out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The key.
    pub key: &'static str,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub allowed: &'static str,
}

impl Range {
    /// Refuses `value` for `key` unless `fits`.
    pub fn check(
        key: &'static str,
        value: impl std::fmt::Display,
        fits: bool,
        allowed: &'static str,
    ) -> Result<(), Self> {
        if fits { Ok(()) } else { Err(Self { key, value: value.to_string(), allowed }) }
    }
}

/// What is wrong, with the key and what is allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no method of this name.
    #[error("there is no method '{name}'; the methods are {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The ids of all methods.
        known: Vec<&'static str>,
    },
    /// The method has no such key.
    #[error("method.{key}: the method '{method}' has no key '{key}'; {}", allowed_keys(allowed))]
    Key {
        /// The method's id.
        method: &'static str,
        /// The key.
        key: String,
        /// The keys that it has.
        allowed: Vec<&'static str>,
    },
    /// A value has the wrong type.
    #[error("method.{key} = {value}: {reason}")]
    Type {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What is expected.
        reason: String,
    },
    /// A value is out of range.
    #[error("method.{key} = {value}: allowed is {allowed}")]
    Range {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

fn allowed_keys(allowed: &[&str]) -> String {
    if allowed.is_empty() { "it takes no keys".to_string() } else { format!("its keys are {}", allowed.join(", ")) }
}
