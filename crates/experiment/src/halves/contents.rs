//! What a message contains, for a log: names and sizes, no values.

use std::collections::BTreeMap;

use fedelity_fl::wire::Wire;
use fedelity_fl::{Broadcast, Payload, Upload};
use serde::Serialize;

use super::envelope::{ExchangeError, unseal};
use super::{Agreement, Client};

/// What a message contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Counted from 1.
    pub round: usize,
    /// Arrays by name: how many numbers of four bytes each has.
    pub arrays: BTreeMap<String, usize>,
}

impl Contents {
    fn new(round: usize, weights: usize, more: &Payload) -> Self {
        let more = more.iter().map(|(name, values)| (name.to_string(), values.len()));
        Self { round: round + 1, arrays: more.chain([("weights".to_string(), weights)]).collect() }
    }
}

impl Agreement {
    /// What a message of the server contains.
    pub fn received(&self, message: &[u8]) -> Result<Contents, ExchangeError> {
        broadcast(&self.digest(), message)
    }
}

fn broadcast(digest: &[u8; 32], message: &[u8]) -> Result<Contents, ExchangeError> {
    let (_, body) = unseal::<2>(digest, message)?;
    let Broadcast { round, global, payload } = Broadcast::from_bytes(body)?;
    Ok(Contents::new(round, global.len(), &payload))
}

impl Client {
    /// What a message of the server contains.
    pub fn received(&self, message: &[u8]) -> Result<Contents, ExchangeError> {
        broadcast(self.digest(), message)
    }

    /// What an upload of this client contains.
    pub fn sent(&self, message: &[u8]) -> Result<Contents, ExchangeError> {
        let (_, body) = unseal::<2>(self.digest(), message)?;
        let upload = Upload::from_bytes(body)?;
        Ok(Contents::new(upload.round, upload.params.len(), &upload.extra))
    }
}
