//! Models against PyTorch's numbers, finite differences and each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions")]

mod bits;
mod golden;
mod golden_losses;
mod model_file;
mod models;
mod text;
mod vision;
