//! One round on one thread.

use std::collections::BTreeMap;

use crate::{Broadcast, Coordinator, Federation, Finished, Payload, Result};

/// One client's memory, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMemory {
    pub client: usize,
    pub memory: Payload,
}

/// Memory by client. Clients with nothing to remember are not included.
pub type Memories = BTreeMap<usize, Payload>;

/// Calls `run` for each client of a round in order and folds in the results; then the clients' memories are updated.
///
/// `run` gets the federation, the broadcast, the client and its memory: it is [`client`](crate::client) or a
/// substitute. If anything fails, the round is abandoned.
pub fn round(
    coordinator: &mut Coordinator,
    memories: &mut Memories,
    clients: &[usize],
    mut run: impl FnMut(&Federation, &Broadcast, usize, &Payload) -> Result<Finished>,
) -> Result<Broadcast> {
    let broadcast = coordinator.open(clients)?;
    let mut fold = |coordinator: &mut Coordinator| {
        let mut kept = Vec::with_capacity(clients.len());
        for &client in clients {
            let memory = memories.get(&client).cloned().unwrap_or_default();
            let Finished { upload, memory, .. } = run(coordinator.federation(), &broadcast, client, &memory)?;
            coordinator.fold(upload)?;
            kept.push((client, memory));
        }
        Ok((coordinator.close()?, kept))
    };
    let (refused, kept) = fold(coordinator).inspect_err(|_| coordinator.abandon())?;
    keep(memories, &refused, kept);
    Ok(broadcast)
}

/// Updates the memories of a closed round's clients, except those whose uploads were left out.
pub fn keep(memories: &mut Memories, refused: &[usize], kept: Vec<(usize, Payload)>) {
    for (client, memory) in kept.into_iter().filter(|(client, _)| !refused.contains(client)) {
        if memory.is_empty() {
            memories.remove(&client);
        } else {
            memories.insert(client, memory);
        }
    }
}
