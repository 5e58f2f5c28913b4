//! Named parts of a loss.

use std::borrow::Cow;

/// The maximum number of terms in a loss.
const MOST: usize = 8;

/// The terms of the loss of one batch, by name. Their sum is the loss. Nothing is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    items: [(&'static str, f32); MOST],
    len: usize,
}

impl Terms {
    pub fn of(name: &'static str, value: f32) -> Self {
        Self::default().with(name, value)
    }

    /// Adds one term.
    ///
    /// # Panics
    ///
    /// On the ninth term.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f32) -> Self {
        assert!(self.len < MOST, "a loss has at most {MOST} terms");
        self.items[self.len] = (name, value);
        self.len += 1;
        self
    }

    /// Adds the terms of another part of the loss.
    ///
    /// # Panics
    ///
    /// On the ninth term.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        other.iter().fold(self, |all, (name, value)| all.with(name, value))
    }

    /// The sum of all terms: the loss.
    pub fn total(&self) -> f32 {
        self.iter().map(|(_, value)| value).sum()
    }

    /// Names and values, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f32)> + '_ {
        self.items[..self.len].iter().copied()
    }
}

/// Terms averaged over many samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermMeans {
    items: [(Cow<'static, str>, f64); MOST],
    len: usize,
    samples: f64,
}

impl TermMeans {
    pub(crate) const MOST: usize = MOST;

    /// The inverse of [`sums`](Self::sums) and [`divisor`](Self::divisor).
    ///
    /// # Panics
    ///
    /// On the ninth name.
    pub(crate) fn from_sums(sums: impl IntoIterator<Item = (String, f64)>, samples: f64) -> Self {
        let mut means = Self { samples, ..Self::default() };
        sums.into_iter().for_each(|(name, sum)| means.put(Cow::Owned(name), sum));
        means
    }

    /// Adds the terms of a batch of this many samples.
    ///
    /// # Panics
    ///
    /// On the ninth name.
    pub fn add(&mut self, terms: &Terms, samples: usize) {
        for (name, value) in terms.iter() {
            self.put(Cow::Borrowed(name), f64::from(value) * samples as f64);
        }
        self.samples += samples as f64;
    }

    /// Adds the means of other samples.
    pub fn merge(&mut self, other: &Self) {
        for (name, sum) in &other.items[..other.len] {
            self.put(name.clone(), *sum);
        }
        self.samples += other.samples;
    }

    fn put(&mut self, name: Cow<'static, str>, sum: f64) {
        match self.items[..self.len].iter_mut().find(|(known, _)| *known == name) {
            Some((_, total)) => *total += sum,
            None => {
                assert!(self.len < MOST, "a loss has at most {MOST} terms");
                self.items[self.len] = (name, sum);
                self.len += 1;
            }
        }
    }

    /// Names and means, in order of first appearance.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.sums().map(|(name, sum)| (name, sum / self.samples))
    }

    /// Names and sums over all samples, in the same order.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&str, f64)> {
        self.items[..self.len].iter().map(|(name, sum)| (&**name, *sum))
    }

    /// What the sums are divided by.
    pub(crate) fn divisor(&self) -> f64 {
        self.samples
    }

    /// The mean loss; `None` if no sample was seen.
    pub fn total(&self) -> Option<f64> {
        (self.samples > 0.0).then(|| self.iter().map(|(_, mean)| mean).sum())
    }

    /// The samples seen, counted once per epoch.
    pub fn samples(&self) -> u64 {
        self.samples as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_by_samples() {
        let mut means = TermMeans::default();
        assert_eq!(means.total(), None);
        means.add(&Terms::of("ce", 1.0).with("kd", 3.0), 1);
        means.add(&Terms::of("ce", 2.0), 3);
        let mut other = TermMeans::default();
        other.add(&Terms::of("kd", 1.0), 4);
        means.merge(&other);
        assert_eq!(means.iter().collect::<Vec<_>>(), [("ce", 7.0 / 8.0), ("kd", 7.0 / 8.0)]);
        assert_eq!(means.total(), Some(14.0 / 8.0));
        assert_eq!(means.samples(), 8);
        assert_eq!(Terms::of("a", 1.0).with("b", 2.5).total(), 3.5);
        assert_eq!(Terms::of("a", 1.0).and(&Terms::of("b", 2.5)), Terms::of("a", 1.0).with("b", 2.5));
        assert_eq!(Terms::of("a", 1.0).and(&Terms::default()), Terms::of("a", 1.0));
    }
}
