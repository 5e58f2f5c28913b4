//! One round on one thread.

use std::collections::BTreeMap;

use crate::{Broadcast, Coordinator, Federation, Finished, Payload, Result};

/// What one client remembers, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMemory {
    pub client: usize,
    pub memory: Payload,
}

/// What clients remember, by client. Only those that have something to remember are in it.
pub type Memories = BTreeMap<usize, Payload>;

/// Has each client of a round `run` in order and folds what it sends; afterwards they remember what they have to.
///
/// `run` gets the federation, the broadcast, the client and what it remembers: it is [`client`](crate::client), or stands for it. If
/// anything fails, the round is given up.
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

/// Has the clients of a closed round remember what they have to, except those whose uploads were left out.
pub fn keep(memories: &mut Memories, refused: &[usize], kept: Vec<(usize, Payload)>) {
    for (client, memory) in kept.into_iter().filter(|(client, _)| !refused.contains(client)) {
        if memory.is_empty() {
            memories.remove(&client);
        } else {
            memories.insert(client, memory);
        }
    }
}
