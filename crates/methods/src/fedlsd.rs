//! FedLSD: local self-distillation with a constant weight, as He et al., "Class-Wise Adaptive Self Distillation for
//! Heterogeneous Federated Learning", FL-AAAI 2022, compare with it; first in Lee, Shin, Jeong, Yun, "Preservation of
//! the Global Knowledge by Not-True Self Knowledge Distillation in Federated Learning", arXiv:2106.03097v1.
//!
//!   L   = (1 - alpha) L_c + alpha L_d                                 (4)
//!   L_d = -sum_k p^g_k(x) log p_k(x),   softmax at temperature tau    (2)
//!   L_c = -log p_y(x),                  softmax at temperature 1      (3)
//!
//! The global model received this round teaches: what it knows of classes that the client lacks stays in the soft
//! labels, so local training forgets less.
//!
//! Deviations. Equations (2) and (3) sum over the client's samples; ours are means, as everywhere in practice. The
//! value of L_d is reported without the teacher's entropy, i.e. as KL(p^g || p): the gradient is the same, and 0 means
//! agreement. FedNTD, eq. (3), writes the method with tau^2 on L_d; FedCAD does not. The switch `tau-squared` is off.

use fedelity_fl::{Local, Method, Needs, Result, Step, Teacher, Terms};
use fedelity_nn::loss::{self, Kl};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// FedLSD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedLsd {
    /// alpha, from 0 to 1: the teacher's part of the loss. The paper tunes it in {0.1, 0.3, 0.5}. At 0 it is FedAvg.
    pub alpha: f32,
    /// T, above 0: the temperature of both softmaxes of L_d. The paper has 2.
    pub tau: f32,
    /// Whether L_d is multiplied by tau^2. The paper does not.
    pub tau_squared: bool,
}

impl Default for FedLsd {
    fn default() -> Self {
        Self { alpha: 0.3, tau: 2.0, tau_squared: false }
    }
}

impl Method for FedLsd {
    fn name(&self) -> &'static str {
        "fedlsd"
    }

    fn needs(&self) -> Needs {
        Needs { extra_passes: usize::from(self.alpha != 0.0), ..Needs::default() }
    }

    fn teachers(&self, _local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(if self.alpha == 0.0 { Vec::new() } else { vec![Teacher::global()] })
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        if self.alpha == 0.0 {
            let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
            return Ok(Terms::of("ce", ce));
        }
        Ok(mixed(local, step, self.tau, self.tau_squared, |_| self.alpha))
    }
}

/// (1 - alpha_y) L_c + alpha_y L_d with a weight for every class, from teacher 0. FedCAD has the same loss.
pub(crate) fn mixed(
    local: &mut Local<'_>,
    step: &mut Step<'_>,
    tau: f32,
    tau_squared: bool,
    alpha: impl Fn(u16) -> f32,
) -> Terms {
    let (for_label, for_teacher) = local.scratch.typed::<(Vec<f32>, Vec<f32>)>(Default::default);
    for_teacher.clear();
    for_teacher.extend(step.labels.iter().map(|&label| alpha(label)));
    for_label.clear();
    for_label.extend(for_teacher.iter().map(|alpha| 1.0 - alpha));

    let z = step.student.logits;
    let ce = loss::weighted_cross_entropy(z, step.labels, step.classes, for_label, step.d_logits);
    let how = Kl { tau, tau_squared, weights: Some(for_teacher), ..Kl::default() };
    let kd = loss::kl(z, step.teacher(0).logits, step.classes, &how, step.d_logits);
    Terms::of("ce", ce).with("kd", kd)
}

impl Hyper for FedLsd {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedlsd",
        "Distil the global model of the round with a constant weight.",
        "He et al., FL-AAAI 2022, eq. 4; Lee et al., arXiv:2106.03097v1",
        "L = (1 - alpha) CE + alpha KL(p^g || p), softmax at temperature tau",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "alpha",
                symbol: "alpha",
                summary: "the teacher's part of the loss",
                default: "0.3",
                range: "from 0 to 1",
                paper: "best of 0.1, 0.3, 0.5",
                at_zero: AtZero::FedAvg,
            },
            TAU,
            TAU_SQUARED,
        ],
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("alpha", self.alpha, (0.0..=1.0).contains(&self.alpha), "from 0 to 1")?;
        check_tau(self.tau)
    }
}

/// The temperature of FedLSD and FedCAD.
pub(crate) const TAU: Parameter = Parameter {
    name: "tau",
    symbol: "T",
    summary: "the temperature of both softmaxes of the distillation",
    default: "2.0",
    range: "a finite number above 0",
    paper: "2",
    at_zero: AtZero::Refused,
};

/// The factor of FedLSD and FedCAD.
pub(crate) const TAU_SQUARED: Parameter = Parameter {
    name: "tau-squared",
    symbol: "T^2",
    summary: "whether the distillation is multiplied by tau^2; if not, it shrinks as tau grows",
    default: "false",
    range: "true or false",
    paper: "not written by FedCAD; on in FedNTD's eq. 3",
    at_zero: AtZero::None,
};

pub(crate) fn check_tau(tau: f32) -> Result<(), Range> {
    Range::check("tau", tau, tau.is_finite() && tau > 0.0, "a finite number above 0")
}
