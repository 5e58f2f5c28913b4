//! FedNTD: Lee, Jeong, Shin, Bae, Yun, "Preservation of the Global Knowledge by Not-True Distillation in Federated
//! Learning", NeurIPS 2022, arXiv:2106.03097.
//!
//!   L     = L_CE(q, y) + beta * L_NTD                                                  (10)
//!   L_NTD = tau^2 * sum_{c != y} q~^g_c log(q~^g_c / q~_c)                             (11)
//!   q~_c  = exp(z_c / tau) / sum_{c' != y} exp(z_c' / tau),   q~^g likewise from the global model's logits
//!
//! The true class is left to the labels, and only what the global model thinks of all other classes is kept: the client
//! learns its own data freely and does not forget the classes it lacks. The gradient on the true logit is exactly 0.
//!
//! Deviations. Equation (11) has no tau^2; the authors' code has, and so do we, so that beta means the same at every
//! temperature (at the published tau = 1 there is no difference). Their Algorithm 1 takes the plain mean of the uploads;
//! their equation (2) and code weight by samples, and so do we.

use fedelity_fl::{Local, Method, Needs, Result, Step, Teacher, Terms};
use fedelity_nn::loss::{self, Kl};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::fedlsd::check_tau;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// FedNTD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedNtd {
    /// beta, 0 or more: the weight of the not-true distillation. The paper has 1. At 0 it is FedAvg.
    pub beta: f32,
    /// tau, above 0: the temperature of both softmaxes. The paper has 1.
    pub tau: f32,
}

impl Default for FedNtd {
    fn default() -> Self {
        Self { beta: 1.0, tau: 1.0 }
    }
}

impl Method for FedNtd {
    fn name(&self) -> &'static str {
        "fedntd"
    }

    fn needs(&self) -> Needs {
        Needs { extra_passes: usize::from(self.beta != 0.0), ..Needs::default() }
    }

    fn teachers(&self, _local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(if self.beta == 0.0 { Vec::new() } else { vec![Teacher::global()] })
    }

    fn loss(&self, _local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let z = step.student.logits;
        let ce = loss::cross_entropy(z, step.labels, step.classes, 1.0, step.d_logits);
        if self.beta == 0.0 {
            return Ok(Terms::of("ce", ce));
        }
        let exclude = Some(step.labels);
        let how = Kl { weight: self.beta, tau: self.tau, tau_squared: true, exclude, ..Kl::default() };
        let ntd = loss::kl(z, step.teacher(0).logits, step.classes, &how, step.d_logits);
        Ok(Terms::of("ce", ce).with("ntd", ntd))
    }
}

impl Hyper for FedNtd {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedntd",
        "Distil the global model of the round on the classes that are not true.",
        "Lee et al., NeurIPS 2022, arXiv:2106.03097, eqs. 10 and 11",
        "L = CE + beta tau^2 KL(q~^g || q~), softmax at temperature tau over the classes that are not true",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "beta",
                symbol: "beta",
                summary: "the weight of the not-true distillation",
                default: "1.0",
                range: "a finite number, 0 or more",
                paper: "1",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "tau",
                symbol: "tau",
                summary: "the temperature of both softmaxes",
                default: "1.0",
                range: "a finite number above 0",
                paper: "1",
                at_zero: AtZero::Refused,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("beta", self.beta, self.beta.is_finite() && self.beta >= 0.0, "a finite number, 0 or more")?;
        check_tau(self.tau)
    }
}
