//! Sharding, as in FedNTD.
//!
//! Each of K classes is cut, in the order of the data set, into s * N / K shards; left-over samples go one each to the
//! first shards. The labels, one per shard, are shuffled and dealt to N clients, s each; a client takes a random shard
//! of each label dealt. A label may repeat, so a client has at most s classes.

use super::stream::Stream;
use super::{Partition, all, by_class, refuse};
use crate::dataset::label_counts;
use crate::error::DataError;

pub(super) fn make(
    labels: &[u16],
    classes: usize,
    clients: usize,
    per_client: usize,
    stream: &mut Stream,
) -> Result<Partition, DataError> {
    let samples = labels.len();
    let most = samples / clients;
    if per_client == 0 || per_client > most {
        return Err(refuse("shards", per_client, format!("1 to {most}, the samples per client")));
    }
    let shards = clients * per_client;
    if !shards.is_multiple_of(classes) {
        let step = classes / common_divisor(classes, clients);
        return Err(refuse(
            "shards",
            per_client,
            format!("a multiple of {step}, so that {clients} clients share {classes} classes equally"),
        ));
    }
    let per_class = shards / classes;
    let counts = label_counts(labels, classes);
    if let Some(class) = counts.iter().position(|&count| count < per_class) {
        return Err(refuse(
            "shards",
            per_client,
            format!(
                "fewer: each class is split into {per_class} shards, but class {class} has {} samples",
                counts[class]
            ),
        ));
    }
    let mut decks: Vec<Vec<Vec<u32>>> = by_class(all(samples), labels)
        .iter()
        .map(|class| {
            let mut deck = cut_class(class, per_class);
            stream.shuffle(&mut deck);
            deck
        })
        .collect();
    let mut dealt: Vec<usize> = (0..shards).map(|i| i / per_class).collect();
    stream.shuffle(&mut dealt);
    let clients = dealt
        .chunks(per_client)
        .map(|row| row.iter().filter_map(|&label| decks[label].pop()).flatten().collect())
        .collect();
    Ok(Partition { clients, draws: 1, ..Partition::default() })
}

fn cut_class(class: &[u32], shards: usize) -> Vec<Vec<u32>> {
    let size = class.len() / shards;
    let (even, rest) = class.split_at(size * shards);
    let mut deck: Vec<Vec<u32>> = even.chunks(size).map(<[u32]>::to_vec).collect();
    for (shard, &index) in deck.iter_mut().zip(rest) {
        shard.push(index);
    }
    deck
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_over_samples_go_to_the_first_shards() {
        let class: Vec<u32> = (0..8).collect();
        assert_eq!(cut_class(&class, 3), [vec![0, 1, 6], vec![2, 3, 7], vec![4, 5]]);
    }

    #[test]
    fn divisors() {
        assert_eq!(common_divisor(10, 4), 2);
        assert_eq!(common_divisor(3, 7), 1);
    }
}
