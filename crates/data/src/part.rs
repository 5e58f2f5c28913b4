//! Data that a trained model is tested on, and which part of them.

use std::collections::HashSet;

use fedelity_keys::Choice;

use crate::dataset::{Dataset, Inputs, NaturalKeys, Split, Tokens};
use crate::skipped::Skipped;

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum Part {
    All,
    Train,
    Test,
}

/// Data for a trained model.
#[derive(Clone, Debug)]
pub struct NewData {
    pub dataset: Dataset,
    /// The part to test on.
    pub part: Part,
    /// Unusable samples that were skipped.
    pub skipped: Skipped,
}

impl NewData {
    /// What a user may not expect. Classes may be absent.
    pub fn remarks(&self) -> Vec<String> {
        let table = self.dataset.table.iter().flat_map(|form| &form.notes).cloned();
        self.dataset.incomplete().into_iter().chain(table).collect()
    }

    /// The samples to test on.
    pub fn samples(&self) -> Split {
        match self.part {
            Part::All => self.dataset.train.clone().join(self.dataset.test.clone()),
            Part::Train => self.dataset.train.clone(),
            Part::Test => self.dataset.test.clone(),
        }
    }
}

impl NaturalKeys {
    /// The keys of some samples, then of others. Keys of the same name are the same.
    fn join(mut self, other: &Self) -> Self {
        let mut place = |name: &String| {
            let known = self.names.iter().position(|known| known == name);
            known.unwrap_or_else(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            }) as u32
        };
        let places: Vec<u32> = other.names.iter().map(&mut place).collect();
        self.of.extend(other.of.iter().map(|&key| places[key as usize]));
        self
    }
}

impl Split {
    /// These samples, then others of the same kind.
    fn join(self, other: Self) -> Self {
        let keys = match (self.keys, other.keys) {
            (Some(a), Some(b)) => Some(a.join(&b)),
            (a, None) if other.labels.is_empty() => a,
            (None, b) if self.labels.is_empty() => b,
            _ => None,
        };
        let inputs = match (self.inputs, other.inputs) {
            (Inputs::Bytes(a), Inputs::Bytes(b)) => Inputs::Bytes([a, b].concat()),
            (Inputs::Floats(a), Inputs::Floats(b)) => Inputs::Floats([a, b].concat()),
            (Inputs::Texts(a), Inputs::Texts(b)) => Inputs::Texts([a, b].concat()),
            (Inputs::Tokens(a), Inputs::Tokens(b)) => {
                let start = a.ids.len() as u32;
                let starts = a.starts.into_iter().chain(b.starts.iter().skip(1).map(|end| start + end)).collect();
                Inputs::Tokens(Tokens { ids: [a.ids, b.ids].concat(), starts })
            }
            // One data set has inputs of one kind; nothing is joined to a part without samples.
            (a @ (Inputs::Bytes(_) | Inputs::Floats(_) | Inputs::Texts(_) | Inputs::Tokens(_)), _) => {
                return Self { inputs: a, labels: self.labels, keys };
            }
        };
        Self { inputs, labels: [self.labels, other.labels].concat(), keys }
    }

    /// How many samples have the same input as some sample of another split.
    pub fn shared_with(&self, other: &Self) -> usize {
        fn count<T: std::hash::Hash + Eq>(own: impl Iterator<Item = T>, others: impl Iterator<Item = T>) -> usize {
            let others: HashSet<T> = others.collect();
            own.filter(|input| others.contains(input)).count()
        }
        let (own, others) = (self.len().max(1), other.len().max(1));
        match (&self.inputs, &other.inputs) {
            (Inputs::Bytes(a), Inputs::Bytes(b)) => {
                count(a.chunks((a.len() / own).max(1)), b.chunks((b.len() / others).max(1)))
            }
            (Inputs::Floats(a), Inputs::Floats(b)) => {
                let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
                count(a.chunks((a.len() / own).max(1)).map(bits), b.chunks((b.len() / others).max(1)).map(bits))
            }
            (Inputs::Texts(a), Inputs::Texts(b)) => count(a.iter(), b.iter()),
            (Inputs::Tokens(a), Inputs::Tokens(b)) => {
                fn texts(tokens: &Tokens) -> impl Iterator<Item = &[u32]> {
                    tokens.starts.windows(2).map(|ends| &tokens.ids[ends[0] as usize..ends[1] as usize])
                }
                count(texts(a), texts(b))
            }
            (Inputs::Bytes(_) | Inputs::Floats(_) | Inputs::Texts(_) | Inputs::Tokens(_), _) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_joined_and_found_again() {
        let images = |pixels: &[u8]| Split::images(pixels.to_vec(), vec![0; pixels.len() / 2]);
        let (a, b) = (images(&[1, 2, 3, 4]), images(&[3, 4, 5, 6, 2, 3]));
        assert_eq!(a.clone().join(b.clone()), images(&[1, 2, 3, 4, 3, 4, 5, 6, 2, 3]));
        assert_eq!((a.shared_with(&b), b.shared_with(&a), a.shared_with(&images(&[]))), (1, 1, 0));
        let tokens = |ids: &[u32], starts: &[u32]| {
            let inputs = Inputs::Tokens(Tokens { ids: ids.to_vec(), starts: starts.to_vec() });
            Split { inputs, labels: vec![0; starts.len() - 1], keys: None }
        };
        let (a, b) = (tokens(&[1, 2, 3], &[0, 2, 3]), tokens(&[3, 9, 9], &[0, 1, 3]));
        assert_eq!(a.clone().join(b.clone()), tokens(&[1, 2, 3, 3, 9, 9], &[0, 2, 3, 4, 6]));
        assert_eq!(a.shared_with(&b), 1);
        let rows = |values: &[f32]| Split {
            inputs: Inputs::Floats(values.to_vec()),
            labels: vec![0; values.len() / 2],
            keys: None,
        };
        assert_eq!(rows(&[0.5, 1.0, 0.5, 1.0]).shared_with(&rows(&[1.0, 0.5, 0.5, 1.0])), 2);
    }
}
