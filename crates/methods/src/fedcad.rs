//! FedCAD: He, Chen, Yang, Zhang, Zeng, "Class-Wise Adaptive Self Distillation for Heterogeneous Federated Learning",
//! FL-AAAI 2022.
//!
//!   L       = (1 - alpha_y) L_c + alpha_y L_d,   L_c and L_d as in FedLSD                        (5)
//!   alpha_y = (gamma - beta) / 2 * E_{x|y}[phi(y, p^g(x))] + (gamma + beta) / 2                  (6)
//!   phi     = p^g_y - sum_{k != y} p^g_k
//!
//! The server measures how well the global model knows each class, so clients trust it where it is good and their own
//! labels where it is not. Early on it knows nothing, and with beta = 0 the method begins as FedAvg.
//!
//! Probabilities add up to 1, so phi = 2 p^g_y - 1 and alpha_y = beta + (gamma - beta) * E_{x|y}[p^g_y]: from beta, where
//! the teacher gives the true class nothing, to gamma, where it is certain. That is what we compute.
//!
//! Deviations. The paper leaves open whether p^g in (6) is at temperature T; ours is at 1. A class that the auxiliary
//! samples lack has no expectation; it gets beta, the least trust. With gamma = beta every alpha_y is known without any
//! sample, so none is asked for. Means and tau^2 as in FedLSD, whose loss is shared: FedCAD(c, c) is FedLSD(c), bit for
//! bit.

use fedelity_fl::{Error, Local, Method, Needs, Payload, Result, Server, Step, Teacher, Terms};
use fedelity_nn::{Params, loss};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::fedlsd::{self, TAU, TAU_SQUARED, check_tau};
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// The array of the broadcast: alpha_y by class.
const CLASS_ALPHA: &str = "class-alpha";

/// FedCAD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedCad {
    /// beta, from 0 to gamma: the teacher's part for a class it does not know. The paper tunes it in {0, 0.3, 0.5, 0.7}.
    pub beta: f32,
    /// gamma, from beta to 1: the teacher's part for a class it is certain of. The paper tunes it in {0, 0.3, 0.5, 0.7}.
    /// With beta at 0 too it is FedAvg.
    pub gamma: f32,
    /// T, above 0: the temperature of both softmaxes of L_d. The paper has 2 for FedLSD and names none for FedCAD.
    pub tau: f32,
    /// Whether L_d is multiplied by tau^2. The paper does not.
    pub tau_squared: bool,
}

impl Default for FedCad {
    fn default() -> Self {
        Self { beta: 0.0, gamma: 0.5, tau: 2.0, tau_squared: false }
    }
}

impl FedCad {
    fn is_off(&self) -> bool {
        self.beta == 0.0 && self.gamma == 0.0
    }

    fn depends_on_class(&self) -> bool {
        self.beta != self.gamma
    }
}

impl Method for FedCad {
    fn name(&self) -> &'static str {
        "fedcad"
    }

    fn needs(&self) -> Needs {
        let extra_passes = usize::from(!self.is_off());
        Needs { auxiliary: self.depends_on_class(), extra_passes, ..Needs::default() }
    }

    fn prepare(&self, server: &mut Server<'_>, _state: &mut Payload, global: &Params) -> Result<Payload> {
        if self.is_off() {
            return Ok(Payload::new());
        }
        let classes = server.model.classes();
        if !self.depends_on_class() {
            return Ok(Payload::new().with(CLASS_ALPHA, vec![self.beta; classes]));
        }
        let what = "labelled auxiliary samples on the server";
        let auxiliary = server.auxiliary.ok_or(Error::Needs { method: self.name(), what })?;
        // By class: the sum of p^g_y over its samples, and their number.
        let mut known = vec![(0.0f64, 0u32); classes];
        let mut p = Vec::new();
        server.trainer.evaluate(global, auxiliary, &mut |outputs, labels| {
            p.resize(outputs.logits.len(), 0.0);
            loss::softmax_rows(&mut p, outputs.logits, classes, 1.0);
            for (p, &label) in p.chunks_exact(classes).zip(labels) {
                let (sum, samples) = &mut known[usize::from(label)];
                *sum += f64::from(p[usize::from(label)]);
                *samples += 1;
            }
        });
        let (beta, gamma) = (f64::from(self.beta), f64::from(self.gamma));
        let mean = |(sum, samples)| if samples == 0 { 0.0 } else { sum / f64::from(samples) };
        let alpha: Vec<f32> = known.into_iter().map(|class| (beta + (gamma - beta) * mean(class)) as f32).collect();
        Ok(Payload::new().with(CLASS_ALPHA, alpha))
    }

    fn teachers(&self, _local: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(if self.is_off() { Vec::new() } else { vec![Teacher::global()] })
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        if self.is_off() {
            let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
            return Ok(Terms::of("ce", ce));
        }
        let alpha = local.down.get_sized(CLASS_ALPHA, step.classes)?;
        Ok(fedlsd::mixed(local, step, self.tau, self.tau_squared, |label| alpha[usize::from(label)]))
    }
}

impl Hyper for FedCad {
    const ENTRY: Entry = Entry::new::<Self>(
        "fedcad",
        "Distil the global model, each class as far as the global model knows it.",
        "He et al., FL-AAAI 2022, eqs. 5 and 6",
        "L = (1 - alpha_y) CE + alpha_y KL(p^g || p),  alpha_y = beta + (gamma - beta) E_{x|y}[p^g_y]",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "beta",
                symbol: "beta",
                summary: "the teacher's part for a class that it does not know",
                default: "0.0",
                range: "from 0 to gamma",
                paper: "best of 0, 0.3, 0.5, 0.7",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "gamma",
                symbol: "gamma",
                summary: "the teacher's part for a class that it is certain of",
                default: "0.5",
                range: "from beta to 1",
                paper: "best of 0, 0.3, 0.5, 0.7",
                at_zero: AtZero::FedAvg,
            },
            TAU,
            TAU_SQUARED,
        ],
    );

    fn check(&self) -> Result<(), Range> {
        Range::check("beta", self.beta, (0.0..=1.0).contains(&self.beta), "from 0 to gamma")?;
        Range::check("gamma", self.gamma, (self.beta..=1.0).contains(&self.gamma), "from beta to 1")?;
        check_tau(self.tau)
    }
}
