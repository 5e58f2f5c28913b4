//! Loss kernels on rows. They return the value and add the gradient.
//!
//! Matrices have one row per sample, and every loss is a mean over the rows. Rows are summed in f64 from
//! log-probabilities, never from probabilities, so finite logits of any size are safe. Nothing is allocated, and a row
//! of weight 0 leaves its gradient untouched.

mod contrast;
mod cross_entropy;
mod group;
mod kl;
mod rows;
mod squares;
#[cfg(test)]
mod tests;

pub use contrast::contrast;
pub use cross_entropy::weighted_cross_entropy;
pub use fedelity_kernels::softmax::{cross_entropy, log_softmax_rows, softmax_rows};
pub use group::{Alpha, Groups, group_distillation};
pub use kl::{Kl, kl};
pub use squares::{mse, squares};
