//! The latest global models, in the server's state.

use std::sync::Arc;

use fedelity_fl::{Payload, Server};

/// The global models before this round's that are among the last `most`, newest first.
pub(crate) fn older(server: &Server<'_>, most: usize) -> Vec<Arc<[f32]>> {
    (1..server.round).rev().take(most - 1).filter_map(|round| server.state.opt(&key(round)).cloned()).collect()
}

/// Stores the global model of the closing round as one of the last `most`. The initial weights w_0 are not stored.
pub(crate) fn remember(server: &Server<'_>, state: &mut Payload, most: usize) {
    if server.round > 0 && most > 1 {
        state.put(key(server.round), &server.global[..]);
    }
    if let Some(old) = (server.round + 1).checked_sub(most) {
        state.remove(&key(old));
    }
}

fn key(round: usize) -> String {
    format!("global-{round}")
}
