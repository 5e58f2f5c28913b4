//! Loss kernels on rows of logits: the value comes back, the gradient is added.

pub use fedelity_kernels::softmax::{cross_entropy, log_softmax_rows, softmax_rows};
