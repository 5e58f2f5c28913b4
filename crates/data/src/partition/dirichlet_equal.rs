//! Dirichlet partition with equal sizes, as in FedDF and FedGKD.
//!
//! The shuffled samples are split into blocks of ten clients. Inside a block, the class-wise Dirichlet draw with the
//! balance trick is repeated until the smallest client has half of the mean size. The lists are concatenated and cut
//! again into equal parts, so the boundaries of the draw are smeared over neighbours.
//!
//! Deviation: if the number of samples is not divisible by the number of clients, the first clients get one more,
//! instead of the remainder being dropped.

use super::dirichlet::Search;
use super::stream::Stream;
use super::{Partition, all, by_class, cut};

/// Clients per block.
const BLOCK: usize = 10;

/// Maximum number of weights drawn per call. The minimum matters little after the second cut.
const MOST_WEIGHTS: u64 = 5_000_000;

pub(super) fn make(labels: &[u16], clients: usize, alpha: f64, max_draws: u32, stream: &mut Stream) -> Partition {
    let samples = labels.len();
    let mut indices = all(samples);
    stream.shuffle(&mut indices);
    let blocks = clients.div_ceil(BLOCK);
    let mut row: Vec<u32> = Vec::with_capacity(samples);
    let mut draws = 0u32;
    let mut short = 0;
    for first in (0..clients).step_by(BLOCK) {
        let after = (first + BLOCK).min(clients);
        let range = cut(samples, clients, first)..cut(samples, clients, after);
        let held = after - first;
        let least = range.len() / held / 2;
        let mut classes = by_class(indices[range].to_vec(), labels);
        let class_sizes: Vec<u32> = classes.iter().map(|class| class.len() as u32).collect();
        let mut search = Search::new(&class_sizes, held, alpha);
        let share = MOST_WEIGHTS / blocks as u64;
        let found = search.run(least as u32, max_draws, share, stream);
        draws = draws.saturating_add(found.draws);
        if found.best.missing > 0 {
            short += 1;
        }
        for class in &mut classes {
            stream.shuffle(class);
        }
        for client in found.best.shares(held).assign(&classes) {
            row.extend_from_slice(&client);
        }
    }
    let mut notes = Vec::new();
    if short > 0 {
        notes.push(format!(
            "in {short} of {blocks} blocks no draw gave every client half of the mean size: the \
             best draw was used"
        ));
    }
    let clients = (0..clients).map(|i| row[cut(samples, clients, i)..cut(samples, clients, i + 1)].to_vec()).collect();
    Partition { clients, draws, notes, ..Partition::default() }
}
