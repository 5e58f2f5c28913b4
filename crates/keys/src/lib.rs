//! The keys of a configuration as data.
//!
//! A key is a field of a struct under [`macro@keys`], which alone defines its doc comment, default and bounds.
//! Everything else follows from that [`Schema`]: [`Schema::fill`] checks a TOML table, reports errors and fills in the
//! defaults; serde turns the result into the struct; and the reference is printed from the same keys.

mod fill;
mod key;
mod nearest;
mod write;

pub use fedelity_keys_derive::{Choice, keys, method};
pub use fill::{Context, KeyError, describe, unknown};
pub use key::{AtZero, Bounds, Choice, Condition, Key, Keys, Schema, Selected, Selector, Typed, ValueType, Variant};
pub use nearest::nearest;
pub use serde;
pub use toml;
pub use write::{inline, write};

use toml::Table;

/// Reads a table whose dotted path is `at`: the struct, and all its keys with defaults filled in.
pub fn read<T: Keys>(given: &Table, at: &str, context: &mut dyn Context) -> Result<(T, Table), KeyError> {
    let filled = T::SCHEMA.fill(given, at, context)?;
    let wrong = |error: toml::de::Error| KeyError::new(at, format!("{at}: {}", error.message().trim()));
    let value: T = filled.clone().try_into().map_err(wrong)?;
    value.verify().map_err(|error| error.below(at))?;
    Ok((value, filled))
}

/// A table in which no keys are given.
///
/// # Panics
///
/// If a default has the wrong type or is out of bounds.
pub fn defaults<T: Keys>() -> T {
    let filled = read(&Table::new(), "", &mut ());
    filled.unwrap_or_else(|error| panic!("{}: a wrong default: {error}", std::any::type_name::<T>())).0
}

/// Whether a coefficient is 0.
pub fn is_zero<N: Default + PartialEq>(number: N) -> bool {
    number == N::default()
}
