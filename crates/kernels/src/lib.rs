//! f32 kernels in forward and backward pairs, on activations that keep a vector's worth of samples side by side.
//!
//! The only crate with unsafe code. Every fast kernel has a plain one in `reference` beside it, as its oracle.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod conv;
mod plane;
mod simd;

pub use conv::Conv;
pub use plane::{Plane, clear_halo};
pub use simd::Isa;
