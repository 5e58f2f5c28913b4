//! A fixed number k of labels per client ("#label" in NIID-Bench, used by FedSSD).
//!
//! Client i gets label i mod K; its other k - 1 labels are drawn without repetition. Each class is split equally among
//! the clients that hold it.
//!
//! Deviation: the published code fails if a class has no owner. Here such a class replaces the label with the most
//! owners at one of them. A client left without samples, because its classes have fewer samples than owners, gets one
//! from the largest client. Both are noted. K counts the classes that have samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::shares::Shares;
use super::stream::Stream;
use super::{Partition, all, by_class, cut, refuse};
use crate::error::DataError;

pub(super) fn make(labels: &[u16], clients: usize, held: usize, stream: &mut Stream) -> Result<Partition, DataError> {
    let mut classes = by_class(all(labels.len()), labels);
    let present = classes.len();
    if held == 0 || held > present {
        return Err(refuse("labels", held, format!("1 to {present}, the classes that have samples")));
    }
    if held < present.div_ceil(clients) {
        return Err(refuse(
            "labels",
            held,
            format!("at least {}, so that {clients} clients can hold {present} classes", present.div_ceil(clients)),
        ));
    }
    let mut notes = Vec::new();
    let mut owners = draw_owners(clients, present, held, stream);
    let given = adopt(&mut owners, stream);
    if given > 0 {
        notes.push(format!("{given} classes had no client: each replaced a label that had more than one"));
    }
    let mut shares = Shares(vec![Vec::new(); clients]);
    for (class, (owners, indices)) in owners.iter().zip(&classes).enumerate() {
        let n = indices.len();
        for (part, &client) in owners.iter().enumerate() {
            let count = cut(n, owners.len(), part + 1) - cut(n, owners.len(), part);
            if count > 0 {
                shares.0[client as usize].push((class as u32, count as u32));
            }
        }
    }
    let moved = shares.raise(1);
    if moved.clients > 0 {
        notes.push(format!(
            "{} clients had no samples, because their classes have fewer samples than clients: each \
             got one from the largest client",
            moved.clients
        ));
    }
    for class in &mut classes {
        stream.shuffle(class);
    }
    Ok(Partition { clients: shares.assign(&classes), draws: 1, notes, ..Partition::default() })
}

/// The clients of each class, in ascending order.
fn draw_owners(clients: usize, classes: usize, held: usize, stream: &mut Stream) -> Vec<Vec<u32>> {
    let mut owners = vec![Vec::new(); classes];
    // A permutation of the classes, and the position of each class in it.
    let mut order: Vec<usize> = (0..classes).collect();
    let mut place = order.clone();
    for client in 0..clients {
        for at in 0..held {
            let from =
                if at == 0 { place[client % classes] } else { at + stream.below((classes - at) as u32) as usize };
            order.swap(at, from);
            place[order[at]] = at;
            place[order[from]] = from;
            owners[order[at]].push(client as u32);
        }
    }
    owners
}

/// Gives each class without clients one client. Returns how many there were.
///
/// There is always a label with two clients then, because all clients together hold at least as many labels as there
/// are classes.
fn adopt(owners: &mut [Vec<u32>], stream: &mut Stream) -> usize {
    let orphans: Vec<usize> = (0..owners.len()).filter(|&class| owners[class].is_empty()).collect();
    let mut donors: BinaryHeap<(usize, Reverse<usize>)> =
        owners.iter().enumerate().map(|(class, held)| (held.len(), Reverse(class))).collect();
    for &orphan in &orphans {
        if let Some((clients, Reverse(donor))) = donors.pop() {
            let client = owners[donor].remove(stream.below(clients as u32) as usize);
            owners[orphan].push(client);
            donors.push((clients - 1, Reverse(donor)));
        }
    }
    orphans.len()
}
