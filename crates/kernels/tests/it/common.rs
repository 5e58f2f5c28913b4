//! Shared by the property tests: random data, planes and comparisons.

use fedelity_kernels::{LANES, Plane, Planes, PlanesMut};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::reference::{Shape, from_lanes, to_lanes};

/// Numbers exactly representable as f32, so that oracle and kernel see the same values.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    pub(crate) fn next(&mut self) -> f64 {
        f64::from((self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    }

    pub(crate) fn vector(&mut self, len: usize) -> Vec<f64> {
        (0..len).map(|_| self.next()).collect()
    }
}

pub(crate) fn single(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&v| v as f32).collect()
}

pub(crate) fn double(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Placed in borders and lanes that must not be read or written.
pub(crate) const CANARY: f32 = 1234.5;

/// A buffer in lanes whose border must not be read.
pub(crate) fn laid(x: &[f64], shape: Shape, halo: usize) -> (Vec<f32>, Plane) {
    let plane = shape.plane().with_halo(halo);
    (to_lanes(x, shape, plane, LANES, CANARY, 3.25), plane)
}

/// A gradient in lanes: zero where there is no sample.
pub(crate) fn laid_gradient(x: &[f64], shape: Shape, halo: usize) -> (Vec<f32>, Plane) {
    let plane = shape.plane().with_halo(halo);
    (to_lanes(x, shape, plane, LANES, CANARY, 0.0), plane)
}

/// A buffer to be written, full of canaries.
pub(crate) fn blank(shape: Shape, halo: usize) -> (Vec<f32>, Plane) {
    let plane = shape.plane().with_halo(halo);
    let len = groups(shape) * shape.channels * plane.area() * LANES;
    (vec![CANARY; len], plane)
}

pub(crate) fn planes((data, plane): &(Vec<f32>, Plane)) -> Planes<'_> {
    Planes { data, plane: *plane }
}

pub(crate) fn planes_mut((data, plane): &mut (Vec<f32>, Plane)) -> PlanesMut<'_> {
    PlanesMut { data, plane: *plane }
}

/// Planes of a buffer.
pub(crate) fn count(shape: Shape) -> usize {
    groups(shape) * shape.channels
}

pub(crate) fn groups(shape: Shape) -> usize {
    shape.samples.div_ceil(LANES)
}

/// What the first instruction set returned. The others must return the same bits.
#[derive(Default)]
pub(crate) struct SameBits(Vec<(&'static str, Vec<u32>)>);

impl SameBits {
    pub(crate) fn check(&mut self, found: &[f32], what: &'static str) -> Result<(), TestCaseError> {
        let bits = bits(found);
        match self.0.iter().find(|(known, _)| *known == what) {
            Some((_, first)) => prop_assert!(*first == bits, "{what}: instruction sets differ"),
            None => self.0.push((what, bits)),
        }
        Ok(())
    }
}

/// Compares plain data, relative to the largest expected entry.
pub(crate) fn close(found: &[f64], expected: &[f64], what: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len(), "{}: lengths", what);
    let scale = expected.iter().fold(1e-3f64, |a, b| a.max(b.abs()));
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        prop_assert!((f - e).abs() <= 1e-4 * scale, "{what}: [{i}] is {f}, not {e} (largest {scale})");
    }
    Ok(())
}

/// Compares a buffer in lanes with plain data, and its border with `border`.
pub(crate) fn close_lanes(
    (found, plane): &(Vec<f32>, Plane),
    shape: Shape,
    expected: &[f64],
    border: f32,
    what: &str,
) -> Result<(), TestCaseError> {
    close(&from_lanes(found, shape, *plane, LANES), expected, what)?;
    border_is(found, *plane, border, what)
}

/// Compares the samples of two buffers in lanes, bit by bit.
pub(crate) fn same_lanes(
    found: &(Vec<f32>, Plane),
    expected: &(Vec<f32>, Plane),
    shape: Shape,
    what: &str,
) -> Result<(), TestCaseError> {
    let samples = |(x, plane): &(Vec<f32>, Plane)| -> Vec<u64> {
        from_lanes(x, shape, *plane, LANES).into_iter().map(f64::to_bits).collect()
    };
    prop_assert!(samples(found) == samples(expected), "{what}: other bits than with full groups");
    Ok(())
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Checks every border pixel.
pub(crate) fn border_is(x: &[f32], plane: Plane, border: f32, what: &str) -> Result<(), TestCaseError> {
    for (at, v) in x.iter().enumerate() {
        let pixel = at / LANES % plane.area();
        let (row, column) = (pixel / plane.row(), pixel % plane.row());
        let inside = (plane.halo..plane.halo + plane.height).contains(&row)
            && (plane.halo..plane.halo + plane.width).contains(&column);
        prop_assert!(inside || *v == border, "{what}: border pixel {row},{column} holds {v}, not {border}");
    }
    Ok(())
}

/// Checks that lanes past the last sample hold exact zeros.
pub(crate) fn missing_are_zero((x, plane): &(Vec<f32>, Plane), shape: Shape, what: &str) -> Result<(), TestCaseError> {
    let full = Shape { samples: groups(shape) * LANES, ..shape };
    let all = from_lanes(x, full, *plane, LANES);
    for (i, v) in all[shape.len()..].iter().enumerate() {
        prop_assert!(*v == 0.0, "{what}: a missing lane holds {v} at {i}");
    }
    Ok(())
}

/// Odd shapes with at most `limit` elements per sample.
pub(crate) fn shapes(limit: usize) -> impl Strategy<Value = Shape> {
    (1usize..=19, 1usize..=70, sides()).prop_map(move |(samples, channels, (height, width))| {
        let channels = channels.min((limit / (height * width)).max(1));
        Shape { samples, channels, height, width }
    })
}

/// Rows and columns, often small.
pub(crate) fn sides() -> impl Strategy<Value = (usize, usize)> {
    prop::sample::select(vec![3usize, 9, 33]).prop_flat_map(|largest| (1..=largest, 1..=largest))
}

/// A fixed seed and `cases` cases, unless PROPTEST_RNG_SEED or PROPTEST_CASES override them.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(20_260),
        asked => asked,
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..default }
}
