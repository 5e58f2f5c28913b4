//! A key that is a number or a word.

use fedelity_keys::serde::Deserialize;
use fedelity_keys::{Typed, ValueType};

/// A number, or a word that stands for one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(crate = "fedelity_keys::serde", untagged)]
pub enum NumberOr<N, W> {
    Number(N),
    Word(W),
}

impl<N: Typed, W: Typed> Typed for NumberOr<N, W> {
    const TYPE: ValueType = ValueType::Either(&[N::TYPE, W::TYPE]);
}

impl<N, W> NumberOr<N, W> {
    pub fn number(self) -> Option<N> {
        match self {
            Self::Number(number) => Some(number),
            Self::Word(_) => None,
        }
    }
}
