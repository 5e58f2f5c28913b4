//! The core: the Method trait, the one training loop, the one round, sampling, metrics, randomness.
