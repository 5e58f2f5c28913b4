//! Registry of all methods.

use std::sync::Arc;

use fedelity_fl::{Method, Named, Needs};
use fedelity_keys::toml::Table;
use fedelity_keys::{AtZero, Context, KeyError, Keys, Schema, read};

use crate::ENTRIES;

/// The method used when a configuration names none.
pub const DEFAULT: &str = "fedavg";

/// A method's hyper-parameters. Its fields are the keys of `[method]`.
pub trait Hyper: Method + Keys + 'static {
    const ENTRY: Entry;

    /// Whether all keys marked [`AtZero::FedAvg`] are 0.
    fn is_off(&self) -> bool;
}

/// A method whose coefficients are 0: FedAvg under the method's name. The method's own hooks are never called.
#[derive(Debug)]
struct Off<M>(M);

impl<M: Method> Named for Off<M> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
}

impl<M: Method> Method for Off<M> {
    fn needs(&self) -> Needs {
        Needs { projection: self.0.needs().projection, ..Needs::default() }
    }
}

/// Where a method equals FedAvg, bit for bit. Every method does somewhere, and tests check it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Everywhere: it is FedAvg.
    Always,
    /// With all keys marked [`AtZero::FedAvg`] at 0.
    KeysAtZero,
    /// In the first round, when there is nothing to send or remember yet.
    FirstRound,
    /// When all clients of a round take the same number of steps.
    EqualSteps,
}

/// A registered method: its description and how to [`build`](Self::build) it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in a configuration.
    pub id: &'static str,
    /// The name in papers.
    pub title: &'static str,
    pub summary: &'static str,
    /// Where it was published.
    pub reference: &'static str,
    pub equation: &'static str,
    /// When it helps, according to which paper.
    pub helps: &'static str,
    pub identity: Identity,
    pub schema: &'static Schema,
    build: fn(&Table, &str, &mut dyn Context) -> Result<Built, KeyError>,
    hooks: fn(&Table) -> Result<Arc<dyn Method>, KeyError>,
}

/// A method, ready to use.
#[derive(Clone, Debug)]
pub struct Built {
    pub method: Arc<dyn Method>,
    /// All its keys, with defaults filled in.
    pub keys: Table,
}

impl Entry {
    /// The entry of the method whose hyper-parameters are `M`.
    pub const fn new<M: Hyper>(
        id: &'static str,
        title: &'static str,
        summary: &'static str,
        reference: &'static str,
        equation: &'static str,
        helps: &'static str,
        identity: Identity,
    ) -> Self {
        let build = |given: &Table, at: &str, context: &mut dyn Context| {
            let (method, keys) = read::<M>(given, at, context)?;
            let method: Arc<dyn Method> = if method.is_off() { Arc::new(Off(method)) } else { Arc::new(method) };
            Ok(Built { method, keys })
        };
        let hooks = |given: &Table| Ok(Arc::new(read::<M>(given, "method", &mut ())?.0) as Arc<dyn Method>);
        Self { id, title, summary, reference, equation, helps, identity, schema: M::SCHEMA, build, hooks }
    }

    /// Builds the method from the keys of a table whose dotted path is `at`; missing keys get their defaults.
    pub fn build(&self, given: &Table, at: &str, context: &mut dyn Context) -> Result<Built, KeyError> {
        (self.build)(given, at, context)
    }

    /// The method's own hooks, even where its coefficients are 0 and [`build`](Self::build) returns FedAvg's: there
    /// they must change nothing by themselves.
    pub fn hooks(&self, given: &Table) -> Result<Arc<dyn Method>, KeyError> {
        (self.hooks)(given)
    }

    /// What the method requires of the federation with its defaults.
    ///
    /// # Panics
    ///
    /// If a default is outside its key's bounds.
    pub fn needs(&self) -> Needs {
        self.build(&Table::new(), "method", &mut ()).expect("defaults are in bounds").method.needs()
    }

    /// The keys that turn the method into FedAvg when all of them are 0.
    pub fn coefficients(&self) -> Vec<&'static str> {
        let of_fedavg = self.schema.keys.iter().filter(|key| key.at_zero() == AtZero::FedAvg);
        of_fedavg.map(|key| key.name).collect()
    }
}

/// All methods, in documentation order.
pub fn entries() -> &'static [Entry] {
    ENTRIES
}

/// A method's entry by ID.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.id == name)
}

/// Builds the named method from these keys of `[method]`.
pub fn build(name: &str, given: &Table) -> Result<Built, KeyError> {
    let unknown = || {
        let ids: Vec<&str> = ENTRIES.iter().map(|entry| entry.id).collect();
        KeyError::expected("method.name", format!("\"{name}\""), format!("one of {}", ids.join(", ")))
    };
    find(name).ok_or_else(unknown)?.build(given, "method", &mut ())
}
