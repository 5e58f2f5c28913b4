//! Training samples that the server keeps for itself.
//!
//! The sets depend only on the labels, the request and one seed, never on the method, so all methods in a comparison
//! learn from the same samples.

use std::sync::Arc;

use fedelity_data::Dataset;
use rand_chacha::ChaCha8Rng;

use crate::rng::{Purpose, SERVER, shuffle, stream};
use crate::{Held, ServerData};

/// How many training samples the server keeps for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HoldOut {
    /// Labelled auxiliary samples per class.
    pub auxiliary: usize,
    /// Whether clients hold the auxiliary samples too.
    pub keep_auxiliary: bool,
    /// The share of the training samples used for validation, below 1.
    pub validation: f64,
    /// Samples whose labels are never read.
    pub unlabelled: usize,
    /// The share of the training samples that stand in for the test samples, below 1. Neither clients nor the server
    /// have them.
    pub testing: f64,
}

/// Training samples of the server, by index. The sets are disjoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldOut {
    /// Labelled auxiliary samples, class by class.
    pub auxiliary: Vec<u32>,
    pub validation: Vec<u32>,
    /// Samples whose labels are never read.
    pub unlabelled: Vec<u32>,
    /// Samples that nobody has: they stand in for the test samples.
    pub testing: Vec<u32>,
    /// Notes on sets that could not be filled.
    pub notes: Vec<String>,
    keep_auxiliary: bool,
}

impl HoldOut {
    /// Draws the sets: first those for testing, which do not depend on the others, then the auxiliary samples, then the
    /// others from the rest. If there are too few samples for a
    /// set, it gets those available, and a note.
    pub fn draw(&self, labels: &[u16], classes: usize, seed: u64) -> HeldOut {
        let mut taken = vec![false; labels.len()];
        let mut held = HeldOut { keep_auxiliary: self.keep_auxiliary, ..HeldOut::default() };
        held.testing = draw(&mut own_stream(seed, 3), &taken, |_| true, share(self.testing, labels.len()));
        take(&mut taken, &held.testing);
        let mut rng = own_stream(seed, 0);
        for class in 0..classes {
            if self.auxiliary == 0 {
                break;
            }
            let of_class = |&i: &u32| usize::from(labels[i as usize]) == class;
            let drawn = draw(&mut rng, &taken, of_class, self.auxiliary);
            if drawn.len() < self.auxiliary {
                let (found, asked) = (drawn.len(), self.auxiliary);
                held.notes.push(format!("class {class} has only {found} of the {asked} auxiliary samples requested"));
            }
            held.auxiliary.extend(drawn);
        }
        take(&mut taken, &held.auxiliary);

        let validation = share(self.validation, labels.len());
        held.validation = draw(&mut own_stream(seed, 1), &taken, |_| true, validation);
        take(&mut taken, &held.validation);
        held.unlabelled = draw(&mut own_stream(seed, 2), &taken, |_| true, self.unlabelled);
        let sets = [("validation", &held.validation, validation), ("unlabelled", &held.unlabelled, self.unlabelled)];
        for (what, drawn, asked) in sets {
            if drawn.len() < asked {
                held.notes.push(format!("only {} of the {asked} {what} samples requested are left", drawn.len()));
            }
        }
        held
    }
}

impl HeldOut {
    /// Whether the server keeps nothing.
    pub fn is_empty(&self) -> bool {
        self.auxiliary.is_empty() && self.validation.is_empty() && self.unlabelled.is_empty()
    }

    /// Which training samples clients must not hold.
    pub fn withheld(&self, samples: usize) -> Vec<bool> {
        let mut withheld = vec![false; samples];
        take(&mut withheld, &self.validation);
        take(&mut withheld, &self.unlabelled);
        take(&mut withheld, &self.testing);
        if !self.keep_auxiliary {
            take(&mut withheld, &self.auxiliary);
        }
        withheld
    }

    /// The samples in the server's format; an empty set becomes `None`.
    pub fn server_data(&self, data: &Arc<Dataset>) -> ServerData {
        let held = |set: &[u32]| (!set.is_empty()).then(|| Held::new(data.clone(), set.to_vec()));
        ServerData {
            auxiliary: held(&self.auxiliary),
            validation: held(&self.validation),
            unlabelled: held(&self.unlabelled),
        }
    }
}

/// A share of samples, at least one unless it is 0.
fn share(share: f64, samples: usize) -> usize {
    if share > 0.0 { ((share * samples as f64).round() as usize).max(1) } else { 0 }
}

fn own_stream(seed: u64, set: u64) -> ChaCha8Rng {
    stream(seed, Purpose::ServerData, 0, SERVER, set)
}

