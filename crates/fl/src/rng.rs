//! Randomness as a pure function of its purpose.
//!
//! Each use has its own ChaCha8 stream. The 32-byte key contains seed, purpose, round and client verbatim and the
//! 64-bit stream number is the epoch, so different uses never share a stream and no state is passed around.

pub use fedelity_data::shuffle::{below, shuffle};
pub use rand_chacha::ChaCha8Rng;
pub use rand_chacha::rand_core::SeedableRng;

/// What random numbers are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// The initial weights.
    Init,
    /// Which clients take part in a round.
    Sampling,
    /// The order of a client's samples.
    Batches,
    /// Dropout masks.
    Dropout,
    /// Augmentation of images.
    Augment,
    /// Training on the server.
    Server,
    /// Which samples the server holds.
    ServerData,
    /// Which test samples local models are measured on.
    Observe,
    /// A method's own randomness; the number tells its uses apart.
    Method(u32),
    /// Which samples a client computes gradients on after its training.
    Gradients,
    /// Faults that are injected on purpose; the number tells their uses apart.
    Faults(u32),
    /// Noise that hides single clients.
    Privacy,
}

impl Purpose {
    /// The tag in the key. Tags are never reused.
    fn tag(self) -> (u32, u32) {
        match self {
            Self::Init => (1, 0),
            Self::Sampling => (2, 0),
            Self::Batches => (3, 0),
            Self::Dropout => (4, 0),
            Self::Augment => (5, 0),
            Self::Server => (6, 0),
            Self::ServerData => (7, 0),
            Self::Method(part) => (8, part),
            Self::Gradients => (9, 0),
            Self::Faults(part) => (11, part),
            Self::Privacy => (12, 0),
            Self::Observe => (64, 0),
        }
    }
}

/// The client number of the server.
pub const SERVER: u64 = u64::MAX;

/// The stream for one purpose, round, client and epoch. Fields that do not apply to a purpose are 0.
pub fn stream(seed: u64, purpose: Purpose, round: u64, client: u64, epoch: u64) -> ChaCha8Rng {
    let (tag, part) = purpose.tag();
    let mut key = [0; 32];
    key[0..8].copy_from_slice(&seed.to_le_bytes());
    key[8..12].copy_from_slice(&tag.to_le_bytes());
    key[12..16].copy_from_slice(&part.to_le_bytes());
    key[16..24].copy_from_slice(&round.to_le_bytes());
    key[24..32].copy_from_slice(&client.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(epoch);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::Rng;

    #[test]
    fn every_field_changes_the_stream() {
        let draw = |s, p, r, c, e| stream(s, p, r, c, e).next_u64();
        let purposes = [
            Purpose::Init,
            Purpose::Sampling,
            Purpose::Batches,
            Purpose::Dropout,
            Purpose::Augment,
            Purpose::Server,
            Purpose::ServerData,
            Purpose::Observe,
            Purpose::Method(0),
            Purpose::Method(1),
            Purpose::Gradients,
            Purpose::Faults(0),
            Purpose::Faults(1),
            Purpose::Privacy,
        ];
        let mut seen = std::collections::BTreeSet::new();
        let mut streams = 0;
        for seed in 0..2 {
            for purpose in purposes {
                for round in 0..3 {
                    for client in [0, 1, 2, SERVER] {
                        for epoch in 0..3 {
                            seen.insert(draw(seed, purpose, round, client, epoch));
                            streams += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(seen.len(), streams);
        assert_eq!(draw(1, Purpose::Init, 2, 3, 4), draw(1, Purpose::Init, 2, 3, 4));
    }

    #[test]
    fn the_stream_is_pinned() {
        // Changing these numbers changes every published run.
        let mut rng = stream(1, Purpose::Batches, 2, 3, 4);
        let drawn: Vec<u32> = (0..4).map(|_| below(&mut rng, 1000)).collect();
        assert_eq!(drawn, PINNED);
        let mut items: Vec<u32> = (0..10).collect();
        shuffle(&mut stream(7, Purpose::Sampling, 0, 0, 0), &mut items);
        items.sort_unstable();
        assert_eq!(items, (0..10).collect::<Vec<_>>());
    }
    const PINNED: [u32; 4] = [982, 638, 44, 340];

    #[test]
    fn below_is_fair() {
        let mut rng = stream(5, Purpose::Method(9), 0, 0, 0);
        let mut counts = [0; 7];
        for _ in 0..70_000 {
            counts[below(&mut rng, 7) as usize] += 1;
        }
        assert!(counts.iter().all(|&n: &i32| (n - 10_000).abs() < 500), "{counts:?}");
    }
}
