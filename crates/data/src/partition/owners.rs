//! Which client a test sample belongs to.

use std::collections::HashMap;

use super::Partition;
use crate::dataset::Dataset;

/// Who holds the training samples of a key.
#[derive(Clone, Copy)]
enum Holder {
    Nobody,
    One(u32),
    Several,
}

impl Partition {
    /// The client of each test sample: the one that holds all training samples from the same site, writer or user.
    ///
    /// `None` if clients are not sites, or test samples do not say where they come from.
    pub fn test_owners(&self, dataset: &Dataset) -> Option<Vec<Option<u32>>> {
        let (train, test) = (dataset.train.keys.as_ref()?, dataset.test.keys.as_ref()?);
        if self.names.is_empty() {
            return None;
        }
        let mut holders = vec![Holder::Nobody; train.names.len()];
        for (client, samples) in (0..).zip(&self.clients) {
            for key in samples.iter().filter_map(|&i| train.of.get(i as usize)) {
                let holder = &mut holders[*key as usize];
                *holder = match *holder {
                    Holder::Nobody => Holder::One(client),
                    Holder::One(known) if known == client => Holder::One(client),
                    Holder::One(_) | Holder::Several => Holder::Several,
                };
            }
        }
        let mut by_name = HashMap::new();
        for (name, holder) in train.names.iter().zip(holders) {
            if let Holder::One(client) = holder {
                by_name.insert(name, client);
            }
        }
        let of_key: Vec<Option<u32>> = test.names.iter().map(|name| by_name.get(name).copied()).collect();
        let owners: Vec<Option<u32>> = test.of.iter().map(|&key| of_key.get(key as usize).copied().flatten()).collect();
        owners.iter().any(Option::is_some).then_some(owners)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::labelled;
    use super::super::{Kind, partition};
    use crate::dataset::{NaturalKeys, Split};

    #[test]
    fn test_samples_go_to_the_client_of_their_site() {
        let keys = |of: &[u32], names: &[&str]| {
            Some(NaturalKeys { of: of.to_vec(), names: names.iter().map(|name| name.to_string()).collect() })
        };
        let mut set = labelled(&[0, 1, 0, 1, 0, 1], 2);
        set.train.keys = keys(&[0, 0, 1, 1, 2, 2], &["a", "b", "c"]);
        set.test = Split { labels: vec![0; 5], ..set.test };
        // Other numbers for the same names, and a site that nobody trains with.
        set.test.keys = keys(&[0, 1, 2, 1, 3], &["c", "a", "unknown", "b"]);
        let made = |clients| partition(&set, &[false; 6], &Kind::Natural, clients, 1).unwrap();
        assert_eq!(made(None).test_owners(&set), Some(vec![Some(2), Some(0), None, Some(0), Some(1)]));
        // Groups of sites own the test samples of all of them.
        let grouped = made(Some(2)).test_owners(&set).unwrap();
        assert_eq!(grouped.iter().filter(|owner| owner.is_none()).count(), 1);
        // A site whose samples are spread over clients belongs to none of them.
        let mut spread = made(None);
        spread.clients = vec![vec![0, 2], vec![1, 3], vec![4, 5]];
        assert_eq!(spread.test_owners(&set), Some(vec![Some(2), None, None, None, None]));
        spread.names.clear();
        assert_eq!(spread.test_owners(&set), None);
        let natural = made(None);
        set.test.keys = None;
        assert_eq!(natural.test_owners(&set), None);
    }
}
