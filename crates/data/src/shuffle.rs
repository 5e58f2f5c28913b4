//! Random numbers and permutations that are the same on every machine.

use rand_chacha::rand_core::Rng;

/// Uniform over `0..bound`; 0 for a bound of 0. Unbiased, by Lemire's method.
pub fn below(rng: &mut impl Rng, bound: u32) -> u32 {
    let mut wide = u64::from(rng.next_u32()) * u64::from(bound);
    if (wide as u32) < bound {
        let threshold = bound.wrapping_neg() % bound;
        while (wide as u32) < threshold {
            wide = u64::from(rng.next_u32()) * u64::from(bound);
        }
    }
    (wide >> 32) as u32
}

/// Shuffles up to `u32::MAX` items (Fisher and Yates).
pub fn shuffle<T>(rng: &mut impl Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last as u32 + 1) as usize);
    }
}
