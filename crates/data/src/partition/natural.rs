//! Partition by natural keys: each client holds the samples of one writer, user or site, or of a group of them.
//!
//! Groups are those of NIID-Bench's "real" partition: the keys are permuted and cut into parts whose numbers of keys
//! differ by at most one.

use super::stream::Stream;
use super::{Partition, cut, refuse};
use crate::dataset::NaturalKeys;
use crate::error::DataError;

/// One client per key that has samples, in key order, or random groups of keys if a number of clients is given.
pub(super) fn make(keys: &NaturalKeys, clients: Option<usize>, stream: &mut Stream) -> Result<Partition, DataError> {
    let mut of_key: Vec<Vec<u32>> = vec![Vec::new(); keys.names.len()];
    for (index, &key) in (0..).zip(&keys.of) {
        let holder = of_key.get_mut(key as usize);
        holder.ok_or_else(|| refuse("keys", key, format!("below {}", keys.names.len())))?.push(index);
    }
    let mut held: Vec<usize> = (0..of_key.len()).filter(|&key| !of_key[key].is_empty()).collect();
    if let Some(clients) = clients.filter(|&clients| clients == 0 || clients > held.len()) {
        return Err(refuse("clients", clients, format!("1 to {}, the number of keys", held.len())));
    }
    if held.is_empty() {
        return Err(refuse("samples", 0, "at least 1"));
    }
    let (mut made, mut names) = (Vec::new(), Vec::new());
    match clients {
        None => {
            for key in held {
                names.push(keys.names[key].clone());
                made.push(std::mem::take(&mut of_key[key]));
            }
        }
        Some(clients) => {
            stream.shuffle(&mut held);
            for client in 0..clients {
                let group = &held[cut(held.len(), clients, client)..cut(held.len(), clients, client + 1)];
                made.push(group.iter().flat_map(|&key| std::mem::take(&mut of_key[key])).collect());
                let group: Vec<&str> = group.iter().map(|&key| keys.names[key].as_str()).collect();
                names.push(group.join(" "));
            }
        }
    }
    Ok(Partition { clients: made, names, draws: 1, ..Partition::default() })
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Partition, partition};
    use super::*;
    use crate::dataset::{Dataset, Inputs, Normalisation, Shape, Split};

    /// Key `k` has `k` samples, so the first has none.
    fn keys() -> NaturalKeys {
        let of = (0..10u32).flat_map(|key| std::iter::repeat_n(key, key as usize)).rev().collect();
        NaturalKeys { of, names: (0..10).map(|key| format!("k{key}")).collect() }
    }

    fn natural(clients: Option<usize>, seed: u64) -> Result<Partition, DataError> {
        let keys = keys();
        let samples = keys.of.len();
        let mut dataset = unlabelled(samples);
        dataset.train.keys = Some(keys);
        partition(&dataset, &vec![false; samples], &Kind::Natural, clients, seed)
    }

    fn unlabelled(samples: usize) -> Dataset {
        Dataset {
            name: "toy".to_string(),
            classes: vec!["a".to_string()],
            shape: Shape::Text,
            train: Split { inputs: Inputs::Texts(vec![String::new(); samples]), labels: vec![0; samples], keys: None },
            test: Split::default(),
            normalisation: Normalisation::default(),
            table: None,
        }
    }

    #[test]
    fn one_client_per_key_or_groups_of_keys() {
        let keys = keys();
        let found = natural(None, 7).unwrap();
        assert_eq!(found.clients.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((found.names[0].as_str(), found.spec.as_str()), ("k1", "natural keys over 9 clients"));
        for clients in 1..=9 {
            let found = natural(Some(clients), 7).unwrap();
            assert_eq!((found.clients.len(), found.names.len()), (clients, clients));
            let mut all: Vec<u32> = found.clients.concat();
            all.sort_unstable();
            assert_eq!(all, (0..45).collect::<Vec<_>>());
            let of = |client: &Vec<u32>| -> std::collections::BTreeSet<u32> {
                client.iter().map(|&i| keys.of[i as usize]).collect()
            };
            let sets: Vec<_> = found.clients.iter().map(of).collect();
            // No key is on two clients, and the numbers of keys differ by at most one.
            assert_eq!(sets.iter().map(|set| set.len()).sum::<usize>(), 9);
            assert!(sets.iter().all(|set| set.len() == 9 / clients || set.len() == 9usize.div_ceil(clients)));
        }
        assert_ne!(natural(Some(3), 7).unwrap().clients, natural(Some(3), 8).unwrap().clients);
        assert_eq!(natural(Some(3), 7).unwrap(), natural(Some(3), 7).unwrap());
    }

    #[test]
    fn more_clients_than_keys_are_refused() {
        let text = natural(Some(10), 7).unwrap_err().to_string();
        assert_eq!(text, "partition parameter clients = 10: expected 1 to 9, the number of keys");
        assert!(natural(Some(0), 7).is_err());
        assert!(make(&NaturalKeys::default(), None, &mut Stream::new(7)).is_err());
        let error = partition(&unlabelled(3), &[false; 3], &Kind::Natural, None, 7).unwrap_err();
        assert!(matches!(error, DataError::NoKeys { .. }), "{error}");
    }
}
