//! Stay near the logits of the global model.
//!
//!   L = CE + lambda * 1/K sum_k (z_k - z^g_k)^2
//!
//! What the client unlearns shows in its logits first, so it pays for moving them.

use fedelity_fl::{Local, Method, Needs, Result, Step, Teacher, Terms};
use fedelity_keys::method;
use fedelity_nn::loss;

/// Stay near the logits of the global model.
#[method(
    id = "mine",
    title = "Mine",
    reference = "unpublished",
    equation = "L = CE + lambda * 1/K sum_k (z_k - z^g_k)^2",
    helps = "Not measured yet."
)]
pub struct Mine {
    /// Weight of the squared difference.
    #[key(default = 0.1, min = 0, zero = fedavg)]
    pub lambda: f32,
}

impl Method for Mine {
    fn needs(&self) -> Needs {
        Needs { extra_passes: 1, ..Needs::default() }
    }

    fn teachers(&self, _: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(vec![Teacher::global()])
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = step.cross_entropy();
        let near = loss::mse(step.student.logits, step.teacher(0).logits, self.lambda, step.d_logits);
        Ok(ce.with("near", near))
    }
}
