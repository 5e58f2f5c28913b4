//! Arrays that a method declares beyond the weights.

use std::borrow::Cow;

use crate::{Payload, Rejection};

/// An array sent beyond the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    pub name: Cow<'static, str>,
    /// Its length; the maximum if it grows.
    pub len: usize,
    pub presence: Presence,
}

/// When an array is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// In every round.
    Always,
    /// In some rounds, or from some clients.
    Sometimes,
    /// In some rounds, and shorter in the first of them.
    Growing,
}

impl Extra {
    /// An array that is sent in every round.
    pub fn always(name: impl Into<Cow<'static, str>>, len: usize) -> Self {
        Self { name: name.into(), len, presence: Presence::Always }
    }

    /// An array that may be absent.
    pub fn sometimes(name: impl Into<Cow<'static, str>>, len: usize) -> Self {
        Self { name: name.into(), len, presence: Presence::Sometimes }
    }

    /// An array that may be absent or shorter.
    pub fn growing(name: impl Into<Cow<'static, str>>, len: usize) -> Self {
        Self { name: name.into(), len, presence: Presence::Growing }
    }

    /// Why a payload does not match its declaration, if it does not.
    pub(crate) fn check(declared: &[Self], payload: &Payload) -> Result<(), Rejection> {
        for Self { name, len, presence } in declared {
            let found = match payload.opt(name) {
                Some(values) => values.len(),
                None if *presence == Presence::Always => return Err(Rejection::Missing { name: name.to_string() }),
                None => continue,
            };
            let shorter = *presence == Presence::Growing && (1..*len).contains(&found);
            if found != *len && !shorter {
                return Err(Rejection::Length { name: name.to_string(), expected: *len, found });
            }
        }
        match payload.keys().find(|name| declared.iter().all(|extra| extra.name != **name)) {
            Some(name) => Err(Rejection::Undeclared { name: name.to_string() }),
            None => Ok(()),
        }
    }
}
