//! Dropout on rows. Whether an element is kept is a function of a key and the element's index, so no mask is stored.

use crate::simd::{Isa, Loops};

/// y = x / (1 - p) where the element is kept, else 0. The same `key` drops the same elements.
pub fn forward(isa: Isa, y: &mut [f32], x: &[f32], p: f32, key: u64) {
    assert_eq!(y.len(), x.len());
    assert!((0.0..1.0).contains(&p), "cannot drop a share of {p}");
    let scale = (1.0 / (1.0 - p)).to_bits();
    // An element is kept if its 32 random bits, as a fraction of their range, are at least p.
    let limit = (f64::from(p) * 4_294_967_296.0) as u64;
    let start = finish(key ^ 0x6a09_e667_f3bc_c908);
    // Branchless: a random branch would be mispredicted often.
    let factor = |own: u64| f32::from_bits(scale & u32::from(own >= limit).wrapping_neg());
    isa.run(Loops(
        #[inline(always)]
        move || {
            let ((pairs, rest), (x_pairs, x_rest)) = (y.as_chunks_mut::<2>(), x.as_chunks::<2>());
            let mut counter = start;
            for (y, x) in pairs.iter_mut().zip(x_pairs) {
                let bits = finish(counter);
                counter = counter.wrapping_add(GOLDEN);
                *y = [x[0] * factor(bits & 0xffff_ffff), x[1] * factor(bits >> 32)];
            }
            for (y, x) in rest.iter_mut().zip(x_rest) {
                *y = x * factor(finish(counter) & 0xffff_ffff);
            }
        },
    ));
}

/// d_x = d_y / (1 - p) where the element was kept, else 0.
pub fn backward(isa: Isa, d_x: &mut [f32], d_y: &[f32], p: f32, key: u64) {
    forward(isa, d_x, d_y, p, key);
}

/// Counter increment of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's mixing function.
#[inline(always)]
fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
