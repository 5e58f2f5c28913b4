use std::ops::Deref;

use fedelity_nn::Params;

use crate::{Payload, TermMeans};

/// What a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Upload {
    /// Counted from 0.
    pub round: usize,
    pub client: usize,
    pub examples: usize,
    pub steps: usize,
    /// The terms of its loss.
    pub terms: TermMeans,
    pub params: Params,
    /// The method's additional arrays.
    pub extra: Payload,
}

impl Upload {
    /// Bytes on the wire: 4 per number in weights and arrays.
    pub fn bytes(&self) -> u64 {
        4 * self.params.len() as u64 + self.extra.bytes()
    }
}

/// An upload on the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    pub upload: Upload,
    /// How much it counts in the mean.
    pub weight: f64,
}

impl Deref for Received {
    type Target = Upload;

    fn deref(&self) -> &Upload {
        &self.upload
    }
}
