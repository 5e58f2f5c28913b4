//! Equivalent numbers of local steps.

use fedelity_fl::{Local, Trained};
use fedelity_nn::OptimizerKind;

/// How many plain steps a client's steps are worth. For Adam, the number of steps itself.
pub(crate) fn taken(local: &Local<'_>, done: &Trained<'_>) -> f64 {
    let momentum = match local.training.optimizer {
        OptimizerKind::Sgd { momentum } => f64::from(momentum),
        OptimizerKind::Adam { .. } => 0.0,
    };
    effective(done.steps, momentum)
}

/// a_i of FedNova: how many plain steps these steps with momentum are worth.
pub(crate) fn effective(steps: usize, momentum: f64) -> f64 {
    if momentum == 0.0 {
        return steps as f64;
    }
    let left = libm::pow(momentum, steps as f64);
    (steps as f64 - momentum * (1.0 - left) / (1.0 - momentum)) / (1.0 - momentum)
}
