//! Registry of all methods.

use std::fmt::Debug;
use std::marker::PhantomData;
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
    /// Nobody has said: a method from outside.
    Unknown,
}

/// Makes methods from keys of `[method]`.
pub trait MethodMaker: Debug + Sync {
    /// The method with these keys of a table whose dotted path is `at`; missing keys get their defaults.
    fn build(&self, given: &Table, at: &str, context: &mut dyn Context) -> Result<Built, KeyError>;

    /// The method's own hooks, even where [`build`](Self::build) returns FedAvg's.
    fn hooks(&self, given: &Table) -> Result<Arc<dyn Method>, KeyError> {
        Ok(self.build(given, "method", &mut ())?.method)
    }
}

/// Makes a method of this crate.
#[derive(Debug)]
struct OwnMaker<M>(PhantomData<fn() -> M>);

impl<M: Hyper> OwnMaker<M> {
    const MAKER: &'static dyn MethodMaker = &Self(PhantomData);
}

impl<M: Hyper> MethodMaker for OwnMaker<M> {
    fn build(&self, given: &Table, at: &str, context: &mut dyn Context) -> Result<Built, KeyError> {
        let (method, keys) = read::<M>(given, at, context)?;
        let method: Arc<dyn Method> = if method.is_off() { Arc::new(Off(method)) } else { Arc::new(method) };
        Ok(Built { method, keys })
    }

    fn hooks(&self, given: &Table) -> Result<Arc<dyn Method>, KeyError> {
        Ok(Arc::new(read::<M>(given, "method", &mut ())?.0))
    }
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
    pub maker: &'static dyn MethodMaker,
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
        let (schema, maker) = (M::SCHEMA, OwnMaker::<M>::MAKER);
        Self { id, title, summary, reference, equation, helps, identity, schema, maker }
    }

    /// Builds the method from the keys of a table whose dotted path is `at`; missing keys get their defaults.
    pub fn build(&self, given: &Table, at: &str, context: &mut dyn Context) -> Result<Built, KeyError> {
        self.maker.build(given, at, context)
    }

    /// The method's own hooks, even where its coefficients are 0 and [`build`](Self::build) returns FedAvg's: there
    /// they must change nothing by themselves.
    pub fn hooks(&self, given: &Table) -> Result<Arc<dyn Method>, KeyError> {
        self.maker.hooks(given)
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

/// The methods that a configuration may name: those of this crate, and what a front end adds.
#[derive(Clone, Debug)]
pub struct Registry(Arc<[Entry]>);

impl Default for Registry {
    /// The methods of this crate.
    fn default() -> Self {
        Self(ENTRIES.into())
    }
}

impl Registry {
    /// The same with one more method, unless there is one of its name.
    pub fn with(self, entry: Entry) -> Result<Self, KeyError> {
        if self.find(entry.id).is_some() {
            return Err(KeyError::new("method.name", format!("there is already a method '{}'", entry.id)));
        }
        Ok(Self(self.0.iter().copied().chain([entry]).collect()))
    }

    /// All methods, in documentation order.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.id == name)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|entry| entry.id).collect()
    }
}

/// All methods of this crate, in documentation order.
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
