//! Which clients take part in a round.

use std::collections::BTreeSet;

use crate::rng::{Purpose, below, shuffle, stream};

/// `per_round` of `clients` clients without replacement, in ascending order.
///
/// Depends only on the seed and the round (counted from 0), so all methods see the same clients. Uses no memory beyond
/// the result (Floyd's algorithm). All clients are returned if `per_round` is not below their number.
pub fn sample_clients(seed: u64, round: usize, clients: usize, per_round: usize) -> Vec<usize> {
    if per_round >= clients {
        return (0..clients).collect();
    }
    let mut rng = stream(seed, Purpose::Sampling, round as u64, 0, 0);
    let mut chosen = BTreeSet::new();
    for last in clients - per_round..clients {
        let drawn = below(&mut rng, last as u32 + 1) as usize;
        if !chosen.insert(drawn) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

/// The clients of a round that is repeated, in ascending order: other ones than those tried before, as long as there are
/// enough, and then any. `attempt` is 1 for the first repetition.
pub fn sample_others(
    seed: u64,
    round: usize,
    attempt: usize,
    clients: usize,
    per_round: usize,
    tried: &BTreeSet<usize>,
) -> Vec<usize> {
    let mut pool: Vec<usize> = (0..clients).filter(|client| !tried.contains(client)).collect();
    if pool.len() < per_round {
        pool = (0..clients).collect();
    }
    shuffle(&mut stream(seed, Purpose::Sampling, round as u64, 0, attempt as u64), &mut pool);
    pool.truncate(per_round);
    pool.sort_unstable();
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_distinct_and_fair() {
        let mut counts = [0; 20];
        for round in 0..4000 {
            let clients = sample_clients(3, round, 20, 5);
            assert_eq!(clients.len(), 5);
            assert!(clients.windows(2).all(|pair| pair[0] < pair[1]));
            clients.iter().for_each(|&client| counts[client] += 1);
        }
        assert!(counts.iter().all(|&n: &i32| (n - 1000).abs() < 150), "{counts:?}");
    }

    #[test]
    fn depends_only_on_seed_and_round() {
        assert_eq!(sample_clients(1, 2, 100, 10), sample_clients(1, 2, 100, 10));
        assert_ne!(sample_clients(1, 2, 100, 10), sample_clients(1, 3, 100, 10));
        assert_ne!(sample_clients(1, 2, 100, 10), sample_clients(2, 2, 100, 10));
        assert_eq!(sample_clients(1, 2, 3, 3), [0, 1, 2]);
        assert_eq!(sample_clients(1, 2, 3, 9), [0, 1, 2]);
        assert!(sample_clients(1, 2, 3, 0).is_empty());
    }

    #[test]
    fn a_repeated_round_takes_others_while_there_are_any() {
        let first = sample_clients(1, 2, 10, 4);
        let mut tried: BTreeSet<usize> = first.iter().copied().collect();
        let second = sample_others(1, 2, 1, 10, 4, &tried);
        assert!(second.len() == 4 && second.is_sorted() && second.iter().all(|client| !tried.contains(client)));
        assert_eq!(second, sample_others(1, 2, 1, 10, 4, &tried));
        tried.extend(second);
        // Two are left, which is too few.
        let third = sample_others(1, 2, 2, 10, 4, &tried);
        assert!(third.len() == 4 && third.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(sample_others(1, 2, 1, 3, 3, &(0..3).collect()), [0, 1, 2]);
    }
}
