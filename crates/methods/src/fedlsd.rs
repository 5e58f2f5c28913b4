//! FedLSD: local self-distillation with a constant weight, the baseline of He et al., "Class-Wise Adaptive Self
//! Distillation for Heterogeneous Federated Learning", FL-AAAI 2022; first in Lee, Shin, Jeong, Yun, "Preservation of
//! the Global Knowledge by Not-True Self Knowledge Distillation in Federated Learning", arXiv:2106.03097v1.
//!
//!   L   = (1 - alpha) L_c + alpha L_d                                 (4)
//!   L_d = -sum_k p^g_k(x) log p_k(x),   softmax at temperature tau    (2)
//!   L_c = -log p_y(x),                  softmax at temperature 1      (3)
//!
//! The global model received this round is the teacher: what it knows of classes that the client lacks stays in the
//! soft labels, so local training forgets less.
//!
//! Deviations. Equations (2) and (3) sum over the client's samples; ours are means, as is usual in practice. The value
//! of L_d is reported without the teacher's entropy, i.e. as KL(p^g || p): the gradient is the same, and 0 means
//! agreement. FedNTD, eq. (3), writes the method with tau^2 on L_d; FedCAD does not. The switch `tau-squared` is off.

use fedelity_fl::{Local, Method, Needs, Result, Step, Teacher, Terms};
use fedelity_keys::method;
use fedelity_nn::loss::Kl;

use crate::distil::mixed;

/// Learn from the labels and, with a constant weight, from the outputs of the round's global model.
#[method(
    id = "fedlsd",
    title = "FedLSD",
    reference = "He et al., FL-AAAI 2022, eq. 4; Lee et al., arXiv:2106.03097v1",
    equation = "L = (1 - alpha) CE + alpha KL(p^g || p), softmax at temperature tau",
    helps = "With moderate skew: 72.6 % against FedAvg's 71.3 % on CIFAR-10 at Dirichlet 0.5 with ten clients. At \
             0.1 it does not: 61.5 % against 61.7 % (FedCAD, Table 2)."
)]
pub struct FedLsd {
    /// The teacher's share of the loss.
    #[key(default = 0.3, min = 0, max = 1, paper = "best of 0.1, 0.3, 0.5", zero = fedavg)]
    pub alpha: f32,
    /// Temperature of both softmaxes in the distillation term.
    #[key(symbol = "T", default = 2.0, above = 0, paper = "2")]
    pub tau: f32,
    /// Whether to multiply the distillation term by tau^2. If not, it shrinks as tau grows.
    #[key(symbol = "T^2", default = false, paper = "not in FedCAD; on in FedNTD's eq. 3")]
    pub tau_squared: bool,
}

impl Method for FedLsd {
    fn needs(&self) -> Needs {
        Needs { extra_passes: 1, ..Needs::default() }
    }

    fn teachers(&self, _: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(vec![Teacher::global()])
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let how = Kl { tau: self.tau, tau_squared: self.tau_squared, ..Kl::default() };
        Ok(mixed(local, step, &how, |_| self.alpha))
    }
}
