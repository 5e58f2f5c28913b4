//! What a server gathers in one round.

use std::collections::BTreeMap;

use fedelity_nn::Params;

use crate::{FlError, Received, Result};

/// A weighted mean, accumulated vector by vector.
///
/// Sums are f64 and follow the order of the calls. Memory does not depend on the number of vectors, and it is reused
/// across rounds.
#[derive(Clone, Debug, Default)]
pub struct Mean {
    sums: Vec<f64>,
    weight: f64,
    added: usize,
}

impl Mean {
    /// Adds a vector with a weight.
    pub fn add(&mut self, weight: f64, values: &[f32]) -> Result<()> {
        if self.added == 0 {
            self.sums.clear();
            self.sums.extend(values.iter().map(|&value| weight * f64::from(value)));
        } else {
            let (expected, found) = (self.sums.len(), values.len());
            if found != expected {
                return Err(FlError::Length { what: "a vector of a mean".into(), expected, found });
            }
            for (sum, &value) in self.sums.iter_mut().zip(values) {
                *sum += weight * f64::from(value);
            }
        }
        self.weight += weight;
        self.added += 1;
        Ok(())
    }

    /// The sum of the weights so far.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    pub fn added(&self) -> usize {
        self.added
    }

    /// The weighted sums so far, undivided.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// The mean: the sums over the total weight.
    pub fn finish(&self) -> Result<Params> {
        let weight = self.weight;
        if self.added == 0 || !(weight.is_finite() && weight != 0.0) {
            return Err(FlError::NothingGathered { weight });
        }
        Ok(Params(self.sums.iter().map(|&sum| (sum / weight) as f32).collect()))
    }

    /// Resets and keeps the memory.
    pub fn clear(&mut self) {
        self.sums.clear();
        self.weight = 0.0;
        self.added = 0;
    }
}

/// What a server gathers in one round.
#[derive(Debug, Default)]
pub struct Gather {
    /// The mean of the weights.
    pub mean: Mean,
    /// Individual uploads, in folding order. Empty unless the method [needs](crate::Needs::each_upload) them.
    pub uploads: Vec<Received>,
    /// The clients whose uploads the server leaves out. Their memory stays as it was before the round.
    pub refused: Vec<usize>,
    /// How many uploads were scaled down to the largest norm of an update, if there is one.
    pub clipped: Option<usize>,
    means: BTreeMap<&'static str, Mean>,
}

impl Gather {
    /// An additional named mean, for arrays that clients send beyond the weights.
    pub fn also(&mut self, name: &'static str) -> &mut Mean {
        self.means.entry(name).or_default()
    }

    /// Starts a new round and keeps the memory of the sums.
    pub fn clear(&mut self) {
        self.mean.clear();
        self.means.values_mut().for_each(Mean::clear);
        self.uploads.clear();
        self.refused.clear();
        self.clipped = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_vector_comes_back_exactly() {
        let values = [0.1, -3.7e-12, 1e30, 0.0];
        let mut mean = Mean::default();
        mean.add(37.0, &values).unwrap();
        assert_eq!(mean.finish().unwrap().0, values);
    }

    #[test]
    fn weights_and_reuse() {
        let mut gather = Gather::default();
        assert!(matches!(gather.mean.finish(), Err(FlError::NothingGathered { .. })));
        gather.mean.add(1.0, &[1.0, 2.0]).unwrap();
        gather.mean.add(3.0, &[5.0, 2.0]).unwrap();
        assert!(gather.mean.add(1.0, &[1.0]).is_err());
        assert_eq!(gather.mean.finish().unwrap().0, [4.0, 2.0]);
        gather.also("c").add(1.0, &[1.0]).unwrap();
        assert_eq!((gather.mean.weight(), gather.mean.added()), (4.0, 2));
        gather.clear();
        gather.mean.add(2.0, &[1.0]).unwrap();
        assert_eq!(gather.mean.finish().unwrap().0, [1.0]);
        assert!(gather.also("c").sums().is_empty());
    }
}