fn take(taken: &mut [bool], indices: &[u32]) {
    indices.iter().for_each(|&i| taken[i as usize] = true);
}

/// At most `most` random samples that satisfy `fits` and are not taken.
fn draw(rng: &mut ChaCha8Rng, taken: &[bool], fits: impl Fn(&u32) -> bool, most: usize) -> Vec<u32> {
    if most == 0 {
        return Vec::new();
    }
    let mut free: Vec<u32> = (0..taken.len() as u32).filter(|i| !taken[*i as usize] && fits(i)).collect();
    shuffle(rng, &mut free);
    free.truncate(most);
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 samples of class 0, 50 of class 1, 3 of class 2, none of class 3.
    fn labels() -> Vec<u16> {
        (0..153).map(|i| if i % 51 == 50 { 2 } else { u16::from(i % 3 == 2) }).collect()
    }

    fn counts(set: &[u32]) -> [usize; 4] {
        let mut counts = [0; 4];
        set.iter().for_each(|&i| counts[usize::from(labels()[i as usize])] += 1);
        counts
    }

    const ASKED: HoldOut =
        HoldOut { auxiliary: 5, keep_auxiliary: false, validation: 0.1, unlabelled: 20, testing: 0.0 };

    #[test]
    fn sets_are_balanced_disjoint_and_noted() {
        let held = ASKED.draw(&labels(), 4, 7);
        assert_eq!(counts(&held.auxiliary), [5, 5, 3, 0]);
        assert_eq!((held.validation.len(), held.unlabelled.len()), (15, 20));
        assert_eq!(
            held.notes,
            [
                "class 2 has only 3 of the 5 auxiliary samples requested",
                "class 3 has only 0 of the 5 auxiliary samples requested"
            ]
        );
        let all = || held.auxiliary.iter().chain(&held.validation).chain(&held.unlabelled);
        assert_eq!(all().collect::<std::collections::BTreeSet<_>>().len(), all().count());
        let withheld = held.withheld(153);
        assert_eq!(withheld.iter().filter(|&&withheld| withheld).count(), all().count());
        assert!(all().all(|&i| withheld[i as usize]));
    }

    #[test]
    fn the_sets_depend_on_seed_and_request() {
        let held = ASKED.draw(&labels(), 4, 7);
        assert_eq!(held, ASKED.draw(&labels(), 4, 7));
        assert_ne!(held.auxiliary, ASKED.draw(&labels(), 4, 8).auxiliary);
        let other = HoldOut { unlabelled: 3, ..ASKED }.draw(&labels(), 4, 7);
        assert_eq!((&held.auxiliary, &held.validation), (&other.auxiliary, &other.validation));
        assert_eq!(held.unlabelled[..3], other.unlabelled[..]);
    }

    #[test]
    fn kept_auxiliary_samples_stay_with_clients() {
        let held = HoldOut { keep_auxiliary: true, ..ASKED }.draw(&labels(), 4, 7);
        let withheld = held.withheld(153);
        assert!(held.auxiliary.iter().all(|&i| !withheld[i as usize]));
        assert_eq!(withheld.iter().filter(|&&withheld| withheld).count(), 35);
    }

    #[test]
    fn nothing_and_everything() {
        let none = HoldOut::default().draw(&labels(), 4, 7);
        assert!(none.is_empty() && none.notes.is_empty());
        let all = HoldOut { unlabelled: 1_000, validation: 1e-9, ..HoldOut::default() }.draw(&labels(), 4, 7);
        assert_eq!((all.validation.len(), all.unlabelled.len()), (1, 152));
        assert_eq!(all.notes, ["only 152 of the 1000 unlabelled samples requested are left"]);
        assert!(all.withheld(153).iter().all(|&withheld| withheld));
    }

    /// The samples to test on depend on nothing but their share, and nobody else has them.
    #[test]
    fn what_is_tested_on_is_nobodys() {
        let alone = HoldOut { testing: 0.2, ..HoldOut::default() }.draw(&labels(), 4, 7);
        let held = HoldOut { testing: 0.2, ..ASKED }.draw(&labels(), 4, 7);
        assert_eq!((alone.testing.len(), &alone.testing), (31, &held.testing));
        let others = [&held.auxiliary, &held.validation, &held.unlabelled];
        assert!(others.iter().all(|set| set.iter().all(|sample| !held.testing.contains(sample))));
        let withheld = HoldOut { keep_auxiliary: true, testing: 0.2, ..ASKED }.draw(&labels(), 4, 7).withheld(153);
        assert!(held.testing.iter().all(|&sample| withheld[sample as usize]));
        assert_eq!(HoldOut { testing: 0.0, ..ASKED }.draw(&labels(), 4, 7), ASKED.draw(&labels(), 4, 7));
    }
}
