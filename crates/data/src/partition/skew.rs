//! How uneven a partition is.

use crate::deviation::population_deviation;
use crate::error::DataError;

/// The sizes of clients, in samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientSizes {
    pub min: usize,
    pub max: usize,
    pub mean: f64,
    /// The standard deviation over all clients, with divisor n.
    pub std: f64,
}

/// Statistics of a partition. Means give every client the same weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Skew {
    /// Samples per client and class, `[client][class]`.
    pub counts: Vec<Vec<u32>>,
    pub sizes: ClientSizes,
    /// Mean number of classes per client with at least one sample.
    pub mean_classes: f64,
    /// Mean total-variation distance between a client's label distribution and the overall one: 0 if they agree, near 1
    /// if they share nothing.
    pub mean_total_variation: f64,
    /// Mean effective number of classes of a client: exp of the entropy of its labels.
    pub mean_effective_classes: f64,
}

impl Skew {
    /// Computes the statistics. Fails on a sample without a label, or a label not below `classes`. Clients without
    /// samples count as holding no class.
    pub fn of(clients: &[Vec<u32>], labels: &[u16], classes: usize) -> Result<Self, DataError> {
        let mut counts = Vec::with_capacity(clients.len());
        let mut total = vec![0u64; classes];
        for (client, indices) in clients.iter().enumerate() {
            let mut row = vec![0u32; classes];
            for &index in indices {
                let at = index as usize;
                let &label = labels.get(at).ok_or(DataError::SampleRange { client, index, samples: labels.len() })?;
                let class = usize::from(label);
                let cell = row.get_mut(class).ok_or(DataError::LabelRange { index: at, label, classes })?;
                *cell += 1;
                total[class] += 1;
            }
            counts.push(row);
        }
        let all: u64 = total.iter().sum();
        let (mut held, mut distance, mut effective) = (0.0, 0.0, 0.0);
        for (row, indices) in counts.iter().zip(clients) {
            let size = indices.len() as f64;
            if indices.is_empty() {
                continue;
            }
            let (mut apart, mut entropy) = (0.0, 0.0);
            for (&count, &n) in row.iter().zip(&total) {
                let p = f64::from(count) / size;
                apart += (p - n as f64 / all as f64).abs();
                if count > 0 {
                    held += 1.0;
                    entropy -= p * libm::log(p);
                }
            }
            distance += apart / 2.0;
            effective += libm::exp(entropy);
        }
        let n = clients.len().max(1) as f64;
        Ok(Self {
            counts,
            sizes: sizes(clients),
            mean_classes: held / n,
            mean_total_variation: distance / n,
            mean_effective_classes: effective / n,
        })
    }
}

fn sizes(clients: &[Vec<u32>]) -> ClientSizes {
    let n = clients.len().max(1) as f64;
    let each = || clients.iter().map(Vec::len);
    let mean = each().sum::<usize>() as f64 / n;
    let square = each().map(|size| (size as f64 - mean) * (size as f64 - mean)).sum::<f64>();
    let std = population_deviation(square / n);
    ClientSizes { min: each().min().unwrap_or(0), max: each().max().unwrap_or(0), mean, std }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_hand() {
        let labels = [0, 0, 1, 1, 1, 0];
        let skew = Skew::of(&[vec![0, 1], vec![2, 3, 4, 5]], &labels, 3).unwrap();
        assert_eq!(skew.counts, [[2, 0, 0], [1, 3, 0]]);
        assert_eq!((skew.sizes.min, skew.sizes.max), (2, 4));
        assert_eq!((skew.sizes.mean, skew.sizes.std), (3.0, 1.0));
        assert_eq!(skew.mean_classes, 1.5);
        assert!((skew.mean_total_variation - 0.375).abs() < 1e-12);
        let entropy: f64 = -(0.25 * 0.25f64.ln() + 0.75 * 0.75f64.ln());
        assert!((skew.mean_effective_classes - (1.0 + entropy.exp()) / 2.0).abs() < 1e-12);
    }

    #[test]
    fn odd_input() {
        assert!(matches!(
            Skew::of(&[vec![0], vec![7]], &[0, 0], 1),
            Err(DataError::SampleRange { client: 1, index: 7, samples: 2 })
        ));
        assert!(matches!(Skew::of(&[vec![1]], &[0, 5], 5), Err(DataError::LabelRange { label: 5, .. })));
        let none = Skew::of(&[], &[], 0).unwrap();
        assert_eq!(none.sizes.max, 0);
        let empty = Skew::of(&[vec![], vec![0]], &[0], 1).unwrap();
        assert_eq!(empty.mean_classes, 0.5);
    }
}
