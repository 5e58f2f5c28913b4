//! The keys of a configuration as data.
//!
//! A key is a field of a struct under [`macro@keys`]: its doc comment, default and bounds are written there and nowhere
//! else. From that [`Schema`] comes everything: [`Schema::fill`] checks a table of TOML, names what is wrong with it and
//! fills in the defaults; serde turns the result into the struct; the same keys are printed as a reference.

mod fill;
mod key;
mod nearest;

pub use fedelity_keys_derive::{Choice, keys, method};
pub use fill::{Context, Filled, KeyError, describe, unknown};
pub use key::{AtZero, Bounds, Choice, Key, Keys, Schema, Selected, Selector, Typed, ValueType, Variant};
pub use nearest::nearest;
pub use serde;
pub use toml;

use toml::Table;

/// Reads a table whose dotted path is `at`: the struct, and all its keys with defaults filled in.
pub fn read<T: Keys>(given: &Table, at: &str, context: &mut dyn Context) -> Result<(T, Filled), KeyError> {
    let filled = T::SCHEMA.fill(given, at, context)?;
    let value: T = filled.parse(at)?;
    value.check().map_err(|error| error.below(at))?;
    Ok((value, filled))
}

/// A table with no key given.
///
/// # Panics
///
/// If a default is not of its key's type or out of its bounds.
pub fn defaults<T: Keys>() -> T {
    let filled = T::SCHEMA.fill(&Table::new(), "", &mut ()).and_then(|filled| filled.parse(""));
    filled.unwrap_or_else(|error| panic!("{}: a wrong default: {error}", std::any::type_name::<T>()))
}

/// Whether a coefficient is 0.
pub fn is_zero<N: Default + PartialEq>(number: N) -> bool {
    number == N::default()
}
