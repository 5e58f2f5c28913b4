//! f32 kernels in forward and backward pairs, on activations that interleave one vector's worth of samples.
//!
//! The only crate with unsafe code. Every fast kernel is tested against a plain one in `tests/it/reference`.

#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with the platform's functions"))]

pub mod affine;
pub mod attention;
pub mod batch_norm;
mod buffer;
mod conv;
pub mod dense;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod function;
pub mod gelu;
mod global_pool;
pub mod group_norm;
pub mod lanes;
pub mod layer_norm;
mod lines;
pub mod lstm;
mod matrix;
pub mod measure;
mod norm;
mod optimise;
mod outer;
mod plane;
pub mod pool;
mod simd;
pub mod softmax;
mod window;

pub use buffer::Buffer;
pub use conv::Conv;
pub use lines::clear_border;
pub use norm::{NormGradient, Normalise};
pub use optimise::{AdamStep, SgdStep};
pub use plane::{Plane, Planes, PlanesMut};
pub use simd::{Isa, LANES};
