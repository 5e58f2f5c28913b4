//! Dropout on rows. Which elements stay is a function of a key and the element's number, so nothing is stored.

/// y = x / (1 - p) where the element stays, else 0. The same `key` drops the same elements.
pub fn forward(y: &mut [f32], x: &[f32], p: f32, key: u64) {
    assert_eq!(y.len(), x.len());
    assert!((0.0..1.0).contains(&p), "cannot drop a share of {p}");
    let scale = 1.0 / (1.0 - p);
    // An element stays if its 32 random bits are at least p of their range.
    let limit = (f64::from(p) * 4_294_967_296.0) as u64;
    for (pair, (y, x)) in y.chunks_mut(2).zip(x.chunks(2)).enumerate() {
        let bits = mix(key, pair as u64);
        for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
            let own = bits >> (32 * i) & 0xffff_ffff;
            *y = if own >= limit { *x * scale } else { 0.0 };
        }
    }
}

/// d_x = d_y / (1 - p) where the element stayed, else 0.
pub fn backward(d_x: &mut [f32], d_y: &[f32], p: f32, key: u64) {
    forward(d_x, d_y, p, key);
}

/// Bits that depend on key and counter only: SplitMix64 on a key that has been mixed itself.
#[inline(always)]
fn mix(key: u64, counter: u64) -> u64 {
    finish(finish(key ^ 0x6a09_e667_f3bc_c908).wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[inline(always)]
fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
