//! Samples per class and client, before individual samples are picked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// For each client, pairs of a class and a count above 0. Classes are positions in the list of classes that have
/// samples.
pub(super) struct Shares(pub(super) Vec<Vec<(u32, u32)>>);

/// The result of [`Shares::raise`].
pub(super) struct Moved {
    pub(super) samples: usize,
    pub(super) clients: usize,
}

impl Shares {
    /// Gives every client at least `least` samples, taken from the largest class of the currently largest client, so
    /// that a client gains few classes. Always terminates: while a client is below `least`, another is above it, if
    /// there are enough samples at all.
    pub(super) fn raise(&mut self, least: u32) -> Moved {
        let mut sizes: Vec<u32> = self.0.iter().map(|held| held.iter().map(|&(_, count)| count).sum()).collect();
        let mut donors: BinaryHeap<(u32, Reverse<usize>)> = sizes
            .iter()
            .enumerate()
            .filter(|&(_, &size)| size > least)
            .map(|(client, &size)| (size, Reverse(client)))
            .collect();
        let mut moved = Moved { samples: 0, clients: 0 };
        for client in 0..self.0.len() {
            if sizes[client] >= least {
                continue;
            }
            moved.clients += 1;
            while sizes[client] < least {
                let Some((size, Reverse(donor))) = donors.pop() else {
                    return moved;
                };
                let want = (least - sizes[client]).min(size - least);
                let (class, count) = take_largest(&mut self.0[donor], want);
                add(&mut self.0[client], class, count);
                sizes[donor] -= count;
                sizes[client] += count;
                moved.samples += count as usize;
                if sizes[donor] > least && count > 0 {
                    donors.push((sizes[donor], Reverse(donor)));
                }
            }
        }
        moved
    }

    /// Picks the samples: `classes` holds the indices of each class, in random order.
    pub(super) fn assign(&self, classes: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let mut rests: Vec<&[u32]> = classes.iter().map(Vec::as_slice).collect();
        self.0
            .iter()
            .map(|held| {
                let mut indices = Vec::new();
                for &(class, count) in held {
                    let rest = &mut rests[class as usize];
                    let (taken, left) = rest.split_at((count as usize).min(rest.len()));
                    indices.extend_from_slice(taken);
                    *rest = left;
                }
                indices
            })
            .collect()
    }
}

/// Takes up to `want` samples of the largest class, the first one in a tie.
fn take_largest(held: &mut Vec<(u32, u32)>, want: u32) -> (u32, u32) {
    let largest = (0..held.len()).max_by_key(|&i| (held[i].1, Reverse(held[i].0)));
    let Some(at) = largest else {
        return (0, 0);
    };
    let (class, count) = held[at];
    let taken = want.min(count);
    if taken == count {
        held.remove(at);
    } else {
        held[at].1 -= taken;
    }
    (class, taken)
}

fn add(held: &mut Vec<(u32, u32)>, class: u32, count: u32) {
    if count == 0 {
        return;
    }
    match held.iter_mut().find(|(known, _)| *known == class) {
        Some((_, total)) => *total += count,
        None => held.push((class, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_takes_from_the_largest_class_of_the_largest_client() {
        let mut shares = Shares(vec![vec![(0, 5), (1, 20)], vec![], vec![(0, 1)], vec![(2, 9)]]);
        let moved = shares.raise(4);
        assert_eq!((moved.samples, moved.clients), (7, 2));
        assert_eq!(shares.0, [vec![(0, 5), (1, 13)], vec![(1, 4)], vec![(0, 1), (1, 3)], vec![(2, 9)]]);
    }

    #[test]
    fn raise_ends_with_exactly_enough_or_too_few_samples() {
        let mut shares = Shares(vec![vec![(0, 4)], vec![], vec![], vec![]]);
        assert_eq!(shares.raise(1).samples, 3);
        let mut shares = Shares(vec![vec![(0, 4)], vec![], vec![]]);
        assert_eq!(shares.raise(3).samples, 1);
    }
}
