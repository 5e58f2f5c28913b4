//! A random permutation, cut into parts whose sizes differ by at most one.

use super::stream::Stream;
use super::{Partition, all, cut};

pub(super) fn make(samples: usize, clients: usize, stream: &mut Stream) -> Partition {
    let mut indices = all(samples);
    stream.shuffle(&mut indices);
    let clients =
        (0..clients).map(|i| indices[cut(samples, clients, i)..cut(samples, clients, i + 1)].to_vec()).collect();
    Partition { clients, draws: 1, ..Partition::default() }
}
