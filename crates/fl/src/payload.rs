//! Arrays that a method sends, remembers or checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{FlError, Result};

/// Named arrays of f32, in name order. Arrays are shared, so a clone copies no numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Payload(BTreeMap<String, Arc<[f32]>>);

impl Payload {
    pub fn new() -> Self {
        Self::default()
    }

    /// The payload with one more array.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, values: impl Into<Arc<[f32]>>) -> Self {
        self.put(name, values);
        self
    }

    /// Adds or replaces an array.
    pub fn put(&mut self, name: impl Into<String>, values: impl Into<Arc<[f32]>>) {
        self.0.insert(name.into(), values.into());
    }

    /// An array that must exist.
    pub fn get(&self, name: &str) -> Result<&Arc<[f32]>> {
        self.0
            .get(name)
            .ok_or_else(|| FlError::Missing { name: name.to_string(), keys: self.0.keys().cloned().collect() })
    }

    /// An array that must exist with this length.
    pub fn get_sized(&self, name: &str, len: usize) -> Result<&Arc<[f32]>> {
        let values = self.get(name)?;
        if values.len() != len {
            return Err(FlError::Length { what: format!("the array '{name}'"), expected: len, found: values.len() });
        }
        Ok(values)
    }

    /// An array that may be missing.
    pub fn opt(&self, name: &str) -> Option<&Arc<[f32]>> {
        self.0.get(name)
    }

    /// An array to write to: the existing one if its length is `len`, else zeros.
    pub fn slot(&mut self, name: &str, len: usize) -> &mut [f32] {
        if self.0.get(name).is_none_or(|values| values.len() != len) {
            self.0.insert(name.to_string(), vec![0.0; len].into());
        }
        let values = self.0.get_mut(name).expect("the array was put in just above");
        Arc::make_mut(values)
    }

    pub fn remove(&mut self, name: &str) -> Option<Arc<[f32]>> {
        self.0.remove(name)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Names and arrays, in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<[f32]>)> {
        self.0.iter().map(|(name, values)| (name.as_str(), values))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Size on the wire: 4 bytes per number. Names are not counted.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|values| 4 * values.len() as u64).sum()
    }
}

/// Whether there are no infinities or NaNs.
pub(crate) fn all_finite(values: &[f32]) -> bool {
    largest_magnitude(values).is_finite()
}

/// The largest magnitude of some numbers: infinite or NaN if one of them is.
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    // Without their sign, the bits of numbers are ordered like the numbers, and NaN is the largest.
    f32::from_bits(values.iter().fold(0, |largest, value| largest.max(value.to_bits() & !(1 << 31))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_put_what_is_not_finite_last() {
        assert_eq!(
            (largest_magnitude(&[1.0, -3.5, 2.0]), largest_magnitude(&[]), largest_magnitude(&[-0.0])),
            (3.5, 0.0, 0.0)
        );
        assert_eq!(largest_magnitude(&[1.0, f32::NEG_INFINITY, 2.0]), f32::INFINITY);
        assert!(largest_magnitude(&[f32::INFINITY, -f32::NAN, 2.0]).is_nan());
    }

    #[test]
    fn arrays_by_name() {
        let mut payload = Payload::new().with("b", vec![1.0, 2.0]).with("a", vec![3.0]);
        assert_eq!(payload.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(payload.bytes(), 12);
        assert_eq!(&payload.get("b").unwrap()[..], [1.0, 2.0]);
        assert_eq!(payload.get("c").unwrap_err().to_string(), "the payload has no array 'c'; it has a, b");
        assert!(payload.get_sized("b", 3).is_err());
        let copy = payload.clone();
        payload.slot("b", 2)[0] = 9.0;
        assert_eq!(copy.get("b").unwrap()[0], 1.0);
        assert_eq!(payload.slot("b", 2), [9.0, 2.0]);
        assert_eq!(payload.slot("b", 3), [0.0; 3]);
        assert_eq!(payload.len(), 2);
        assert!(payload.remove("b").is_some() && payload.opt("b").is_none() && !payload.is_empty());
        assert_eq!(payload.iter().count(), 1);
        assert_eq!(Payload::new().get("c").unwrap_err().to_string(), "the payload has no array 'c'; it has none");
    }
}
