//! FedNTD: Lee, Jeong, Shin, Bae, Yun, "Preservation of the Global Knowledge by Not-True Distillation in Federated
//! Learning", NeurIPS 2022, arXiv:2106.03097.
//!
//!   L     = L_CE(q, y) + beta * L_NTD                                                  (10)
//!   L_NTD = tau^2 * sum_{c != y} q~^g_c log(q~^g_c / q~_c)                             (11)
//!   q~_c  = exp(z_c / tau) / sum_{c' != y} exp(z_c' / tau),   q~^g likewise from the global model's logits
//!
//! The true class is left to the labels, and only the global model's view of all other classes is preserved: the client
//! learns its own data freely and does not forget the classes it lacks. The gradient on the true logit is exactly 0.
//!
//! Deviations. Equation (11) has no tau^2; the authors' code has, and so do we, so that beta means the same at every
//! temperature (at the published tau = 1 there is no difference). Their Algorithm 1 takes the plain mean of the
//! uploads; their equation (2) and code weight by samples, and so do we.

use fedelity_fl::{Local, Method, Needs, Result, Step, Teacher, Terms};
use fedelity_keys::method;
use fedelity_nn::loss::Kl;

/// Learn the true class from the labels, and keep the global model's view of all other classes.
#[method(
    id = "fedntd",
    title = "FedNTD",
    reference = "Lee et al., NeurIPS 2022, arXiv:2106.03097, eqs. 10 and 11",
    equation = "L = CE + beta tau^2 KL(q~^g || q~), softmax at temperature tau over the not-true classes",
    helps = "With skewed labels and few clients per round: on CIFAR-10 with 100 clients, 54.4 % against FedAvg's \
             46.5 % at Dirichlet 0.1, and 66.1 % against 62.5 % at 0.5 (FedNTD, Table 1). With ten clients that all \
             take part, 71.0 % against 70.5 % at 0.5 (FedSSD, Table 1)."
)]
pub struct FedNtd {
    /// Weight of the not-true distillation.
    #[key(default = 1.0, min = 0, paper = "1", zero = fedavg)]
    pub beta: f32,
    /// Temperature of both softmaxes.
    #[key(default = 1.0, above = 0, paper = "1")]
    pub tau: f32,
}

impl Method for FedNtd {
    fn needs(&self) -> Needs {
        // With two classes there is one beside the true one, whose share is always 1.
        Needs { extra_passes: 1, classes: 3, ..Needs::default() }
    }

    fn teachers(&self, _: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(vec![Teacher::global()])
    }

    fn loss(&self, _: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = step.cross_entropy();
        let how =
            Kl { weight: self.beta, tau: self.tau, tau_squared: true, exclude: Some(step.labels), ..Kl::default() };
        Ok(ce.with("ntd", step.distil(0, &how)))
    }
}
